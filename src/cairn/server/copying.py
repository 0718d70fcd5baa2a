"""COPY in and out: rows in bulk, each chunk straight to the replicasets that own it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cairn.model.buckets import bucket_function
from cairn.model.catalog import Catalog
from cairn.model.errors import (
    CairnError,
    InvalidText,
    NotNullViolation,
    OutOfRange,
    QueryCanceled,
    Unsupported,
)
from cairn.model.schema import Table
from cairn.model.values import (
    INT64_MAX,
    INT64_MIN,
    OIDS,
    ColumnType,
    Physical,
    parse_text,
    physical_reader,
    to_physical,
)
from cairn.pgwire.copy import CopyParser
from cairn.pgwire.copy_out import copy_encoder, header_line
from cairn.pgwire.requests import CopyData, CopyDone, CopyFail
from cairn.server import arrow, running
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.connection import Connection

CHUNK_ROWS = 10_000
OUT_ROWS = 2_000


def _format(options: dict[str, str]) -> Literal["text", "csv"]:
    name = options.get("format", "text").lower()
    if name == "text":
        return "text"
    if name == "csv":
        return "csv"
    raise Unsupported(f"COPY format {name} is not supported: text or csv")


def _is_arrow(options: dict[str, str]) -> bool:
    return options.get("format", "").lower() == "arrow"


def _options(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("delimiter", "null", "quote", "escape"):
        if key in options:
            found[key] = options[key]
    return found


def _has_header(options: dict[str, str]) -> bool:
    return options.get("header", "false").lower() in ("true", "on", "1", "")


async def copy_out(session: Connection, cached: Cached, plan: plans.CopyPlan) -> int:
    assert plan.query is not None
    query = session.service.statements.get(
        plan.query.text.encode(), (), session.user_id, session.service.catalog
    )
    if _is_arrow(plan.options):
        return await arrow.copy_out(session, query, _drained)
    fmt = _format(plan.options)
    oids = [OIDS[column.type] for column in plan.query.columns]
    lines = copy_encoder(oids, fmt, **_options(plan.options))

    def encode(rows: Sequence[Any]) -> bytes:
        return lines(rows if query.convert is None else query.convert(rows))

    here = arrow.local_chunks(session, query, encode)
    chunks = here if here is not None else await _gathered(session, query, encode)
    session.pg.copy_out_response(0, len(oids))
    if _has_header(plan.options):
        names = [column.name for column in plan.query.columns]
        session.pg.raw(header_line(names, fmt, **_header_options(plan.options)))
    total = 0
    async for count, data in chunks:
        session.pg.raw(data)
        session._flush()
        await _drained(session)
        total += count
    session.pg.copy_done()
    return total


async def _gathered(
    session: Connection, query: Cached, encode: Callable[[Sequence[Any]], bytes]
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of several replicasets, or of a plan that merges: all of them first."""
    rows = await session.service.dispatcher.read(
        query.prepared.plan,  # type: ignore[arg-type]
        query.prepared.start((), session.now()),
        query.sharded,
        preference=session.preference,
        cancelled=session.cancelled,
    )

    async def pieces() -> AsyncIterator[tuple[int, bytes]]:
        for start in range(0, len(rows), OUT_ROWS):
            part = rows[start : start + OUT_ROWS]
            yield len(part), encode(part)

    return pieces()


def _header_options(options: dict[str, str]) -> dict[str, Any]:
    return {key: options[key] for key in ("delimiter", "quote", "escape") if key in options}


async def _drained(session: Connection) -> None:
    """A client that reads slowly is waited for; the instance keeps no more than a little."""
    while session.transport.get_write_buffer_size() > 4 * 1024 * 1024:
        if session.transport.is_closing():
            raise QueryCanceled("the client is gone")
        await asyncio.sleep(0.005)
    await asyncio.sleep(0)


