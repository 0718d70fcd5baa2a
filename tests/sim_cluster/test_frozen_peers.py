"""An instance that stands still (SIGSTOP, a paused VM) keeps its links open and says nothing."""

from __future__ import annotations

import asyncio

from cairn.model.errors import CairnError, Unreachable
from cairn.model.rpc import VclockRequest, VclockResponse
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import in_process


async def ask(scene: Triple, asker: SimNode, asked: SimNode) -> tuple[type[CairnError], float]:
    """How a question with half a minute of patience ends, and after how long."""
    loop = scene.world.loop
    begun, to = loop.time(), inside(asked).raft_id
    body = VclockRequest(10**9, 60.0)
    call = inside(asker).peers.call
    try:
        await in_process(asker, lambda: call(to, "vclock", body, VclockResponse, 30.0))
    except CairnError as problem:
        return type(problem), loop.time() - begun
    raise AssertionError("it was answered")


def test_a_question_to_a_frozen_instance_ends_when_the_cluster_has_gone_on_without_it() -> None:
    async def script(scene: Triple) -> None:
        asking = asyncio.ensure_future(ask(scene, scene.third, scene.master))
        await asyncio.sleep(0.5)
        scene.master.pause()
        await scene.renamed()
        kind, took_s = await asking
        assert kind is Unreachable
        assert took_s < 4.5

    played("async", script)


def test_a_question_to_a_frozen_instance_ends_without_anybody_who_could_declare_it() -> None:
    async def script(scene: Triple) -> None:
        asking = asyncio.ensure_future(ask(scene, scene.third, scene.master))
        await asyncio.sleep(0.5)
        scene.cut(scene.third, scene.leader)
        scene.master.pause()
        kind, took_s = await asking
        assert kind is Unreachable
        assert took_s < 8.0

    played("async", script)


def test_a_long_question_to_a_living_instance_is_waited_for() -> None:
    async def script(scene: Triple) -> None:
        kind, took_s = await ask(scene, scene.third, scene.master)
        assert kind is Unreachable
        assert took_s > 29.0

    played("async", script)
