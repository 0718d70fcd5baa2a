"""A replicaset under load while its masters are killed, paused, cut off and sent away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cairn.model.members.topology import Tier
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.history import BUCKETS, Result
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

ROUND_S = 5.0


class RowHistory:
    """One seed: a replicaset of two or three, sync or async, and a few blows against its masters.

    Nothing acknowledged is lost in sync mode, nor in async mode when every change was planned.
    """

    def __init__(self, seed: int, *, mode: str | None = None, planned: bool | None = None) -> None:
        chance = self.chance = random.Random(seed)
        self.mode = mode or chance.choice(("sync", "async"))
        self.planned = chance.random() < 0.25 if planned is None else planned
        self.size = 3 if self.mode == "sync" else chance.choice((2, 3))
        self.rounds = chance.randint(1, 5)
        tier = Tier(
            "default",
            self.size,
            bucket_count=BUCKETS,
            is_default=True,
            replication_mode=self.mode,
        )
        self.world = World(seed, (tier,))
        self.world.wire.delay_s = chance.choice((0.0005, 0.001, 0.005))
        self.load = Load(self.world)
        self.done: list[str] = []
        names = [f"n{number}" for number in range(1, self.size + 1)]
        for name in names:
            self.world.add(name, tuple(f"{each}:3301" for each in names))

    def describe(self) -> str:
        how = "planned" if self.planned else "unplanned"
        return f"{self.size} nodes, {self.mode}, {self.rounds} {how} rounds"

    def run(self) -> Result:
        world, load = self.world, self.load
        result = Result(world.seed, self.describe())
        try:
            world.run(self._live)
        except Violation as broken:
            result.failure = str(broken)
        result.virtual_s, result.messages = world.loop.time(), world.wire.messages
        result.entries, result.faults = world.checks.last_index, len(self.done)
        result.notes = [*self.done, f"{len(load.acked)} acknowledged, {len(load.unknown)} unknown"]
        result.trace = f"{result.virtual_s:.6f} {result.messages} {len(load.acked)}"
        return result

    async def _live(self) -> None:
        world = self.world
        for node in world.nodes.values():
            node.start()
        await world.settled(60.0)
        await self.load.create_table()
        seconds = 2.0 + (ROUND_S + 1) * self.rounds
        work = asyncio.ensure_future(self.load.run(seconds, self.chance.choice((0.01, 0.05))))
        for _ in range(self.rounds):
            await asyncio.sleep(self.chance.uniform(0.5, 1.5))
            await self._blow()
            await asyncio.sleep(ROUND_S * self.chance.random())
            await self._mend()
        await work
        await self._mend()
        await world.settled()
        await self.load.check(may_lose=self.mode == "async" and not self.planned)

    async def _mend(self) -> None:
        self.world.wire.heal()
        for node in self.world.nodes.values():
            node.resume()
            if not node.is_running:
                node.start()

    async def _blow(self) -> None:
        masters = self.load.masters()
        if not masters:
            return
        node = self.chance.choice(masters)
        if self.planned:
            self._note(f"stop {node}")
            node.stop()
            await self.world.until(lambda: not node.is_running, f"{node} to leave", 20.0)
            return
        blows: tuple[Callable[[SimNode], None], ...] = (
            self._kill,
            self._power,
            self._pause,
            self._cut,
            self._cut_from_leader,
        )
        self.chance.choice(blows)(node)

    def _note(self, what: str) -> None:
        self.done.append(f"{self.world.loop.time():8.3f} {what}")

    def _kill(self, node: SimNode) -> None:
        self._note(f"kill {node}")
        node.crash()

    def _power(self, node: SimNode) -> None:
        self._note(f"power cut of {node}")
        node.crash(power=True)

    def _pause(self, node: SimNode) -> None:
        self._note(f"pause {node}")
        node.pause()

    def _cut(self, node: SimNode) -> None:
        for other in self.world.nodes.values():
            for one, two in ((node, other), (other, node)):
                if node is not other and self.chance.random() < 0.7:
                    self._note(f"cut {one} → {two}")
                    self.world.wire.cut(one.name, two.name)

    def _cut_from_leader(self, node: SimNode) -> None:
        """Not from its replicas, not from its clients."""
        leader = self.world.leader()
        if leader is not None and leader is not node:
            self._note(f"cut {node} from the leader {leader}")
            self.world.wire.cut(node.name, leader.name)
            self.world.wire.cut(leader.name, node.name)


def run_row_seed(seed: int) -> Result:
    return RowHistory(seed).run()
