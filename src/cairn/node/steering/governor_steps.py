"""What the governor's actions take: questions to instances, changes of Raft, namings of masters."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from cairn.governor.actions import (
    ApplySchemaChange,
    Propose,
    RunOperation,
    SealAndName,
    SwitchMaster,
)
from cairn.governor.rules.leaving import put_replicaset, replicaset_range
from cairn.governor.view import ClusterView
from cairn.model.errors import CairnError, NoMaster, NotLeader, TimedOut, Unreachable
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate, whole_table
from cairn.model.members.topology import Grade
from cairn.model.rpc import (
    Empty,
    IndexResponse,
    PromiseRequest,
    ReplicatedRequest,
    SchemaChangeRequest,
    SchemaChangeResponse,
    VclockRequest,
    VclockResponse,
    WaitIndexRequest,
)
from cairn.model.tables.system_tables import PICO_INSTANCE
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.leases import LeaseGiver
from cairn.node.runtime import Runtime, timestamp
from cairn.node.statements.changes.under_way import LONGEST_S
from cairn.node.waiting import until
from cairn.raft.tenure import UNPROVEN
from cairn.raft.types import ConfChangeV2, ProposalDropped

log = logging.getLogger("cairn.governor")

RPC_S, OP_S, BATCH = 3.0, 3.0, 200  # until the cluster's own settings are known
LEAST_S = 0.05  # that somebody has to answer
GRACE_S = 0.1  # after the first answer, how long others of the same question are waited for
HAND_OVER_S = 2.0
PROOF_S = 0.6  # three heartbeats: who takes part in a change of voters has answered by then
LATE = TimedOut("no answer in time")


class Steps:
    """The hands of the governor. Everything it needs of the instance, and nothing it remembers."""

    def __init__(
        self,
        state: GlobalState,
        runner: RaftRunner,
        proposer: Proposer,
        peers: Peers,
        leases: LeaseGiver,
        runtime: Runtime,
        here: Callable[[str, Any], Any],
        operate: Callable[[RunOperation], Awaitable[None]],
    ) -> None:
        self.state, self.runner, self.proposer = state, runner, proposer
        self._peers, self._leases, self._runtime = peers, leases, runtime
        self._here = here  # calls a handler of this very instance
        self.operate = operate  # runs an operation of the queue
        self._writes_ended = 0  # the schema version for which they were waited for
        self._schema_until = (0, 0.0)  # a schema version and when its masters' time is up

    def timestamp(self) -> str:
        return timestamp(self._runtime)

    @property
    def rpc_s(self) -> float:
        """How long an instance may take to answer."""
        return float(self.state.setting("governor_common_rpc_timeout", RPC_S)) or RPC_S

    @property
    def op_s(self) -> float:
        """How long an entry of the governor's own may take to be applied."""
        return float(self.state.setting("governor_raft_op_timeout", OP_S)) or OP_S

    def keeps_locks(self) -> frozenset[int]:
        lives = self.state.locks.lives()
        return frozenset(raft_id for raft_id, _ in lives if self._leases.may_keep_locks(raft_id))

    async def ask(
        self, name: str, method: str, body: Any, answer: type[Any], timeout_s: float
    ) -> Any:
        """A question to an instance by name; the leader may be asked too."""
        instance = self.state.cluster.instances.get(name)
        if instance is None:
            raise Unreachable(f"{name} is not a member")
        if instance.raft_id == self.runner.raft_id:
            found = self._here(method, body)
            return await found if isinstance(found, Awaitable) else found
        return await self._peers.call(instance.raft_id, method, body, answer, timeout_s)

    async def ask_all(
        self,
        names: tuple[str, ...],
        method: str,
        body: Any,
        answer: type[Any],
        until_s: float = math.inf,
    ) -> dict[str, Any]:
        """Answers by name, of so many at a time as `governor_rpc_batch_size` says. At `until_s` of
        the loop's time nobody is waited for any more."""
        size = int(self.state.setting("governor_rpc_batch_size", BATCH)) or BATCH
        found: dict[str, Any] = {}
        for start in range(0, len(names), size):
            left_s = max(until_s - asyncio.get_running_loop().time(), LEAST_S)
            some = names[start : start + size]
            found |= await self._ask_some(some, method, body, answer, min(self.rpc_s, left_s))
        return found

    async def _ask_some(
        self, names: tuple[str, ...], method: str, body: Any, answer: type[Any], limit_s: float
    ) -> dict[str, Any]:
        """Once one answer has come, the slow ones get a moment and no more."""

        async def one(name: str) -> Any:
            try:
                return await self.ask(name, method, body, answer, limit_s)
            except CairnError as problem:
                return problem

        tasks = {asyncio.ensure_future(one(name)): name for name in names}
        waiting = set(tasks)
        found: dict[str, Any] = {}
        patience = limit_s + GRACE_S
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            found |= {name: task.result() for task, name in tasks.items() if task in done}
            if any(not isinstance(answer_, CairnError) for answer_ in found.values()):
                patience = GRACE_S
        for task in waiting:
            task.cancel()
        return found

    # --- proposals ------------------------------------------------------------------------------

    async def propose(self, action: Propose, view: ClusterView) -> None:
        if action.needed:
            found = await self.have_rows(action.holders)
            lacking = sorted(name for name in action.holders if found.get(name, LATE) is not None)
            if len(action.holders) - len(lacking) < action.needed:
                raise NoMaster(
                    f"{action.needed} of {', '.join(action.holders)} must have all rows first; "
                    f"waiting for {', '.join(lacking)}"
                )
        predicate = self._predicate(view, action.ranges)
        await self.proposer.cas(ops.Batch(action.ops), predicate, timeout_s=self.op_s)

    def _predicate(self, view: ClusterView, ranges: Any) -> Predicate:
        """At the position the view was taken: a stale plan loses."""
        return Predicate(view.position.index, self.runner.term, tuple(ranges))

    # --- Raft -----------------------------------------------------------------------------------

    async def change_configuration(self, change: ConfChangeV2) -> None:
        """Refused until those who shall vote have answered; who does not in time is silent then,
        and the next plan does not count on it (`RaftRunner.silent`)."""
        deadline = asyncio.get_running_loop().time() + PROOF_S
        while True:
            try:
                index, _ = self.runner.propose_conf_change(change)
                break
            except ProposalDropped as refusal:
                is_late = asyncio.get_running_loop().time() > deadline
                if refusal.reason != UNPROVEN or is_late:
                    raise
            await asyncio.sleep(0.005)
        await self.runner.wait_applied(index, self.op_s)
        if not await until(lambda: not self.runner.conf.voters_outgoing, self.op_s, 0.005):
            raise TimedOut("the joint configuration was not left in time")

    async def hand_over(self, to: int) -> None:
        self.runner.transfer_leader(to)
        if not await until(lambda: not self.runner.is_leader, HAND_OVER_S, 0.01):
            raise TimedOut(f"instance {to} did not take over")

    async def caught_up(self, names: tuple[str, ...]) -> dict[str, CairnError | None]:
        """Who has applied what the leader had committed when asked."""
        index = self.runner.core.log.committed
        body = WaitIndexRequest(index, self.rpc_s)
        found = await self.ask_all(names, "wait_index", body, IndexResponse)
        return {name: _problem(answer) for name, answer in found.items()}

    # --- rows -----------------------------------------------------------------------------------

    async def have_rows(self, names: tuple[str, ...]) -> dict[str, CairnError | None]:
        body = ReplicatedRequest(self.runner.applied_index, self.rpc_s)
        found = await self.ask_all(names, "replicated", body, Empty)
        return {name: _problem(answer) for name, answer in found.items()}

    async def switch_master(self, action: SwitchMaster, view: ClusterView) -> None:
        """The demotion is in Raft; the old one's last record, once its writer knows, is the cut."""
        index = self.runner.applied_index
        final: VclockResponse = await self.ask(
            action.old, "vclock", VclockRequest(index, self.rpc_s), VclockResponse, self.rpc_s
        )
        reached: VclockResponse = await self.ask(
            action.heir,
            "vclock",
            VclockRequest(index, self.rpc_s, final.vclock),
            VclockResponse,
            self.rpc_s + 1.0,
        )
        await self._name_master(action.replicaset, action.heir, reached.vclock, view)

    async def seal_and_name(self, action: SealAndName, view: ClusterView) -> None:
        """Failover: promises first, then the most caught-up of those who promised."""
        replicaset = view.cluster.replicasets[action.replicaset]
        await asyncio.sleep(self._leases.wait_s(action.replicaset))
        body = PromiseRequest(action.replicaset, replicaset.epoch + 1)
        found = await self.ask_all(action.members, "promise", body, VclockResponse)
        told = {
            name: answer for name, answer in found.items() if not isinstance(answer, CairnError)
        }
        answers = {name: answer for name, answer in told.items() if answer.is_complete}
        counted = told if action.of_all else answers
        if len(counted) < action.needed or not answers:
            missing = sorted(set(replicaset.members) - set(answers))
            raise NoMaster(
                f"{len(counted)} of {action.needed} needed members answered; "
                f"waiting for rows of {', '.join(missing)}"
            )

        def standing(name: str) -> tuple[int, int, bool, bool]:
            answer = answers[name]
            stays = view.cluster.instances[name].target_state.grade is Grade.ONLINE
            # Who was started again and has everything goes on: clients know the way to it.
            preferred = name == (replicaset.target_master_name or replicaset.current_master_name)
            return answer.epoch, sum(answer.vclock.values()), stays, preferred

        fit = sorted(set(answers) - set(action.given_up)) or sorted(answers)
        whole = [name for name in fit if name in action.whole]
        # They have all that was acknowledged; a damaged one could not hand over, and would be
        # named again and again.
        heir = max(whole if len(whole) >= action.needed else fit, key=standing)
        await self._name_master(action.replicaset, heir, answers[heir].vclock, view)

    async def _name_master(
        self, name: str, heir: str, vclock: dict[str, int], view: ClusterView
    ) -> None:
        replicaset = view.cluster.replicasets[name]
        named = replicaset.named(heir, vclock)
        ranges = (replicaset_range(replicaset), whole_table(PICO_INSTANCE.id))
        predicate = self._predicate(view, ranges)
        await self.proposer.cas(ops.Batch((put_replicaset(named),)), predicate, timeout_s=self.op_s)
        log.info("%s: master is %s, epoch %d", name, heir, named.epoch)

    # --- schema ---------------------------------------------------------------------------------

    async def apply_schema_change(self, action: ApplySchemaChange, view: ClusterView) -> None:
        """Ask every master; all agree → commit, any refuses → abort, silence → abort in time."""
        masters = {
            replicaset: view.cluster.replicasets[replicaset].current_master_name
            for replicaset in action.replicasets
        }
        body = SchemaChangeRequest(
            self.runner.applied_index, self.runner.term, action.schema_version, self.rpc_s
        )
        deadline = self._schema_deadline(action.schema_version)
        await self._let_writes_end(body, view)
        left = tuple(dict.fromkeys(masters.values()))
        problems: dict[str, CairnError] = {}
        while left and self.runner.is_leader:
            found = await self.ask_all(
                left, "apply_schema_change", body, SchemaChangeResponse, deadline
            )
            for name, answer in found.items():
                if isinstance(answer, CairnError):
                    problems[name] = answer
                elif answer.refusal is not None:
                    why = (answer.sqlstate, answer.hint)
                    await self._abort(action.schema_version, answer.refusal, name, why=why)
                    return
            left = tuple(
                name for name in left if isinstance(found.get(name, TimedOut("late")), CairnError)
            )
            if left and asyncio.get_running_loop().time() >= deadline:
                reason = f"{left[0]}: {problems.get(left[0], TimedOut('no answer'))}"
                await self._abort(action.schema_version, reason, left[0], is_verdict=False)
                return
            if left and not self._are_masters(masters):
                raise NoMaster("masters are changing: the schema change waits for the new ones")
            if left:
                await asyncio.sleep(0.1)
        if left:
            raise NotLeader("leadership was lost before all masters had answered")
        try:
            predicate = self.proposer.predicate(())
            await self.proposer.cas(
                ops.DdlCommit(action.schema_version), predicate, timeout_s=self.op_s
            )
        except CairnError as problem:
            if not problem.sqlstate.startswith("23"):
                raise
            # The rows of a global table forbid it, on every instance: it must not stay for ever.
            why = (problem.sqlstate, problem.hint)
            await self._abort(action.schema_version, problem.message, "", why=why)
            return
        log.info("schema version %d is committed", action.schema_version)

    async def _let_writes_end(self, body: SchemaChangeRequest, view: ClusterView) -> None:
        """Else a write to several replicasets could be half done, and a COPY would hold rows for
        a table that is no more (`changes/under_way.py`)."""
        if self._writes_ended == body.schema_version:
            return
        limit_s = LONGEST_S + GRACE_S

        async def one(name: str) -> None:
            with contextlib.suppress(CairnError):  # who does not answer is not waited for
                await self.ask(name, "let_writes_end", body, Empty, limit_s)

        rows = view.cluster.instances.values()
        online = [row.name for row in rows if row.current_state.grade is Grade.ONLINE]
        await asyncio.gather(*map(one, online))
        self._writes_ended = body.schema_version

    def _schema_deadline(self, version: int) -> float:
        """Counted from the first time this leader took up the change, however often it does."""
        known, deadline = self._schema_until
        if known != version:
            limit_s = float(self.state.setting("ddl_apply_timeout", 30.0))
            deadline = asyncio.get_running_loop().time() + limit_s
            self._schema_until = version, deadline
        return deadline

    def _are_masters(self, masters: dict[str, str]) -> bool:
        """Still, and meant to stay. Replacing a master is the governor's own work: do not wait."""
        cluster = self.state.cluster
        for name, master in masters.items():
            replicaset, row = cluster.replicasets.get(name), cluster.instances.get(master)
            if replicaset is None or row is None or row.target_state.grade is not Grade.ONLINE:
                return False
            if {replicaset.current_master_name, replicaset.target_master_name} != {master}:
                return False
        return True

    async def _abort(
        self,
        version: int,
        reason: str,
        instance: str,
        *,
        is_verdict: bool = True,
        why: tuple[str, str | None] = ("", None),
    ) -> None:
        log.warning("schema version %d is aborted: %s", version, reason)
        op = ops.DdlAbort(version, reason, instance, is_verdict, *why)
        await self.proposer.cas(op, self.proposer.predicate(()), timeout_s=self.op_s)


def _problem(answer: Any) -> CairnError | None:
    return answer if isinstance(answer, CairnError) else None
