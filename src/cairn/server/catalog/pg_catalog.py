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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import apsw

from cairn.model.errors import (
    AccessDenied,
    CairnError,
    InvalidText,
    OutOfRange,
    QueryCanceled,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedTable,
    Unsupported,
)
from cairn.model.tables.catalog import Catalog
from cairn.model.types.intervals import encode_interval, of_timedelta
from cairn.model.types.values import INT64_MAX, INT64_MIN, TYPE_OF_OID, ColumnType
from cairn.node.watching.activity import Asker, Row, Signals
from cairn.server.catalog import privileges
from cairn.server.catalog import schema as pg_schema
from cairn.server.catalog import tables as pg_tables
from cairn.server.catalog.functions import Functions, items
from cairn.server.catalog.sizes import OF_ALL, SIZES
from cairn.server.live_tables import LiveTables
from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.plans import CatalogRead, OutColumn, Prepared
from cairn.storage.readers import Cancelled, taken
from cairn.storage.sqlite_errors import translated

MAX_STEPS = 2_000  # of SQLite's machine, in thousands: about a second
MAX_VALUE_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
WORKERS = 2
_FORBIDDEN = re.compile(r"not authorized|prohibited")

_BEGINNING = re.compile(rb"\s*(select|with)\b", re.IGNORECASE)
_BLANKS = re.compile(rb"\s*")
LONG_TEXT = 10_000
_WORDS = (b"pg_", b"_cairn_", b"information_schema", b"::", b"to_reg", b"_privilege", b"_schemas")
_MENTION = re.compile(
    rb"pg_|_cairn_s|_cairn_table_stats|information_schema|::\s*reg|to_reg|_privilege|_schemas",
    re.IGNORECASE,
)
_LOOKUPS = (
    *("regclass", "regtype", "regnamespace", "regproc", "regprocedure"),
    *("to_regclass", "to_regtype", "pg_get_viewdef"),
    *("pg_backend_pid", "pg_cancel_backend", "pg_terminate_backend"),
    *("pg_is_in_recovery", "pg_is_wal_replay_paused", "pg_is_in_backup"),
    *("pg_postmaster_start_time", "pg_conf_load_time", "pg_last_xact_replay_timestamp"),
    *("pg_last_wal_receive_lsn", "pg_last_wal_replay_lsn", *privileges.NAMES),
    *("pg_get_serial_sequence", "pg_size_pretty", "current_schemas", *SIZES, OF_ALL),
)
_NUMBERS = ("nextval", "currval", "setval")
_MISSING = re.compile(r"no such (table|column|function): (.+)")
_DECLARED = {
    "INTEGER": ColumnType.INTEGER,
    "DOUBLE": ColumnType.DOUBLE,
    "BOOLEAN": ColumnType.BOOLEAN,
    "TIMESTAMP": ColumnType.DATETIME,
}


def is_catalog_query(text: bytes) -> bool:
    """Whether a SELECT reads from PostgreSQL's catalogue. Cheap for everything else."""
    if _BEGINNING.match(text, _behind_comments(text)) is None:
        return False
    if len(text) > LONG_TEXT:  # one search of many words would keep every thread from working
        lower = text.lower()
        if not any(word in lower for word in _WORDS):
            return False
    elif _MENTION.search(text) is None:
        return False
    try:
        found = tokens(text.decode())
    except (CairnError, UnicodeDecodeError):
        return False
    sources = [at for at, token in enumerate(found) if token.is_word("from", "join")]
    if not sources:  # `SELECT 't'::regclass::oid`
        if any(token.is_word(*_NUMBERS) for token in found):  # nextval('s'::regclass)
            return False
        return any(token.is_word(*_LOOKUPS) for token in found)
    return any(_names_catalog(found[at + 1 : at + 4]) for at in sources)


def _behind_comments(text: bytes) -> int:
    """Some tools say in a comment who they are."""
    at = 0
    while True:
        blanks = _BLANKS.match(text, at)
        at = at if blanks is None else blanks.end()
        if text.startswith(b"/*", at):
            end, length = text.find(b"*/", at), 2
        elif text.startswith(b"--", at):
            end, length = text.find(b"\n", at), 1
        else:
            return at
        if end < 0:
            return len(text)
        at = end + length


def _names_catalog(following: list[Token]) -> bool:
    while following and (following[0].is_op("(") or following[0].is_word("only")):
        following = following[1:]
    if not following or following[0].kind not in ("word", "quoted"):
        return False
    name = following[0].value
    return name in ("pg_catalog", "information_schema") or name in pg_schema.TABLES


