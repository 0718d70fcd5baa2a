"""COPY in and out: rows in bulk, each chunk straight to the replicasets that own it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.model.errors import CairnError, NumbersNeeded, PlanOutdated, QueryCanceled, Unsupported
from cairn.model.quoting import identifier
from cairn.model.tables.schema import Column, fit_of
from cairn.model.tables.sequences import numbers_of
from cairn.model.tables.temporary import touches
from cairn.model.types.decimals import encode_shown, padder
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.node.statements.asker.writing import put_by_bucket
from cairn.node.statements.context import Context
from cairn.pgwire.copy import CopyParser
from cairn.pgwire.copy_binary import BinaryParser
from cairn.pgwire.messages import BINARY_FORMAT, TEXT_FORMAT
from cairn.pgwire.server.requests import CopyData, CopyDone, CopyFail
from cairn.server.chunk_size import SMALL_ROWS
from cairn.server.scan import arrow
from cairn.server.scan.copied_out import (
    copy_out,
    format_of,
    has_header,
    is_arrow,
    is_binary,
    options_of,
)
from cairn.server.scan.copy_rows import (
    Fields,
    RowMaker,
    find_bad_line,
    is_required,
    value_reader,
)
from cairn.server.scan.packed_in import PackedLines, packed_lines
from cairn.server.session.copy.place import CopyPlace
from cairn.server.session.states import COPYING, WORKING
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.sql.typing_rules import POSTGRES_NAMES
from cairn.storage.data_db.packed_insert import insert_text

if TYPE_CHECKING:
    from cairn.server.session.session import Session

KEPT_BYTES = 1024 * 1024  # of what a client sent, until some of it is stored
PIECE_BYTES = 64 * 1024  # read in one go: what fits the processor's cache is read twice as fast


async def copy_rows(session: Session, cached: Cached) -> None:
    plan = cached.prepared.plan
    assert isinstance(plan, plans.CopyPlan)
    if plan.direction == "out":
        is_own = touches(cached.prepared.tables) and not cached.sharded
        if session.block.open is not None and session.block.open.has_written and not is_own:
            raise Unsupported(
                "COPY TO would not see what this block has written",
                hint="COMMIT first, or use SELECT",
            )
        count = await copy_out(session, cached, plan)
        session.pg.command_complete(f"COPY {count}")
        session.running.finished(count)
        return
    is_temp = plan.table is not None and plan.table.is_temp
    if not is_temp:
        session.block.check_alone("COPY")
    count = await copy_in(session, cached)
    if not is_temp:
        session.block.wrote()
    session.pg.command_complete(f"COPY {count}")
    session.running.finished(count)


async def copy_in(session: Session, cached: Cached) -> int:
    """Begun again while nothing is stored, if the table had changed and this instance had not heard
    of it: the client has sent its rows, and cannot be asked for them once more."""
    columns: tuple[str, ...] | None = None
    sent: list[CopyData | CopyDone | CopyFail] = []
    while True:
        place = CopyPlace(session, cached)
        try:
            await place.begin()
            session.running.notes_numbers()
            copying = session.copy_in = CopyIn(session, place, sent)
            session.state = COPYING
            if columns is None:
                columns = place.plan.columns
                session.pg.copy_in_response(copying.format, len(columns))
                session.flush()
            try:
                whole = copying.run()
                return await (session.running.as_one(whole) if place.is_temp else whole)
            except PlanOutdated:
                if not copying.may_begin_again or not await _is_still_so(session, cached, columns):
                    raise
                sent = copying.sent
        finally:
            place.leave()
            session.copy_in = None
            if session.state is COPYING:
                session.state = WORKING


async def _is_still_so(session: Session, cached: Cached, columns: tuple[str, ...]) -> bool:
    """Whether lines mean the same as when the client was asked for them."""
    plan = (await session.running.understood(cached.text)).prepared.plan
    assert isinstance(plan, plans.CopyPlan)
    return plan.columns == columns


class CopyIn:
    """One COPY FROM STDIN. While one chunk is being written, the next one is read."""

    def __init__(
        self,
        session: Session,
        place: CopyPlace,
        sent: Sequence[CopyData | CopyDone | CopyFail] = (),
    ) -> None:
        self._session, self._place, plan = session, place, place.plan
        assert plan.table is not None
        self.format = BINARY_FORMAT if is_binary(plan.options) else TEXT_FORMAT
        self._parser = _parser(plan)
        self._again = list(sent)  # what an earlier attempt was sent
        self.sent: list[CopyData | CopyDone | CopyFail] = []  # while nothing is stored
        self._sent_bytes = 0
        self.wake = asyncio.Event()  # set by the session when bytes have come
        self.waiting_bytes = 0  # received by the session, not taken yet
        self._rows: defaultdict[int, list[Any]] = defaultdict(list)  # or by bucket; 0 if global
        self._arrived: list[list[Any]] = []  # the same rows as they came
        self._held = 0  # how many they are
        self._bytes = 0  # the same as they came
        self._size = session.face.chunk_sizes.begin(len(plan.table.columns))
        self._count = 0  # rows stored
        self._writing: asyncio.Task[int] | None = None
        self._now = session.face.executor.blocks.wall_clock()  # of all its lines
        self._follow(plan)

    def _follow(self, plan: plans.CopyPlan) -> None:
        """What comes from here on is for this table. The parser keeps its half of a line."""
        assert plan.insert is not None and plan.table is not None
        self._plan, self._table = plan, plan.table
        columns = filter(None, map(plan.table.column, plan.columns))
        self._readers = [value_reader(column, self.format) for column in columns]
        self._required = [
            at
            for at, name in enumerate(plan.columns)
            if (column := plan.table.column(name)) is not None and is_required(plan.table, column)
        ]
        self._decoder: arrow.BatchDecoder | None = None
        self._batch: RowBatch | None = None  # rows for the next chunk; None: no compiled part
        self._lines: PackedLines | None = None  # reads plain lines into it
        self._maker: RowMaker | None = None
        self._sql = ""
        catalog = self._session.running.catalog
        if is_arrow(plan.options):
            self._decoder = arrow.BatchDecoder(plan.table, plan.columns, catalog)
        elif not plan.table.is_global:
            self._maker = RowMaker(plan.table, plan.columns, catalog, self.format)
        if plan.table.is_global:
            return
        self._sql = insert_text(plan.table)
        if library() is not None and not plan.table.is_temp:
            self._batch = RowBatch()
            parser = self._parser
            if isinstance(parser, CopyParser) and self._maker and not self._maker.filled:
                self._lines = packed_lines(plan.table, plan.columns, catalog, parser)

    async def run(self) -> int:
        """Until the client is done; the number of rows taken."""
        try:
            while True:
                await self._give_way()
                messages, self._again = [*self._again, *_taken(self._session)], []
                self.waiting_bytes = 0
                self._keep(messages)
                if not messages:
                    await self._more()
                elif await self._take(messages):
                    return self._count
        except CairnError as problem:
            await self._end_writing()
            if self._count:
                problem.hint = problem.hint or (
                    f"{self._count} rows that came before are stored: COPY writes chunk by chunk"
                )
            raise
        finally:
            if self._writing is not None:
                self._writing.cancel()  # the client is gone: nobody waits for it
            rest = _taken(self._session)  # the client may go on sending after an error
            self._keep(rest)

    def _keep(self, messages: list[CopyData | CopyDone | CopyFail]) -> None:
        self._sent_bytes += sum(len(each.data) for each in messages if isinstance(each, CopyData))
        if self.may_begin_again:
            self.sent += messages
        else:
            self.sent.clear()

    @property
    def may_begin_again(self) -> bool:
        """Nothing is stored, and all that was sent is at hand."""
        return not self._count and self._sent_bytes <= KEPT_BYTES

    async def _give_way(self) -> None:
        """To whoever changes the table: the rows at hand are of the table as it was."""
        if self._place.is_wanted():
            await self._write()
            await self._written()
            await self._place.give_way()
            self._follow(self._place.plan)

    async def _more(self) -> None:
        """Wait for bytes; notice a client that is gone, a cancel and a message out of place."""
        session = self._session
        if session.pg.requests:
            raise CairnError("unexpected message during COPY", sqlstate="57014")
        if session.transport.is_closing() or session.running.cancelled.is_set():
            raise QueryCanceled("COPY was cancelled")
        session.transport.resume_reading()
        self.wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self.wake.wait()

    async def _take(self, messages: list[CopyData | CopyDone | CopyFail]) -> bool:
        """Whether the client said that it is done."""
        last = messages[-1]
        data = [message.data for message in messages if isinstance(message, CopyData)]
        if self._decoder is not None:
            for stream in data:
                await self._give_way()
                await self._take_arrow(self._decoder, stream)
        elif data:
            whole = b"".join(data)
            for at in range(0, len(whole), PIECE_BYTES):
                await self._give_way()
                await self._take_lines(whole[at : at + PIECE_BYTES])
                await asyncio.sleep(0)  # others want to be answered, the writer to begin
        if isinstance(last, CopyData):
            return False
        if isinstance(last, CopyFail):
            raise QueryCanceled(f"COPY from stdin failed: {last.message}")
        if self._decoder is None:
            await self._add(await self._read(self._parser.finish_columns()), 0)
        await self._write()
        await self._written()
        return True

    async def _take_arrow(self, decoder: arrow.BatchDecoder, stream: bytes) -> None:
        if self._batch is None:
            await self._add(await asyncio.to_thread(decoder.decode, stream), len(stream))
            return
        rows = await asyncio.to_thread(decoder.arrow_rows, stream)
        for first, last in rows.parts(len(stream)):
            await asyncio.to_thread(rows.put, self._batch, first, last)
            await self._added(len(stream) * (last - first) // rows.count)

    async def _take_lines(self, piece: bytes) -> None:
        if self._lines is None or self._batch is None:
            await self._add(await self._read(self._parser.feed_columns(piece)), len(piece))
            return
        for left in self._lines.feed(self._batch, piece):
            self._batch.add(await self._read(left))
        await self._added(len(piece))

    async def _added(self, size: int) -> None:
        """Rows have come into the batch."""
        assert self._batch is not None
        self._bytes += size
        self._held = len(self._batch)
        if self._size.is_enough(self._held, self._bytes):
            await self._write()

    async def _add(self, rows: list[Any], size: int) -> None:
        if self._batch is not None:
            self._batch.add(rows)
            await self._added(size)
            return
        self._bytes += size
        for at in range(0, len(rows), SMALL_ROWS):
            part = rows if len(rows) <= SMALL_ROWS else rows[at : at + SMALL_ROWS]
            self._held += len(part)
            self._arrived.append(part)
            if self._sql:
                put_by_bucket(part, self._rows)
            else:
                self._rows[0] += part
            if self._size.is_enough(self._held, self._bytes):
                await self._write()

    async def _read(self, read: Sequence[Fields]) -> list[Any]:
        filled: Sequence[Sequence[Any]] = ()
        if self._maker is not None and self._maker.filled:
            filled = await self._filled(self._maker.filled, len(read[0]) if read else 0)
        try:
            if self._maker is not None:
                return self._maker.rows(read, filled)
            return [self._values(fields) for fields in zip(*read, strict=True)]
        except (CairnError, ValueError, OverflowError):
            first = self._parser.line - len(read[0]) + 1
            names = self._plan.columns
            found = find_bad_line(self._table, names, read, first, self.format)
            if found is None:
                raise
            raise found from None

    async def _filled(self, columns: Sequence[Column], count: int) -> list[list[Any]]:
        """So many values for each column that the lines leave out, as INSERT would make them."""
        texts = [
            f"({column.default})::{_type_name(column)}"
            for column in columns
            if column.identity is None
        ]
        made: Iterator[tuple[list[Any], int | None]] = iter(())
        if texts and count:
            text = f"SELECT {', '.join(texts)} FROM generate_series(1, {count})"
            cached = await self._session.running.understood(text.encode())
            context = msgspec.structs.replace(self._session.running.context(), now=self._now)
            outcome = await self._session.face.executor.run(cached, (), context)
            scales = [column.scale for column in cached.prepared.columns]
            lists = [list(values) for values in zip(*(outcome.rows or ()), strict=True)]
            made = iter(list(zip(lists, scales, strict=True)))
        found: list[list[Any]] = []
        for column in columns:
            if column.identity is not None:
                found.append(await self._numbers(column, column.identity.start, count))
                continue
            values, scale = next(made, ([], None))
            fit = fit_of(column)
            if column.keeps_zeros and scale:  # 1.50 is its key and two digits
                shown = padder(scale)
                values = [v if v is None else encode_shown(shown(v)) for v in values]
            found.append(values if fit is None else [v if v is None else fit(v) for v in values])
            self._bytes += sum(len(v) for v in values if isinstance(v, str | bytes))
        return found

    async def _numbers(self, column: Column, start: int, count: int) -> list[int]:
        numbers, kept_by = self._session.face.executor.numbers, numbers_of(self._table.id, column)
        found: list[int] = []
        while len(found) < count:
            try:
                found.append(numbers.next(kept_by, start))
            except NumbersNeeded as need:
                await numbers.more(need)
        return found

    def _values(self, fields: Fields) -> list[Any]:
        """Fields to Python values, for global tables."""
        if None in fields and any(fields[at] is None for at in self._required):
            raise ValueError(fields)
        return [
            None if field is None else value_of(field)
            for value_of, field in zip(self._readers, fields, strict=True)
        ]

    async def _write(self) -> None:
        """Give the rows at hand to their owners, once the chunk before is stored."""
        await self._written()
        if not self._held:
            return
        self._held = self._bytes = 0
        if self._batch is not None:
            batch, self._batch = self._batch, RowBatch()
            work: Coroutine[Any, Any, int] = self._store_packed(batch)
        else:
            chunk, self._rows = self._rows, defaultdict(list)
            arrived, self._arrived = self._arrived, []
            work = self._store(chunk, arrived)
        self._writing = asyncio.get_running_loop().create_task(work)

    async def _written(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._count += await writing

    async def _end_writing(self) -> None:
        """After an error: what is on its way is waited for, so that the count is true."""
        with contextlib.suppress(CairnError):
            await self._written()

    def _context(self) -> Context:
        return msgspec.structs.replace(self._session.running.context(), is_under_way=True)

    async def _store(self, chunk: dict[int, list[Any]], arrived: list[list[Any]]) -> int:
        """`arrived` is held for its order alone: freed as they came, rows cost a fifth as much."""
        insert = self._plan.insert
        assert insert is not None
        executor, context = self._session.face.executor, self._context()
        plan = insert.plan
        if isinstance(plan, plans.TempWrite):
            temps = self._session.running.temps
            assert temps is not None
            whole = [row for part in arrived for row in part]
            return await temps.insert(self._sql, whole, context, self._session.running.catalog)
        if isinstance(plan, plans.PointWrite | plans.ShardedInsert | plans.InsertSelect):
            stored = executor.writes.insert_rows(
                plan.table, plan.tier, self._sql, chunk, context, is_bulk=True
            )
            return await self._measured(chunk, stored)
        if not isinstance(plan, plans.GlobalWrite):
            raise Unsupported("COPY into this table is not supported")
        rows: list[Sequence[Any]] = [insert.start(values) for values in chunk[0]]
        return await executor.global_writes.insert(plan, rows, context)

    async def _store_packed(self, batch: RowBatch) -> int:
        executor, context = self._session.face.executor, self._context()
        sharding = self._table.sharding
        assert sharding is not None
        buckets = self._session.face.catalog.tiers[sharding.tier].bucket_count
        rows = await asyncio.to_thread(batch.sorted, buckets)
        del batch  # its memory is wanted for the next one
        stored = executor.writes.insert_packed(self._table, sharding.tier, rows, context)
        return await self._measured(rows.buckets, stored)

    async def _measured(self, buckets: Iterable[int], stored: Awaitable[int]) -> int:
        """How long a chunk takes says how large the next one may be."""
        execution = self._session.face.executor.execution
        begun, before = time.monotonic(), execution.writes.short
        is_here = all(map(execution.data.fence.owns, buckets))
        with self._session.face.chunk_sizes.storing() as sharing:
            count = await stored
        is_alone = is_here and execution.writes.short == before
        self._size.stored(count, (time.monotonic() - begun) / sharing, is_alone=is_alone)
        return count


def _taken(session: Session) -> list[CopyData | CopyDone | CopyFail]:
    """What has arrived for the COPY that is running; everything else stays in the line."""
    found: list[CopyData | CopyDone | CopyFail] = []
    requests = session.pg.requests
    while requests and isinstance(requests[0], CopyData | CopyDone | CopyFail):
        found.append(requests.popleft())  # type: ignore[arg-type]
        if not isinstance(found[-1], CopyData):
            break  # the end: what comes after it belongs to no COPY
    return found


def _parser(plan: plans.CopyPlan) -> CopyParser | BinaryParser:
    if is_binary(plan.options):
        return BinaryParser(len(plan.columns))
    return CopyParser(
        "text" if is_arrow(plan.options) else format_of(plan.options),
        ncols=len(plan.columns),
        header=has_header(plan.options),
        **options_of(plan.options),
    )


def _type_name(column: Column) -> str:
    """As a cast names it."""
    return POSTGRES_NAMES[column.type] if column.enum is None else identifier(column.enum.name)
