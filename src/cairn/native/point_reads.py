"""One row by its key, from the bytes of a request to those of its answer, by `point_read.c`."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from cairn.native.library import ReadPlan, at_once, library
from cairn.native.points import Asked, GivenUp, described, flat

WHOLE, REAL, OUT_TEXTS, TRUTH = range(4)  # columns


class Layout(NamedTuple):
    """What a request looks like, and what its answer."""

    asked: Asked
    columns: Sequence[tuple[int, int]]  # kind, and 0 or how many bytes it is told in
    bound: bytes  # told before the rows
    described: bytes  # the same when Describe is asked


class PointRead:
    """A statement that is prepared on one connection. Two calls in one turn of the event loop:
    `bucket`, then `answer`."""

    def __init__(self, connection: Any, sql: str, layout: Layout, given_up: GivenUp) -> None:
        """ValueError: it is not for here."""
        point, kept = described(layout.asked)
        self._given_up = given_up
        self.is_keyed = bool(layout.asked.key)  # else its rows are everywhere
        text, columns = sql.encode(), array("i", flat(layout.columns))
        self._kept = (kept, columns, layout)  # C looks at them
        self._plan = ReadPlan(
            *(point, columns.buffer_info()[0], layout.bound, layout.described),
            *(len(layout.bound), len(layout.described), len(layout.columns)),
        )
        pointer = connection.sqlite3_pointer()
        if at_once().point_prepare(self._plan, pointer, text, len(text)):
            raise ValueError("SQLite does not know it")
        self.address = ctypes.addressof(self._plan)

    def close(self) -> None:
        """Before its connection is closed."""
        at_once().point_free(self._plan)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._given_up.add(at_once().point_free, self._plan)


class Answers:
    """Asks point reads of one connection. There is one answer at a time."""

    def __init__(self) -> None:
        self._room = library().batch_new()
        if not self._room:
            raise MemoryError
        self._found, self._at = self._room.contents, ctypes.addressof(self._room.contents)
        self._answer, self._free = at_once().point_answer, library().batch_free
        self.bind = at_once().point_bind

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self._free(self._room)

    def bucket(self, read: PointRead, data: bytes, at: int) -> int:
        """Of the row that is asked for, whose parameters begin at `at`; 0: ask Python."""
        found: int = self.bind(read.address, data, len(data), at)
        return found

    def answer(self, read: PointRead) -> tuple[bytes, int] | None:
        """The whole answer, and how many rows it has; None: ask Python."""
        rows = self._answer(read.address, self._at)
        if rows < 0:
            return None
        return ctypes.string_at(self._found.data, self._found.size), rows
