"""Statements with groups by a hash, and which of them have to be left to SQLite (`groups.c`);
rows that are packed where they are read (`packed_pieces.c`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw
import msgspec

from cairn.native.loading import FUNCTIONS, PACKED_ROWS, load
from cairn.storage import packed_twin

LEFT: Final = "groups are left to SQLite"  # as C says it
NOTED = 1_000  # texts that one connection remembers
PART_BYTES = 16 * 1024  # of packed rows: a piece has some of these
_PACKED = "SELECT piece, rows FROM packed_pieces(?, ?, ?)"
_encode = msgspec.msgpack.Encoder().encode


class Groups:
    """Of one connection, which is given the functions of C."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.is_native = load(connection, FUNCTIONS) and load(connection, PACKED_ROWS)
        if not self.is_native:
            packed_twin.offer(connection)
        self._left: dict[str, None] = {}  # texts that had too many groups, or odd values

    def asked(self, sql: str, args: Sequence[Any], grouped: str) -> apsw.Cursor:
        """What `sql` gives, by `grouped` where there is such a text and C can do it."""
        return self._by(self._connection.execute, sql, args, grouped)

    def packed(self, sql: str, args: Sequence[Any], grouped: str) -> apsw.Cursor:
        """The same, as rows of `packed_pieces`."""

        def run(text: str, given: Sequence[Any]) -> apsw.Cursor:
            values = b"".join(map(_encode, given))
            return self._connection.execute(_PACKED, (text, values, PART_BYTES))

        return self._by(run, sql, args, grouped)

    def _by(
        self, run: Callable[..., apsw.Cursor], sql: str, args: Sequence[Any], grouped: str
    ) -> apsw.Cursor:
        if grouped and self.is_native and grouped not in self._left:
            try:
                return run(grouped, args)
            except apsw.SQLError as problem:
                if LEFT not in str(problem):
                    raise
            if len(self._left) >= NOTED:
                self._left.clear()
            self._left[grouped] = None
        return run(sql, args)