def prepare(text: str, param_oids: Sequence[int]) -> Prepared:
    """Understand such a query: its translation, and the shape of its answer."""
    from sqlglot import exp

    from cairn.server.catalog.columns import names_and_types, told_oids
    from cairn.server.catalog.translate import translate
    from cairn.sql.parse.parse import parse_query
    from cairn.sql.parse.tree import refuse

    if "typeinfo_tree" in text:
        return _asyncpg_types(text)
    found = tokens(text)
    while found and found[-1].is_op(";"):
        found.pop()
    tree = parse_query(found, text)
    if not isinstance(tree, exp.Query) or tree.find(exp.DML) is not None:
        raise Unsupported("pg_catalog can only be read", hint="use SELECT")
    if (marked := tree.find(exp.Placeholder)) is not None:
        raise refuse(marked)
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
    oids = told_oids(tree)
    oids = oids if len(oids) == len(columns) else [0] * len(columns)
    out = tuple(
        OutColumn(name, kind or ColumnType.STRING, told_oid=oid)
        for (name, kind), oid in zip(columns, oids, strict=True)
    )
    return Prepared(text, "SELECT", CatalogRead(sql), tuple(types), out)


_OID_ARRAY = 1028  # the only array of numbers that asyncpg can send before it has asked this


def _asyncpg_types(text: str) -> Prepared:
    """What asyncpg asks before its first array: the element types behind some type numbers.

    Its own text walks through composite types and ranges, of which there are none here.
    """
    sql = (
        "SELECT oid, CASE typnamespace WHEN 2200 THEN 'public' ELSE 'pg_catalog' END AS ns, "
        "typname AS name, typtype AS kind, NULL AS basetype, "
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
    seen: list[tuple[str, ColumnType | None]] = []

    def note(cursor: apsw.Cursor, _: str, __: Any) -> bool:
        for name, declared in cursor.get_description():
            seen.append((name, _DECLARED.get(declared or "")))
        return False

    with _DESCRIBING:
        cursor = _empty().cursor()
        cursor.exec_trace = note
        try:
            cursor.execute(sql, _bindings(sql, [None] * 65536))
        except apsw.ExecTraceAbort:
            pass
        except Exception as problem:
            raise _explained(problem) from None
    return seen


_EMPTY: list[apsw.Connection] = []
_DESCRIBING = threading.Lock()


def _empty() -> apsw.Connection:
    if not _EMPTY:
        functions = Functions(Catalog())
        connection = _made()
        functions.register(connection)
        _close(connection, functions)
        _EMPTY.append(connection)
    return _EMPTY[0]


def _made() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for statement in pg_schema.schema_sql():
        connection.execute(statement)
    return connection


#: Functions of SQLite that can neither touch anything nor fill the memory.
_BUILT_IN = frozenset(
    {
        *("abs", "avg", "coalesce", "count", "date", "datetime", "dense_rank", "first_value"),
        *("group_concat", "ifnull", "iif", "instr", "json_array_length", "json_each"),
        *("json_extract", "json_object", "json_array", "json_group_array", "json_group_object"),
        *("lag", "last_value", "lead", "length", "like", "likelihood", "lower", "ltrim", "max"),
        *("min", "nth_value", "ntile", "nullif", "quote", "random", "rank", "replace", "round"),
        *("row_number", "rtrim", "sign", "strftime", "substr", "substring", "subtype", "sum"),
        *("total", "trim", "typeof", "unicode", "upper", "json", "->", "->>", "concat"),
        *("concat_ws", "char", "time", "julianday", "unixepoch", "format", "printf"),
    }
)
_READING = (
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_RECURSIVE,
)


def _close(connection: apsw.Connection, functions: Functions) -> None:
    """From here on it can only be asked, and only what is listed; no value grows large."""
    known = _BUILT_IN | functions.names()

    def allowed(
        action: int, first: str | None, second: str | None, base: str | None, by: str | None
    ) -> int:
        if action in _READING and not (first or "").startswith("sqlite_"):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and (second or "").lower() in known:
            return apsw.SQLITE_OK
        return apsw.SQLITE_DENY

    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000)
    connection.authorizer = allowed


def _explained(problem: Exception) -> CairnError:
    if isinstance(problem, apsw.AuthError) or _FORBIDDEN.search(str(problem)):
        return AccessDenied(f"this is not allowed in a query on pg_catalog: {problem}")
    if not isinstance(problem, apsw.SQLError):
        return translated(problem)
    found = _MISSING.match(str(problem))
    if found is None:
        return Unsupported(f"this query on pg_catalog is not supported: {problem}")
    kind, name = found.groups()
    if kind == "table":
        return UndefinedTable(
            f'relation "{name}" does not exist',
            hint="tables of pg_catalog and live tables are joined with each other only",
        )
    if kind == "column":
        return UndefinedColumn(f'column "{name}" does not exist')
    return UndefinedFunction(f"function {name} does not exist")


def _list(read: Callable[[str], Any]) -> Callable[[Any], str]:
    """Lists are kept as JSON."""
    return lambda array: json.dumps(
        [None if each == "NULL" else read(each) for each in items(array)]
    )


