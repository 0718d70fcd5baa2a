"""A disk that never answers: reads and heartbeats go on, so its instance has to give itself up."""

from __future__ import annotations

from cairn.node.lifetime import AGAIN
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played


def hang(node: SimNode, file: str) -> None:
    assert node.runtime is not None
    for disk in node.runtime.disks:
        disk.is_hung = disk.is_hung or disk.path.name == file


def test_a_master_that_cannot_write_makes_way_for_another() -> None:
    async def script(scene: Triple) -> None:
        master, world = scene.master, scene.world
        hang(master, "data.db")
        scene.load.write(master, 2)
        told = f"{master.name}: the disk of data.db has taken nothing for"
        await world.until(
            lambda: any(line.startswith(told) for line in inside(master).status().damage),
            "that it is told",
            10.0,
        )
        heir = await scene.renamed(40.0)
        assert (master.is_running, master.exit_code) == (False, AGAIN)
        await scene.write(3, heir)
        master.start()
        await scene.calm()

    played("sync", script)


def test_a_leader_that_cannot_write_makes_way_for_another() -> None:
    async def script(scene: Triple) -> None:
        leader, world = scene.leader, scene.world
        hang(leader, "raft.db")
        await world.until(lambda: not leader.is_running, "its end", 60.0)
        await world.until(lambda: world.leader() not in (None, leader), "another leader", 20.0)
        await scene.write(2)
        leader.start()
        await scene.calm()

    played("sync", script)
