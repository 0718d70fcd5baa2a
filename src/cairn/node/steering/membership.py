"""What only the leader may do to the list of members: admit, change targets, begin an expulsion.

Each is planned from one picture and written by one CaS; a conflict means planning again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cairn.model.errors import CasRetry, JoinRefused, NotInPrerequisiteState, NotLeader
from cairn.model.log import ops
from cairn.model.log.ranges import one_key, whole_table
from cairn.model.members.cluster import Cluster
from cairn.model.members.holders import EXPEL, EXPEL_BY_FORCE, kept_by, lost_with, ranges_in_words
from cairn.model.members.topology import Grade, Instance, State, deposed
from cairn.model.rpc import (
    Empty,
    ExpelRequest,
    ExpelResponse,
    JoinRequest,
    JoinResponse,
    UpdateInstanceRequest,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.types.values import datetime_to_micros
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.runtime import Runtime
from cairn.node.steering.clocks import clock_problem
from cairn.topology.admission import RANGES, admit
from cairn.topology.guard import READ

log = logging.getLogger("cairn.membership")
T = TypeVar("T")

DEADLINE_S = 10.0
_INSTANCES = system.PICO_INSTANCE


class Membership:
    def __init__(
        self, state: GlobalState, runner: RaftRunner, proposer: Proposer, runtime: Runtime
    ) -> None:
        self._state, self._runner = state, runner
        self._proposer, self._runtime = proposer, runtime
        self._joining = asyncio.Lock()  # one at a time: they would only conflict

    def _check_leader(self) -> None:
        if not self._runner.is_leader:
            leader = self._runner.leader_id or None
            refusal = NotLeader(leader=leader)
            refusal.detail = self._state.peer_addresses().get(leader or 0)
            raise refusal

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Plan and propose again while the only trouble is a change in between."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DEADLINE_S
        while True:
            self._check_leader()
            try:
                return await attempt()
            except CasRetry:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(self._runtime.chance.uniform(0.005, 0.03))

    # --- raft_join ----------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinResponse:
        self._check_leader()
        async with self._joining:
            return await self._retried(lambda: self._join(request))

    async def _join(self, request: JoinRequest) -> JoinResponse:
        cluster = self._state.cluster
        try:
            admission = admit(request, cluster, self._runtime.uuid)
        except JoinRefused as refused:
            log.warning("refused %s: %s", request.advertise_address, refused)
            raise
        index = self._runner.applied_index
        if admission.ops:
            done = await self._proposer.cas(
                ops.Batch(admission.ops), self._proposer.predicate(RANGES)
            )
            index = done.index
            instance = admission.instance
            log.info(
                "admitted %s as raft_id %d to replicaset %s",
                instance.name,
                instance.raft_id,
                instance.replicaset_name,
            )
        return self._answer(admission.instance, index)

    def _answer(self, instance: Instance, index: int) -> JoinResponse:
        cluster = self._state.cluster
        addresses = self._state.peer_addresses()
        return JoinResponse(
            instance=instance,
            cluster_uuid=cluster.cluster_uuid,
            raft_group=addresses,
            voters=self._runner.conf.voters,
            box_replication=tuple(
                addresses[member.raft_id]
                for member in cluster.members(instance.replicaset_name)
                if member.raft_id in addresses
            ),
            commit_index=index,
        )

    # --- update_instance ----------------------------------------------------------------------

    async def update(self, request: UpdateInstanceRequest) -> Empty:
        await self._retried(lambda: self._update(request))
        if request.clock_s is not None:
            ahead_s = request.clock_s - self._runtime.wall_clock().timestamp()
            if (problem := clock_problem(request.instance_name, ahead_s)) is not None:
                log.warning("%s", problem)
        return Empty()

    async def _update(self, request: UpdateInstanceRequest) -> None:
        cluster = self._state.cluster
        if request.cluster_uuid != cluster.cluster_uuid:
            raise NotInPrerequisiteState("the request is meant for another cluster")
        instance = cluster.instances.get(request.instance_name)
        if instance is None or instance.uuid != request.instance_uuid:
            raise NotInPrerequisiteState(f'there is no instance "{request.instance_name}"')
        if Grade.EXPELLED in (instance.current_state.grade, instance.target_state.grade):
            raise NotInPrerequisiteState(f'cannot update expelled instance "{instance.name}"')
        changes = self._changes(request, instance)
        changes += _address_changes(cluster, instance, request.addresses or {})
        if request.target_grade == Grade.ONLINE.value:
            changes += _master_changes(cluster, instance)
        if changes:
            ranges = (
                one_key(_INSTANCES.id, (instance.name,)),
                one_key(system.PICO_REPLICASET.id, (instance.replicaset_name,)),
                whole_table(system.PICO_PEER_ADDRESS.id),
            )
            await self._proposer.cas(ops.Batch(tuple(changes)), self._proposer.predicate(ranges))

    def _changes(self, request: UpdateInstanceRequest, instance: Instance) -> list[ops.Dml]:
        found: list[tuple[int, object]] = []
        if request.target_grade is not None:
            grade = Grade(request.target_grade)
            if grade not in (Grade.ONLINE, Grade.OFFLINE):
                raise NotInPrerequisiteState(f"a target grade is Online or Offline, not {grade}")
            target = next_target(instance, grade)
            if target != instance.target_state:
                log.info("%s shall be %s (%s)", instance.name, target, request.reason or "as asked")
                now = datetime_to_micros(self._runtime.wall_clock())
                found += [
                    (_INSTANCES.position("target_state"), rows.state_json(target)),
                    (_INSTANCES.position("target_state_reason"), request.reason),
                    (_INSTANCES.position("target_state_change_time"), now),
                ]
        if request.failure_domain not in (None, instance.failure_domain):
            text = rows.to_json(request.failure_domain)
            found.append((_INSTANCES.position("failure_domain"), text))
        if request.version not in (None, instance.version):
            found.append((_INSTANCES.position("picodata_version"), request.version))
        if not found:
            return []
        return [ops.Update(_INSTANCES.id, (instance.name,), tuple(found))]

    # --- expel --------------------------------------------------------------------------------

    async def expel(self, request: ExpelRequest) -> ExpelResponse:
        return await self._retried(lambda: self._expel(request))

    async def _expel(self, request: ExpelRequest) -> ExpelResponse:
        cluster = self._state.cluster
        instance = cluster.find(request.instance)
        if instance is None:
            raise NotInPrerequisiteState(
                f'there is no instance "{request.instance}"', hint="see `cairn status`"
            )
        reason = EXPEL_BY_FORCE if request.force else EXPEL
        is_leaving = instance.target_state.grade is Grade.EXPELLED
        if is_leaving and (not request.force or instance.target_state_reason == reason):
            return ExpelResponse()
        lost = lost_with(cluster, instance, self._state.catalog.sharded_tiers)
        target = instance.target_state if is_leaving else next_target(instance, Grade.EXPELLED)
        change = ops.Update(
            _INSTANCES.id,
            (instance.name,),
            (
                (_INSTANCES.position("target_state"), rows.state_json(target)),
                (_INSTANCES.position("target_state_reason"), reason),
            ),
        )
        predicate = self._proposer.predicate(READ)
        await self._proposer.cas(change, predicate, force=request.force)
        log.info("%s shall be expelled%s", instance.name, " by force" if request.force else "")
        tables = [
            table.name
            for table in self._state.catalog.tables.values()
            if lost and table.sharding is not None and table.sharding.tier == instance.tier
        ]
        if lost:
            log.warning(
                "the rows of buckets %s go with it, of tables %s",
                ranges_in_words(lost),
                ", ".join(sorted(tables)),
            )
        ranges = tuple(f"{each.start}–{each.end}" for each in lost)
        return ExpelResponse(
            ranges, tuple(sorted(tables)), kept_by(cluster, instance) if lost else ()
        )


def next_target(instance: Instance, grade: Grade) -> State:
    """Online counts up; every other target copies the incarnation of the current grade."""
    if grade is Grade.ONLINE:
        return State(grade, instance.target_state.incarnation + 1)
    return State(grade, instance.current_state.incarnation)


def _master_changes(cluster: Cluster, instance: Instance) -> list[ops.Dml]:
    """Who was started again is no master before it is named anew.

    Its disk may have lost records that others have. In the same epoch it would give their numbers
    to other records, which nobody would take.
    """
    replicaset = cluster.replicasets.get(instance.replicaset_name)
    if replicaset is None or replicaset.current_master_name != instance.name:
        return []
    if instance.target_state.incarnation == 0:
        return []  # it comes up for the first time: nobody has records of it
    row = rows.replicaset_row(deposed(replicaset))
    return [ops.Replace(system.PICO_REPLICASET.id, row)]


def _address_changes(
    cluster: Cluster, instance: Instance, addresses: dict[str, str]
) -> list[ops.Dml]:
    """A restart may bring new addresses; they are recorded, so that clients hear of them."""
    return [
        ops.Replace(system.PICO_PEER_ADDRESS.id, (instance.raft_id, address, kind))
        for kind, address in sorted(addresses.items())
        if address and cluster.addresses.get((instance.raft_id, kind)) != address
    ]
