"""`COPY … (FORMAT arrow)`: columns in bulk, for Spark and whoever else reads Arrow.

Each CopyData message carries one whole Arrow IPC stream: a schema and a batch of rows. Rows that
live here are read by one cursor in one read transaction and leave as they are read, so memory
stays flat; rows of others are asked for a few buckets at a time. A query that restricts
`bucket_id` is answered only by a member of the replicaset that owns those buckets: anyone else
says PC001 before the first row, and the reader plans anew.

pyarrow is imported when the first client asks for the format, never before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cairn.model.buckets import bucket_function
from cairn.model.catalog import Catalog
from cairn.model.decimals import decode_decimal
from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    InvalidText,
    NotNullViolation,
    NotOwner,
    QueryCanceled,
    Unsupported,
)
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.model.schema import Table
from cairn.model.values import ColumnType, physical_reader, to_physical
from cairn.node.routes import Ranges
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.readers import RowReader, translated

if TYPE_CHECKING:
    from cairn.server.connection import Connection

BATCH_ROWS = 20_000
REMOTE_BUCKETS = 100  # asked of another instance at a time
REMOTE_S = 30.0

Row = tuple[Any, ...]
Encode = Callable[[Sequence[Row]], bytes]


def load_pyarrow() -> Any:
    """The library, or a refusal that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise Unsupported(
            "COPY format arrow needs pyarrow on this instance",
            hint='pip install ".[spark]" where the instance runs, or use FORMAT csv',
        ) from None
    return pyarrow


# --- types ----------------------------------------------------------------------------------------


def arrow_type(pa: Any, type_: ColumnType) -> Any:
    """How a column travels. DECIMAL has no fixed scale here, so it goes as exact text."""
    match type_:
        case ColumnType.BOOLEAN:
            return pa.bool_()
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            return pa.int64()
        case ColumnType.DOUBLE:
            return pa.float64()
        case ColumnType.DATETIME:
            return pa.timestamp("us", tz="UTC")
        case _:
            return pa.string()


def _decimal_text(data: bytes) -> str:
    return format(decode_decimal(data), "f")


def _uuid_text(data: bytes) -> str:
    word = data.hex()
    return f"{word[:8]}-{word[8:12]}-{word[12:16]}-{word[16:20]}-{word[20:]}"


_OUT: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.BOOLEAN: bool,
    ColumnType.DECIMAL: _decimal_text,
    ColumnType.UUID: _uuid_text,
}


