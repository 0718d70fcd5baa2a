"""Who has the rows: routes, links, and what a statement does while they move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from cairn.model.errors import (
    CairnError,
    NoMaster,
    NotOwner,
    PlanOutdated,
    ReadInterrupted,
    TableUnderDdl,
    Unreachable,
)
from cairn.model.sharding.spans import Ranges, intersection
from cairn.model.tables.schema import Table
from cairn.net.link import Link
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.quorum import Voters
from cairn.node.rows.routes import Routes
from cairn.node.statements.changes.under_way import UnderWay
from cairn.node.statements.context import Context
from cairn.node.statements.owner.execution import Execution
from cairn.node.waiting import signalled
from cairn.sql import plans

REPLAN_S = 5.0  # how long a statement follows a moving topology before it gives up
SCHEMA_S = 30.0  # likewise, a table that is being changed: an index of a long table takes a while
#: What certainly did not happen, because rows, masters or tables are moving.
MOVING = (NotOwner, NoMaster, TableUnderDdl)
Params = Sequence[Any]
T = TypeVar("T")


def patience_s(problem: BaseException) -> float:
    return SCHEMA_S if isinstance(problem, TableUnderDdl) else REPLAN_S


class Owners:
    """As the instance sees them that was asked; `execution` is its own part."""

    def __init__(
        self,
        raft_id: int,
        state: GlobalState,
        peers: Peers,
        voters: Voters,
        execution: Execution,
        first_cursor: int = 0,
    ) -> None:
        self.first_cursor = first_cursor  # another in each life
        self.raft_id, self.state, self.peers, self.execution = raft_id, state, peers, execution
        self._voters = voters
        self.under_way = UnderWay()
        self._routes = Routes(state.cluster)
        self.local = 0  # statements whose rows were here
        self.compiled = 0  # of these, answered by the compiled part alone
        self.compiled_writes = 0  # likewise, new rows
        self.forwarded = 0  # statements that went one hop to the owner

    @property
    def routes(self) -> Routes:
        if self._routes.cluster is not self.state.cluster:
            cluster, touched = self.state.cluster, self.state.touched_since(self._routes.cluster)
            known = self._routes
            self._routes = Routes(cluster) if touched is None else known.after(cluster, touched)
        return self._routes

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

    async def following(
        self, attempt: Callable[[], Awaitable[T]], context: Context, *, may_end: bool = True
    ) -> T:
        """Repeat what certainly did not happen while the topology moves, for a bounded time.

        `may_end`: a cancel or a time limit ends it. Not where other parts of it were done.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                return await attempt()
            except (*MOVING, ReadInterrupted) as problem:  # nothing of it was told yet
                if may_end:
                    context.check()
                    context.check_wanted()
                if loop.time() >= begun + patience_s(problem):
                    if (lost := self._voters.no_quorum()) is not None:
                        problem.detail, problem.hint = lost.message, lost.hint
                    raise
            await self.moved()

    async def moved(self) -> None:
        """Until the picture of the cluster changes, or a moment has passed."""
        await signalled(self.state.news, 0.05)

    def no_answer(self, replicaset: str, target: int, problem: Unreachable) -> NoMaster:
        lost = self._voters.no_quorum()
        return NoMaster(
            f"instance {self.name_of(target)} of replicaset {replicaset} does not answer",
            detail=problem.message,
            hint=lost.hint
            if lost
            else "a new master is named within seconds: repeat the statement",
        )

    def name_of(self, raft_id: int) -> str:
        row = self.state.cluster.by_raft_id(raft_id)
        return row.name if row is not None else str(raft_id)

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

    def whole(self, fragment: plans.Fragment, params: Params) -> tuple[str, Ranges] | None:
        """The one replicaset that has all buckets of a fragment, with these; None: several."""
        found = self.targets(fragment, params)
        return next(iter(found.items())) if len(found) == 1 else None

    def whole_here(self, fragment: plans.Fragment, params: Params) -> Ranges | None:
        """The buckets of a fragment, if this instance is the master of all of them."""
        try:
            found = self.whole(fragment, params)
            if found is None or self.routes.master(found[0]) != self.raft_id:
                return None
        except CairnError:
            return None
        return found[1]

    def check_versions(self, tables: dict[int, int]) -> None:
        """A read planned for another schema is planned again rather than repeated."""
        if not tables:
            return
        catalog = self.state.catalog
        for table, version in tables.items():
            found = catalog.table_by_id(table)
            if found is None or (found.operable and found.schema_version != version):
                raise PlanOutdated("a table has changed since the statement was planned")
            self.check_made(found)

    def check_made(self, table: Table) -> None:
        """Masters may have a new one already: until all of them do, it may come to nothing."""
        if table.operable:
            return
        pending = self.state.pending_ddl()
        if pending is not None and pending.schema_version == table.schema_version:
            raise TableUnderDdl(f"table {table.name} is being made")

    def check_operable(self, table: Table, *, is_begun: bool = False) -> None:
        """A write waits until its table is as it shall be, and is planned again if it was not.
        A change that was prepared after the write had begun lets it end first."""
        known = self.state.catalog.tables.get(table.name)
        if known is None or known.id != table.id:
            raise PlanOutdated(f"table {table.name} was dropped or renamed")
        if not known.operable and not is_begun:
            raise TableUnderDdl(
                f"table {table.name} is not operable: a DDL operation is in progress",
                hint="try again when the schema change has ended",
            )
        if known.schema_version != table.schema_version:
            raise PlanOutdated(f"table {table.name} has changed since the statement was planned")
