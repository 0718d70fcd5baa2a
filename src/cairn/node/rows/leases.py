"""Leases: how a master knows that it still is one, and how the leader knows when it no longer is.

The holder counts from the moment it sent the question, by a clock that runs while the machine
sleeps, less a tenth; the leader answers only after a quorum round that began after the question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from cairn.model.errors import CairnError, NotLeader
from cairn.model.members.topology import Grade, State
from cairn.model.rpc import (
    KeepLocksRequest,
    LastWordRequest,
    LastWordResponse,
    LeaseRequest,
    LeaseResponse,
)
from cairn.model.unexpected import owned
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import Runtime, spawn
from cairn.node.waiting import signalled

log = logging.getLogger("cairn.lease")

LEASE_S = 1.0
ASK_EVERY_S = 0.2
MARGIN = 0.9
PATIENCE_S = 5.0  # how long a write that is committed waits to hear whose history it is in


class _Waiter(NamedTuple):
    epoch: int
    until: float
    callback: Callable[[bool], None]


class LeaseHolder:
    """On every instance; asks only while it is the master that the tables name."""

    def __init__(
        self,
        name: str,
        state: GlobalState,
        runner: RaftRunner,
        peers: Peers,
        runtime: Runtime,
        grant_here: Callable[[LeaseRequest], object],
    ) -> None:
        self._name, self._state, self._runner = name, state, runner
        self._peers, self._runtime, self._grant_here = peers, runtime, grant_here
        self._until = 0.0
        self._epoch = 0
        self.is_awake = False  # what the tables say of us before that is about an earlier life
        self._waiting: list[_Waiter] = []
        self._is_missed = asyncio.Event()

    def is_held(self, epoch: int) -> bool:
        """Whether this instance may still act as the master of `epoch`."""
        return epoch == self._epoch and self._runtime.boot_clock() < self._until

    def drop(self) -> None:
        self._until = 0.0

    def when_clear(self, epoch: int, callback: Callable[[bool], None]) -> None:
        """For whoever lost the lease of `epoch`: whether it was given again.

        A machine that stood still for a second comes back to a lease that is over, and is mostly
        still the master. In the epoch in which it gets the next one nobody else was named, so what
        is committed here is in the history, as if it had been committed after that. False: another
        epoch began, or nobody answered in time.
        """
        if not self._waiting:
            self._is_missed.set()
        until = self._runtime.boot_clock() + PATIENCE_S
        self._waiting.append(_Waiter(epoch, until, callback))

    async def run(self) -> None:
        while True:
            try:
                await self._ask()
            except CairnError as problem:
                log.debug("no lease: %s", problem)
            self._clear_up()
            await signalled(self._is_missed, ASK_EVERY_S)
            self._is_missed.clear()

    def _clear_up(self) -> None:
        """Tell those for whom it is clear by now."""
        waiting, self._waiting = self._waiting, []
        now = self._runtime.boot_clock()
        for waiter in waiting:
            is_held = self.is_held(waiter.epoch)
            if not is_held and now < waiter.until and self._may_get(waiter.epoch):
                self._waiting.append(waiter)
                continue
            try:
                waiter.callback(is_held)
            except Exception as unexpected:
                owned(unexpected, "whoever waited for a lease")

    def _may_get(self, epoch: int) -> bool:
        """As far as this instance knows."""
        cluster = self._state.cluster
        me = cluster.instances.get(self._name)
        if me is None or cluster.master_of(me.replicaset_name) is not me:
            return False
        return cluster.replicasets[me.replicaset_name].epoch == epoch

    async def _ask(self) -> None:
        me = self._state.cluster.instances.get(self._name)
        if me is None or not self._runner.leader_id or not self.is_awake:
            return
        if self._state.cluster.master_of(me.replicaset_name) is not me:
            return
        replicaset = self._state.cluster.replicasets[me.replicaset_name]
        request = LeaseRequest(self._name, me.target_state.incarnation, replicaset.epoch, me.uuid)
        asked = self._runtime.boot_clock()
        leader = self._runner.leader_id
        if leader == self._runner.raft_id:
            answer = await self._grant_here(request)  # type: ignore[misc]
        else:
            answer = await self._peers.call(leader, "lease", request, LeaseResponse, LEASE_S)
        if answer.granted:
            await self._runner.wait_applied(answer.index, LEASE_S, but_rows=True)
            self._epoch = replicaset.epoch
            self._until = asked + answer.lease_s * MARGIN


class LeaseGiver:
    """On the leader. Remembers when it last said yes, so that a successor waits long enough."""

    def __init__(
        self, state: GlobalState, runner: RaftRunner, peers: Peers, runtime: Runtime
    ) -> None:
        self._state, self._runner = state, runner
        self._peers, self._runtime = peers, runtime
        self._granted: dict[str, float] = {}  # replicaset → boot clock of the last yes
        self._kept: dict[int, float] = {}  # raft_id → the same, of the locks of its sessions
        self._term, self._inherited_until = 0, 0.0
        self._answered: dict[int, float] = {}  # voter → when it last answered an earlier leader

    def began(self) -> None:
        """This instance leads now."""
        if self._term != self._runner.term:
            self._note_tenure()
            spawn(self._learn(self._term), "last words")

    async def _learn(self, term: int) -> None:
        """Leases that an earlier leader gave end sooner than they might: voters know when."""
        members = self._runner.core.members
        voters = sorted({*members.voters, *members.outgoing})
        await asyncio.gather(*(self._hear(voter, term) for voter in voters))

    async def _hear(self, voter: int, term: int) -> None:
        try:
            if voter == self._runner.raft_id:
                ago_s = self._runner.words.ago_s(term)
            else:
                request = LastWordRequest(term)
                found = await self._peers.call(
                    voter, "last_word", request, LastWordResponse, LEASE_S
                )
                ago_s = found.ago_s
        except CairnError:
            return
        now = self._runtime.boot_clock()
        if term != self._term:
            return
        self._answered[voter] = now - ago_s
        ago_ms = {each: int(1000 * (now - at)) for each, at in self._answered.items()}
        silent_s = self._runner.core.members.agreed(ago_ms) / 1000
        self._inherited_until = min(self._inherited_until, now - silent_s + LEASE_S)

    def last_word(self, request: LastWordRequest) -> LastWordResponse:
        return LastWordResponse(self._runner.words.ago_s(request.term))

    async def grant(self, request: LeaseRequest) -> LeaseResponse:
        if not self._runner.is_leader:
            raise NotLeader(leader=self._runner.leader_id or None)
        self._note_tenure()
        # A quorum round that begins after the question. The holder's picture must be as new as
        # that, or it would act as if what happened meanwhile (a freeze, a hand-over) had not.
        index = await self._runner.read_index(LEASE_S)
        refusal = self._why_not(request)
        if refusal:
            return LeaseResponse(False, why=refusal)
        instance = self._state.cluster.instances[request.instance]
        self._granted[instance.replicaset_name] = self._runtime.boot_clock()
        self._runner.words.answered(self._runner.term)  # our own part in the round
        return LeaseResponse(True, LEASE_S, index=index)

    async def keep_locks(self, request: KeepLocksRequest) -> LeaseResponse:
        """For advisory locks: nobody takes them away from this life of the instance meanwhile."""
        if not self._runner.is_leader:
            raise NotLeader(leader=self._runner.leader_id or None)
        self._note_tenure()
        index = await self._runner.read_index(LEASE_S)
        await self._runner.wait_applied(index, LEASE_S, but_rows=True)
        instance = self._state.cluster.by_raft_id(request.raft_id)
        expected = State(Grade.ONLINE, request.incarnation)
        if instance is None or instance.target_state != expected:
            return LeaseResponse(False, why="the instance was taken for gone")
        if not self._runner.is_leader:
            raise NotLeader(leader=self._runner.leader_id or None)
        self._kept[request.raft_id] = self._runtime.boot_clock()
        self._runner.words.answered(self._runner.term)
        return LeaseResponse(True, LEASE_S, index=index)

    def may_keep_locks(self, raft_id: int) -> bool:
        """Whether an instance may still believe that the locks of its sessions are theirs."""
        self._note_tenure()
        until = max(self._kept.get(raft_id, 0.0) + LEASE_S, self._inherited_until)
        return self._runtime.boot_clock() < until

    def _why_not(self, request: LeaseRequest) -> str:
        instance = self._state.cluster.instances.get(request.instance)
        if instance is None:
            return "not a member"
        if request.uuid not in ("", instance.uuid):  # a version before did not tell it
            return "another instance has this name"
        replicaset = self._state.cluster.replicasets.get(instance.replicaset_name)
        master = self._state.cluster.master_of(instance.replicaset_name)
        if replicaset is None or master is not instance:
            return f"the master is {'nobody' if master is None else master.name}"
        if replicaset.target_master_name != request.instance:
            return f"{replicaset.target_master_name or 'another one'} is to become master"
        if replicaset.epoch != request.epoch:
            return f"the epoch is {replicaset.epoch}"
        if instance.target_state.incarnation != request.incarnation:
            return "another incarnation is expected"
        return ""

    def _note_tenure(self) -> None:
        if self._term != self._runner.term:
            self._term = self._runner.term
            self._inherited_until = self._runtime.boot_clock() + LEASE_S
            self._granted.clear()
            self._kept.clear()
            self._answered.clear()

    def wait_s(self, replicaset: str) -> float:
        """How long until no lease of the old master can be alive."""
        self._note_tenure()
        until = max(self._granted.get(replicaset, 0.0) + LEASE_S, self._inherited_until)
        return max(until - self._runtime.boot_clock(), 0.0)
