"""Failure detection: the leader notices silence; a follower notices that it was given up.

Silence is counted in ticks in which the judge itself was awake; after standing still it judges
nobody for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cairn.model.errors import CairnError
from cairn.model.members.topology import Grade, Instance
from cairn.model.rpc import UpdateInstanceRequest
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import ELECTION_TICKS, TICK_S, RaftRunner
from cairn.node.steering.witnesses import Witnesses

log = logging.getLogger("cairn.sentinel")

PERIOD_S = 0.1
ASK_AGAIN_TICKS = 5  # others are asked again of one whom they reached
AUTO_ONLINE_FIRST_S, AUTO_ONLINE_LAST_S = 1.0, 60.0

Update = Callable[[UpdateInstanceRequest], Awaitable[object]]


class Sentinel:
    def __init__(
        self,
        name: str,
        state: GlobalState,
        runner: RaftRunner,
        witnesses: Witnesses,
        update: Update,
    ) -> None:
        self._name, self._state, self._runner, self._update = name, state, runner, update
        self._witnesses = witnesses
        self._vouched: dict[str, int] = {}  # suspect → tick at which others were asked of it
        self._given_up = 0  # the leader whose silence was the reason of our election
        self._watched_since: dict[tuple[int, int], int] = {}  # (raft_id, incarnation) → tick
        self._judging_term = 0
        self._followed = 0  # the last leader other than ourselves
        self._auto_online_at = 0.0
        self._auto_online_pause = AUTO_ONLINE_FIRST_S
        self.is_leaving = False
        self._is_active = False

    def begin(self) -> None:
        """It was told that it shall be Online; what it has applied may lag behind that."""
        self._is_active = True
        self._auto_online_at = asyncio.get_running_loop().time() + AUTO_ONLINE_FIRST_S

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            if not self._runner.is_leader:
                self._followed = self._runner.leader_id or self._followed
            try:
                if self._runner.committed_in_term:
                    await self._judge()
                elif self._runner.leader_id and self._is_active and not self.is_leaving:
                    await self._come_back()
            except CairnError as problem:
                log.debug("sentinel: %s", problem)

    async def _judge(self) -> None:
        ticks = self._runner.ticks
        if self._judging_term != self._runner.term:
            self._judging_term = self._runner.term
            self._begin_tenure()
        if ticks < self._runner.stalled_until:
            self._watched_since.clear()
            return
        if not self._state.setting("automatic_failover", True):
            self._watched_since.clear()  # when it goes on, everybody has the whole time again
            return
        limit_s = float(self._state.setting("governor_auto_offline_timeout", 2.0))
        for instance in list(self._state.cluster.instances.values()):
            silence_s = self._silence(instance, ticks) * TICK_S
            if silence_s > limit_s or (
                silence_s > limit_s / 2 and await self._is_surely_gone(instance, ticks)
            ):
                log.warning("%s has been silent for %.1f s", instance.name, silence_s)
                await self._update(self._request(instance, Grade.OFFLINE, "silent"))
                return  # one at a time, judged again from what is then known

    async def _is_surely_gone(self, instance: Instance, ticks: int) -> bool:
        """A master whose rows somebody else could serve is given up early, if others agree."""
        if not self._has_heir(instance):
            return False  # nothing is won by haste
        if instance.raft_id == self._given_up:
            return True  # those who elected us have not heard it either
        if ticks - self._vouched.get(instance.name, -ASK_AGAIN_TICKS) < ASK_AGAIN_TICKS:
            return False
        self._vouched[instance.name] = ticks
        heard = self._runner.heard.get(instance.raft_id)
        agreed = await self._witnesses.agree(instance)
        return agreed and self._runner.heard.get(instance.raft_id) == heard

    def _has_heir(self, instance: Instance) -> bool:
        replicaset = self._state.cluster.replicasets.get(instance.replicaset_name)
        if replicaset is None or replicaset.current_master_name != instance.name:
            return False
        return any(
            row.name != instance.name
            and row.name in replicaset.members
            and row.current_state.grade is row.target_state.grade is Grade.ONLINE
            for row in self._state.cluster.members(replicaset.name)
        )

    def _begin_tenure(self) -> None:
        """A new leader gives everybody the whole time, but the leader it followed: that one it
        has been listening to, and its silence is why there was an election.
        """
        last_word = self._runner.heard.get(self._followed)
        old = self._state.cluster.by_raft_id(self._followed)
        self._watched_since.clear()
        self._vouched.clear()
        self._given_up = 0
        if last_word is not None and self._runner.ticks - last_word >= ELECTION_TICKS:
            self._given_up = self._followed
        self._runner.heard.clear()
        if old is not None and last_word is not None:
            self._watched_since[old.raft_id, old.target_state.incarnation] = last_word

    def _silence(self, instance: Instance, ticks: int) -> int:
        """Ticks without a word from an instance that ought to speak; 0 for all others."""
        if instance.target_state.grade is not Grade.ONLINE or instance.name == self._name:
            return 0
        key = (instance.raft_id, instance.target_state.incarnation)
        since = self._watched_since.setdefault(key, ticks)
        return ticks - max(since, self._runner.heard.get(instance.raft_id, 0))

    async def _come_back(self) -> None:
        """Somebody took us for dead: ask to be Online again, with patience."""
        me = self._state.cluster.instances.get(self._name)
        now = asyncio.get_running_loop().time()
        if me is None or me.target_state.grade is Grade.ONLINE:
            self._auto_online_pause = AUTO_ONLINE_FIRST_S
            self._auto_online_at = now + self._auto_online_pause
            return
        if me.target_state.grade is Grade.EXPELLED or now < self._auto_online_at:
            return
        self._auto_online_at = now + self._auto_online_pause
        self._auto_online_pause = min(self._auto_online_pause * 2, AUTO_ONLINE_LAST_S)
        log.info("this instance was set Offline although it lives: asking to be Online")
        await self._update(self._request(me, Grade.ONLINE, "auto-online"))

    def _request(self, instance: Instance, grade: Grade, reason: str) -> UpdateInstanceRequest:
        return UpdateInstanceRequest(
            cluster_uuid=self._state.cluster.cluster_uuid,
            instance_name=instance.name,
            instance_uuid=instance.uuid,
            target_grade=grade.value,
            reason=reason,
        )
