"""Files of an earlier moment are put back: epochs and lsns are used again, for other rows."""

from __future__ import annotations

import asyncio
import shutil
from copy import copy
from pathlib import Path

import pytest

from cairn.node.boot.restoring import restore
from cairn.sim.cluster.checks import Checks
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))]
MODES = ["async", pytest.param("sync", marks=pytest.mark.slow)]


class Again(Triple):
    """A cluster that goes on after a copy was made, and is put back."""

    async def live(self, first: int) -> None:
        """Rows, and another epoch, and rows in it."""
        nodes = list(self.world.nodes.values())
        for key in range(first, first + 5):
            await self.write(key, self.load.masters()[0])
        await self.world.settled()
        self.master = self.load.masters()[0]
        self.master.crash()
        heir = await self.renamed()
        for key in range(first + 5, first + 10):
            await self.write(key, heir)
        for node in nodes:
            if not node.is_running:
                node.start()
        await self.world.settled()
        await self.load.check()

    def copy(self) -> Path:
        kept = self.world.dir / "kept"
        for node in self.world.nodes.values():
            node.crash()
            shutil.copytree(node.dir, kept / node.name)
        return kept

    def put_back(self, kept: Path, nodes: list[SimNode], without: list[str]) -> None:
        for node in self.world.nodes.values():
            if node.is_running:
                node.crash()
        for node in nodes:
            shutil.rmtree(node.dir)
            shutil.copytree(kept / node.name, node.dir)
        restore([node.dir for node in nodes], without, self.world.nodes["a"].name * 36)
        self.world.checks = Checks(self.world.loop.time)  # entries are numbered anew


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_two_histories_never_meet(mode: str, seed: int) -> None:
    scene = Again(mode, seed)

    async def script() -> None:
        await scene.ready()
        world, load = scene.world, scene.load
        await scene.live(10)
        kept = scene.copy()
        before = dict(load.acked), set(load.sent)
        for node in world.nodes.values():
            node.start()
        await world.settled()
        await scene.live(30)
        scene.put_back(kept, list(world.nodes.values()), [])
        load.acked, load.sent = before
        for node in world.nodes.values():
            node.start()
        await world.settled()
        await load.check()
        await scene.live(50)

    scene.world.run(script)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_one_that_was_not_put_back_gives_nobody_its_rows(mode: str, seed: int) -> None:
    """Its records have the numbers of others by now."""
    scene = Again(mode, seed)

    async def script() -> None:
        await scene.ready()
        world, load = scene.world, scene.load
        await scene.live(10)
        kept = scene.copy()
        before = dict(load.acked), set(load.sent)
        for node in world.nodes.values():
            node.start()
        await world.settled()
        await scene.live(30)
        left = world.nodes["c"]
        two = [node for node in world.nodes.values() if node is not left]
        scene.put_back(kept, two, [left.name])
        load.acked, load.sent = before
        for node in two:
            node.start()
        await world.until(lambda: bool(load.masters()), "a master", 60.0)
        for key in range(50, 60):
            await scene.write(key, load.masters()[0])
        del world.nodes[left.name]  # what it does is its own affair
        left.world = copy(world)
        left.world.checks = Checks(world.loop.time)
        left.start()
        await asyncio.sleep(15.0)
        for key in range(60, 65):
            await scene.write(key, load.masters()[0])
        await load.check()
        assert left.process is not None
        left.crash()

    scene.world.run(script)
