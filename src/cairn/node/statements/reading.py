"""The coordinator's reads: one owner, some or all of them, and a merge of what they gave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from cairn.model.errors import (
    CairnError,
    NoMaster,
    NotOwner,
    PlanOutdated,
    TableUnderDdl,
    Unreachable,
)
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.model.spans import Ranges, intersection
from cairn.net.link import Link
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.quorum import Voters
from cairn.node.rows.routes import Routes
from cairn.node.statements.context import Context
from cairn.node.statements.execution import Execution
from cairn.node.statements.hops import Answered, Hop, Hops
from cairn.node.waiting import signalled
from cairn.sql import plans
from cairn.storage.readers import Row, too_many

READ_S = 30.0
REPLAN_S = 5.0  # how long a statement follows a moving topology before it gives up
#: A merge that would only hand the gathered rows through.
PLAIN_MERGE = re.compile(r"SELECT (r\d+)\.x0 AS x0(?:, \1\.x(\d+) AS x\2)* FROM m0 AS \1")
#: What certainly did not happen, because rows, masters or tables are moving.
MOVING = (NotOwner, NoMaster, TableUnderDdl)

Params = Sequence[Any]
T = TypeVar("T")


class Reads:
    """The reading half of the coordinator."""

    def __init__(
        self,
        raft_id: int,
        state: GlobalState,
        peers: Peers,
        voters: Voters,
        execution: Execution,
    ) -> None:
        self.raft_id, self.state, self.peers, self.execution = raft_id, state, peers, execution
        self._voters = voters
        self._routes = Routes(state.cluster)
        self._away = Hops("read_rows", ReadResponse, READ_S)
        self.local = 0  # statements whose rows were here
        self.forwarded = 0  # statements that went one hop to the owner

    @property
    def routes(self) -> Routes:
        if self._routes.cluster is not self.state.cluster:
            cluster, touched = self.state.cluster, self.state.touched_since(self._routes.cluster)
            known = self._routes
            self._routes = Routes(cluster) if touched is None else known.after(cluster, touched)
        return self._routes

    # --- reads ------------------------------------------------------------------------------------

    def start_away(
        self,
        plan: plans.PointRead,
        params: Params,
        tables: dict[int, int],
        callback: Answered[ReadResponse],
    ) -> Hop | None:
        """Ask the owner of the row; None: go the long way."""
        if plan.bucket is None or plan.tier is None:
            return None
        args = plan.bind(params)
        try:
            self._check_versions(tables)
        except PlanOutdated:
            return None
        link = self.link_to_owner(plan.tier, args[0])  # type: ignore[arg-type]
        if link is None:
            return None
        request = ReadRequest(plan.sql, args, tables, args[0])  # type: ignore[arg-type]
        return self._away.ask(link, request, callback)

    def link_to_owner(self, tier: str, bucket: int) -> Link | None:
        """The open link to the master that has the bucket, when it is another instance."""
        try:
            target = self.routes.master(self.routes.owner(tier, bucket))
        except CairnError:
            return None
        link = None if target == self.raft_id else self.peers.link_now(target)
        if link is None or not link.is_open:
            return None
        self.forwarded += 1
        return link

    async def read(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        def attempt() -> Awaitable[list[Row]]:
            return self._read(plan, params, tables, context)

        return await context.watched(self.following(attempt, context))

    async def read_buckets(
        self,
        tier: str,
        buckets: Iterable[int],
        request: Callable[[tuple[int, ...]], ReadRequest],
        context: Context,
    ) -> list[Row]:
        """Ask each owner what `request` makes of its own buckets."""

        async def attempt() -> list[Row]:
            found: list[Row] = []
            for replicaset, owned in self.routes.group(tier, buckets).items():
                found += await self._read_at(replicaset, request(owned), context)
            return found

        return await self.following(attempt, context)

    async def following(self, attempt: Callable[[], Awaitable[T]], context: Context) -> T:
        """Repeat what certainly did not happen while the topology moves, for a bounded time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REPLAN_S
        while True:
            try:
                return await attempt()
            except MOVING as problem:
                context.check()
                if loop.time() >= deadline:
                    if (lost := self._voters.no_quorum()) is not None:
                        problem.detail, problem.hint = lost.message, lost.hint
                    raise
            await self.moved()

    async def moved(self) -> None:
        """Until the picture of the cluster changes, or a moment has passed."""
        await signalled(self.state.news, 0.05)

    async def _read(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        self._check_versions(tables)
        if isinstance(plan, plans.PointRead):
            return await self._point_read(plan, params, tables, context)
        values = list(params)
        for step in plan.steps:
            found = await self._read(step.plan, values, tables, context)
            values = [*values, *[None] * (step.number - len(values))]
            values[step.number - 1] = step.value(found)
        if len(plan.fragments) == 1 and PLAIN_MERGE.fullmatch(plan.sql):
            return await self._gather(plan.fragments[0], values, tables, context)
        gathered = []
        for fragment in plan.fragments:
            rows = await self._gather(fragment, values, tables, context)
            gathered.append((len(fragment.types), rows))
        return await self.execution.merge(
            gathered, plan.sql, plan.bind(values), context.cancelled, context.opcode_max
        )

    async def _point_read(
        self,
        plan: plans.PointRead,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        args = plan.bind(params)
        most = context.opcode_max
        if plan.bucket is None:
            rows = None if most else self.execution.reader.quick(plan.sql, args)
            if rows is None:
                rows = await self.execution.scan(plan.sql, args, 0, context.cancelled, most)
            return rows
        bucket = plan.bucket(params)
        assert plan.tier is not None
        replicaset = self.routes.owner(plan.tier, bucket)
        request = ReadRequest(
            plan.sql,
            args,
            tables,
            bucket,
            preference=context.preference,
            opcode_max=most,
            is_local=context.is_local,
        )
        return await self._read_at(replicaset, request, context)

    async def _read_at(self, replicaset: str, request: ReadRequest, context: Context) -> list[Row]:
        target = self.routes.reader(replicaset, request.preference, self.raft_id)
        try:
            return await self._read_from(target, replicaset, request, context)
        except NotOwner:
            if request.preference != "any" or target == self.routes.master(replicaset):
                raise
        # A replica may know of a hand-over before it has the rows; the master has them.
        return await self._read_from(self.routes.master(replicaset), replicaset, request, context)

    async def _read_from(
        self, target: int, replicaset: str, request: ReadRequest, context: Context
    ) -> list[Row]:
        if target == self.raft_id:
            self.local += 1
            rows = await self.execution.read(request, context.cancelled)
            context.told.came(self.execution.stale_s(request))
            return rows
        self.forwarded += 1
        try:
            answer = await self.peers.call(
                target,
                "read_rows",
                request,
                ReadResponse,
                context.left_s(READ_S),
                must_end=True,
            )
        except Unreachable as problem:  # a read may be asked again, of whoever follows
            raise self.no_answer(replicaset, target, problem) from None
        context.told.came(answer.stale_s)
        return answer.rows

    def no_answer(self, replicaset: str, target: int, problem: Unreachable) -> NoMaster:
        row = self.state.cluster.by_raft_id(target)
        name = row.name if row is not None else str(target)
        lost = self._voters.no_quorum()
        return NoMaster(
            f"instance {name} of replicaset {replicaset} does not answer",
            detail=problem.message,
            hint=lost.hint
            if lost
            else "a new master is named within seconds: repeat the statement",
        )

    async def _gather(
        self,
        fragment: plans.Fragment,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        args = fragment.bind(params)
        asked = {table: tables[table] for table in fragment.tables if table in tables}
        rows: list[Row] = []
        left: Ranges | None = None
        deadline = asyncio.get_running_loop().time() + REPLAN_S
        while True:
            targets = self.targets(fragment, params, left)
            calls = [
                self._read_at(
                    replicaset,
                    ReadRequest(
                        fragment.with_ranges(list(ranges)),
                        args,
                        asked,
                        ranges=ranges,
                        preference=context.preference,
                        row_max=context.row_max,
                        opcode_max=context.opcode_max,
                        is_local=context.is_local,
                    ),
                    context,
                )
                for replicaset, ranges in targets.items()
            ]
            if len(calls) == 1 and left is None:
                answers: list[Any] = [await calls[0]]
            else:
                answers = await asyncio.gather(*calls, return_exceptions=True)
            left = ()
            for ranges, answer in zip(targets.values(), answers, strict=True):
                if isinstance(answer, MOVING) and asyncio.get_running_loop().time() < deadline:
                    left += ranges  # only these, of whoever owns them now: the others were read
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    rows = rows + answer if rows else answer
            if context.row_max and len(rows) > context.row_max:
                raise too_many(context.row_max)
            if not left:
                return rows
            await self.moved()

    def targets(
        self, fragment: plans.Fragment, params: Params, only: Ranges | None = None
    ) -> dict[str, Ranges]:
        """Which replicasets to ask, each with the buckets it is asked about."""
        buckets = fragment.bucket_set(params)
        if buckets is None:
            found = self.routes.all_ranges(fragment.tier)
        else:
            found = {
                replicaset: tuple((bucket, bucket) for bucket in owned)
                for replicaset, owned in self.routes.group(fragment.tier, buckets).items()
            }
        if only is None:
            return found
        cut = {replicaset: intersection(ranges, only) for replicaset, ranges in found.items()}
        return {replicaset: ranges for replicaset, ranges in cut.items() if ranges}

    def _check_versions(self, tables: dict[int, int]) -> None:
        """A read planned for another schema is planned again rather than repeated."""
        if not tables:
            return
        catalog = self.state.catalog
        for table, version in tables.items():
            found = catalog.table_by_id(table)
            if found is None or (found.operable and found.schema_version != version):
                raise PlanOutdated("a table has changed since the statement was planned")
