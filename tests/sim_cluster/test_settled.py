"""What a staged write is told before it forgets how to write its rows again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.errors import NoMaster
from cairn.server.calls.settling import settle
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import in_process


def settling(scene: Triple, node: SimNode) -> asyncio.Task[Any]:
    caller: Any = SimpleNamespace(instance=inside(node), execution=scene.load.execution(node))
    return in_process(node, lambda: settle(caller))


def test_a_master_of_a_later_epoch_settles_nothing_of_an_earlier_one() -> None:
    """It waits for its replicas while another is named, and is named again itself: what it had
    acknowledged before is gone by then."""

    async def script(scene: Triple) -> None:
        master, world = scene.master, scene.world
        epoch = inside(master).data.fence.epoch
        assert await settling(scene, master) == {"epoch": epoch}
        scene.cut(master, scene.leader)
        scene.cut(master, scene.third)
        await scene.load.write(master, 2)
        asked = settling(scene, master)
        heir = await scene.renamed()
        scene.mend(master, scene.leader)
        scene.mend(master, scene.third)
        await world.settled()
        await Nemesis(world, world.chance).switch(master)
        await world.until(
            lambda: inside(master).data.fence.epoch == epoch + 2, "to be named again", 30.0
        )
        assert 2 not in scene.load.rows_of(heir)
        for key in (3, 4):  # these have the numbers of what is gone
            await scene.write(key, master)
        with pytest.raises(NoMaster):
            await asyncio.wait_for(asked, 60.0)
        await scene.calm(may_lose=True)

    played("async", script)