class CopyIn:
    """One COPY FROM STDIN."""

    def __init__(self, session: Connection, plan: plans.CopyPlan) -> None:
        assert plan.insert is not None
        self._session, self._plan = session, plan
        self._decode: Callable[[bytes], list[Any]] | None = None
        self._parser = CopyParser(
            "text" if _is_arrow(plan.options) else _format(plan.options),
            ncols=len(plan.columns),
            header=_has_header(plan.options),
            **_options(plan.options),
        )
        self.wake = asyncio.Event()  # set by the session when bytes have come
        self._types = plan.insert.param_types
        self._rows: list[Any] = []
        self._count = 0
        assert plan.table is not None
        self._sql = ""
        if _is_arrow(plan.options):
            decoder = arrow.BatchDecoder(plan.table, plan.columns, session.service.catalog)
            self._decode, self._sql = decoder.decode, decoder.insert_sql
        elif plan.table.is_global:
            self._read = _value_reader(self._types)
        else:
            self._read, self._sql = row_reader(plan.table, plan.columns, session.service.catalog)

    async def run(self) -> int:
        """Until the client is done; the number of rows taken."""
        session = self._session
        try:
            while True:
                messages = session.take_copy_messages()
                if not messages:
                    if session.pg.requests:
                        raise CairnError("unexpected message during COPY", sqlstate="57014")
                    if session.transport.is_closing() or session.cancelled.is_set():
                        raise QueryCanceled("COPY was cancelled")
                    session.transport.resume_reading()
                    self.wake.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.5):
                            await self.wake.wait()
                    continue
                for message in messages:
                    if await self._take(message):
                        return self._count
        except BaseException:
            self._drain()
            raise

    async def _take(self, message: CopyData | CopyDone | CopyFail) -> bool:
        if isinstance(message, CopyFail):
            raise QueryCanceled(f"COPY from stdin failed: {message.message}")
        if isinstance(message, CopyData) and self._decode is not None:
            self._rows.extend(await asyncio.to_thread(self._decode, message.data))
            while len(self._rows) >= CHUNK_ROWS:
                await self._write()
            return False
        if isinstance(message, CopyData):
            self._add(self._parser.feed(message.data))
            while len(self._rows) >= CHUNK_ROWS:
                await self._write()
            return False
        if self._decode is None:
            self._add(self._parser.finish())
        while self._rows:
            await self._write()
        return True

    def _drain(self) -> None:
        """After an error the client may go on sending: what has come is thrown away."""
        self._session.take_copy_messages()

    def _add(self, lines: Sequence[Sequence[str | None]]) -> None:
        try:
            self._rows.extend(map(self._read, lines))
        except (CairnError, ValueError, TypeError):
            self._find_bad_line(lines)
            raise

    def _find_bad_line(self, lines: Sequence[Sequence[str | None]]) -> None:
        """Something in the chunk is no value: read it again, slowly, and say where."""
        for at, fields in enumerate(lines):
            for type_, field in zip(self._types, fields, strict=True):
                try:
                    None if field is None else to_physical(type_, parse_text(type_, field))
                except CairnError as problem:
                    line = self._parser.line - len(lines) + at + 1
                    problem.detail = f"COPY {self._table_name()}, line {max(line, 1)}"
                    raise

    def _table_name(self) -> str:
        return self._plan.table.name if self._plan.table is not None else ""

    async def _write(self) -> None:
        chunk, self._rows = self._rows[:CHUNK_ROWS], self._rows[CHUNK_ROWS:]
        insert = self._plan.insert
        assert insert is not None
        dispatcher = self._session.service.dispatcher
        plan = insert.plan
        if isinstance(plan, plans.PointWrite | plans.ShardedInsert):
            count = await dispatcher.insert_bulk(plan.table, plan.tier, self._sql, chunk)
        elif isinstance(plan, plans.GlobalWrite):
            count = 0
            for values in chunk:
                count += await dispatcher.write_global(
                    plan, insert.start(values), self._session.user_id, running.DML_S
                )
        else:
            raise Unsupported("COPY into this table is not supported")
        self._count += count


Fields = Sequence[str | None]
Reader = Callable[[Fields], Any]


def _value_reader(types: Sequence[ColumnType]) -> Reader:
    """Text fields to Python values, for global tables."""
    return lambda fields: [
        None if field is None else parse_text(type_, field)
        for type_, field in zip(types, fields, strict=True)
    ]


def _integer(text: str) -> int:
    value = int(text)
    if not INT64_MIN <= value <= INT64_MAX:
        raise OutOfRange(f'value "{text}" is out of range for type integer')
    return value