def _whole(value: Any) -> int:
    """A column that was taken for whole numbers may hold something else in SQLite."""
    try:
        found = int(value)
    except (ValueError, OverflowError):
        raise InvalidText(f'invalid input syntax for type integer: "{value}"') from None
    if not INT64_MIN <= found <= INT64_MAX:
        raise OutOfRange("integer out of range")
    return found


def _fraction(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        text = f'invalid input syntax for type double precision: "{value}"'
        raise InvalidText(text) from None


def _interval(value: Any) -> bytes:
    return encode_interval(of_timedelta(timedelta(0, 0, _whole(value))))


#: SQLite's values in the form that the columns' types ask for.
_SHAPES: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.STRING: str,
    ColumnType.INTEGER: _whole,
    ColumnType.DOUBLE: _fraction,
    ColumnType.DATETIME: _whole,
    ColumnType.STRINGS: _list(str),
    ColumnType.INTEGERS: _list(_whole),
    ColumnType.BOOLEANS: _list(_whole),
    ColumnType.DOUBLES: _list(_fraction),
    ColumnType.DATETIMES: _list(_whole),
    ColumnType.INTERVAL: _interval,
    ColumnType.INTERVALS: _list(lambda value: _interval(value).hex()),
}


class PgCatalog:
    """The tables with rows. Each worker thread has a copy of its own, which it can only read."""

    def __init__(self, live: LiveTables) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._made: tuple[Catalog, bytes] | None = None
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="pg_catalog")

    async def read(
        self,
        plan: CatalogRead,
        columns: Sequence[OutColumn],
        params: Sequence[Any],
        catalog: Catalog,
        asker: Asker,
        cancelled: Cancelled | None = None,
    ) -> list[tuple[Any, ...]]:
        """All rows; on a thread, because a join of these tables can take its time."""
        flag = cancelled or Cancelled()
        live = await self._live.rows(plan.sql, asker)
        signals = self._live.activity.signals(asker)

        def run() -> list[tuple[Any, ...]]:
            connection = self._filled(catalog, asker, signals, live)
            return _rows(connection, plan, columns, params, flag)

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _filled(
        self, catalog: Catalog, asker: Asker, signals: Signals, live: dict[str, list[Row]]
    ) -> apsw.Connection:
        """This thread's copy of the present tables, with the functions of who asks."""
        mine: tuple[Catalog, apsw.Connection, Functions] | None
        mine = getattr(self._local, "copy", None)
        if mine is None or mine[0] is not catalog:
            connection, functions = apsw.Connection(":memory:"), Functions(catalog)
            connection.deserialize("main", self._image(catalog.public))
            if catalog.temps:
                with connection:
                    _insert(connection, pg_tables.temp_rows(catalog))
            functions.register(connection)
            _close(connection, functions)
            mine = self._local.copy = (catalog, connection, functions)
        mine[2].asker, mine[2].signals = asker, signals
        if live:
            _replace_live(mine[1], live)
        return mine[1]

    def _image(self, catalog: Catalog) -> bytes:
        with self._lock:  # held while rows are made, never while somebody's query runs
            if self._made is None or self._made[0] is not catalog:
                connection = _made()
                with connection:
                    _insert(connection, pg_tables.rows(catalog))
                self._made = catalog, connection.serialize("main")
            return self._made[1]


def _rows(
    connection: apsw.Connection,
    plan: CatalogRead,
    columns: Sequence[OutColumn],
    params: Sequence[Any],
    cancelled: Cancelled,
) -> list[tuple[Any, ...]]:
    steps = iter(range(MAX_STEPS))
    connection.set_progress_handler(lambda: next(steps, None) is None or cancelled.is_set(), 1000)
    try:
        cursor = connection.execute(plan.sql, _bindings(plan.sql, params))
        found = taken(cursor, 0, MAX_ANSWER_BYTES)
    except apsw.InterruptError:
        raise QueryCanceled("this query on pg_catalog takes too long") from None
    except Exception as problem:
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


def _replace_live(connection: apsw.Connection, live: dict[str, list[Row]]) -> None:
    """What is done now is read anew each time, and is different for each who asks."""
    closed, connection.authorizer = connection.authorizer, None
    try:
        with connection:
            for table, rows in live.items():
                connection.execute(f"DELETE FROM {table}")
                _insert(connection, ((table, row) for row in rows))
    finally:
        connection.authorizer = closed


def _insert(connection: apsw.Connection, rows: Iterable[tuple[str, Row]]) -> None:
    for table, values in rows:
        marks = ", ".join("?" * len(values))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )


#: Its number; what is quoted has none.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?(\d+)""")


def _bindings(sql: str, params: Sequence[Any]) -> tuple[Any, ...]:
    """Only as many as the text mentions: SQLite refuses the others."""
    used = max((int(number) for number in _PARAMETER.findall(sql) if number), default=0)
    return tuple(_bound(value) for value in params[:used])


def _bound(value: Any) -> Any:
    if isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    return value if isinstance(value, (int, str, float, type(None))) else str(value)
