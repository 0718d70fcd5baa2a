"""Buckets that move while clients write, delete and read the same keys over and over."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.ranges import one_key
from cairn.model.members.moves import Phase
from cairn.model.members.topology import Grade
from cairn.model.tables import rows
from cairn.model.tables.system_tables import PICO_REPLICASET
from cairn.moves import shares
from cairn.node.instance import Instance
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import Registers
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World
from tests.sim_cluster.scenes import founded, world_of
from tests.sim_cluster.test_data_rules import in_process


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "PIECE", 4)


class Growing:
    """One replicaset with all buckets, and a second one that comes later."""

    def __init__(self, mode: str, seed: int = 1) -> None:
        self.world: World = world_of("a", "b", factor=2, mode=mode, seed=seed)
        self.load = Load(self.world)
        self.registers = Registers(
            self.load, self.world.chance, groups=15, clients_each=1, pause_s=0.04
        )

    async def ready(self) -> None:
        await founded(self.world)
        await self.load.create_table()

    async def grow(self) -> None:
        for name in ("c", "d"):
            self.world.add(name, ("a:3301", "b:3301")).start()
        await self.world.online("c", "d")

    def counts(self) -> dict[str, int]:
        leader = self.world.leader()
        assert leader is not None and leader.instance is not None
        return shares.held(leader.instance.state.cluster.tier_buckets("default"))

    def is_calm(self) -> bool:
        leader = self.world.leader()
        if leader is None or leader.instance is None:
            return False
        cluster = leader.instance.state.cluster
        return not any(move.is_open for move in cluster.moves.values())

    def master(self, replicaset: str) -> SimNode | None:
        leader = self.world.leader()
        if leader is None or leader.instance is None:
            return None
        found = leader.instance.state.cluster.replicasets.get(replicaset)
        node = self.world.nodes.get(found.current_master_name) if found is not None else None
        return node if node is not None and node.is_running else None

    async def halved(self, timeout_s: float = 120.0) -> None:
        await self.world.until(
            lambda: self.counts() == {"default_1": 15, "default_2": 15} and self.is_calm(),
            "half of the buckets to move",
            timeout_s,
        )


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_second_replicaset_takes_half_of_the_buckets_under_load(mode: str) -> None:
    scene = Growing(mode)

    async def script() -> None:
        await scene.ready()
        load = asyncio.ensure_future(scene.registers.run(12.0))
        await asyncio.sleep(2.0)
        await scene.grow()
        await scene.halved()
        await load
        await scene.world.settled()
        await scene.registers.check()
        assert scene.registers.unknown == 0
        assert scene.registers.done > 500
        assert scene.registers.longest_s < 1.0

    scene.world.run(script)


def test_a_source_that_applies_a_freeze_a_little_late_hands_over_in_it() -> None:
    """Its disk is slow, so the target asks before the source has heard, and has to ask again."""
    scene = Growing("async")

    async def script() -> None:
        await scene.ready()
        for name in ("a", "b"):
            runtime = scene.world.nodes[name].runtime
            assert runtime is not None
            runtime.disk_delay_s = 0.02
        await scene.grow()
        await scene.halved()
        leader = scene.world.leader()
        assert leader is not None and leader.instance is not None
        moves = leader.instance.state.cluster.moves.values()
        assert {move.id: move.thaws for move in moves} == dict.fromkeys(range(1, len(moves) + 1), 0)

    scene.world.run(script)


@pytest.mark.slow
def test_a_target_whose_disk_fills_gives_the_range_back_and_goes_on_when_there_is_space() -> None:
    scene = Growing("async")

    def of_leader() -> Instance:
        leader = scene.world.leader()
        assert leader is not None and leader.instance is not None
        return leader.instance

    async def script() -> None:
        await scene.ready()
        load = asyncio.ensure_future(scene.registers.run(12.0))
        await asyncio.sleep(1.0)
        await scene.grow()
        await scene.world.until(lambda: not scene.is_calm(), "a move to begin", 30.0)
        for name in ("c", "d"):
            runtime = scene.world.nodes[name].runtime
            assert runtime is not None
            runtime.free = 0
        reasons = set()

        def given_back() -> bool:
            moves = of_leader().state.cluster.moves.values()
            reasons.update(move.reason for move in moves if move.phase is Phase.ABORTED)
            return bool(reasons)

        await scene.world.until(given_back, "the range to be given back", 30.0)
        assert all("no space" in reason for reason in reasons)
        begun = len(of_leader().state.cluster.moves)
        await load
        assert len(of_leader().state.cluster.moves) == begun  # not again at once
        assert any("takes nothing for now" in each for each in of_leader().move_driver.waits)
        assert scene.registers.unknown == 0
        for name in ("c", "d"):
            runtime = scene.world.nodes[name].runtime
            assert runtime is not None
            runtime.free = 1 << 40
        await scene.halved()
        await scene.world.settled()
        await scene.registers.check()

    scene.world.run(script)


def test_a_target_that_ends_because_its_disk_is_full_is_followed_by_its_replica() -> None:
    scene = Growing("async")

    async def script() -> None:
        await scene.ready()
        await scene.registers.run(1.0)
        await scene.grow()
        await scene.world.until(lambda: not scene.is_calm(), "a move to begin", 30.0)
        victim = scene.master("default_2")
        assert victim is not None and victim.runtime is not None
        [disk] = [each for each in victim.runtime.disks if each.path.name == "data.db"]
        disk.is_full = True
        await scene.world.until(lambda: not victim.is_running, "it to end", 30.0)
        victim.start()
        await scene.halved()
        await scene.world.settled()
        await scene.registers.check()

    scene.world.run(script)


async def _switches(scene: Growing, chance: random.Random) -> None:
    """Mastership goes back and forth on both sides, by plan."""
    while True:
        await asyncio.sleep(chance.uniform(0.2, 2.0))
        leader = scene.world.leader()
        if leader is None or leader.instance is None:
            continue
        instance = leader.instance
        cluster = instance.state.cluster
        replicaset = chance.choice(sorted(cluster.replicasets.values(), key=lambda r: r.name))
        heirs = [
            each.name
            for each in cluster.members(replicaset.name)
            if each.current_state.grade is Grade.ONLINE and each.name in replicaset.members
        ]
        if len(heirs) < 2 or replicaset.current_master_name != replicaset.target_master_name:
            continue
        heir = chance.choice([name for name in heirs if name != replicaset.current_master_name])
        new = msgspec.structs.replace(replicaset, target_master_name=heir)
        change = ops.Batch((ops.Replace(PICO_REPLICASET.id, rows.replicaset_row(new)),))
        key = one_key(PICO_REPLICASET.id, (replicaset.name,))
        proposer = instance.proposer
        propose = partial(proposer.cas, change, proposer.predicate((key,)))
        with suppress(CairnError):
            await in_process(leader, propose)


async def _crashes(scene: Growing, chance: random.Random) -> None:
    """Masters of both sides and leaders die, lose their power or stand still, and come back."""
    world = scene.world
    while True:
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        leader, names = world.leader(), ["default_1", "default_2"]
        chosen = chance.choice([leader, *map(scene.master, names)])
        if chosen is None or len(world.running()) < len(world.nodes):
            continue
        if chance.random() < 0.3:
            chosen.pause()
            await asyncio.sleep(chance.uniform(0.1, 4.0))
            chosen.resume()
        else:
            chosen.crash()
            await asyncio.sleep(chance.uniform(0.1, 4.0))
            chosen.start()


def play(mode: str, seed: int, faults: Callable[[Growing, random.Random], Awaitable[None]]) -> None:
    scene = Growing(mode, seed)

    async def script() -> None:
        await scene.ready()
        load = asyncio.ensure_future(scene.registers.run(15.0))
        await asyncio.sleep(1.0)
        await scene.grow()
        trouble = asyncio.ensure_future(faults(scene, random.Random(seed)))
        await load
        trouble.cancel()
        for node in scene.world.nodes.values():
            node.resume()
            if not node.is_running:
                node.start()
        await scene.world.settled()
        await scene.halved()
        await scene.world.settled()
        await scene.registers.check()

    scene.world.run(script)


@pytest.mark.slow
def test_moves_survive_masters_that_change_back_and_forth() -> None:
    play("async", 3, _switches)


def test_moves_survive_masters_and_leaders_that_die() -> None:
    play("sync", 6, _crashes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_moves_with_many_faults(seed: int) -> None:
    """`python -m tests.sim_cluster.test_moves SEED` repeats one of them."""
    play("sync", seed, _crashes)
    play("async", seed, _switches)


if __name__ == "__main__":
    shares.PIECE = 4
    play("sync", int(sys.argv[1]), _crashes)
    play("async", int(sys.argv[1]), _switches)
