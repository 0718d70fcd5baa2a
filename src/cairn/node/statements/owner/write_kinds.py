"""What the text of a write does, told by SQLite itself: which table it changes, and how.

The text may come from another instance. It is compiled once on a connection that cannot write, and
SQLite's authorizer hears of everything in it. Whatever is not a change of rows of the one table
that the request names is refused here, before the writer sees it: other tables, ATTACH, PRAGMA,
transactions, changes of the schema, a second statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from cairn.model.errors import AccessDenied, CairnError, TableUnderDdl
from cairn.model.rpc import WriteRequest
from cairn.sql.render.slots import with_ranges

NOTED = 5_000  # texts that are remembered
_READING = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
_CHANGES = {apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE}


class WriteKind(NamedTuple):
    table: str  # that it changes, by its physical name
    only_inserts: bool  # and leaves rows that are there as they are
    has_query: bool  # it reads rows by a SELECT of its own, which may take long


class WriteKinds:
    """Used on the event loop only."""

    def __init__(self, data: Path, raft: Path, register: Callable[[apsw.Connection], None]) -> None:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(str(data), flags=flags, statementcachesize=0)
        self._connection.execute(f"ATTACH 'file:{raft}?mode=ro' AS raft")
        register(self._connection)
        self._connection.authorizer = self._hear
        self._known: dict[str, WriteKind] = {}
        self._changed: set[tuple[int, str]] = set()  # of the text that is being compiled
        self._has_query = self._is_refused = False

    def close(self) -> None:
        self._connection.close()

    def of(self, request: WriteRequest) -> WriteKind:
        """The kind of its first text; every text of it was looked at."""
        if request.packed:  # rows to insert, and no text at all
            return WriteKind(f"t{request.table}", only_inserts=True, has_query=False)
        row = request.rows[0] if request.rows else None
        kind = self._allowed(request.sql, row, request.table)
        if request.more or request.returning or request.open_sql:
            self._look_at_others(request)
        return kind

    def _look_at_others(self, request: WriteRequest) -> None:
        texts = ((request.sql, request.rows), *request.more)
        for at, (sql, rows) in enumerate(texts):
            if rows:
                told = request.returning if at in request.told else ""
                self._allowed(sql + told, rows[0], request.table)
        if request.open_sql:  # it may be carried out with fewer ranges
            ranges = request.ranges or ()
            if with_ranges(request.open_sql, list(ranges)) != request.sql:
                raise AccessDenied("the open text of a write is not the text that was asked for")

    def _allowed(self, sql: str, row: Sequence[Any] | None, table: int) -> WriteKind:
        kind = self._known.get(sql)
        if kind is None:
            if row is None:
                return _NOTHING  # without a row to run it for it is not run
            kind = self._compiled(sql, row)
        if kind.table != f"t{table}":
            raise AccessDenied(f"a write to table {table} cannot change {kind.table}")
        return kind

    def _compiled(self, sql: str, row: Sequence[Any]) -> WriteKind:
        try:
            try:
                self._compile(sql, row)
            except apsw.SQLError:
                # SQLite does not ask itself whether an index came after it last read the schema:
                # ON CONFLICT (…) would name none. Whatever reads a table makes it look.
                self._connection.execute("SELECT count(*) FROM main.sqlite_schema").fetchall()
                self._compile(sql, row)
        except Exception as problem:
            if self._is_refused or isinstance(problem, apsw.ReadOnlyError):
                raise _refused() from None
            if isinstance(problem, CairnError):
                raise
            raise TableUnderDdl(
                f"the write does not fit the tables of this instance: {problem}"
            ) from None
        tables = {table for _, table in self._changed}
        if len(tables) != 1:
            raise _refused()
        [table] = tables
        actions = {action for action, _ in self._changed}
        kind = WriteKind(table, actions == {apsw.SQLITE_INSERT}, self._has_query)
        if len(self._known) >= NOTED:
            self._known.clear()
        self._known[sql] = kind
        return kind

    def _compile(self, sql: str, row: Sequence[Any]) -> None:
        self._changed.clear()
        self._has_query = self._is_refused = False
        self._connection.execute("EXPLAIN QUERY PLAN " + sql, row).fetchall()

    def _hear(self, action: int, first: str | None, *_: str | None) -> int:
        if action in _CHANGES and first is not None and not first.startswith("sqlite_"):
            self._changed.add((action, first))
        elif action in _READING:
            self._has_query |= action == apsw.SQLITE_SELECT
        else:
            self._is_refused = True
            return apsw.SQLITE_DENY
        return apsw.SQLITE_OK


_NOTHING = WriteKind("", only_inserts=False, has_query=False)


def _refused() -> AccessDenied:
    return AccessDenied("another instance may only send changes of rows of one table")