def _string(text: str) -> str:
    if "\x00" in text:
        raise InvalidText("a string cannot contain a zero byte", sqlstate="22021")
    return text


def _physical_reader(type_: ColumnType) -> Callable[[str], Physical]:
    """One text field to what SQLite stores; the common types without a detour."""
    if type_ is ColumnType.INTEGER:
        return _integer
    if type_ is ColumnType.STRING:
        return _string
    return lambda text: to_physical(type_, parse_text(type_, text))


def row_reader(table: Table, names: Sequence[str], catalog: Catalog) -> tuple[Reader, str]:
    """Text fields to a physical row with its bucket first, and the statement that inserts it."""
    assert table.sharding is not None
    tier = catalog.tiers[table.sharding.tier]
    columns = [table.column(name) for name in names]
    types = [column.type for column in columns if column is not None]
    readers = [_physical_reader(type_) for type_ in types]
    key = [list(names).index(name) for name in table.sharding.columns]
    key_types = [types[at] for at in key]
    bucket = bucket_function(key_types, tier.bucket_count, tier.hash_version)
    to_value = [physical_reader(type_) for type_ in key_types]
    required = {
        at
        for at, column in enumerate(columns)
        if column is not None and (not column.nullable or column.name in table.primary_key)
    }
    read = _compiled(names, readers, types, key, bucket, to_value, required, table.name)
    missing = [
        column.name
        for column in table.columns
        if column.name not in names
        and (not column.nullable or column.name in (*table.primary_key, *table.sharding.columns))
    ]
    if missing:
        raise NotNullViolation(f'COPY must fill column "{missing[0]}"')
    marks = ", ".join("?" * (len(table.columns) + 1))
    sql = f"INSERT INTO {table.physical_name} VALUES ({marks})"
    if list(names) == [column.name for column in table.columns]:
        return read, sql
    return _widened(read, table, names), sql


def _compiled(
    names: Sequence[str],
    readers: list[Callable[[str], Physical]],
    types: list[ColumnType],
    key: list[int],
    bucket: Callable[[Sequence[Any]], int],
    to_value: list[Callable[[Any], Any] | None],
    required: set[int],
    table: str,
) -> Reader:
    """A function written for these columns: a loop over them would cost more than the reading."""
    scope: dict[str, Any] = {"bucket": bucket, "missing": _missing, "names": names, "table": table}
    variables = [f"v{at}" for at in range(len(names))]
    lines = ["def read(fields):", f"    {', '.join(variables)}, = fields"]
    for at, variable in enumerate(variables):
        scope[f"read{at}"] = readers[at]
        if at in required:
            lines.append(f"    if {variable} is None: missing(names[{at}], table)")
            lines.append(f"    {variable} = {_call(types[at], at, variable)}")
        else:
            text = _call(types[at], at, variable)
            lines.append(f"    if {variable} is not None: {variable} = {text}")
    parts = []
    for at, convert in zip(key, to_value, strict=True):
        scope[f"value{at}"] = convert
        whole = f"v{at}" if convert is None else f"(None if v{at} is None else value{at}(v{at}))"
        parts.append(whole)
    lines.append(f"    return (bucket(({', '.join(parts)},)), {', '.join(variables)},)")
    exec("\n".join(lines), scope)
    made: Reader = scope["read"]
    return made


def _call(type_: ColumnType, at: int, variable: str) -> str:
    """Short integers need no check of their range."""
    if type_ is ColumnType.INTEGER:
        return f"int({variable}) if len({variable}) < 19 else read{at}({variable})"
    return f"read{at}({variable})"


def _missing(column: str, table: str) -> None:
    raise NotNullViolation(
        f'null value in column "{column}" of relation "{table}" violates not-null constraint'
    )


def _widened(read: Reader, table: Table, names: Sequence[str]) -> Reader:
    """Rows in the table's own order, with NULL where COPY names no column."""
    order = {name: at + 1 for at, name in enumerate(names)}
    places = [order.get(column.name) for column in table.columns]

    def wide(fields: Fields) -> tuple[Any, ...]:
        row = read(fields)
        return (row[0], *(None if at is None else row[at] for at in places))

    return wide
