"""Graceful shutdown: no vote, no leadership, Offline on the others too, then the end.

The war story of the seed is why we wait for the others: an instance that sees its own Offline
committed and leaves at once may take along the only acknowledgement that the rest depends on.
"""

from __future__ import annotations

import asyncio
import logging

from cairn.model.errors import CairnError
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade
from cairn.model.rpc import Empty, IndexResponse, UpdateInstanceRequest, WaitIndexRequest
from cairn.node.instance import Instance
from cairn.node.waiting import until
from cairn.raft.types import ConfState

log = logging.getLogger("cairn.shutdown")

LIMIT_S = 10.0
NO_QUORUM_EXIT = 6
NO_QUORUM_S = 0.7  # a hand-over of leadership looks like this too, for a moment
CONFIRM_S = 1.5
NEEDED_S = 4.0  # for those who stay to change the voters, with our vote for the last time


async def leave(instance: Instance) -> int:
    """The exit code: 0 when the cluster has let us go, 6 when it could not be asked."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LIMIT_S
    instance.sentinel.is_leaving = True
    asked = False
    lost_since: float | None = None
    while loop.time() < deadline:
        row = instance.row
        if row is None and instance.state.cluster.last_raft_id < instance.raft_id:
            log.info("the log has not reached this instance's own row: nobody counts on it yet")
            return 0
        if row is None or row.current_state.grade is Grade.EXPELLED:
            return 5
        if asked and row.current_state.grade is Grade.OFFLINE:
            await _others_know(instance)
            if not await until(lambda: not _is_needed(instance), NEEDED_S):
                log.warning("those who stay cannot decide without this instance: it leaves")
            log.info("this instance is Offline; the cluster goes on without it")
            return 0
        missing = _missing(instance)
        if not missing:
            lost_since = None
        elif asked and all_leave(instance.state.cluster, missing):
            log.info("the voters leave too: the cluster stops as a whole")
            return 0
        elif lost_since is None:
            lost_since = loop.time()
        elif loop.time() - lost_since > NO_QUORUM_S:
            log.warning("giving up, there is no quorum: leaving without a goodbye")
            return NO_QUORUM_EXIT
        if row.target_state.grade is not Grade.OFFLINE or not asked:
            asked = await _ask(instance) or asked
        elif _is_last(instance):
            log.info("nobody can take over: leaving as the last one")
            return 0
        await asyncio.sleep(0.02)
    log.warning("the cluster did not let this instance go within %g s", LIMIT_S)
    return NO_QUORUM_EXIT


async def _ask(instance: Instance) -> bool:
    request = UpdateInstanceRequest(
        cluster_uuid=instance.identity.cluster_uuid,
        instance_name=instance.name,
        instance_uuid=instance.identity.instance_uuid,
        target_grade=Grade.OFFLINE.value,
        reason="shutdown",
    )
    try:
        await instance.leader.ask("update_instance", request, Empty, 1.0)
    except CairnError as problem:
        log.debug("asking to be let go: %s", problem)
        return False
    return True


def _is_last(instance: Instance) -> bool:
    """The leader with nobody to hand over to, once all others that leave have been let go."""
    runner = instance.runner
    rows = instance.state.cluster.instances.values()
    if any(
        row.target_state.grade is Grade.OFFLINE
        and row.current_state.grade not in (Grade.OFFLINE, Grade.EXPELLED)
        and row.raft_id != runner.raft_id
        for row in rows
    ):
        return False
    return runner.is_leader and not any(
        voter != runner.raft_id
        and (row := instance.state.cluster.by_raft_id(voter)) is not None
        and row.target_state.grade is Grade.ONLINE
        for voter in runner.conf.voters
    )


def _missing(instance: Instance) -> list[int]:
    runner, is_connected = instance.runner, instance.peers.is_connected
    reached = {each for each in runner.conf.voters if is_connected(each)} | {runner.raft_id}
    if runner.leader_id in reached - {runner.raft_id}:
        return []
    return missing_voters(runner.conf.voters, reached)


def _is_needed(instance: Instance) -> bool:
    """Offline, and still a voter: somebody died, and was in the way of the change of voters."""
    runner, cluster = instance.runner, instance.state.cluster
    stay = {
        row.raft_id
        for row in cluster.instances.values()
        if row.target_state.grade is Grade.ONLINE and instance.peers.is_connected(row.raft_id)
    }
    return needs_vote(runner.conf, runner.raft_id, stay)


def needs_vote(conf: ConfState, own: int, stay: set[int]) -> bool:
    """Whether those who stay are there, and are no majority without our vote."""
    return any(
        own in voters
        and bool(stay.intersection(voters))
        and len(stay.intersection(voters)) < len(voters) // 2 + 1
        for voters in (conf.voters, conf.voters_outgoing)
    )


def missing_voters(voters: tuple[int, ...], reached: set[int]) -> list[int]:
    """Those that cannot be reached, if without them nobody can lead.

    A leader that lost them believes in itself for a while: its own word does not count.
    """
    missing = [each for each in voters if each not in reached]
    return missing if len(voters) - len(missing) < len(voters) // 2 + 1 else []


def all_leave(cluster: Cluster, voters: list[int]) -> bool:
    """They were told to stop as we were: to wait for their return would be in vain."""
    rows = [cluster.by_raft_id(each) for each in voters]
    return all(row is None or row.target_state.grade is Grade.OFFLINE for row in rows)


async def _others_know(instance: Instance) -> None:
    """Everybody who is Online applies our Offline before we go; bounded, so a stuck one is left."""
    index = instance.runner.applied_index
    others = [
        row.raft_id
        for row in instance.state.cluster.instances.values()
        if row.target_state.grade is Grade.ONLINE and row.raft_id != instance.raft_id
    ]

    async def one(raft_id: int) -> None:
        body = WaitIndexRequest(index, CONFIRM_S)
        try:
            await instance.peers.call(raft_id, "wait_index", body, IndexResponse, CONFIRM_S)
        except CairnError as problem:
            log.debug("instance %d has not confirmed: %s", raft_id, problem)

    await asyncio.gather(*(one(raft_id) for raft_id in others))
