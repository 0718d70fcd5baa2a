"""The coordinator: takes a plan to the instances that have its rows, and brings the answer back."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import msgspec

from cairn.model.catalog import Catalog
from cairn.model.errors import (
    CairnError,
    CasRetry,
    NotSent,
    OutcomeUnknown,
    PartialWrite,
    PlanOutdated,
    TableUnderDdl,
    Unreachable,
    Unsupported,
)
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.model.schema import Table
from cairn.model.spans import Ranges, contains, of_buckets
from cairn.node.execution import Done, Execution
from cairn.node.global_writes import GlobalWrites
from cairn.node.hops import Answered, Hop, Hops
from cairn.node.instance import Instance
from cairn.node.reading import MOVING, REPLAN_S, Params
from cairn.node.routes import Routes
from cairn.sql import plans
from cairn.storage.readers import Row

log = logging.getLogger("cairn.sql")

WRITE_S = 30.0
KEYED_ATTEMPTS = 5


#: What each replicaset has to do, for all buckets of a statement or only for some of them.
Requests = Callable[[Ranges | None], dict[str, WriteRequest]]


class Dispatcher(GlobalWrites):
    """Runs plans. One for the instance; sessions call it with what they know."""

    def __init__(self, instance: Instance, execution: Execution) -> None:
        super().__init__(instance, execution)
        self._writes_away = Hops("write_rows", WriteResponse, WRITE_S)

    # --- writes to sharded tables -----------------------------------------------------------------

    async def write(self, plan: plans.Plan, params: Params, **options: Any) -> int:
        """Rows changed. What a statement does on one replicaset is atomic."""
        match plan:
            case plans.PointWrite():
                return await self._point_write(plan, params, options.get("operation"))
            case plans.ShardedInsert():
                rows = plan.rows(params)
                return await self._insert(plan, rows, options.get("operation"))
            case plans.InsertSelect():
                found = await self._find(plan.read, params, options)
                return await self._insert(plan, plan.rows(found), options.get("operation"))
            case plans.ScatterWrite():
                return await self._scatter_write(plan, params, options)
            case plans.KeyedWrite():
                return await self._keyed_write(plan, params, options)
        raise AssertionError(f"not a write: {plan}")

    def point_write_here(self, plan: plans.PointWrite, params: Params, callback: Done) -> bool:
        """Start a write whose rows are here; False: go the long way."""
        args = plan.bind(params)
        table = plan.table
        fence = self.instance.data.fence
        if not fence.is_master or not fence.owns(args[0]):  # type: ignore[arg-type]
            return False
        known = self.instance.state.catalog.tables.get(table.name)
        if known is None or not known.operable or known.schema_version != table.schema_version:
            return False
        self.local += 1
        request = WriteRequest(
            table.id,
            table.schema_version,
            plan.sql,
            (args,),
            buckets=(args[0],),  # type: ignore[arg-type]
        )
        self.execution.start_write(request, callback)
        return True

    def point_write_away(
        self, plan: plans.PointWrite, params: Params, callback: Answered[WriteResponse]
    ) -> Hop | None:
        """Pass a write on to its owner; None: go the long way."""
        args = plan.bind(params)
        bucket: int = args[0]  # type: ignore[assignment]
        try:
            self._check_operable(plan.table)
            target = self.routes.master(self.routes.owner(plan.tier, bucket))
        except CairnError:
            return None
        link = None if target == self.instance.raft_id else self.instance.peers.link_now(target)
        if link is None or not link.is_open:
            return None
        self.forwarded += 1
        table = plan.table
        request = WriteRequest(table.id, table.schema_version, plan.sql, (args,), buckets=(bucket,))

        def answered(result: WriteResponse | CairnError) -> None:
            if isinstance(result, Unreachable):
                result = _unknown("the owner of the row", result)
            callback(result)

        return self._writes_away.ask(link, request, answered)

    async def _point_write(
        self, plan: plans.PointWrite, params: Params, operation: str | None
    ) -> int:
        bucket = plan.bucket(params)
        request = WriteRequest(
            plan.table.id,
            plan.table.schema_version,
            plan.sql,
            (plan.bind(params),),
            buckets=(bucket,),
            operation=operation,
        )

        async def attempt() -> int:
            self._check_operable(plan.table)
            owner = self.routes.owner(plan.tier, bucket)
            return (await self._write_at(owner, request)).row_count

        count: int = await self._following(attempt)
        return count

    async def _insert(
        self,
        plan: plans.ShardedInsert | plans.InsertSelect,
        rows: list[tuple[int, plans.Row]],
        operation: str | None,
    ) -> int:
        by_bucket: dict[int, list[Row]] = {}
        for bucket, row in rows:
            by_bucket.setdefault(bucket, []).append(row)
        return await self.insert_rows(plan.table, plan.tier, plan.sql, by_bucket, operation)

    async def insert_rows(
        self,
        table: Table,
        tier: str,
        sql: str,
        rows: dict[int, list[Row]],
        operation: str | None = None,
        is_bulk: bool = False,
    ) -> int:
        """Physical rows by their buckets, each to the replicaset that owns it.

        Neighbours on disk go in together, so that fewer pages are touched.
        """

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            self._check_operable(table)
            wanted = rows if only is None else [each for each in rows if contains(only, each)]
            return {
                owner: WriteRequest(
                    table.id,
                    table.schema_version,
                    sql,
                    tuple(chain.from_iterable(map(rows.__getitem__, buckets))),
                    buckets=buckets,
                    operation=operation,
                    is_bulk=is_bulk,
                )
                for owner, buckets in self.routes.group(tier, wanted).items()
            }

        return await self._write_all(requests)

    async def _scatter_write(
        self, plan: plans.ScatterWrite, params: Params, options: dict[str, Any]
    ) -> int:
        values = list(params)
        for step in plan.steps:
            found = await self._find(step.plan, values, options)
            values = [*values, *[None] * (step.number - len(values))]
            values[step.number - 1] = step.value(found)
        fragment = plan.fragment

        def requests(only: Ranges | None) -> dict[str, WriteRequest]:
            self._check_operable(plan.table)
            return {
                owner: WriteRequest(
                    plan.table.id,
                    plan.table.schema_version,
                    fragment.with_ranges(list(ranges)),
                    (fragment.bind(values),),
                    ranges=ranges,
                    operation=options.get("operation"),
                    open_sql=fragment.sql if options.get("operation") else "",
                )
                for owner, ranges in self._targets(fragment, values, only).items()
            }

        return await self._write_all(requests)

    async def _keyed_write(
        self, plan: plans.KeyedWrite, params: Params, options: dict[str, Any]
    ) -> int:
        """Read, then change by key; read again if a row vanished in between."""
        for attempt in range(KEYED_ATTEMPTS):
            found = await self._find(plan.read, params, options)
            changes = plan.changes(found)

            def requests(
                only: Ranges | None, changes: list[plans.Change] = changes
            ) -> dict[str, WriteRequest]:
                self._check_operable(plan.table)
                return _keyed_requests(plan, changes, self.routes, only, options.get("operation"))

            try:
                await self._write_all(requests)
                return len(changes)
            except CasRetry:
                if attempt == KEYED_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _check_operable(self, table: Table) -> None:
        known = self.instance.state.catalog.tables.get(table.name)
        if known is None or known.id != table.id:
            raise PlanOutdated(f"table {table.name} was dropped or renamed")
        if not known.operable:
            raise TableUnderDdl(
                f"table {table.name} is not operable: a DDL operation is in progress",
                hint="try again when the schema change has ended",
            )
        if known.schema_version != table.schema_version:
            raise PlanOutdated(f"table {table.name} has changed since the statement was planned")

    async def _write_at(self, replicaset: str, request: WriteRequest) -> WriteResponse:
        instance = self.instance
        target = self.routes.master(replicaset)
        if target == instance.raft_id:
            self.local += 1
            return await self.execution.write(request)
        self.forwarded += 1
        try:
            return await instance.peers.call(target, "write_rows", request, WriteResponse, WRITE_S)
        except NotSent as problem:
            raise self._no_answer(replicaset, target, problem) from None
        except Unreachable as problem:
            raise _unknown(f"the master of {replicaset}", problem) from None

    async def _write_all(self, requests: Requests) -> int:
        """One replicaset: just do it. Several: check everywhere, then do it."""

        async def single() -> int:
            wanted = requests(None)
            if not wanted:
                return 0
            if len(wanted) > 1:
                raise _Several
            [(owner, request)] = wanted.items()
            return (await self._write_at(owner, request)).row_count

        try:
            count: int = await self._following(single)
            return count
        except _Several:
            pass

        async def check() -> dict[str, WriteRequest]:
            wanted = requests(None)
            trial = {
                owner: msgspec.structs.replace(request, check_only=True)
                for owner, request in wanted.items()
            }
            await asyncio.gather(*(self._write_at(o, r) for o, r in trial.items()))
            return wanted

        wanted: dict[str, WriteRequest] = await self._following(check)
        return _judge(await self._do_all(wanted, requests))

    async def _do_all(
        self, wanted: dict[str, WriteRequest], requests: Requests
    ) -> list[tuple[str, Any]]:
        """What became of each part, by replicaset.

        A part that certainly was not executed, because its buckets or its master moved, is sent
        again to whoever owns those buckets now. The others are never repeated: from here on, what
        stands in the way of the rest is part of the outcome, not a reason to begin anew.
        """
        settled: list[tuple[str, Any]] = []
        deadline = asyncio.get_running_loop().time() + REPLAN_S
        while wanted:
            answers = await asyncio.gather(
                *(self._write_at(owner, request) for owner, request in wanted.items()),
                return_exceptions=True,
            )
            left: Ranges = ()
            is_late = asyncio.get_running_loop().time() >= deadline
            for (owner, request), answer in zip(wanted.items(), answers, strict=True):
                if isinstance(answer, MOVING) and not is_late:
                    left += request.ranges if request.ranges else of_buckets(request.buckets)
                else:
                    settled.append((owner, answer))
            if not left:
                break
            await self._moved()
            try:
                wanted = await self._following(lambda left=left: _later(requests, left))  # type: ignore[misc]
            except CairnError as problem:
                if not settled:
                    raise
                return [*settled, (f"buckets {left}", problem)]
        return settled


def put_by_bucket(rows: Iterable[Row], found: defaultdict[int, list[Row]]) -> None:
    """Physical rows, which begin with their bucket, as `insert_rows` wants them."""
    for row in rows:
        found[row[0]].append(row)


async def _later(requests: Requests, left: Ranges) -> dict[str, WriteRequest]:
    return requests(left)


def _keyed_requests(
    plan: plans.KeyedWrite,
    changes: list[plans.Change],
    routes: Routes,
    only: Ranges | None,
    operation: str | None,
) -> dict[str, WriteRequest]:
    """What each replicaset does: delete by key, insert what comes, update what stays.

    An operation is repeated after a crash. Where a row leaves one replicaset for another, the first
    half would hide it from the second: that cannot be repeated, so it is refused.
    """

    def is_left(bucket: int) -> bool:
        return only is None or contains(only, bucket)

    gone: dict[str, list[Row]] = {}
    come: dict[str, list[Row]] = {}
    stay: dict[str, list[Row]] = {}
    buckets: dict[str, set[int]] = {}
    for change in changes:
        owner = routes.owner(plan.tier, change.old_bucket)
        if is_left(change.old_bucket):
            buckets.setdefault(owner, set()).add(change.old_bucket)
            if change.update is not None:
                stay.setdefault(owner, []).append(change.update)
                continue
            gone.setdefault(owner, []).append((change.old_bucket, *change.key))
        if change.update is not None or change.new is None or change.new_bucket is None:
            continue
        if is_left(change.new_bucket):
            if operation is not None and owner != routes.owner(plan.tier, change.new_bucket):
                raise Unsupported(
                    "an operation of the queue cannot move a row to another replicaset",
                    hint="run the UPDATE of the distribution key in a session",
                )
            owner = routes.owner(plan.tier, change.new_bucket)
            buckets.setdefault(owner, set()).add(change.new_bucket)
            come.setdefault(owner, []).append(change.new)
    return {
        owner: WriteRequest(
            plan.table.id,
            plan.table.schema_version,
            plan.delete_sql,
            tuple(gone.get(owner, ())),
            buckets=tuple(sorted(touched)),
            more=tuple(
                (sql, tuple(part[owner]))
                for sql, part in ((plan.insert_sql, come), (plan.update_sql, stay))
                if sql is not None and owner in part
            ),
            must_change=len(gone.get(owner, ())),
            operation=operation,
        )
        for owner, touched in buckets.items()
    }


def _unknown(who: str, problem: CairnError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{who} did not answer: {problem.message}",
        hint="look whether the rows are there before trying again",
    )


class _Several(Exception):
    """A write needs more than one replicaset."""


def _judge(answers: list[tuple[str, Any]]) -> int:
    """All done, or an error that lists what happened where."""
    if not any(isinstance(answer, BaseException) for _, answer in answers):
        return sum(answer.row_count for _, answer in answers)
    lines = []
    for replicaset, answer in sorted(answers, key=lambda each: each[0]):
        if isinstance(answer, WriteResponse):
            lines.append(f"{replicaset}: done({answer.row_count})")
        elif isinstance(answer, OutcomeUnknown):
            lines.append(f"{replicaset}: unknown ({answer.message})")
        elif isinstance(answer, CairnError):
            lines.append(f"{replicaset}: not executed ({answer.message})")
        else:
            lines.append(f"{replicaset}: unknown ({answer})")
    raise PartialWrite(
        "the write was carried out on some replicasets only",
        detail="; ".join(lines),
        hint="what was done stays: repeat the statement for the rest only",
    )


def tables_of(catalog: Catalog, versions: dict[int, int]) -> dict[int, int]:
    """Of the tables a statement uses, those whose rows live in replicasets."""
    by_id = {table.id: table for table in catalog.tables.values()}
    return {
        table_id: version
        for table_id, version in versions.items()
        if (table := by_id.get(table_id)) is not None and not table.is_global
    }
