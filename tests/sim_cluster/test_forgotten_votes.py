"""A `raft.db` that is damaged at a start: its instance does not vote, and one command helps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cairn.model.errors import CairnError, NotInPrerequisiteState
from cairn.model.members.topology import Grade
from cairn.model.rpc import ExpelRequest, ExpelResponse, ReadRequest, ReadResponse
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_damaged_starts import cut, emptied, flip_tree, overwrite
from tests.sim_cluster.test_data_rules import in_process
from tests.sim_cluster.test_namings import equal
from tests.sim_cluster.test_sync_answers import follow_nobody
from tests.storage.rot import flip_log, flip_page

LOG_AHEAD = "write-ahead log"


def removed(path: Path) -> None:
    for each in path.parent.glob("raft.db*"):
        each.unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no database": lambda path: overwrite(path, bytes(100)),
    "emptied": emptied,
    "removed": removed,
    "cut": lambda path: cut(path, path.stat().st_size - 1000),
    "first page": lambda path: flip_page(path, 1),
    "log": lambda path: flip_tree(path, "raft_log"),
    "state": lambda path: flip_tree(path, "raft_state"),
    LOG_AHEAD: flip_log,
}
QUICK = {("no database", "all", "master", "async"), ("emptied", "one", "master", "sync"),
         ("removed", "all", "leader", "async"),
         ("state", "one", "leader", "async"), (LOG_AHEAD, "one", "leader", "sync")}  # fmt: skip


def cases() -> Iterator[Any]:
    """Some in every run; all of them with the slow ones."""
    for case in product(DAMAGES, ("one", "all"), ("master", "leader"), ("sync", "async")):
        yield pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])


async def expelled(scene: Triple, name: str, *, force: bool) -> None:
    """`cairn expel NAME`, at somebody who answers."""
    leader = scene.world.leader()
    assert leader is not None
    asker = inside(leader)
    row = asker.state.cluster.instances[name]
    request = ExpelRequest(asker.identity.cluster_uuid, row.uuid, force)
    await in_process(leader, lambda: asker.leader.ask("expel", request, ExpelResponse, 10.0))


def settle_on_disk(node: SimNode) -> None:
    connection = inside(node).store.connection
    connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()


@pytest.mark.parametrize(("damage", "killed", "who", "mode"), [*cases()])
def test_who_has_forgotten_its_votes_is_brought_back_by_one_command(
    damage: str, killed: str, who: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(scene: Triple) -> None:
        for key in range(2, 20):
            await scene.write(key)
        await equal(scene)
        victim: SimNode = getattr(scene, who)
        nodes = [*scene.world.nodes.values()]
        others = [node for node in nodes if node is not victim]
        before, old_id = scene.load.rows_of(scene.master), inside(victim).raft_id
        if damage != LOG_AHEAD:
            settle_on_disk(victim)
        for node in nodes if killed == "all" else [victim]:
            node.crash(power=damage == LOG_AHEAD)
        DAMAGES[damage](victim.dir / "raft.db")
        for node in nodes:
            if not node.is_running:
                node.start()
        await scene.world.until(
            lambda: scene.world.leader() in others, "the others to have a leader", 60.0
        )
        await asyncio.sleep(20.0)
        assert victim.is_running and victim.instance is None
        assert (victim.dir / "data.db").exists()
        if killed == "one":  # the others go on by themselves
            assert scene.load.masters() and scene.load.masters()[0] in others
        assert f"`cairn expel {victim.name}` at any other" in caplog.text
        # Async: only the master knows what it acknowledged, and the others came up without it.
        is_waited_for = (killed, who, mode) == ("all", "master", "async")
        if is_waited_for:
            with pytest.raises(NotInPrerequisiteState, match="the last instance that is known"):
                await expelled(scene, victim.name, force=False)
        await expelled(scene, victim.name, force=is_waited_for)
        await scene.world.until(lambda: victim.grade is Grade.ONLINE, "it to be back", 90.0)
        await scene.world.settled()
        await scene.world.until(lambda: why_unequal(scene.world) is None, "equal rows", 60.0)
        assert inside(victim).raft_id != old_id
        assert victim.lives == 2
        assert all(scene.load.rows_of(node) == before for node in nodes)
        await scene.calm()

    with caplog.at_level(logging.ERROR, "cairn.boot"):
        played(mode, script)


def test_what_only_the_forgetful_one_had_is_kept() -> None:
    """Async: it acknowledged rows that nobody else got. They come back with it, unless others have
    gone on without them."""

    async def script(scene: Triple) -> None:
        victim, others = scene.master, [scene.leader, scene.third]
        for node in others:
            follow_nobody(node)
        await asyncio.sleep(1.0)  # until pulls that are under way have ended
        for key in range(50, 60):
            await scene.write(key)
        settle_on_disk(victim)
        for node in scene.world.nodes.values():
            node.crash()
        DAMAGES["no database"](victim.dir / "raft.db")
        for node in scene.world.nodes.values():
            node.start()
        await scene.world.until(lambda: scene.world.leader() in others, "a leader", 60.0)
        await asyncio.sleep(10.0)
        await expelled(scene, victim.name, force=True)
        await scene.world.until(lambda: victim.grade is Grade.ONLINE, "it to be back", 90.0)
        await scene.world.settled()
        query = "SELECT count(*) FROM _cairn_diverged"
        [(count,)] = inside(victim).data.store.connection.execute(query).fetchall()
        kept = [key for key in range(50, 60) if key in scene.load.rows_of(others[0])]
        assert len(kept) + count == 10
        await scene.calm(may_lose=True)

    played("async", script)


def test_statements_for_the_forgetful_one_wait_for_another_master() -> None:
    """It listens, and is no member: no client is told that a handshake was refused (28000)."""

    async def script(scene: Triple) -> None:
        victim, asker = scene.master, scene.leader
        for key in range(2, 20):
            await scene.write(key)
        await equal(scene)
        settle_on_disk(victim)
        victim.crash()
        DAMAGES["no database"](victim.dir / "raft.db")
        old_id = inside(asker).state.cluster.instances[victim.name].raft_id
        victim.start()
        told: list[str] = []
        peers = inside(asker).peers
        request = ReadRequest("SELECT 1", (), {})

        async def ask() -> None:
            try:
                await peers.call(old_id, "read_rows", request, ReadResponse, 1.0, must_end=True)
            except CairnError as problem:
                told.append(type(problem).__name__)

        for _ in range(30):
            await in_process(asker, ask)
            await asyncio.sleep(0.05)
        assert victim.instance is None
        assert {*told} <= {"NotSent", "Unreachable"}

    played("sync", script)
