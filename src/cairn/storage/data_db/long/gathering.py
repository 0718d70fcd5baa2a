"""What the statement that is running did to rows: a list, and for a long one a file.

Changes are asked for again by whoever keeps foreign keys, so those of tied tables stay in the list.
All others may leave it, about a megabyte at a time: a statement that changes millions of rows costs
no more memory than one that changes thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cairn.model.log.records import RowChange, RowOp, pack_changes
from cairn.model.settings import limits
from cairn.storage.data_db.long.part_file import PartFile, too_much

PART_BYTES, CHANGES_BYTES = limits.PART_BYTES, limits.CHANGES_BYTES
HELD_BYTES = limits.HELD_CHANGES_BYTES
LOOK_EVERY = 100  # changes: so many may be in memory before somebody asks how long they are
_SAMPLE = 8
#: A part is made of rows whose length was guessed; one that is longer is halved. It has to fit into
#: a record.
PART_MOST = limits.RECORD_BYTES // 2


class _Left(NamedTuple):
    """Changes that are in the file: the place of the first, and what they were."""

    start: int
    number: int
    inserts: int
    deletes: int


class Gathering:
    """`changes` are those that are not in the file. Belongs to the writer."""

    def __init__(self, directory: Path, is_tied: Callable[[int], bool]) -> None:
        self.changes: list[RowChange] = []
        self.enforced = 0  # of `changes`: those that foreign keys have been asked about
        self.look_at = LOOK_EVERY  # so many changes, and somebody has to look how long they are
        self._size, self._are_tied = 0.0, False  # of those that were looked at
        self._file, self._is_tied = PartFile(directory, CHANGES_BYTES), is_tied
        self._left: list[_Left] = []
        self._mark = 0

    def clear(self) -> None:
        self._begin_part()
        self._mark = 0
        self._left.clear()
        if len(self._file):
            self._file.clear()

    def _begin_part(self) -> None:
        self.changes.clear()
        self.enforced, self.look_at = 0, LOOK_EVERY
        self._size, self._are_tied = 0.0, False

    @property
    def is_long(self) -> bool:
        return bool(self._left)

    @property
    def _gone(self) -> int:
        return self._left[-1].start + self._left[-1].number if self._left else 0

    def count(self) -> int:
        """Changes so far. Those that follow can be asked for apart from those before."""
        self._mark = self._gone + len(self.changes)
        return self._mark

    def since(self, place: int) -> tuple[RowChange, ...] | None:
        """Changes after the first `place`; None: there are too many."""
        start = place - self._gone
        return None if start < 0 else tuple(self.changes[start:])

    def count_rows(self, since: int) -> int:
        """Rows that a client is told of. REPLACE counts once, delete plus insert of one row too."""
        if not self._left and len(self.changes) == 1:
            return 1 - since
        left = [each for each in self._left if each.start >= since]
        now = self.changes[max(since - self._gone, 0) :]
        inserts = sum(each.inserts for each in left) + _count(now, RowOp.INSERT)
        deletes = sum(each.deletes for each in left) + _count(now, RowOp.DELETE)
        updates = sum(each.number for each in left) + len(now) - inserts - deletes
        return updates + max(inserts, deletes)

    def look(self) -> None:
        """Whether there is enough for a part; asked when `look_at` is reached."""
        count, new = len(self.changes), self.changes[self.look_at - LOOK_EVERY :]
        self.look_at = count + LOOK_EVERY
        sample = new[:: max(1, len(new) // _SAMPLE)]
        self._size += len(pack_changes(sample)) * len(new) / len(sample)
        self._are_tied = self._are_tied or any(self._is_tied(change.table) for change in new)
        if not self._are_tied and self._size >= PART_BYTES:
            self._leave()
        elif self._size > HELD_BYTES:
            raise too_much(HELD_BYTES, " in tables with foreign keys")

    def _leave(self) -> None:
        """To the file, not across the beginning of a statement of a block."""
        begun = self._mark - self._gone
        for changes in (self.changes[: max(begun, 0)], self.changes[max(begun, 0) :]):
            if changes:
                inserts, deletes = _count(changes, RowOp.INSERT), _count(changes, RowOp.DELETE)
                left = _Left(self._gone, len(changes), inserts, deletes)
                self._add(changes)
                self._left.append(left)
        self._begin_part()

    def _add(self, changes: list[RowChange]) -> None:
        data = pack_changes(changes)
        if len(data) > PART_MOST and (half := len(changes) // 2):
            self._add(changes[:half])
            self._add(changes[half:])
        else:
            self._file.add(data)

    def parts(self) -> Iterator[bytes]:
        """At the end of a statement: all that was packed, oldest first."""
        return iter(self._file)

    def pack(self, size: int) -> None:
        """At the end of a statement, when nobody asks for changes any more. `size` is theirs,
        about, and too long for one record."""
        step = max(1, len(self.changes) * PART_BYTES // size)
        for at in range(0, len(self.changes), step):
            self._add(self.changes[at : at + step])
        self.changes.clear()


def _count(changes: list[RowChange], op: RowOp) -> int:
    return sum(change.op == op for change in changes)
