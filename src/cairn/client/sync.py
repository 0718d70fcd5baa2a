"""DB-API 2.0 (PEP 249) over the smart driver.

    connection = cairn.client.sync.connect("postgresql://admin:…@127.0.0.1:4327/cairn")
    cursor = connection.cursor()
    cursor.execute("SELECT * FROM t WHERE id = %s", (1,))

Placeholders are `%s`, or the server's own `$1` in a text without `%`. Each statement commits by
itself, as the server has it: `commit` has nothing to do, `rollback` after a write is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.client.sync_types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,  # noqa: A004
    translated,
)
from cairn.model.errors import CairnError
from cairn.pgwire.client.backend import Result

apilevel: Final = "2.0"
threadsafety: Final = 2  # threads may share the module and connections
paramstyle: Final = "format"

T = TypeVar("T")
_PERCENT: Final = re.compile(r"%(.?)", re.DOTALL)
_WRITES: Final = re.compile(r"\s*(insert|update|delete)\b", re.IGNORECASE)


@lru_cache(maxsize=1000)
def numbered(sql: str) -> str:
    """`%s` as `$1`, `$2` …; `%%` as `%`."""
    count = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] == "s":
            count += 1
            return f"${count}"
        if found[1] == "%":
            return "%"
        raise ProgrammingError(f"placeholder %{found[1]} is not known; write %s, and %% for %")

    return _PERCENT.sub(replace, sql)


def connect(dsn: str, **settings: Any) -> Connection:
    return Connection(_told(lambda: SyncPool(parse_dsn(dsn, **settings)).open()))


def _told(action: Callable[[], T]) -> T:
    try:
        return action()
    except CairnError as error:
        raise translated(error) from error


class Connection:
    """A pool behind DB-API's face: a statement goes to whichever instance has its rows."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError = InternalError, ProgrammingError
    NotSupportedError = NotSupportedError
    autocommit = True

    def __init__(self, pool: SyncPool) -> None:
        self.pool = pool
        self.writes = 0  # since the last commit
        self._closed = False

    def cursor(self) -> Cursor:
        self.check()
        return Cursor(self)

    def check(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    def commit(self) -> None:
        self.check()
        self.writes = 0

    def rollback(self) -> None:
        self.check()
        if self.writes:
            raise NotSupportedError(
                f"{self.writes} statements stay committed: each statement commits by itself"
            )

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.pool.close()

    def explain_route(self, sql: str, params: Sequence[Any] = ()) -> str:
        self.check()
        text = numbered(sql) if params else sql
        return str(_told(lambda: self.pool.explain_route(text, *params)))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """Holds the rows of the last statement."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.rowcount = -1
        self.description: list[tuple[Any, ...]] | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._at = 0
        self._closed = False

    def _check(self) -> None:
        self.connection.check()
        if self._closed:
            raise InterfaceError("the cursor is closed")

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        self._check()
        if isinstance(parameters, dict):
            raise ProgrammingError("parameters are a sequence here, not a mapping")
        text = numbered(operation) if parameters else operation
        result = _told(lambda: self.connection.pool.run(text, tuple(parameters)))
        self._count_write(text)
        self._keep(result)
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[Any]]) -> Cursor:
        self._check()
        rows = [tuple(each) for each in seq_of_parameters]
        text = numbered(operation)
        count = _told(lambda: self.connection.pool.executemany(text, rows))
        self._count_write(text)
        self._keep(Result([], []))
        self.rowcount = count
        return self

    def _count_write(self, sql: str) -> None:
        if _WRITES.match(sql):
            self.connection.writes += 1

    def _keep(self, result: Result) -> None:
        self._rows, self._at = result.rows, 0
        self.rowcount = len(result.rows) if result.columns else result.row_count
        self.description = None
        if result.columns:
            self.description = [
                (name, oid, None, None, None, None, None) for name, oid, _ in result.columns
            ]

    def _check_rows(self) -> None:
        self._check()
        if self.description is None:
            raise ProgrammingError("the last statement gave no rows")

    def fetchone(self) -> tuple[Any, ...] | None:
        self._check_rows()
        if self._at >= len(self._rows):
            return None
        self._at += 1
        return self._rows[self._at - 1]

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        self._check_rows()
        start = self._at
        self._at = min(len(self._rows), start + (self.arraysize if size is None else size))
        return self._rows[start : self._at]

    def fetchall(self) -> list[tuple[Any, ...]]:
        self._check_rows()
        start, self._at = self._at, len(self._rows)
        return self._rows[start:]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing to prepare for."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to prepare for."""

    def close(self) -> None:
        self._closed = True
        self._rows = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = [
    "BINARY",
    "Binary",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
