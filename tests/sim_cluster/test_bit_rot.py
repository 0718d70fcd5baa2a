"""Disks that change bytes, and rows that differ: found, told, and mended from others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NoReturn

import pytest

from cairn.governor.actions import SealAndName
from cairn.model.errors import CairnError
from cairn.model.rpc import Empty, ExpelRequest, ExpelResponse
from cairn.node.instance import Instance
from cairn.node.lifetime import AGAIN, Ending
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from cairn.storage.data_db.full_copy import CopyTarget
from cairn.storage.files import checksums
from tests.sim_cluster.scenes import Triple, copies_asked_of, inside, played
from tests.sim_cluster.test_data_rules import in_process
from tests.sim_cluster.test_namings import equal
from tests.sim_cluster.test_sync_answers import ROW, follow_nobody, writing
from tests.storage.rot import flip_page


async def filled(scene: Triple) -> None:
    for key in range(2, 40):
        await scene.write(key)
    await equal(scene)


def rots(node: SimNode, tree: str = "", kind: str = "") -> None:
    """One bit of a page, on the disk; what is in memory stays as it was."""
    store = inside(node).data.store
    store.connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()
    [table] = store.tables.values()
    query = "SELECT min(pageno) FROM dbstat WHERE name = ?1 AND (pagetype = ?2 OR ?2 = '')"
    page = store.connection.execute(query, (tree or table.physical_name, kind)).fetchone()
    assert page is not None
    flip_page(store.path, int(page[0]))


def changes_a_row(node: SimNode) -> None:
    """A row that is another one than was written, in a page whose checksum is right."""
    store = inside(node).data.store
    [table] = store.tables.values()
    with store.unobserved():
        store.connection.execute(
            f"UPDATE {table.physical_name} SET c1 = c1 || '?' WHERE c0 = "
            f"(SELECT min(c0) FROM {table.physical_name})"
        )
    store.take_changes()


async def mended(scene: Triple, node: SimNode) -> None:
    """It ends by itself, is started again as its supervisor does it, and has all rows."""
    await scene.world.until(lambda: not node.is_running, f"{node} to end", 60.0)
    assert node.exit_code == AGAIN
    node.start()
    await scene.world.settled(60.0)
    await scene.world.until(lambda: why_unequal(scene.world) is None, "equal replicas", 30.0)
    assert [inside(each).health.damage for each in scene.world.nodes.values()] == [{}, {}, {}]
    assert (node.dir / "damaged" / "data.db").exists()


def test_a_replica_whose_file_is_damaged_takes_it_anew() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        rots(scene.third)
        checksums.noticed()
        await mended(scene, scene.third)
        await scene.calm()

    played("sync", script)


def test_a_master_whose_file_is_damaged_hands_over_and_takes_it_anew() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        master = scene.master
        rots(master)
        checksums.noticed()
        await scene.renamed(60.0)
        await mended(scene, master)
        await scene.calm()

    played("async", script)


def test_a_replica_with_a_row_that_nobody_else_has_takes_its_rows_anew() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        changes_a_row(scene.third)
        health = inside(scene.third).health
        await in_process(scene.third, health.compare)
        assert health.differences == 1
        assert "differ from those of" in health.damage["data.db"]
        await mended(scene, scene.third)
        await scene.calm()

    played("async", script)


def test_a_master_with_a_row_that_nobody_else_has_is_outvoted() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        master = scene.master
        changes_a_row(master)
        health = inside(scene.third).health
        await in_process(scene.third, health.compare)
        assert health.damage == {}
        assert list(health.accused) == [master.name]
        await scene.renamed(60.0)
        await mended(scene, master)
        await scene.calm()

    played("async", script)


async def started_again(scene: Triple, *nodes: SimNode) -> None:
    """Each ends once, as somebody who takes its rows anew does, and its supervisor starts it."""
    for node in nodes:
        await scene.world.until(lambda n=node: not n.is_running, f"{node} to end", 60.0)  # type: ignore[misc]
        assert node.exit_code == AGAIN
        node.start()
    await scene.world.settled(60.0)
    await scene.world.until(lambda: why_unequal(scene.world) is None, "equal replicas", 30.0)


def governor_says(scene: Triple, *words: str) -> bool:
    told = " | ".join(inside(scene.leader).governor.status.blocked_by)
    return all(word in told for word in words)


def test_a_replica_keeps_the_rows_that_it_can_read_while_its_master_is_damaged_too() -> None:
    """Each may have what the other has lost: nobody gives up its file for a copy of such a one."""

    async def script(scene: Triple) -> None:
        await filled(scene)
        scene.third.crash()
        rots(scene.master)
        rots(scene.leader)
        checksums.noticed()
        said = ("copy of default_1 that is there is damaged (a, b): start c", "is damaged too")
        await scene.world.until(lambda: governor_says(scene, *said), "the governor to say so", 60.0)
        await asyncio.sleep(60.0)
        assert [node.lives for node in (scene.master, scene.leader) if node.is_running] == [1, 1]
        scene.third.start()
        third = [scene.third]
        await scene.world.until(lambda: scene.load.masters() == third, "a whole master", 60.0)
        await started_again(scene, scene.master, scene.leader)
        await scene.calm()

    played("sync", script)


def test_who_has_damage_in_its_log_alone_can_give_a_copy() -> None:
    async def script(scene: Triple) -> None:
        for key in range(2, 200):
            await scene.write(key)
        await equal(scene)
        health = inside(scene.third).health

        async def can_give() -> bool | None:
            await health.look()
            return (await health.handle_can_give(Empty())).can_give

        assert (await health.handle_can_give(Empty())).can_give is None  # it looks first
        assert await in_process(scene.third, can_give) is True
        rots(scene.third, "row_log", "leaf")  # one of several: its newest records are read
        assert await in_process(scene.third, can_give) is True
        assert "row_log" in health.damage["data.db"]
        rots(scene.third)
        assert await in_process(scene.third, can_give) is False

    played("async", script)


async def with_records_of_its_own(scene: Triple) -> None:
    """Only the master has most of the rows, and the log that tells them has a damaged page."""
    again = [follow_nobody(node) for node in (scene.leader, scene.third)]
    await asyncio.sleep(1.0)  # until pulls that are under way have ended
    for key in range(2, 200):
        await scene.write(key)
    rots(scene.master, "row_log", "leaf")  # one of several: its newest records are read
    for follow in again:
        follow()


def test_one_replica_takes_a_copy_of_a_master_whose_log_cannot_be_read() -> None:
    """Async mode: what only the master has is acknowledged. The other replica keeps its file."""

    async def script(scene: Triple) -> None:
        await with_records_of_its_own(scene)
        master, heir = scene.master, min(scene.leader, scene.third, key=lambda node: node.name)
        checksums.noticed()
        await scene.world.until(lambda: not heir.is_running, "one to take its file anew", 60.0)
        assert master.is_running
        heir.start()
        assert await scene.renamed(90.0) is heir
        await mended(scene, master)
        assert sorted(node.lives for node in scene.world.nodes.values()) == [1, 2, 2]
        await scene.calm()

    played("async", script)


@pytest.mark.parametrize("tree", ["local_table", "origin", "row_log"])
def test_what_a_damaged_list_of_tables_says_is_known_to_the_writer(tree: str) -> None:
    """Only pages about the log and the tables are damaged: a full copy has all rows."""

    async def script(scene: Triple) -> None:
        await filled(scene)
        rots(scene.master, tree)
        master, third = inside(scene.master), inside(scene.third)
        await in_process(scene.master, master.health.look)
        assert tree in master.health.damage["data.db"]
        source = await in_process(scene.master, master.replication.copies._opened)
        assert (source.head.epoch, source.head.vclock) == (master.data.epoch, master.data.vclock)
        target = CopyTarget(third.data.store, "a master with damage")
        target.begin(source.head)
        while (found := source.chunk(1_000_000)) is not None:
            target.rows(*found)
        assert target.count == 39

    played("sync", script)


def test_a_copy_after_which_nothing_can_be_followed_is_not_taken_again() -> None:
    """It would be behind at once, again and again. When writes end, it has all rows."""

    async def script(scene: Triple) -> None:
        master, heir = scene.master, min(scene.leader, scene.third, key=lambda node: node.name)
        relay: Any = inside(master).replication.relay
        relay._read = lambda *_: unreadable()
        rots(master, "sqlite_autoindex_origin_1")
        checksums.noticed()
        keys = count(100)

        async def written(until: Callable[[], bool]) -> None:
            while not until():
                await scene.write(next(keys))

        await written(lambda: not heir.is_running)
        heir.start()
        enough = scene.world.loop.time() + 40.0
        await written(lambda: scene.world.loop.time() > enough or not heir.is_running)
        assert (heir.is_running, heir.lives) == (True, 2)
        assert scene.load.masters() == [master]

    played("async", script)


def unreadable() -> NoReturn:
    raise checksums.page_damaged()


def test_a_damaged_master_that_nobody_can_follow_is_left_in_peace() -> None:
    """Each try to replace it would keep clients from its rows. What to do is told all the time."""

    async def script(scene: Triple) -> None:
        await with_records_of_its_own(scene)
        rots(scene.master)
        checksums.noticed()
        said = ("a stays master of default_1 although it is damaged", "b stopped following a")
        await scene.world.until(lambda: governor_says(scene, *said), "the governor to say so", 60.0)
        applied = inside(scene.leader).runner.applied_index
        await asyncio.sleep(120.0)
        assert governor_says(scene, *said)
        assert inside(scene.leader).runner.applied_index == applied, "somebody was wished for"
        assert [node.lives for node in scene.world.nodes.values()] == [1, 1, 1]

    played("async", script)


def test_who_lacks_records_keeps_its_rows_while_its_master_cannot_give_a_copy() -> None:
    """The log is too short for it. To begin a copy that has no end would delete what it has."""

    async def script(scene: Triple) -> None:
        await filled(scene)
        again, master, third = follow_nobody(scene.third), inside(scene.master), inside(scene.third)
        await asyncio.sleep(1.0)  # until pulls that are under way have ended
        for key in range(100, 110):
            await scene.write(key)
        rots(scene.master)
        await in_process(scene.master, master.health.look)
        vclock = dict(master.data.vclock)
        await in_process(
            scene.master,
            lambda: master.data.run(
                lambda: sum(master.data.store.prune(each, lsn) for each, lsn in vclock.items())
            ),
        )
        again()
        link = third.replication.follower.links[master.replication.place.uuid]
        await scene.world.until(lambda: link.state == "stopped", "the link to stop", 30.0)
        [table] = third.data.store.tables.values()
        query = f"SELECT count(*) FROM {table.physical_name}"
        assert third.data.store.connection.execute(query).fetchone() == (39,)

    played("sync", script)


def test_a_copy_of_a_damaged_master_is_asked_for_now_and_then_and_told() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        scene.third.crash()
        rots(scene.leader)
        checksums.noticed()
        await scene.world.until(lambda: not scene.leader.is_running, "it to end", 60.0)
        rots(scene.master)
        copies, asked = inside(scene.master).replication.copies, copies_asked_of(scene.master)
        scene.leader.start()
        await scene.world.until(lambda: scene.leader.is_leader, "a leader", 30.0)
        said = ("b stopped following a", "damaged", "start c")
        await scene.world.until(lambda: governor_says(scene, *said), "the governor to say so", 60.0)
        await asyncio.sleep(20.0)
        assert 3 < len(asked) < 12
        assert not copies._given, "reads of copies that failed were left open"
        scene.third.start()
        assert await scene.renamed(90.0) is scene.third
        await started_again(scene, scene.master)
        await scene.calm()

    played("sync", script)


@pytest.mark.parametrize(
    ("whole", "given_up", "heirs"),
    [("bc", "", "bc"), ("c", "", "a"), ("c", "a", "bc")],
    ids=["a whole majority", "a whole minority", "given up by force"],
)
def test_who_is_named_when_the_damaged_one_has_the_most(
    whole: str, given_up: str, heirs: str
) -> None:
    async def script(scene: Triple) -> None:
        await equal(scene)
        for node in (scene.leader, scene.third):
            follow_nobody(node)
        await asyncio.sleep(1.0)  # until pulls that are under way have ended
        writing(scene, ROW)  # nobody else has it, and nobody is told that it is there
        master = inside(scene.master)
        ahead = inside(scene.third).data
        await scene.world.until(
            lambda: master.data.vclock != ahead.vclock, "a record of its own", 5.0
        )
        governor = inside(scene.leader).governor
        action = SealAndName(
            step="seal and name master",
            subject="default_1",
            replicaset="default_1",
            members=("a", "b", "c"),
            needed=2,
            whole=tuple(whole),
            given_up=tuple(given_up),
        )
        await in_process(
            scene.leader, lambda: governor.steps.seal_and_name(action, governor.view())
        )
        named = inside(scene.leader).state.cluster.replicasets["default_1"].current_master_name
        assert named in heirs

    played("sync", script)


def ways_out(scene: Triple) -> list[str]:
    """Whom a person is told to expel by force."""
    leader = scene.world.leader()
    told = () if leader is None else inside(leader).governor.status.blocked_by
    return re.findall(r"cairn expel (\w) --force gives up", " ".join(told))


async def expelled_by_force(scene: Triple, name: str) -> None:
    third = inside(scene.third)
    request = ExpelRequest(third.identity.cluster_uuid, name, force=True)
    ask = partial(third.leader.ask, "expel", request, ExpelResponse, 10.0)
    await in_process(scene.third, ask)
    gone = "it to be gone"
    await scene.world.until(lambda: name not in third.state.cluster.instances, gone, 60.0)


def test_who_gives_up_damaged_masters_by_force_goes_on_with_the_rest() -> None:
    """Two are damaged, rows and logs, and only they have the last row: a person decides."""

    async def script(scene: Triple) -> None:
        follow_again = follow_nobody(scene.third)
        await asyncio.sleep(1.0)  # until pulls that are under way have ended
        assert await writing(scene, ROW) == 1
        for node in (scene.master, scene.leader):
            rots(node, "row_log")
            rots(node)
        follow_again()
        checksums.noticed()
        for _ in range(2):
            await scene.world.until(lambda: bool(ways_out(scene)), "a way out", 90.0)
            await expelled_by_force(scene, ways_out(scene)[0])
        assert list(inside(scene.third).state.cluster.instances) == [scene.third.name]
        await scene.write(50, scene.third)

    played("sync", script)


def test_replicas_that_are_equal_are_found_equal_while_rows_are_written() -> None:
    async def script(scene: Triple) -> None:
        await filled(scene)
        health = inside(scene.third).health

        async def writing() -> None:
            for key in range(100, 140):
                await scene.write(key)

        writer = scene.world.loop.create_task(writing())
        await in_process(scene.third, health.compare)
        await writer
        await in_process(scene.third, health.compare)
        assert (health.differences, health.damage, health.accused) == (0, {}, {})
        assert health.compared >= 39 + 79
        await scene.calm()

    played("async", script)


def test_a_world_that_ended_is_kept_by_nobody_who_listens_for_damage() -> None:
    """A simulator that runs for hours would grow by every instance that crashed."""
    before = [*checksums.listeners]

    async def script(scene: Triple) -> None:
        scene.third.crash()
        assert len(checksums.listeners) > len(before)

    played("async", script)
    assert checksums.listeners == before


def test_who_cannot_write_any_more_shuts_its_doors_and_is_gone() -> None:
    """The others find a new master the sooner it is. A door that does not shut keeps no other."""

    async def script(scene: Triple) -> None:
        shut: list[str] = []

        def jammed() -> None:
            raise CairnError("no space left for a last line")

        master = inside(scene.master)
        master.on_close += [jammed, lambda: shut.append("the door for clients")]
        await in_process(scene.master, partial(lost_disk, master))
        assert master.life.is_broken
        assert shut == ["the door for clients"]
        assert await scene.renamed() is not scene.master
        inside(scene.third).life.end(Ending.REPAIR)
        assert not inside(scene.third).life.is_broken

    played("async", script)


async def lost_disk(instance: Instance) -> None:
    instance.life.end(Ending.DURABILITY)
    instance.shut_doors()
