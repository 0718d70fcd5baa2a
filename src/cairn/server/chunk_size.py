"""How many rows of a COPY are written at once.

Rows are written in the order of their buckets, so nearly every page of a table is touched by every
chunk: four times as many rows in a chunk write each page a quarter as often. But a chunk is one
transaction. Whoever else writes waits for its end, and so does a master that is to be demoted. So
chunks grow only while nobody writes but other COPYs, and only as far as the last one was quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.model.settings.limits import MIB

#: As few as this many always go together: fewer cost more than anybody gains from them.
SMALL_ROWS, SMALL_BYTES = 60_000, 8 * MIB
#: Held twice, as the values of rows: one chunk is written while the next one is read. A record of
#: the log, which has to hold a chunk, may be longer than the text was, but not twice as long.
LARGE_ROWS, LARGE_BYTES = 250_000, 24 * MIB
#: What a chunk may take. More: others wait longer; less: more pages are written twice.
LONGEST_S = 0.3
#: That a value may add to the length of its text in a record of the log.
VALUE_BYTES = 9


#: For how long a COPY begins with what the one before it has learnt: Spark sends many short ones.
REMEMBERED_S = 10.0


class ChunkSizes:
    """What the COPYs of one instance have learnt of each other."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rows, self._at = SMALL_ROWS, 0.0
        self._storing = 0  # chunks that wait for the writer, or are being written

    @contextmanager
    def storing(self) -> Iterator[int]:
        """Around one chunk: how many share the writer, this one included."""
        self._storing += 1
        try:
            yield self._storing
        finally:
            self._storing -= 1

    def begin(self, columns: int) -> ChunkSize:
        is_known = self._clock() < self._at + REMEMBERED_S
        return ChunkSize(columns, self._rows if is_known else SMALL_ROWS, self._learnt)

    def _learnt(self, rows: int) -> None:
        self._rows, self._at = rows, self._clock()


class ChunkSize:
    """The limits of the next chunk of rows that have so many columns."""

    def __init__(
        self,
        columns: int,
        rows: int = SMALL_ROWS,
        learnt: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._row_bytes = (columns + 1) * VALUE_BYTES
        self.rows, self._learnt = rows, learnt

    def is_enough(self, rows: int, text_bytes: int) -> bool:
        """Whether these rows make a chunk."""
        if rows >= self.rows:
            return True
        if self.rows == SMALL_ROWS:
            return text_bytes >= SMALL_BYTES
        return text_bytes + rows * self._row_bytes >= LARGE_BYTES

    def stored(self, rows: int, took_s: float, *, is_alone: bool) -> None:
        """A chunk was stored; `is_alone`: nobody waited for it but other COPYs. `took_s` is its own
        part of the time."""
        if not is_alone:
            self.rows = SMALL_ROWS
        elif rows >= SMALL_ROWS // 2:  # the rest at the end of a COPY says little
            fitting = int(rows * LONGEST_S / max(took_s, 1e-6))
            self.rows = max(SMALL_ROWS, min(fitting, 2 * self.rows, LARGE_ROWS))
        self._learnt(self.rows)
