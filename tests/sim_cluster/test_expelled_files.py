"""Directories whose files were partly removed: one that has founded a cluster founds no second."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import msgspec
import pytest

from cairn.model.members.topology import Grade
from cairn.model.rpc import ExpelRequest, ExpelResponse
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.first_entries import first_instance
from cairn.node.boot.forgotten import leave_strange_rows, note_home
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.quiet import Quiet
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from cairn.storage.data_db.data_store import DataStore
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


@pytest.mark.parametrize("gone", [("raft.db*",), ("raft.db*", "discovery.json")])
def test_a_founder_that_knows_nobody_says_that_its_file_is_gone(gone: tuple[str, ...]) -> None:
    """Others may have joined it since: it never heard of them before it had founded the cluster."""
    world = world_of()
    node = world.add("a", ())

    async def script() -> None:
        await founded(world)
        node.crash()
        remove(node, *gone)
        node.start()
        await world.until(lambda: node.exit_code is not None, "its end", 30.0)
        assert node.exit_code == 1
        assert "is of a member of a cluster, and its raft.db is gone" in node.problem

    world.run(script)


# --- rows of somebody else ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "replicaset", "is_ours"), [("c", "r", True), ("c", "s", False), ("d", "r", False)]
)
def test_rows_stay_with_their_replicaset(
    cluster: str, replicaset: str, is_ours: bool, tmp_path: Path
) -> None:
    row = first_instance(InstanceConfig(), "u", "r")
    store = DataStore(tmp_path / "data.db", "u", now_micros=lambda: 0)
    note_home(store, "c", row)
    store.close()
    leave_strange_rows(tmp_path, cluster, msgspec.structs.replace(row, replicaset_uuid=replicaset))
    assert (tmp_path / "data.db").exists() is is_ours
    assert (tmp_path / "forgotten" / "data.db").exists() is not is_ours


async def written(load: Load, keys: range) -> None:
    for key in keys:
        for _ in range(100):
            if key not in load.acked:
                load.refused.discard(key)
                await load.write(load.masters()[0], key)
    assert set(keys) <= set(load.acked)


def another_cluster(directory: Path, mode: str) -> None:
    """Its rows, in a directory without its `raft.db`."""
    world = world_of("d", mode=mode, seed=3)
    node, load = world.nodes["d"], Load(world)

    async def script() -> None:
        await founded(world)
        await load.create_table()
        await world.settled()
        await written(load, range(900, 940))
        connection = inside(node).data.store.connection
        connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()
        for name in ("data.db", "instance_uuid"):
            shutil.copy(node.dir / name, directory / name)

    world.run(script)


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_rows_of_another_cluster_of_the_same_name_come_to_nobody(mode: str, tmp_path: Path) -> None:
    another_cluster(tmp_path, mode)

    async def script(scene: Triple) -> None:
        world, load = scene.world, scene.load
        for key in range(2, 30):
            await scene.write(key)
        await expelled(scene, scene.third)
        node = world.add("d", ("a:3301", "b:3301", "c:3301"))
        shutil.copytree(tmp_path, node.dir)
        node.start()
        await world.until(lambda: node.grade is Grade.ONLINE, "it to join", 60.0)
        await world.settled()
        await world.until(lambda: why_unequal(world) is None, "equal rows", 30.0)
        found = {each.name: (*sorted(load.rows_of(each)),) for each in world.running()}
        assert found == dict.fromkeys(found, (*range(1, 30),))
        assert (node.dir / "forgotten" / "data.db").exists()
        await load.check()

    played(mode, script)
