"""A `data.db` that somebody has removed: what it held is never taken for rows that do not exist."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import pytest

from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played

KEYS = range(2, 12)


def remove_rows(*nodes: SimNode) -> None:
    for node in nodes:
        for path in node.dir.glob("data.db*"):
            path.unlink()


def rows_of(scene: Triple, node: SimNode) -> dict[int, Any]:
    try:
        return scene.load.rows_of(node)
    except apsw.Error:  # there is no file, or no table in it
        return {}


def problems(*nodes: SimNode) -> list[str]:
    return [line for node in nodes for line in inside(node).health.problems()]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_replicas_whose_files_were_removed_do_not_name_one_of_them_master(mode: str) -> None:
    """Two of three promised with nothing in their hands: the third threw its rows away."""

    async def script(scene: Triple) -> None:
        for key in KEYS:
            await scene.write(key)
        await scene.world.settled()
        master = scene.master
        others = [node for node in scene.world.nodes.values() if node is not master]
        before = scene.load.rows_of(master)
        for node in scene.world.nodes.values():
            node.crash()
        remove_rows(*others)
        for node in others:
            node.start()
        told = [f"{node.name} has none of the rows that it had" for node in others]
        await scene.world.until(
            lambda: (
                all(node.instance is not None for node in others)
                and all(any(each in line for line in problems(*others)) for each in told)
            ),
            "that it is told",
            30.0,
        )
        await asyncio.sleep(20.0)
        assert not scene.load.masters()
        master.start()
        await scene.world.until(
            lambda: all(rows_of(scene, node) == before for node in scene.world.nodes.values()),
            "the rows everywhere",
            60.0,
        )
        await scene.calm()
        assert problems(*scene.world.nodes.values()) == []

    played(mode, script)


def test_a_master_whose_file_was_removed_takes_its_rows_from_a_replica() -> None:
    async def script(scene: Triple) -> None:
        for key in KEYS:
            await scene.write(key)
        await scene.world.settled()
        master, before = scene.master, scene.load.rows_of(scene.master)
        master.crash()
        remove_rows(master)
        master.start()
        await scene.world.until(
            lambda: rows_of(scene, master) == before, "the rows of the others", 60.0
        )
        await scene.calm()

    played("sync", script)
