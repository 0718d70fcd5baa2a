"""Schema changes, users, rights and settings from the client's side: propose, then wait to the end.

Any instance may be asked. A schema change is prepared by one entry, carried out by the governor
at every master, and ended by another entry; the client hears of the end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import msgspec

from cairn.model.errors import (
    CairnError,
    CasRetry,
    DdlAborted,
    NoMaster,
    NotInPrerequisiteState,
    NotLeader,
    OutcomeUnknown,
    TimedOut,
)
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.log.ranges import KeyRange, one_key, whole_table
from cairn.model.members.moves import Phase
from cairn.model.members.topology import Grade
from cairn.model.rpc import IndexResponse, WaitIndexRequest
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Index, Table
from cairn.model.tables.system_tables import PICO_GOVERNOR_QUEUE, PICO_PROPERTY
from cairn.moves.steps import LAST_FREEZE
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.consensus.proposals import LOOK_S, Proposer
from cairn.node.consensus.quorum import Patience, Voters
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.consensus.upgrades import FIRST_UPGRADE_TABLE_ID
from cairn.node.runtime import spawn
from cairn.node.statements.changes.access import (
    LAST_USER_ID,
    access_ops,
    check_password,
    setting_ops,
)
from cairn.node.statements.changes.filled_first import Asked, FilledFirst
from cairn.node.statements.changes.routines import LAST_ROUTINE_ID, routine_ops
from cairn.sql.plans import AclPlan, AlterSystemPlan, DdlPlan, RoutinePlan
from cairn.sql.statements.passwords import is_verifier

log = logging.getLogger("cairn.ddl")

#: More for the same entry, asked at the position of each proposal; it may refuse it.
Extra = Callable[[], Iterable[ops.Dml]]

FAILOVER_S = 10.0  # how long a change waits for a master that is being named

_SCHEMA = (
    ops.SCHEMA_RANGE,
    whole_table(system.PICO_TABLE.id),
    whole_table(system.PICO_INDEX.id),
    whole_table(system.CAIRN_TYPE.id),
)


class _BeingNamed(NoMaster):
    """There will be a master in a moment: members that can be one are alive."""


class SchemaChanges:
    def __init__(
        self,
        state: GlobalState,
        runner: RaftRunner,
        leader: Leader,
        proposer: Proposer,
        voters: Voters,
        peers: Peers,
        chance: random.Random,
        make_verifier: Callable[[str], str],
        filled_first: FilledFirst,
    ) -> None:
        self._state, self._runner, self._leader, self._proposer = state, runner, leader, proposer
        self._voters, self._peers, self._chance = voters, peers, chance
        self._make_verifier, self._filled_first = make_verifier, filled_first
        self._outcomes: dict[int, CairnError | None] = {}  # schema version → how it ended
        self._ended = asyncio.Condition()
        self._queued = Asked()  # for the index of an operation of the queue

    # --- DDL --------------------------------------------------------------------------------------

    async def run(
        self,
        plan: DdlPlan,
        user: int,
        governor_op_id: int | None = None,
        *,
        is_upgrade: bool = False,
        claim: Callable[[], object] = tuple,
        deadline: float | None = None,
        wanted: Callable[[], object] = tuple,
    ) -> bool:
        """True when something changed; False when IF [NOT] EXISTS left nothing to do.

        `claim` is asked at the position of each proposal whether it may still be made, and
        `wanted` while it waits for others: nothing of it was done by then.
        """
        if governor_op_id is not None and not self._runner.is_leader:
            raise NotLeader("an operation of the queue is run on the leader only")
        loop = asyncio.get_running_loop()
        by = min(loop.time() + (plan.timeout or math.inf), deadline or math.inf)
        await self._fill_first(plan, governor_op_id is not None, by, wanted)
        limit_s = plan.timeout or float(self._state.setting("sql_ddl_timeout", 60.0))
        deadline = min(loop.time() + limit_s, deadline or math.inf)
        failover_by = min(deadline, loop.time() + FAILOVER_S)
        while True:
            wanted()
            await self._leader.catch_up(max(deadline - loop.time(), 0.01))
            if self._state.pending_ddl() is None:
                try:
                    version = await self._prepare(
                        plan, user, governor_op_id, is_upgrade, deadline, claim
                    )
                except _BeingNamed:  # the governor itself must not wait for what it has to do
                    if governor_op_id is not None or loop.time() >= failover_by:
                        raise
                    version = 0
                if version is None:
                    return False
                if version:
                    break
            if governor_op_id is not None:  # the governor alone ends what is pending: go and do it
                raise CasRetry("another schema change came first")
            if loop.time() >= deadline:
                raise TimedOut("another schema change was in progress until the time was up")
            await asyncio.sleep(0.02)
        if governor_op_id is not None:
            return True  # the governor's own step finishes it
        await self._wait_end(version, deadline)
        if plan.wait_applied == "globally":
            await self._wait_everywhere(deadline)
        return True

    async def _fill_first(
        self, plan: DdlPlan, is_queued: bool, by: float, wanted: Callable[[], object]
    ) -> None:
        """An index of a large table; the governor does not wait for it, and comes again."""
        if not is_queued:
            await self._filled_first.wait(partial(self._to_fill, plan), by, wanted)
        elif (found := self._to_fill(plan)) is not None:
            table, index = found
            if self._queued.index != index:
                self._queued = Asked(index)
            if not (await self._filled_first.look(table, index, self._queued)).is_filled:
                raise CasRetry(f"index {index.name} is being filled")

    def _to_fill(self, plan: DdlPlan) -> tuple[Table, Index] | None:
        """By the schema of this moment: somebody else may have made it, or renamed its table."""
        found = None
        with suppress(CairnError):  # told when it is prepared, by a picture that is not old
            found = plan.build(self._state.catalog, 0, 0)
        if not isinstance(found, ops.CreateIndex):
            return None
        table = self._state.catalog.table_by_id(found.index.table_id)
        return None if table is None or table.is_global else (table, found.index)

    async def _prepare(
        self,
        plan: DdlPlan,
        user: int,
        governor_op_id: int | None,
        is_upgrade: bool,
        deadline: float,
        claim: Callable[[], object],
    ) -> int | None:
        """The schema version that was prepared; None: nothing to do; 0: try again."""
        catalog: Catalog = self._state.catalog
        version = int(self._state.cluster.properties.get("next_schema_version", 1))
        taken = [table.id for table in catalog.tables.values()]
        next_id = max([*taken, int(self._last_table_id()), FIRST_USER_TABLE_ID - 1]) + 1
        if is_upgrade:
            system = [table for table in taken if table < FIRST_USER_TABLE_ID]
            next_id = max([*system, FIRST_UPGRADE_TABLE_ID - 1]) + 1
            catalog = msgspec.structs.replace(catalog, is_upgrading=True)
        ranges: tuple[KeyRange, ...] = _SCHEMA
        if governor_op_id is not None:
            ranges = (*_SCHEMA, one_key(PICO_GOVERNOR_QUEUE.id, (governor_op_id,)))
        ranges = (*ranges, one_key(PICO_PROPERTY.id, (LAST_FREEZE,)))
        predicate = self._proposer.predicate(ranges)
        if any(move.phase is Phase.FROZEN for move in self._state.cluster.moves.values()):
            return 0  # buckets change their owner just now: a moment later
        claim()
        ddl = plan.build(catalog, version, next_id)
        if ddl is None:
            return None
        self._check_masters(ddl, catalog)
        left = max(deadline - asyncio.get_running_loop().time(), 0.01)
        try:
            await self._proposer.cas(
                ops.DdlPrepare(version, ddl, governor_op_id), predicate, timeout_s=left, user=user
            )
        except (CasRetry, NotLeader, NotInPrerequisiteState):
            return 0
        return version

    def _last_table_id(self) -> int:
        """Ids are never used twice: an old row-log record must not meet another table."""
        return int(self._state.cluster.properties.get("last_table_id", 0))

    def _last_user_id(self) -> int:
        """An open session has its user's id: another user must never get it."""
        return int(self._state.cluster.properties.get(LAST_USER_ID, 0))

    def _check_masters(self, ddl: ops.Ddl, catalog: Catalog) -> None:
        """A dead replicaset makes DDL refuse at once: it would be waited for in vain."""
        cluster = self._state.cluster
        for replicaset in cluster.replicasets.values():
            master = cluster.instances.get(replicaset.current_master_name)
            alive = (
                master is not None
                and master.current_state.grade is Grade.ONLINE
                and master.target_state.grade is Grade.ONLINE
            )
            if alive or not cluster.owned(replicaset.name):
                continue
            if any(
                member.current_state.grade is Grade.ONLINE
                and member.target_state.grade is Grade.ONLINE
                for member in cluster.members(replicaset.name)
            ):
                raise _BeingNamed(
                    f"replicaset {replicaset.name} is being given a new master",
                    hint="try again in a few seconds",
                )
            raise NoMaster(
                f"replicaset {replicaset.name} has no live instance, the schema cannot be "
                "changed now",
                hint="start one of its instances; expelling them loses its rows",
            )

    async def _wait_end(self, version: int, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(self._voters)
        while version not in self._outcomes:
            left_s = deadline - loop.time()
            if left_s <= 0 or patience.is_over():
                lost = self._voters.no_quorum()
                raise OutcomeUnknown(
                    "timeout: the schema change is still in progress and may yet be made",
                    detail=lost.message if lost is not None else None,
                    hint="run it again with IF [NOT] EXISTS to find out",
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)), self._ended:
                    await self._ended.wait_for(lambda: version in self._outcomes)
        problem = self._outcomes[version]
        if problem is not None:
            raise problem

    async def _wait_everywhere(self, deadline: float) -> None:
        """Until every Online instance has applied it: then any of them answers by it."""
        index = self._runner.applied_index
        others = [
            row.raft_id
            for row in self._state.cluster.instances.values()
            if row.raft_id != self._runner.raft_id
            and row.current_state.grade is Grade.ONLINE
            and row.target_state.grade is Grade.ONLINE
        ]
        loop = asyncio.get_running_loop()

        async def one(raft_id: int) -> None:
            while True:
                left = max(deadline - loop.time(), 0.01)
                body = WaitIndexRequest(index, min(left, 1.0))
                try:
                    await self._peers.call(
                        raft_id, "wait_index", body, IndexResponse, min(left, 1.5)
                    )
                    return
                except CairnError:
                    row = self._state.cluster.by_raft_id(raft_id)
                    if row is None or row.target_state.grade is not Grade.ONLINE:
                        return
                    if loop.time() >= deadline:
                        raise TimedOut(
                            "ddl operation committed, but failed to receive acknowledgements "
                            "from all instances"
                        ) from None
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(one(raft_id) for raft_id in others))

    def applied(self, done: list[Applied]) -> None:
        """Ends of schema changes, whoever began them."""
        news = False
        for applied in done:
            match applied.op:
                case ops.DdlCommit(schema_version=version) if applied.error is None:
                    self._outcomes[version] = None
                    news = True
                case ops.DdlAbort(schema_version=version, reason=reason) as aborted:
                    problem = DdlAborted(
                        f"ddl operation was aborted: {reason}",
                        sqlstate=aborted.sqlstate or None,
                        hint=aborted.hint,
                    )
                    self._outcomes[version] = problem
                    news = True
        if news:
            while len(self._outcomes) > 1000:
                self._outcomes.pop(next(iter(self._outcomes)))
            spawn(self._tell(), "schema change ended")

    async def _tell(self) -> None:
        async with self._ended:
            self._ended.notify_all()

    # --- users and rights -------------------------------------------------------------------------

    async def change_access(
        self,
        plan: AclPlan,
        user: int,
        extra: Extra | None = None,
        deadline: float | None = None,
    ) -> None:
        ranges = (
            whole_table(system.PICO_USER.id),
            whole_table(system.PICO_PRIVILEGE.id),
            whole_table(system.PICO_TABLE.id),
            one_key(system.PICO_PROPERTY.id, (LAST_USER_ID,)),
        )
        now = asyncio.get_running_loop().time()
        by = min(now + (plan.timeout or 10.0), deadline or math.inf)
        await self._propose(
            lambda: access_ops(
                plan, self._state.catalog, user, self.verifier, self._last_user_id()
            ),
            ranges,
            by,
            user,
            extra,
        )
        if plan.wait_applied == "globally" and extra is None:
            await self._wait_everywhere(by)

    async def change_routine(
        self,
        plan: RoutinePlan,
        user: int,
        extra: Extra | None = None,
        deadline: float | None = None,
    ) -> bool:
        """Whether something changed."""
        now = asyncio.get_running_loop().time()
        by = min(now + (plan.timeout or 10.0), deadline or math.inf)
        is_new = [False]

        def build() -> tuple[ops.Dml, ...]:
            last_id = int(self._state.cluster.properties.get(LAST_ROUTINE_ID, 0))
            found = routine_ops(plan, self._state.catalog, user, last_id)
            is_new[0] = bool(found)
            return found

        ranges = (
            whole_table(system.PICO_ROUTINE.id),
            whole_table(system.CAIRN_VIEW.id),
            whole_table(system.CAIRN_TYPE.id),
            whole_table(system.PICO_TABLE.id),
            whole_table(system.PICO_PRIVILEGE.id),
            one_key(system.PICO_PROPERTY.id, (LAST_ROUTINE_ID,)),
        )
        await self._propose(build, ranges, by, user, extra)
        if plan.wait_applied == "globally" and extra is None:
            await self._wait_everywhere(by)
        return is_new[0]

    def verifier(self, password: str) -> str:
        """What is kept of a password; the verifier of one is taken as it is, as PostgreSQL does."""
        if is_verifier(password):
            return password
        check_password(password, self._state.catalog.setting)
        return self._make_verifier(password)

    async def alter_system(
        self,
        plan: AlterSystemPlan,
        user: int,
        extra: Extra | None = None,
        deadline: float | None = None,
    ) -> None:
        now = asyncio.get_running_loop().time()
        by = min(now + (plan.timeout or 10.0), deadline or math.inf)
        await self._propose(
            lambda: setting_ops(plan, self._state.catalog, self._state.cluster.instances),
            (whole_table(system.PICO_DB_CONFIG.id),),
            by,
            user,
            extra,
        )
        if extra is None:  # a governor that waits for the slow is no governor
            await self._wait_everywhere(by)

    async def _propose(
        self,
        build: Callable[[], Iterable[ops.Dml]],
        ranges: tuple[KeyRange, ...],
        deadline: float,
        user: int,
        extra: Extra | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(self._voters)
        while True:
            predicate = self._proposer.predicate(ranges)
            last = tuple(extra()) if extra is not None else ()
            found = (*build(), *last)
            if not found:
                return
            left_s = max(deadline - loop.time(), 0.01)
            try:
                await self._proposer.cas(ops.Batch(found), predicate, timeout_s=left_s, user=user)
                return
            except (CasRetry, NotLeader):
                if loop.time() >= deadline or patience.is_over():
                    if (problem := self._voters.no_quorum()) is not None:
                        raise problem from None
                    raise
            await asyncio.sleep(self._chance.uniform(0.005, 0.03))