class BatchEncoder:
    """Physical rows to the bytes of one IPC stream."""

    def __init__(self, columns: Sequence[plans.OutColumn]) -> None:
        pa = self._pa = load_pyarrow()
        self._types = [arrow_type(pa, column.type) for column in columns]
        self._readers = [_OUT.get(column.type) for column in columns]
        names = [column.name for column in columns]
        self.schema = pa.schema(list(zip(names, self._types, strict=True)))

    def encode(self, rows: Sequence[Row]) -> bytes:
        pa = self._pa
        arrays = []
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._types)
        for stored, type_, read in zip(columns, self._types, self._readers, strict=True):
            values: Sequence[Any] = stored
            if read is not None:
                values = [None if value is None else read(value) for value in stored]
            arrays.append(pa.array(values, type=type_))
        batch = pa.record_batch(arrays, schema=self.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data


# --- COPY TO --------------------------------------------------------------------------------------


async def copy_out(session: Connection, query: Cached, drained: Callable[[Connection], Any]) -> int:
    """Send the rows of `query`; the number of rows sent."""
    encoder = BatchEncoder(query.prepared.columns)
    count, is_begun = 0, False
    async for chunk, data in _chunks(session, query, encoder.encode):
        if not is_begun:
            session.pg.copy_out_response(1, len(query.prepared.columns))
            is_begun = True
        session.pg.copy_data(data)
        session._flush()
        await drained(session)
        count += chunk
    if not is_begun:
        session.pg.copy_out_response(1, len(query.prepared.columns))
        session.pg.copy_data(encoder.encode(()))  # the columns of an empty answer
    session.pg.copy_done()
    return count


def local_chunks(
    session: Connection, query: Cached, encode: Encode
) -> AsyncIterator[tuple[int, bytes]] | None:
    """The rows in pieces as they are read, if all of them live here; None if they do not."""
    fragment = _only_fragment(query.prepared.plan)
    if fragment is None:
        return None
    values = query.prepared.start((), session.now())
    targets = _targets(session, fragment, values)
    if _away(session, targets):
        return None
    ranges = tuple(part for found in targets.values() for part in found)
    return _streamed(session, query, fragment, values, ranges, encode)


def _chunks(session: Connection, query: Cached, encode: Encode) -> AsyncIterator[tuple[int, bytes]]:
    values = query.prepared.start((), session.now())
    fragment = _only_fragment(query.prepared.plan)
    if fragment is None:
        return _gathered(session, query, values, encode)
    here = local_chunks(session, query, encode)
    if here is not None:
        return here
    targets = _targets(session, fragment, values)
    if fragment.buckets is not None and b"bucket_id" in query.text:
        raise NotOwner(
            "the asked buckets do not belong to this replicaset",
            detail=f"owner: {', '.join(_away(session, targets))}",
            hint="read the topology again and ask the owner",
        )
    return _collected(session, query, fragment, values, targets, encode)


def _away(session: Connection, targets: dict[str, Ranges]) -> list[str]:
    """Replicasets whose rows another instance has to read."""
    routes, raft_id = session.service.dispatcher.routes, session.service.instance.raft_id
    return sorted(
        name for name in targets if routes.reader(name, session.preference, raft_id) != raft_id
    )


def _only_fragment(plan: plans.Plan) -> plans.Fragment | None:
    """The fragment of a plan that does nothing but hand its rows through."""
    from cairn.node.reading import PLAIN_MERGE

    if not isinstance(plan, plans.ScatterRead) or plan.steps or len(plan.fragments) != 1:
        return None
    return plan.fragments[0] if PLAIN_MERGE.fullmatch(plan.sql) else None


def _targets(session: Connection, fragment: plans.Fragment, values: list[Any]) -> dict[str, Ranges]:
    routes = session.service.dispatcher.routes
    buckets = fragment.bucket_set(values)
    if buckets is None:
        return routes.all_ranges(fragment.tier)
    return {
        replicaset: joined(owned)
        for replicaset, owned in routes.group(fragment.tier, buckets).items()
    }


def joined(buckets: Sequence[int]) -> Ranges:
    """Sorted buckets as few ranges."""
    found: list[tuple[int, int]] = []
    for bucket in buckets:
        if found and found[-1][1] + 1 == bucket:
            found[-1] = (found[-1][0], bucket)
        else:
            found.append((bucket, bucket))
    return tuple(found)


def _request(
    session: Connection, query: Cached, fragment: plans.Fragment, values: list[Any], ranges: Ranges
) -> ReadRequest:
    return ReadRequest(
        fragment.with_ranges(list(ranges)),
        fragment.bind(values),
        {table: query.sharded[table] for table in fragment.tables if table in query.sharded},
        ranges=ranges,
        preference=session.preference,
    )


async def _streamed(
    session: Connection,
    query: Cached,
    fragment: plans.Fragment,
    values: list[Any],
    ranges: Ranges,
    encode: Encode,
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of this instance: one cursor on a connection and a thread of their own."""
    execution = session.service.execution
    request = _request(session, query, fragment, values, ranges)
    execution.check_read(request)
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, thread_name_prefix="copy")
    scan = _Scan(session, request, encode)
    following = loop.run_in_executor(pool, scan.following)
    try:
        while (found := await following) is not None:
            following = loop.run_in_executor(pool, scan.following)  # while the client takes this
            yield found
        execution.check_read(request)  # still ours: only now the rows are an answer
    finally:
        scan.is_over = True
        pool.submit(scan.close)
        pool.shutdown(wait=False)


class _Scan:
    """The cursor of one COPY. Everything but the making happens on its own thread."""

    def __init__(self, session: Connection, request: ReadRequest, encode: Encode) -> None:
        instance = session.service.instance
        self._paths = instance.data.store.path, instance.store.path
        self._register = session.service.execution._register
        self._request, self._encode = request, encode
        self._cancelled = session.cancelled
        self._reader: RowReader | None = None
        self._cursor: Any = None
        self.is_over = False  # nobody waits for more

    def _is_stopped(self) -> bool:
        return self.is_over or self._cancelled.is_set()

    def following(self) -> tuple[int, bytes] | None:
        """Rows and bytes of the next batch; None at the end."""
        import apsw

        try:
            if self._reader is None:
                self._reader = RowReader(*self._paths, self._register)
                self._reader.connection.set_progress_handler(self._is_stopped, 10_000)
                self._cursor = self._reader.connection.execute(
                    self._request.sql, self._request.args
                )
            rows = list(islice(self._cursor, BATCH_ROWS))
        except apsw.InterruptError:
            raise QueryCanceled("canceling statement due to user request") from None
        except apsw.Error as problem:
            raise translated(problem) from None
        return (len(rows), self._encode(rows)) if rows else None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


async def _collected(
    session: Connection,
    query: Cached,
    fragment: plans.Fragment,
    values: list[Any],
    targets: dict[str, Ranges],
    encode: Encode,
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of several replicasets, a few buckets at a time; each answer is checked by its owner."""
    instance, dispatcher = session.service.instance, session.service.dispatcher
    for replicaset, ranges in targets.items():
        for part in _cut(ranges):
            request = _request(session, query, fragment, values, (part,))
            target = dispatcher.routes.reader(replicaset, session.preference, instance.raft_id)
            if target == instance.raft_id:
                rows = await session.service.execution.read(request, session.cancelled)
            else:
                answer = await instance.peers.call(
                    target, "read_rows", request, ReadResponse, REMOTE_S
                )
                rows = answer.rows
            for start in range(0, len(rows), BATCH_ROWS):
                chunk = rows[start : start + BATCH_ROWS]
                yield len(chunk), await asyncio.to_thread(encode, chunk)


def _cut(ranges: Ranges) -> list[tuple[int, int]]:
    return [
        (start, min(start + REMOTE_BUCKETS - 1, high))
        for low, high in ranges
        for start in range(low, high + 1, REMOTE_BUCKETS)
    ]


async def _gathered(
    session: Connection, query: Cached, values: list[Any], encode: Encode
) -> AsyncIterator[tuple[int, bytes]]:
    """Whatever needs a merge or lives in global tables: all of it, then in pieces."""
    rows = await session.service.dispatcher.read(
        query.prepared.plan,  # type: ignore[arg-type]
        values,
        query.sharded,
        preference=session.preference,
        cancelled=session.cancelled,
    )
    for start in range(0, len(rows), BATCH_ROWS):
        chunk = rows[start : start + BATCH_ROWS]
        yield len(chunk), await asyncio.to_thread(encode, chunk)


# --- COPY FROM ------------------------------------------------------------------------------------


class BatchDecoder:
    """The bytes of an IPC stream to physical rows with their bucket first."""

    def __init__(self, table: Table, names: Sequence[str], catalog: Catalog) -> None:
        self._pa = load_pyarrow()
        if table.sharding is None:
            raise Unsupported("COPY FROM with FORMAT arrow is for sharded tables; use FORMAT csv")
        tier = catalog.tiers[table.sharding.tier]
        columns = [table.column(name) for name in names]
        self._columns = [column for column in columns if column is not None]
        self._table, self._names = table, list(names)
        key = table.sharding.columns
        self._key = [self._names.index(name) for name in key if name in self._names]
        self._check_filled()
        types = [self._columns[at].type for at in self._key]
        self._bucket = bucket_function(types, tier.bucket_count, tier.hash_version)
        self._key_readers = [physical_reader(type_) for type_ in types]
        order = {name: at for at, name in enumerate(self._names)}
        self._order = [order.get(column.name) for column in table.columns]

    def _check_filled(self) -> None:
        sharding = self._table.sharding
        assert sharding is not None
        for column in self._table.columns:
            must = not column.nullable or column.name in (
                *self._table.primary_key,
                *sharding.columns,
            )
            if must and column.name not in self._names:
                raise NotNullViolation(f'COPY must fill column "{column.name}"')

    @property
    def insert_sql(self) -> str:
        marks = ", ".join("?" * (len(self._table.columns) + 1))
        return f"INSERT INTO {self._table.physical_name} VALUES ({marks})"

    def decode(self, data: bytes) -> list[Row]:
        """Rows in the table's own order; NULL where COPY names no column."""
        pa = self._pa
        try:
            table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        except pa.ArrowInvalid as problem:
            raise InvalidText(f"not an Arrow IPC stream: {problem}") from None
        if table.num_columns != len(self._columns):
            raise InvalidText(
                f"the stream has {table.num_columns} columns, COPY names {len(self._columns)}"
            )
        columns = [self._physical(at, table.column(at)) for at in range(len(self._columns))]
        buckets = self._buckets(columns, table.num_rows)
        empty = [None] * table.num_rows
        return list(
            zip(
                buckets,
                *(empty if at is None else columns[at] for at in self._order),
                strict=True,
            )
        )

    def _buckets(self, columns: list[list[Any]], count: int) -> list[int]:
        parts = []
        for at, read in zip(self._key, self._key_readers, strict=True):
            values = columns[at]
            if read is not None:
                values = [None if value is None else read(value) for value in values]
            parts.append(values)
        return list(map(self._bucket, zip(*parts, strict=True))) if count else []

    def _physical(self, at: int, array: Any) -> list[Any]:
        column = self._columns[at]
        must = not column.nullable or column.name in self._table.primary_key
        if must and array.null_count:
            raise NotNullViolation(
                f'null value in column "{column.name}" of relation "{self._table.name}" violates '
                "not-null constraint"
            )
        try:
            return _stored(self._pa, column.type, array)
        except (self._pa.ArrowInvalid, self._pa.ArrowNotImplementedError) as problem:
            raise DatatypeMismatch(
                f'column "{column.name}" is {column.type}, the stream has {array.type}: {problem}'
            ) from None


def _stored(pa: Any, type_: ColumnType, array: Any) -> list[Any]:
    """One column as SQLite stores it."""
    found: list[Any]
    match type_:
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            found = array.cast(pa.int64()).to_pylist()
            if type_ is ColumnType.UNSIGNED and any(v is not None and v < 0 for v in found):
                raise CairnError("a negative value is out of range for unsigned", sqlstate="22003")
        case ColumnType.DATETIME:
            found = array.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        case ColumnType.BOOLEAN:
            found = array.cast(pa.bool_()).cast(pa.int64()).to_pylist()
        case ColumnType.STRING:
            found = array.cast(pa.string()).to_pylist()
            if any(v is not None and "\x00" in v for v in found):
                raise InvalidText("a string cannot contain a zero byte", sqlstate="22021")
        case ColumnType.UUID:
            found = [None if v is None else _uuid_bytes(v) for v in array.to_pylist()]
        case ColumnType.DOUBLE:
            found = _doubles(pa, array)
        case ColumnType.MAP | ColumnType.ARRAY | ColumnType.ANY:
            found = array.cast(pa.string()).to_pylist()
            for value in found:
                _check_json(value)
        case _:
            found = [to_physical(type_, v) for v in array.to_pylist()]
    return found


def _doubles(pa: Any, array: Any) -> list[Any]:
    import pyarrow.compute as pc

    plain = array.cast(pa.float64())
    if pc.any(pc.is_nan(plain)).as_py():
        to_physical(ColumnType.DOUBLE, float("nan"))  # says why not
    found: list[Any] = pc.add(plain, 0.0).to_pylist()  # -0.0 becomes 0.0 (DESIGN 5.2)
    return found


def _check_json(value: str | None) -> None:
    try:
        None if value is None else json.loads(value)
    except ValueError:
        raise InvalidText(f'invalid input syntax for type json: "{value}"') from None


def _uuid_bytes(value: Any) -> bytes:
    try:
        return UUID(value).bytes if isinstance(value, str) else bytes(value)
    except ValueError:
        raise InvalidText(f'invalid input syntax for type uuid: "{value}"') from None
