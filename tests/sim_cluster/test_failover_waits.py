"""How long a plain client waits when a master dies or stands still. Time is the simulator's own."""

from __future__ import annotations

import asyncio
import random

import pytest

from cairn.model.members.topology import Tier
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.history import BUCKETS
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import Registers
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

NAMES = ("n1", "n2", "n3")
LONGEST_S = 2.1  # six seeds take 1.2 to 2.02 s; `bench/failover.py` has the bar of 2.0
SEED = 4  # the slowest of them


class Scene:
    """Three copies of each row, and a client that writes one statement after another."""

    def __init__(self, *, leads: bool) -> None:
        self.world, self.chance = World(SEED, (TIER,)), random.Random(SEED)
        self.load, self.leads = Load(self.world), leads
        self.registers = Registers(self.load, self.chance, groups=1, clients_each=1)
        self.longest_s = 0.0
        for name in NAMES:
            self.world.add(name, tuple(f"{other}:3301" for other in NAMES))

    async def victim(self) -> SimNode:
        """The master, after it was made the leader of Raft too, or not."""
        leader = self.world.leader()
        assert leader is not None
        heir = leader if self.leads else next(n for n in self.nodes() if n is not leader)
        await Nemesis(self.world, self.chance).switch(heir)
        await self.world.until(lambda: self.load.masters() == [heir], "the switch", 10.0)
        await asyncio.sleep(2.0)
        return heir

    def nodes(self) -> list[SimNode]:
        return list(self.world.nodes.values())

    async def write(self, via: SimNode, seconds: float) -> None:
        until, number = self.world.loop.time() + seconds, 0
        since = self.world.loop.time()
        while self.world.loop.time() < until:
            number += 1
            if await self.registers._write(via, self.registers.groups[0], f"0.{number}") == "done":
                self.longest_s = max(self.longest_s, self.world.loop.time() - since)
                since = self.world.loop.time()
            await asyncio.sleep(0.005)
        assert self.world.loop.time() - since < LONGEST_S, self.registers.problem


TIER = Tier("default", len(NAMES), bucket_count=BUCKETS, is_default=True)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "frozen"])
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_client_waits_about_two_seconds_for_the_next_master(leads: bool, is_killed: bool) -> None:
    scene = Scene(leads=leads)

    async def live() -> None:
        for node in scene.nodes():
            node.start()
        await scene.world.settled(60.0)
        await scene.load.create_table()
        victim = await scene.victim()
        via = next(n for n in scene.nodes() if n is not victim and not n.is_leader)
        client = asyncio.ensure_future(scene.write(via, 8.0))
        await asyncio.sleep(1.0)
        if is_killed:
            victim.crash(silently=False)
        else:
            victim.pause()
        await client

    scene.world.run(live)
    assert 0.5 < scene.longest_s < LONGEST_S
