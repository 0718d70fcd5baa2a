"""Directed scripts for rules of moves that need links, replicas and time."""

from __future__ import annotations

import asyncio

import pytest

from cairn.model.moves import Phase
from cairn.moves import shares
from tests.sim_cluster.test_moves import Growing


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "PIECE", 8)


def phases(scene: Growing) -> list[Phase]:
    leader = scene.world.leader()
    if leader is None or leader.instance is None:
        return []
    return [move.phase for move in leader.instance.state.cluster.moves.values()]


def cut(scene: Growing, one: str, other: str) -> None:
    scene.world.wire.cut(one, other)
    scene.world.wire.cut(other, one)


async def grown(scene: Growing) -> None:
    await scene.ready()
    await scene.registers.run(1.0)
    await scene.grow()


async def calm(scene: Growing) -> None:
    scene.world.wire.heal()
    await scene.halved()
    await scene.world.settled()
    await scene.registers.settled()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_range_is_handed_over_only_when_the_target_s_replica_has_it(mode: str) -> None:
    scene = Growing(mode)

    async def script() -> None:
        await grown(scene)
        await scene.world.until(lambda: bool(phases(scene)), "a move to begin", 30.0)
        assert set(phases(scene)) == {Phase.COPYING}
        cut(scene, "c", "d")
        await asyncio.sleep(6.0)
        assert not {Phase.COPIED, Phase.DONE} & set(phases(scene))
        await calm(scene)

    scene.world.run(script)


def test_a_move_is_done_only_when_the_source_s_replica_has_dropped_the_rows() -> None:
    scene = Growing("async")

    async def script() -> None:
        await grown(scene)
        await scene.world.until(lambda: Phase.COPIED in phases(scene), "a hand-over", 30.0)
        assert Phase.DONE not in phases(scene)
        cut(scene, "a", "b")
        await asyncio.sleep(10.0)
        assert Phase.COPIED in phases(scene)
        assert Phase.DONE not in phases(scene)
        await calm(scene)

    scene.world.run(script)
