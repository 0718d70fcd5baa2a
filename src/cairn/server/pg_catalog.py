"""Answering queries on pg_catalog and information_schema.

They are written for PostgreSQL's own tables and use more of its SQL than Cairn has. So they do not
go through the planner: the text is translated for SQLite and run over a small database in memory
that is filled from the catalogue (`pg_schema`, `pg_tables`). What cannot be translated is refused.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from cairn.model.catalog import Catalog
from cairn.model.errors import (
    CairnError,
    QueryCanceled,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedTable,
    Unsupported,
)
from cairn.model.values import TYPE_OF_OID, ColumnType
from cairn.server import pg_schema, pg_tables
from cairn.server.pg_functions import Functions, items
from cairn.sql.api import Prepared
from cairn.sql.lexer import Token, tokens
from cairn.sql.plans import CatalogRead, OutColumn

Row = tuple[Any, ...]
MAX_STEPS = 2_000  # of SQLite's machine, in thousands: about a second

_BEGINNING = re.compile(rb"\s*(select|with)\b", re.IGNORECASE)
_MENTION = re.compile(rb"pg_|information_schema|::\s*reg|to_reg", re.IGNORECASE)
_LOOKUPS = (
    *("regclass", "regtype", "regnamespace", "regproc", "regprocedure"),
    *("to_regclass", "to_regtype"),
)
_MISSING = re.compile(r"no such (table|column|function): (.+)")
_DECLARED = {"INTEGER": ColumnType.INTEGER, "BOOLEAN": ColumnType.BOOLEAN}


def is_catalog_query(text: bytes) -> bool:
    """Whether a SELECT reads from PostgreSQL's catalogue. Cheap for everything else."""
    if _BEGINNING.match(text) is None or _MENTION.search(text) is None:
        return False
    try:
        found = tokens(text.decode())
    except (CairnError, UnicodeDecodeError):
        return False
    sources = [at for at, token in enumerate(found) if token.is_word("from", "join")]
    if not sources:  # `SELECT 't'::regclass::oid`
        return any(token.is_word(*_LOOKUPS) for token in found)
    return any(_names_catalog(found[at + 1 : at + 4]) for at in sources)


def _names_catalog(following: list[Token]) -> bool:
    while following and (following[0].is_op("(") or following[0].is_word("only")):
        following = following[1:]
    if not following or following[0].kind not in ("word", "quoted"):
        return False
    name = following[0].value
    return name in ("pg_catalog", "information_schema") or name in pg_schema.TABLES


def prepare(text: str, param_oids: Sequence[int]) -> Prepared:
    """Understand such a query: its translation, and the shape of its answer."""
    from cairn.server.pg_columns import names_and_types
    from cairn.server.pg_translate import translate
    from cairn.sql.parse import parse_query

    if "typeinfo_tree" in text:
        return _asyncpg_types(text)
    found = tokens(text)
    while found and found[-1].is_op(";"):
        found.pop()
    tree = parse_query(found, text)
    sql = translate(tree)
    count = max((int(each.value) for each in found if each.kind == "param"), default=0)
    types = [ColumnType.STRING] * max(count, len(param_oids))
    for at, oid in enumerate(param_oids):
        types[at] = TYPE_OF_OID.get(oid, ColumnType.STRING)
    columns = _describe(sql)
    told = names_and_types(tree)
    if told is not None and len(told) == len(columns):
        columns = [
            (name, kind or declared or ColumnType.STRING)
            for (name, kind), (_, declared) in zip(told, columns, strict=True)
        ]
    out = tuple(OutColumn(name, kind or ColumnType.STRING) for name, kind in columns)
    return Prepared(text, "SELECT", CatalogRead(sql), tuple(types), out)


_OID_ARRAY = 1028  # the only array of numbers that asyncpg can send before it has asked this


def _asyncpg_types(text: str) -> Prepared:
    """What asyncpg asks before its first array: the element types behind some type numbers.

    Its own text walks through composite types and ranges, of which there are none here.
    """
    sql = (
        "SELECT oid, 'pg_catalog' AS ns, typname AS name, 'b' AS kind, NULL AS basetype, "
        "nullif(typelem, 0) AS elemtype, ',' AS elemdelim, NULL AS range_subtype, "
        "NULL AS attrtypoids, NULL AS attrnames, 0 AS depth, NULL AS basetype_name, "
        "format_type(nullif(typelem, 0)) AS elemtype_name, NULL AS range_subtype_name "
        "FROM pg_type WHERE pg_any(oid, ?1)"
    )
    numbers = ("oid", "elemtype", "depth")
    columns = tuple(
        OutColumn(name, ColumnType.INTEGER if name in numbers else ColumnType.STRING)
        for name, _ in _describe(sql)
    )
    types = (ColumnType.INTEGERS,)
    return Prepared(text, "SELECT", CatalogRead(sql), types, columns, param_oids=(_OID_ARRAY,))


