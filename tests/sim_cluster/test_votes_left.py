"""Whoever takes a vote away knows first-hand that those who stay can decide without it."""

from __future__ import annotations

import asyncio

import pytest

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.rpc import Empty, ExpelRequest
from cairn.model.tables import system_tables as system
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played


async def decides(node: SimNode, limit_s: float) -> bool:
    """Whether the cluster still changes a global table when `node` asks for it."""
    proposer = inside(node).proposer
    change = ops.Batch((ops.Replace(system.PICO_DB_CONFIG.id, ("sql_ddl_timeout", "", "50.0")),))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while loop.time() < deadline:
        try:
            await proposer.cas(change, proposer.predicate(()), timeout_s=3.0)
        except CairnError:
            await asyncio.sleep(0.2)
        else:
            return True
    return False


async def expel(by: SimNode, whom: SimNode) -> None:
    request = ExpelRequest(inside(by).identity.cluster_uuid, whom.name, False)
    await inside(by).leader.ask("expel", request, Empty, 10.0)


@pytest.mark.parametrize("since_s", [0.0, 0.3, 0.9, 1.5])
def test_an_expel_right_after_a_death_leaves_those_who_can_decide(since_s: float) -> None:
    async def script(scene: Triple) -> None:
        scene.master.crash()  # for good
        await asyncio.sleep(since_s)
        await expel(scene.leader, scene.third)
        await scene.world.until(lambda: not scene.third.is_running, "the expelled to end", 30.0)
        assert await decides(scene.leader, 30.0)

    played("async", script)


@pytest.mark.parametrize("since_s", [0.0, 0.3, 0.9])
def test_a_goodbye_right_after_a_death_leaves_those_who_can_decide(since_s: float) -> None:
    async def script(scene: Triple) -> None:
        scene.master.crash()
        await asyncio.sleep(since_s)
        scene.third.stop()
        await scene.world.until(lambda: not scene.third.is_running, "its end", 30.0)
        assert await decides(scene.leader, 30.0)

    played("async", script)


def test_a_leader_that_says_goodbye_right_after_a_death_leaves_one_who_can_decide() -> None:
    async def script(scene: Triple) -> None:
        scene.master.crash()
        scene.leader.stop()
        await scene.world.until(lambda: not scene.leader.is_running, "its end", 30.0)
        assert await decides(scene.third, 30.0)

    played("async", script)
