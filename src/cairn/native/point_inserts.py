"""One new row with its record, from the bytes of a request, by `point_insert.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from cairn.native.library import Cell, InsertPlan, at_once, library
from cairn.native.points import Asked, GivenUp, described

REFUSED, RECORD_LOST, UNREADABLE = -1, -2, -3  # why: `InsertPlan.state`
MOST = 1_000  # statements that a writer has in C


class NewRow(NamedTuple):
    """What a request looks like, and what its row and its record."""

    asked: Asked
    sql: str
    head: bytes  # of the record, from its changes to the bucket of the row
    cells: Sequence[int | bytes]  # numbers of parameters, and constants as records have them


class PointInsert:
    """Known to all sessions; prepared when the writer first needs it, on its connection."""

    def __init__(self, row: NewRow) -> None:
        """ValueError: it is left to Python."""
        point, kept = described(row.asked)
        cells = (Cell * len(row.cells))(*map(_cell, row.cells))
        self.sql = row.sql
        self._kept = (kept, cells, row)  # C looks at them
        self.plan = InsertPlan(point, cells, row.head, len(row.cells), len(row.head))
        self.address = ctypes.addressof(self.plan)
        self.room: InsertRoom | None = None  # where it was prepared
        self.is_known = True  # until SQLite says that it is not

    def bucket(self, data: bytes, at: int) -> int:
        """Of the row whose parameters begin at `at`; 0: ask Python."""
        found: int = at_once().point_bind(self.address, data, len(data), at)
        return found

    def __del__(self) -> None:
        if getattr(self, "room", None) is not None:
            self.room.given_up.add(at_once().insert_free, self.plan)  # type: ignore[union-attr]


class InsertRoom:
    """Inserts of one connection, by whoever may use the connection at the time."""

    def __init__(self, connection: Any, log: str) -> None:
        self._connection, self._log = connection, log.encode()
        _ROOMS.add(self)
        self._room = library().batch_new()
        if not self._room:
            raise MemoryError
        self._at = ctypes.addressof(self._room.contents)
        self._database = connection.sqlite3_pointer()
        self._insert, self._free = at_once().insert_row, library().batch_free
        self._prepared: WeakSet[PointInsert] = WeakSet()
        self.given_up = GivenUp()

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self._free(self._room)

    def insert(
        self, what: PointInsert, data: bytes, at: int, place: int, epoch: int, micros: int
    ) -> int:
        """How many rows are new, or one of the codes above."""
        if what.room is not self and not self._prepare(what):
            return UNREADABLE
        found: int = self._insert(
            *(what.address, self._database, data, len(data), at, place, epoch, micros, self._at)
        )
        return found

    def _prepare(self, what: PointInsert) -> bool:
        self.given_up.free()
        if what.room is not None or len(self._prepared) >= MOST:
            what.is_known = False  # it belongs to a file that was there before, or is one too many
        if not what.is_known:
            return False
        text, log = what.sql.encode(), self._log
        state = at_once().insert_prepare(
            *(what.plan, self._database, text, len(text), log, len(log))
        )
        if state:
            at_once().insert_free(what.plan)
            what.is_known = False
            return False
        what.room = self
        self._prepared.add(what)
        return True

    def close(self) -> None:
        """Before its connection is closed."""
        for each in self._prepared:
            at_once().insert_free(each.plan)
        self.given_up.free()


_ROOMS: WeakSet[InsertRoom] = WeakSet()


def end_inserts(connection: Any) -> None:
    """Before a connection is closed by somebody else than its owner."""
    for room in [each for each in _ROOMS if each._connection is connection]:
        room.close()


def _cell(value: int | bytes) -> Cell:
    if isinstance(value, int):
        return Cell(value, 0, None)
    return Cell(0, len(value), value)