def _describe(sql: str) -> list[tuple[str, ColumnType | None]]:
    """Names and declared types, from the same tables without rows."""
    connection = _empty()
    cursor = connection.cursor()
    seen: list[tuple[str, ColumnType | None]] = []

    def note(cursor: apsw.Cursor, _: str, __: Any) -> bool:
        for name, declared in cursor.get_description():
            seen.append((name, _DECLARED.get(declared or "")))
        return False

    cursor.exec_trace = note
    try:
        cursor.execute(sql, _bindings(sql, [None] * 65536))
    except apsw.ExecTraceAbort:
        pass
    except apsw.Error as problem:
        raise _explained(problem) from None
    return seen


_EMPTY: list[apsw.Connection] = []


def _empty() -> apsw.Connection:
    if not _EMPTY:
        _EMPTY.append(_opened(Catalog()))
    return _EMPTY[0]


def _opened(catalog: Catalog) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for statement in pg_schema.schema_sql():
        connection.execute(statement)
    Functions(catalog).register(connection)
    return connection


def _explained(problem: apsw.Error) -> CairnError:
    found = _MISSING.match(str(problem))
    if found is None:
        return Unsupported(f"this query on pg_catalog is not supported: {problem}")
    kind, name = found.groups()
    if kind == "table":
        return UndefinedTable(f'relation "{name}" does not exist')
    if kind == "column":
        return UndefinedColumn(f'column "{name}" does not exist')
    return UndefinedFunction(f"function {name} does not exist")


def _list(read: Callable[[str], Any]) -> Callable[[Any], str]:
    """Lists are kept as JSON."""
    return lambda array: json.dumps(
        [None if each == "NULL" else read(each) for each in items(array)]
    )


#: SQLite's values in the form that the columns' types ask for.
_SHAPES: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.STRING: str,
    ColumnType.STRINGS: _list(str),
    ColumnType.INTEGERS: _list(int),
    ColumnType.BOOLEANS: _list(int),
}


class PgCatalog:
    """The tables with rows, made anew when the catalogue has changed. Used from worker threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._connection: apsw.Connection | None = None
        self._functions: Functions | None = None

    async def read(
        self,
        plan: CatalogRead,
        columns: Sequence[OutColumn],
        params: Sequence[Any],
        catalog: Catalog,
        user: str,
    ) -> list[Row]:
        """All rows; on a thread, because a join of these tables can take its time."""
        return await asyncio.to_thread(self._rows, plan, columns, params, catalog, user)

    def _rows(
        self,
        plan: CatalogRead,
        columns: Sequence[OutColumn],
        params: Sequence[Any],
        catalog: Catalog,
        user: str,
    ) -> list[Row]:
        with self._lock:
            connection = self._filled(catalog)
            assert self._functions is not None
            self._functions.user = user
            steps = iter(range(MAX_STEPS))
            connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
            try:
                found = connection.execute(plan.sql, _bindings(plan.sql, params)).fetchall()
            except apsw.InterruptError:
                raise QueryCanceled("this query on pg_catalog takes too long") from None
            except apsw.Error as problem:
                raise _explained(problem) from None
            finally:
                connection.set_progress_handler(None)
        shapes = [_SHAPES.get(column.type) for column in columns]
        return [
            tuple(
                value if shape is None or value is None else shape(value)
                for shape, value in zip(shapes, row, strict=True)
            )
            for row in found
        ]

    def _filled(self, catalog: Catalog) -> apsw.Connection:
        if self._connection is not None and self._catalog is catalog:
            return self._connection
        connection = _opened(catalog)
        self._functions = Functions(catalog)
        self._functions.register(connection)
        with connection:
            for table, values in pg_tables.rows(catalog):
                marks = ", ".join("?" * len(values))
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",
                    tuple(values.values()),
                )
        self._connection, self._catalog = connection, catalog
        return connection


def _bindings(sql: str, params: Sequence[Any]) -> tuple[Any, ...]:
    """Only as many as the text mentions: SQLite refuses the others."""
    used = max((int(number) for number in re.findall(r"\?(\d+)", sql)), default=0)
    return tuple(_bound(value) for value in params[:used])


def _bound(value: Any) -> Any:
    if isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    return value if isinstance(value, (int, str, float, type(None))) else str(value)
