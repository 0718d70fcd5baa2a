"""Directories whose files were partly removed: one that has founded a cluster founds no second."""

from __future__ import annotations

import asyncio
import random

import pytest

from cairn.model.members.topology import Grade
from cairn.model.rpc import ExpelRequest, ExpelResponse
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.loads.quiet import Quiet
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, founded, inside, played, world_of

LEFT = {"rows": ("raft.db*",), "nothing but its verdict": ("raft.db*", "data.db*", "instance_uuid")}


def remove(node: SimNode, *patterns: str) -> None:
    for pattern in patterns:
        for path in node.dir.glob(pattern):
            path.unlink()


async def expelled(scene: Triple, node: SimNode) -> None:
    asker, gone = inside(scene.leader), inside(node)
    assert gone.row is not None and scene.leader.process is not None
    request = ExpelRequest(gone.identity.cluster_uuid, gone.row.uuid)

    async def ask() -> None:
        await asker.leader.ask("expel", request, ExpelResponse, 10.0)

    await scene.world.loop.create_task(ask(), context=scene.leader.process.context)
    await scene.world.until(lambda: not node.is_running, "its end", 60.0)
    assert node.exit_code == 5


@pytest.mark.parametrize(
    ("left", "mode"),
    [
        ("rows", "async"),
        pytest.param("rows", "sync", marks=pytest.mark.slow),
        pytest.param("nothing but its verdict", "async", marks=pytest.mark.slow),
    ],
)
def test_a_founder_that_was_expelled_joins_again_with_what_is_left_of_its_files(
    left: str, mode: str
) -> None:
    async def script(scene: Triple) -> None:
        founder = scene.world.nodes["a"]
        assert founder is scene.master
        for key in range(2, 8):
            await scene.write(key)
        await scene.world.settled()
        await expelled(scene, founder)
        scene.master = await scene.renamed()
        for key in range(20, 26):
            await scene.write(key)
        remove(founder, *LEFT[left])
        founder.start()
        await scene.world.until(lambda: founder.grade is Grade.ONLINE, "it to join", 60.0)
        await scene.world.settled()
        nemesis = Nemesis(scene.world, random.Random(1), Quiet())
        while founder not in scene.load.masters():
            await nemesis.switch(founder)
            await asyncio.sleep(0.5)
        await scene.world.settled()
        scene.master = founder
        for key in range(40, 46):
            await scene.write(key)
        await scene.world.settled()
        await scene.world.until(lambda: why_unequal(scene.world) is None, "equal rows", 30.0)
        await scene.load.check()

    played(mode, script)


def test_a_founder_that_knows_nobody_says_that_its_file_is_gone() -> None:
    """Others may have joined it since: it never heard of them before it had founded the cluster."""
    world = world_of()
    node = world.add("a", ())

    async def script() -> None:
        await founded(world)
        node.crash()
        remove(node, "raft.db*")
        node.start()
        await world.until(lambda: node.exit_code is not None, "its end", 30.0)
        assert node.exit_code == 1
        assert "is of a member of a cluster, and its raft.db is gone" in node.problem

    world.run(script)
