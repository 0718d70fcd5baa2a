"""The coordinator's writes: what each plan asks of the replicasets that have its rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from cairn.model.errors import (
    CairnError,
    CasRetry,
    NumbersNeeded,
    OutcomeUnknown,
    PartialWrite,
    QueryCanceled,
    Unreachable,
)
from cairn.model.log.packed_rows import PackedRows
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.model.sharding.spans import Ranges, contains
from cairn.model.tables.schema import Table
from cairn.native.point_inserts import PointInsert
from cairn.node.statements.asker.dispatch import WRITE_S, Back, Dispatch, unknown
from cairn.node.statements.asker.hops import HERE, Answered, Hop, Hops
from cairn.node.statements.asker.keyed import (
    QUICK_ROWS,
    KeyedChanges,
    by_bucket,
    forgotten,
    made_of,
    may_pack,
    packed_rows,
)
from cairn.node.statements.asker.owners import Owners, Params
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.context import Context
from cairn.node.statements.owner.writes import Done, Insert
from cairn.sql import plans
from cairn.storage.files.pieces import Row

KEYED_ATTEMPTS, KEYED_PAUSE_S = 64, 0.002
Asked = tuple[bytes, int, int]  # a request, where its parameters begin, and its row's bucket
FEW_ROWS = 16  # that are written without a task
FEW_BUCKETS = 100  # rows of no more are written in a moment


#: What a write ends with that may have done something, or was to be ended.
ENDED = (OutcomeUnknown, PartialWrite, QueryCanceled)
_ASKS = "SELECT "  # in a write: it has a query, which may take long


class Writes:
    """Takes the changes of rows to the replicasets that have them. One for the instance."""

    def __init__(self, reads: Reads) -> None:
        self._reads, self._owners = reads, reads.owners
        self._away = Hops("write_rows", WriteResponse, WRITE_S)

    async def run(
        self, plan: plans.RowWrite, params: Params, tables: dict[int, int], context: Context
    ) -> int:
        """Rows changed. What a statement does on one replicaset is atomic."""
        return await _Statement(self._reads, tables, context).run(plan, params)

    async def returning(
        self, plan: plans.Returning, params: Params, tables: dict[int, int], context: Context
    ) -> list[Row]:
        """The rows changed, as the owners' own statements tell them, inside their transactions.

        A write that is taken back tells nothing; one that reached only some of its replicasets is
        an error (PC006) like any other, and has no rows.
        """
        back = Back(plan, params)
        await _Statement(self._reads, tables, context, back).run(plan.write, params)
        return plan.arranged(back.rows, back.inserted)

    async def insert_rows(
        self,
        table: Table,
        tier: str,
        sql: str,
        rows: dict[int, list[Row]],
        context: Context,
        is_bulk: bool = False,
    ) -> int:
        """Physical rows by their buckets, each to the replicaset that owns it."""
        statement = _Statement(self._reads, {}, context)
        return await statement.insert_rows(table, tier, sql, rows, is_bulk)

    async def run_many(
        self,
        plan: plans.PointWrite | plans.ShardedInsert,
        rows: list[tuple[int, plans.Row]],
        context: Context,
    ) -> list[bool]:
        """Several executions of one statement that come together, as one: on each replicaset all of
        them or none. Those that are not done have to be run by themselves: one of them is refused,
        or changes no row, and only that tells which.
        """
        if isinstance(plan, plans.PointWrite) and _may_take_long(self._owners, plan):
            return [False] * len(rows)
        found: defaultdict[int, list[Row]] = defaultdict(list)
        for bucket, row in rows:
            found[bucket].append(row)
        statement = _Statement(self._reads, {}, context)
        try:
            left = await statement.change_each(plan.table, plan.tier, plan.sql, found)
        except ENDED:
            raise
        except CairnError:
            return [False] * len(rows)
        return [bucket not in left for bucket, _ in rows]

    async def insert_packed(
        self, table: Table, tier: str, rows: PackedRows, context: Context
    ) -> int:
        """The same with rows that are packed already."""
        return await _Statement(self._reads, {}, context).insert_packed(table, tier, rows)

    def start_here(self, plan: plans.PointWrite, params: Params, callback: Done) -> bool:
        """Start a write whose rows are here; False: go the long way."""
        if _may_take_long(self._owners, plan):
            return False
        args = plan.bind(params)
        if not self._is_here(plan.table, args[0]):
            return False
        self._owners.local += 1
        self._owners.execution.writes.start_write(_point_request(plan, args), callback)
        return True

    def start_few(
        self,
        plan: plans.RowWrite | plans.Returning,
        params: Params,
        callback: Done,
        *,
        may_hop: bool,
    ) -> Hop | None:
        """Start a write of a few rows that one instance has; None: go the long way.

        What RETURNING tells are the rows of the WriteResponse that the callback has.
        """
        few = self._few(plan.write if isinstance(plan, plans.Returning) else plan, params)
        if few is None:
            return None
        tier, request, inserted = few
        if isinstance(plan, plans.Returning):
            request = Back(plan, params).asking(request)
            callback = _arranging(plan, inserted, callback)
        return self._start_few(tier, request, callback, may_hop)

    def _few(
        self, write: plans.RowWrite, params: Params
    ) -> tuple[str, WriteRequest, Sequence[tuple[int, plans.Row]]] | None:
        """What is asked, and the rows that are new. Their numbers and keys are made here."""
        if isinstance(write, plans.PointWrite):
            if _may_take_long(self._owners, write):
                return None
            return write.tier, _point_request(write, write.bind(params)), ()
        if isinstance(write, plans.ShardedInsert):
            rows = write.rows(params)
        elif isinstance(write, plans.InsertSelect):
            made = self.made_at_once(write, params)
            if made is None:
                return None
            rows = made
        else:
            return None
        if not 0 < len(rows) <= FEW_ROWS or _ASKS in write.sql:
            return None
        table, buckets = write.table, tuple(sorted({bucket for bucket, _ in rows}))
        given = tuple(row for _, row in rows)
        request = WriteRequest(table.id, table.schema_version, write.sql, given, buckets=buckets)
        return write.tier, request, rows

    def made_at_once(
        self, write: plans.InsertSelect, params: Params
    ) -> list[tuple[int, plans.Row]] | None:
        """A few new rows that need no row of a sharded table; None: they take longer."""
        read = write.read
        if not isinstance(read, plans.PointRead) or read.bucket is not None:
            return None
        try:
            found = self._owners.execution.reader.quick(read.sql, read.bind(params))
        except NumbersNeeded:
            return None
        return None if found is None or len(found) > FEW_ROWS else write.rows(found)

    def _start_few(
        self, tier: str, request: WriteRequest, callback: Done, may_hop: bool
    ) -> Hop | None:
        owners = self._owners
        table = owners.state.catalog.table_by_id(request.table)
        if table is None or not table.operable or table.schema_version != request.version:
            return None
        fence = owners.execution.data.fence
        if fence.is_master and all(map(fence.owns, request.buckets)):
            owners.local += 1
            owners.execution.writes.start_write(request, callback)
            return HERE
        if not may_hop:
            return None
        try:
            if len(owners.routes.group(tier, request.buckets)) != 1:
                return None
        except CairnError:
            return None
        link = owners.link_to_owner(tier, request.buckets[0])
        return None if link is None else self._away.ask(link, request, _or_unknown(callback))

    def start_insert(
        self, plan: plans.PointWrite, what: PointInsert, asked: Asked, callback: Done
    ) -> bool:
        """Start a new row that C reads from its request; False: go the ordinary way."""
        data, at, bucket = asked
        table = plan.table
        if not self._is_here(table, bucket):
            return False
        self._owners.local += 1
        self._owners.compiled_writes += 1
        insert = Insert(what, data, at, bucket, table.id, table.schema_version)
        self._owners.execution.writes.start_insert(insert, callback)
        return True

    def _is_here(self, table: Table, bucket: Any) -> bool:
        """A first look: the writer asks again, inside its transaction."""
        fence = self._owners.execution.data.fence
        if not fence.is_master or not fence.owns(bucket):
            return False
        known = self._owners.state.catalog.tables.get(table.name)
        if known is None or not known.operable:
            return False
        return known.schema_version == table.schema_version

    def start_away(
        self, plan: plans.PointWrite, params: Params, callback: Answered[WriteResponse]
    ) -> Hop | None:
        """Pass a write on to its owner; None: go the long way."""
        if _may_take_long(self._owners, plan):
            return None
        args = plan.bind(params)
        try:
            self._owners.check_operable(plan.table)
        except CairnError:
            return None
        link = self._owners.link_to_owner(plan.tier, args[0])  # type: ignore[arg-type]
        if link is None:
            return None

        return self._away.ask(link, _point_request(plan, args), _or_unknown(callback))


def _or_unknown(callback: Answered[WriteResponse]) -> Answered[WriteResponse]:
    def answered(result: WriteResponse | CairnError) -> None:
        if isinstance(result, Unreachable):
            result = unknown("the owner of the row", result)
        callback(result)

    return answered


def _arranging(
    plan: plans.Returning, inserted: Sequence[tuple[int, plans.Row]], callback: Done
) -> Done:
    def done(result: WriteResponse | CairnError) -> None:
        if isinstance(result, WriteResponse):
            rows = tuple(plan.arranged(result.rows, inserted))
            result = msgspec.structs.replace(result, rows=rows)
        callback(result)

    return done


def _may_take_long(owners: Owners, plan: plans.PointWrite) -> bool:
    """Whether it may have to be ended: it reads, or rows of others follow the one it names."""
    if _ASKS in plan.sql:
        return True
    is_change = not plan.sql.startswith("INSERT")
    return is_change and owners.execution.writes.has_followers(plan.table.id)


def _point_request(plan: plans.PointWrite, args: Any, operation: str | None = None) -> WriteRequest:
    """The first binding is the bucket."""
    table = plan.table
    return WriteRequest(
        table.id,
        table.schema_version,
        plan.sql,
        (args,),
        buckets=(args[0],),
        operation=operation,
    )


class _Statement:
    """One statement's changes on their way."""

    def __init__(
        self, reads: Reads, tables: dict[int, int], context: Context, back: Back | None = None
    ) -> None:
        self._reads, self._tables, self._context, self._back = reads, tables, context, back
        self._owners = reads.owners
        self._dispatch = Dispatch(reads.owners, context, back)
        self._operation = context.operation

    async def run(self, plan: plans.RowWrite, params: Params) -> int:
        match plan:
            case plans.PointWrite():
                return await self._point_write(plan, params)
            case plans.ShardedInsert():
                return await self._insert(plan, plan.rows(params))
            case plans.InsertSelect():
                found = await self._find(plan.read, params)
                if self._back is None and may_pack(plan, found):
                    buckets = self._owners.state.catalog.tiers[plan.tier].bucket_count
                    packed = await packed_rows(plan, found, buckets)
                    return await self.insert_packed(plan.table, plan.tier, packed)
                rows = await made_of(found, plan.rows)
                return await self._insert(plan, rows)
            case plans.ScatterWrite():
                return await self._scatter_write(plan, params)
            case plans.KeyedWrite():
                return await self._keyed_write(plan, params)

    async def _find(self, plan: plans.ReadPlan, params: Params) -> list[Row]:
        """The rows that a write begins with; until they are there, a cancel can end it."""
        return await self._reads.read(plan, params, self._tables, self._context.within(plan))

    def _is_begun(self, only: Ranges | None) -> bool:
        """Part of it may be done: a schema change that is prepared meanwhile waits for the rest."""
        return only is not None or self._context.is_under_way

    async def _point_write(self, plan: plans.PointWrite, params: Params) -> int:
        request = _point_request(plan, plan.bind(params), self._operation)
        [bucket] = request.buckets

        async def attempt() -> int:
            self._owners.check_operable(plan.table)
            owner = self._owners.routes.owner(plan.tier, bucket)
            return (await self._dispatch.write_at(owner, request)).row_count

        work = self._owners.following(attempt, self._context)
        is_long = _may_take_long(self._owners, plan)
        return await (self._context.watched(work) if is_long else work)

    async def _insert(
        self,
        plan: plans.ShardedInsert | plans.InsertSelect,
        rows: list[tuple[int, plans.Row]],
    ) -> int:
        if self._back is not None:
            self._back.inserted = rows
        is_long = len(rows) > QUICK_ROWS
        found = await made_of(rows, by_bucket, forget=self._back is None)
        count = await self.insert_rows(plan.table, plan.tier, plan.sql, found)
        if is_long:
            await forgotten(found)
        return count

    async def insert_rows(
        self,
        table: Table,
        tier: str,
        sql: str,
        rows: dict[int, list[Row]],
        is_bulk: bool = False,
    ) -> int:
        """Neighbours on disk go in together, so that fewer pages are touched."""

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            wanted = self._of_owners(table, tier, sql, rows, only)
            if not is_bulk:
                return wanted
            return {o: msgspec.structs.replace(r, is_bulk=True) for o, r in wanted.items()}

        return await self._dispatch.write_all(requests, may_end=len(rows) > FEW_BUCKETS)

    async def change_each(
        self, table: Table, tier: str, sql: str, rows: dict[int, list[Row]]
    ) -> set[int]:
        """The statement for each of `rows`, which has to change one row each time. Told are buckets
        whose rows were not changed, since some of them were gone meanwhile."""
        left: set[int] = set()

        async def changed() -> None:  # since the check: what is asked for next is left
            left.add(-1)

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            if left and only is not None:
                left.update(each for each in rows if contains(only, each))
                return {}
            wanted = self._of_owners(table, tier, sql, rows, only)
            return {
                owner: msgspec.structs.replace(each, must_change=len(each.rows))
                for owner, each in wanted.items()
            }

        may_end = len(rows) > FEW_BUCKETS
        await self._dispatch.write_all(requests, may_end=may_end, again=changed)
        return left

    def _of_owners(
        self, table: Table, tier: str, sql: str, rows: dict[int, list[Row]], only: Ranges | None
    ) -> dict[str, WriteRequest]:
        self._owners.check_operable(table, is_begun=self._is_begun(only))
        wanted = rows if only is None else [each for each in rows if contains(only, each)]
        return {
            owner: WriteRequest(
                table.id,
                table.schema_version,
                sql,
                tuple(chain.from_iterable(map(rows.__getitem__, buckets))),
                buckets=buckets,
                operation=self._operation,
            )
            for owner, buckets in self._owners.routes.group(tier, wanted).items()
        }

    async def insert_packed(self, table: Table, tier: str, rows: PackedRows) -> int:
        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            self._owners.check_operable(table, is_begun=self._is_begun(only))
            wanted = [each for each in rows.buckets if only is None or contains(only, each)]
            return {
                owner: WriteRequest(
                    table.id,
                    table.schema_version,
                    "",
                    (),
                    buckets=buckets,
                    operation=self._operation,
                    is_bulk=True,
                    packed=rows.of(buckets),
                )
                for owner, buckets in self._owners.routes.group(tier, wanted).items()
            }

        return await self._dispatch.write_all(requests, may_end=len(rows.buckets) > FEW_BUCKETS)

    async def _scatter_write(self, plan: plans.ScatterWrite, params: Params) -> int:
        values = list(params)
        for step in plan.steps:
            found = await self._find(step.plan, values)
            values = [*values, *[None] * (step.number - len(values))]
            values[step.number - 1] = step.value(found)
        fragment = plan.fragment

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            self._owners.check_operable(plan.table, is_begun=self._is_begun(only))
            return {
                owner: WriteRequest(
                    plan.table.id,
                    plan.table.schema_version,
                    fragment.with_ranges(list(ranges)),
                    (fragment.bind(values),),
                    ranges=ranges,
                    operation=self._operation,
                    open_sql=fragment.sql if self._operation else "",
                )
                for owner, ranges in self._owners.targets(fragment, values, only).items()
            }

        return await self._dispatch.write_all(requests)

    async def _keyed_write(self, plan: plans.KeyedWrite, params: Params) -> int:
        """Read, then change by key; read again if a row vanished or was changed in between.

        Where some replicasets have done their part, the others read anew for theirs: but no row
        that goes from one to another, whose halves belong together.
        """
        read_now: list[KeyedChanges] = []  # one

        async def read() -> None:
            found = await self._find(plan.read, params)
            read_now[:] = [await made_of(found, partial(_changes, plan))]

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            self._owners.check_operable(plan.table, is_begun=self._is_begun(only))
            return read_now[0].requests(plan, self._owners.routes, only, self._operation)

        for attempt in range(KEYED_ATTEMPTS):
            await asyncio.sleep(attempt // 8 * KEYED_PAUSE_S)  # others were quicker, time and again
            await read()
            [changes] = read_now
            try:
                again = None if changes.moves else read
                done = await self._dispatch.write_all(requests, again=again)
                count = changes.count if changes.moves else done
                if changes.count > QUICK_ROWS:
                    await forgotten(changes)
                return count
            except CasRetry:
                if attempt == KEYED_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def _changes(plan: plans.KeyedWrite, found: Sequence[Row]) -> KeyedChanges:
    return KeyedChanges(plan.changes(found))


def put_by_bucket(rows: Iterable[Row], found: defaultdict[int, list[Row]]) -> None:
    """Physical rows, which begin with their bucket, as `insert_rows` wants them."""
    for row in rows:
        found[row[0]].append(row)
