"""Statements with groups by a hash, and which of them have to be left to SQLite (`groups.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from cairn.native.loading import FUNCTIONS, PACKED_ROWS, load

LEFT: Final = "groups are left to SQLite"  # as C says it
NOTED = 1_000  # texts that one connection remembers


class Groups:
    """Of one connection, which is given the functions of C."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._is_native = load(connection, FUNCTIONS) and load(connection, PACKED_ROWS)
        self._left: dict[str, None] = {}  # texts that had too many groups, or odd values

    def asked(self, sql: str, args: Sequence[Any], grouped: str) -> apsw.Cursor:
        """What `sql` gives, by `grouped` where there is such a text and C can do it."""
        if grouped and self._is_native and grouped not in self._left:
            try:
                return self._connection.execute(grouped, args)
            except apsw.SQLError as problem:
                if LEFT not in str(problem):
                    raise
            if len(self._left) >= NOTED:
                self._left.clear()
            self._left[grouped] = None
        return self._connection.execute(sql, args)
