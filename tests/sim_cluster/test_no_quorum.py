"""Most voters are gone: whoever needs the leader hears so, and who is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from cairn.model.errors import NoQuorum, OutcomeUnknown
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.rpc import Empty, ExpelRequest, IndexResponse
from cairn.model.tables import system_tables as system
from cairn.node.consensus.raft_runner import ELECTION_TICKS, TICK_S
from cairn.node.instance import Instance
from cairn.server.calls import rebalance
from tests.sim_cluster.scenes import Triple, founded, inside, played, world_of


def test_without_a_quorum_the_missing_voters_are_named() -> None:
    async def script(scene: Triple) -> None:
        alone = inside(scene.third)
        scene.leader.crash()
        scene.master.crash()
        with pytest.raises(NoQuorum) as caught:
            await alone.leader.ask("read_index", Empty(), IndexResponse, 10.0)
        told = caught.value
        missing = tuple(sorted((scene.leader.name, scene.master.name)))
        assert (told.sqlstate, told.voters, told.missing) == ("PC002", ("a", "b", "c"), missing)
        assert told.message == f"there is no Raft leader: {', '.join(missing)} cannot be reached"
        assert told.hint == "start what is missing: 2 of the voters a, b, c must run"
        request = ExpelRequest(alone.identity.cluster_uuid, missing[0], False)
        with pytest.raises(NoQuorum) as caught:
            await alone.leader.ask("expel", request, Empty, 10.0)
        assert caught.value.sqlstate == "40003"  # it was sent, and nobody knows what became of it

    played("async", script)


def test_a_backup_and_a_look_at_the_moves_name_whom_to_start() -> None:
    async def script(scene: Triple) -> None:
        loop = asyncio.get_running_loop()
        alone = inside(scene.third)
        scene.leader.crash()
        scene.master.crash()
        began = loop.time()
        with pytest.raises(NoQuorum, match="cannot be reached"):
            await alone.backup_taker.take({})
        assert loop.time() - began < 15.0
        missing = ", ".join(sorted((scene.leader.name, scene.master.name)))
        assert (await rebalance.status(alone))["waits"] == [
            f"there is no Raft leader: {missing} cannot be reached "
            "(start what is missing: 2 of the voters a, b, c must run)"
        ]

    played("async", script)


def a_setting(instance: Instance, limit_s: float) -> Awaitable[Applied]:
    """A change of a global table that has so much time."""
    row = ("sql_ddl_timeout", "", "50.0")
    proposer = instance.proposer
    change = ops.Batch((ops.Replace(system.PICO_DB_CONFIG.id, row),))
    return proposer.cas(change, proposer.predicate(()), timeout_s=limit_s)


def test_who_reaches_too_few_voters_says_so_long_before_its_time_is_up() -> None:
    async def script(scene: Triple) -> None:
        loop = asyncio.get_running_loop()
        alone = inside(scene.third)
        scene.leader.crash()
        scene.master.crash()
        began = loop.time()
        with pytest.raises(OutcomeUnknown):  # sent to a leader that may have taken it
            await a_setting(alone, 60.0)
        with pytest.raises(NoQuorum):
            await alone.leader.ask("read_index", Empty(), IndexResponse, 60.0)
        assert loop.time() - began < 15.0

    played("async", script)


def test_a_leader_that_lost_its_voters_tells_that_nobody_can_confirm() -> None:
    async def script(scene: Triple) -> None:
        loop = asyncio.get_running_loop()
        leader = inside(scene.leader)
        scene.third.crash()
        scene.master.crash()
        began = loop.time()
        with pytest.raises(OutcomeUnknown) as caught:
            await a_setting(leader, 60.0)
        assert loop.time() - began < 10.0
        missing = ", ".join(sorted((scene.third.name, scene.master.name)))
        assert caught.value.detail == f"there is no Raft leader: {missing} cannot be reached"

    played("async", script)


def test_a_short_loss_of_the_voters_is_waited_out() -> None:
    async def script(scene: Triple) -> None:
        leader = inside(scene.leader)
        scene.third.crash()
        scene.master.crash()
        waiting = asyncio.ensure_future(a_setting(leader, 60.0))
        await asyncio.sleep(1.0)
        scene.third.start()
        await waiting
        assert leader.state.setting("sql_ddl_timeout", 0) == 50.0

    played("async", script)


def test_a_learner_notices_that_nobody_leads_and_says_so() -> None:
    """It never campaigns, so nothing else would tell it."""
    world = world_of("a", "b", "c", "d")

    async def script() -> None:
        await founded(world)
        leader = world.leader()
        assert leader is not None
        voters = inside(leader).runner.conf.voters
        [learner] = [n for n in world.nodes.values() if inside(n).raft_id not in voters]
        there = inside(learner)
        led = inside(leader).raft_id
        other = next(n for n in world.nodes.values() if n not in (leader, learner))
        leader.crash()
        other.crash()
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert there.runner.leader_id == led
        await world.until(lambda: not there.runner.leader_id, "it to be noticed", 10.0)
        assert loop.time() - began <= 2 * ELECTION_TICKS * TICK_S + 0.5
        assert there.status().leader == 0
        began = loop.time()
        with pytest.raises(NoQuorum) as caught:
            await there.leader.ask("read_index", Empty(), IndexResponse, 30.0)
        assert loop.time() - began < 5.0
        assert caught.value.hint is not None and "must run" in caught.value.hint

    world.run(script)
