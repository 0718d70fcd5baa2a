"""One machine of three is put back to an older snapshot of its disk, and the cluster notices."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random

import msgspec
import pytest

from cairn.model.members.topology import Grade
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.blows.old_files import files_of, put_back
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.trial import run_trial
from tests.sim_cluster.scenes import Triple, inside, played, world_of


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_voter_whose_disk_went_back_gets_what_it_acknowledged_again(mode: str) -> None:
    """Its leader believed the old word and sent it nothing: it was Offline for ever, in silence."""

    async def script(scene: Triple) -> None:
        world, leader, victim = scene.world, scene.leader, scene.third
        old, nemesis = files_of(victim), Nemesis(world, random.Random(1))
        for key in range(2, 12):
            await scene.write(key)
            assert await nemesis.set("scrub_rows_per_s", key)
        await world.settled()
        acknowledged = inside(victim).runner.applied_index
        victim.crash(power=True)
        put_back(victim, old)
        await asyncio.sleep(4.0)
        victim.start()
        await world.until(lambda: victim.grade is Grade.ONLINE, f"{victim} to be back", 30.0)
        await world.settled()
        assert world.leader() is leader, "the one that believed it has to lead all the time"
        assert inside(victim).runner.applied_index >= acknowledged
        assert scene.load.rows_of(victim) == scene.load.rows_of(scene.master)

    played(mode, script)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["old-files", "old-files-moves"])
def test_old_files_of_one_instance_lose_nothing(kind: str) -> None:
    result = run_trial(kind)(2)
    assert result.failure is None, result.failure


def test_a_founder_that_remembers_only_itself_does_not_lead_a_second_cluster() -> None:
    """Its disk is of the first minute, when its own vote was enough: it led at once, alone."""
    world = world_of("a", "b", "c", factor=3, mode="sync")
    load = Load(world)
    a, b, c = world.nodes.values()
    led: list[int] = []

    async def watch() -> None:
        while True:
            if a.is_leader:
                led.append(inside(a).runner.term)
            await asyncio.sleep(0.001)

    async def script() -> None:
        a.config = msgspec.structs.replace(a.config, peers=(a.config.advertise,))
        a.start()
        await world.until(lambda: a.grade is Grade.ONLINE, "the first one Online", 30.0)
        old = files_of(a)
        b.start()
        c.start()
        await world.settled(60.0)
        await load.create_table()
        for key in range(1, 10):
            await load.write(load.masters()[0], key)
        await world.until(lambda: len(inside(b).runner.conf.voters) == 3, "three voters", 30.0)
        a.crash(power=True)
        put_back(a, old)
        await world.until(lambda: b.is_leader or c.is_leader, "another leader", 30.0)
        await asyncio.sleep(4.0)
        a.config = msgspec.structs.replace(a.config, peers=b.config.peers)
        watching = asyncio.ensure_future(watch())
        a.start()
        await world.until(
            lambda: a.grade is Grade.ONLINE and inside(a).runner.applied_index > 20, "a back", 60.0
        )
        await world.settled()
        watching.cancel()
        assert led == []
        await load.check()

    world.run(script)


def test_a_founder_that_went_on_alone_ends_and_says_why(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told of nobody to ask. It said that it had the others' entries, and had its own."""
    monkeypatch.setattr("cairn.sim.cluster.world.check_masters", lambda nodes: None)
    world = world_of("a", "b", "c", factor=3, mode="sync")
    a, b, c = world.nodes.values()
    world.checks.applied = lambda node, done: None  # type: ignore[method-assign]
    world.checks.observe = lambda file, connection: None  # type: ignore[method-assign]

    async def script() -> None:
        a.config = msgspec.structs.replace(a.config, peers=(a.config.advertise,))
        a.start()
        await world.until(lambda: a.grade is Grade.ONLINE, "the first one Online", 30.0)
        old = files_of(a)
        b.start()
        c.start()
        await world.settled(60.0)
        assert inside(b).runner.conf.voters == (1, 2, 3)
        a.crash(power=True)
        put_back(a, old)
        (a.dir / "members.json").unlink()  # its whole disk went back
        await world.until(lambda: b.is_leader or c.is_leader, "another leader", 30.0)
        a.start()
        await world.until(lambda: not a.is_running, "a to end", 30.0)
        assert a.exit_code == 1

    logging.getLogger("cairn.instance").setLevel("CRITICAL")
    world.run(script)
    assert "expel it and start it with an empty directory" in caplog.text


def test_a_founder_that_was_put_back_and_told_of_nobody_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It led alone until a member reached it, and took writes that went with it."""
    monkeypatch.setattr("cairn.sim.cluster.world.check_masters", lambda nodes: None)
    world = world_of("a", "b", "c", factor=1, mode="async")
    load, lost = Load(world), Load(world)
    a, b, c = world.nodes.values()
    world.checks.applied = lambda node, done: None  # type: ignore[method-assign]
    world.checks.observe = lambda file, connection: None  # type: ignore[method-assign]

    async def ask_it() -> None:
        for key in itertools.count(1000):
            await asyncio.sleep(0.005)
            if a.instance is not None and a.is_running:
                lost.write(a, key)

    async def script() -> None:
        a.config = msgspec.structs.replace(a.config, peers=(a.config.advertise,))
        a.start()
        await world.until(lambda: a.grade is Grade.ONLINE, "the first one Online", 30.0)
        await load.create_table()
        await load.write(a, 1)
        assert load.acked
        old = files_of(a)
        b.start()
        c.start()
        await world.settled(60.0)
        assert inside(b).runner.conf.voters == (1, 2, 3)
        a.crash(power=True)
        put_back(a, old)
        await world.until(lambda: b.is_leader or c.is_leader, "another leader", 30.0)
        for one, other in itertools.permutations(world.nodes, 2):
            if a.name in (one, other):  # its network comes up later than it does
                world.wire.cut(one, other)
        asking = asyncio.ensure_future(ask_it())
        a.start()
        await asyncio.sleep(10.0)
        asking.cancel()
        assert lost.sent and lost.acked == {}
        world.wire.heal()
        await world.until(lambda: a.grade is Grade.ONLINE, "a to be back", 60.0)
        await world.settled()

    world.run(script)
