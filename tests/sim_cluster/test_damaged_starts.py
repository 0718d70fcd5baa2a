"""Files that are found damaged at a start: whose they were waits for nobody for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import StorageDamaged
from cairn.model.rpc import ExpelRequest, ExpelResponse
from cairn.node.lifetime import AGAIN
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import why_unequal
from cairn.sim.cluster.node import SimNode
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files import sqlite
from cairn.storage.files.sqlite import Unreadable, log_of
from tests.sim_cluster.scenes import Triple, founded, inside, played, world_of
from tests.sim_cluster.test_data_rules import in_process
from tests.sim_cluster.test_namings import equal
from tests.storage.rot import flip_log, flip_page

KEYS = range(2, 40)


def overwrite(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def flip_tree(path: Path, tree: str) -> None:
    """A bit of the newest page of a tree."""
    connection = apsw.Connection(str(path))
    query = "SELECT max(pageno) FROM dbstat WHERE name = ? AND pagetype = 'leaf'"
    [(page,)] = connection.execute(query, (tree,)).fetchall()
    connection.close()
    flip_page(path, int(page))


def cut(path: Path, to: int) -> None:
    with path.open("r+b") as file:
        file.truncate(to)


def without_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink(missing_ok=True)


def flip_rows(path: Path) -> None:
    connection = apsw.Connection(str(path))
    query = "SELECT name FROM sqlite_master WHERE name GLOB 't[0-9]*' AND type = 'table'"
    found = [str(row[0]) for row in connection.execute(query)]
    connection.close()
    [name] = found
    flip_tree(path, name)


def remove_but_its_log(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(bytes(5000))
    path.unlink()


def emptied(path: Path) -> None:
    cut(path, 0)
    without_log(path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "gone": lambda path: path.unlink(),
    "gone but for its log": remove_but_its_log,
    "emptied": emptied,
    "emptied but for its log": lambda path: cut(path, 0),
    "no database": lambda path: overwrite(path, bytes(100)),
    "cut": lambda path: cut(path, path.stat().st_size - 1000),
    "halved": lambda path: cut(path, path.stat().st_size // 8192 * 4096),
    "first page": lambda path: flip_page(path, 1),
    "state": lambda path: flip_tree(path, "local_state"),
    "list of tables": lambda path: flip_tree(path, "local_table"),
    "log of rows": lambda path: flip_tree(path, "row_log"),
    "what was put aside": lambda path: flip_tree(path, "_cairn_diverged"),
    "rows": flip_rows,
}
QUICK = ("gone", "emptied", "no database", "state", "what was put aside", "rows")


def settle_on_disk(node: SimNode) -> None:
    """All is in the file, and nothing in its write-ahead log alone."""
    store = inside(node).data.store
    store.connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is used before it is read: the damage is found while others rely on it."""
    if request.param == "large":
        monkeypatch.setattr(sqlite, "WHOLE_BYTES", 0)


def problems(scene: Triple) -> list[str]:
    return [line for node in scene.world.nodes.values() for line in inside(node).health.problems()]


async def well_again(scene: Triple) -> None:
    nodes = scene.world.nodes.values()

    def is_well() -> bool:
        for node in nodes:
            assert not node.exit_code or node.exit_code == AGAIN, f"{node} ended: {node.problem}"
            if not node.is_running:  # as its supervisor does it
                node.start()
        try:
            return all(node.instance is not None for node in nodes) and (
                why_unequal(scene.world) is None and len(scene.load.masters()) == 1
            )
        except apsw.Error:  # a damaged page
            return False

    await scene.world.until(is_well, "equal replicas and a master", 90.0)


def cases() -> Iterator[Any]:
    """Some in every run; all of them with the slow ones."""
    for damage, killed, who, mode in product(
        DAMAGES, ("one", "all"), ("master", "third"), ("sync", "async")
    ):
        is_quick = (killed, who, mode) == ("all", "master", "async")
        marks = [] if is_quick and damage in QUICK else [pytest.mark.slow]
        yield pytest.param(damage, killed, who, mode, marks=marks)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(("damage", "killed", "who", "mode"), [*cases()])
def test_who_finds_its_rows_damaged_at_its_start_gets_those_of_the_others(
    damage: str, killed: str, who: str, mode: str
) -> None:
    async def script(scene: Triple) -> None:
        for key in KEYS:
            await scene.write(key)
        await equal(scene)
        victim: SimNode = getattr(scene, who)
        before = scene.load.rows_of(scene.master)
        settle_on_disk(victim)
        for node in scene.world.nodes.values() if killed == "all" else [victim]:
            node.crash()
        DAMAGES[damage](victim.dir / "data.db")

        await well_again(scene)
        await scene.calm()
        assert all(scene.load.rows_of(node) == before for node in scene.world.nodes.values())
        assert victim.lives < 5
        assert problems(scene) == []

    played(mode, script)


@pytest.mark.parametrize(
    ("killed", "who", "mode"),
    [
        ("all", "master", "async"),
        pytest.param("one", "third", "sync", marks=pytest.mark.slow),
        pytest.param("all", "third", "async", marks=pytest.mark.slow),
        pytest.param("one", "master", "sync", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_log_does_not_make_an_instance_older_in_silence(
    killed: str, who: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be master again, without most of what it acknowledged."""

    async def script(scene: Triple) -> None:
        settle_on_disk(victim := getattr(scene, who))
        for key in KEYS:
            await scene.write(key)
        await equal(scene)
        before = scene.load.rows_of(scene.master)
        for node in scene.world.nodes.values() if killed == "all" else [victim]:
            node.crash(power=True)
        flip_log(victim.dir / "data.db")

        await well_again(scene)
        await scene.calm()
        assert all(scene.load.rows_of(node) == before for node in scene.world.nodes.values())
        assert "commits behind it are lost" in caplog.text
        assert log_of(victim.dir / "damaged" / "data.db").exists()

    with caplog.at_level(logging.ERROR, "cairn.scrub"):
        played(mode, script)


def test_who_is_alone_does_not_go_on_without_rows_that_a_damaged_log_lost() -> None:
    world = world_of("a", factor=1)
    load = Load(world)

    async def script() -> None:
        await founded(world)
        await load.create_table()
        [node] = world.nodes.values()
        settle_on_disk(node)
        for key in KEYS:
            await load.write(node, key)
        node.crash(power=True)
        flip_log(node.dir / "data.db")
        node.start()
        await world.until(
            lambda: (
                node.instance is not None
                and "has none of the rows that it had" in " ".join(inside(node).health.problems())
            ),
            "a word",
            30.0,
        )
        await load.read(node)
        await world.until(lambda: not load.masters(), "nobody to be master", 30.0)
        assert load.reads == 0

    world.run(script)


def told(scene: Triple, *words: str) -> bool:
    lines = [line for node in scene.world.nodes.values() if node.instance is not None
             for line in node.instance.health.problems()]  # fmt: skip
    return any(all(word in line for word in words) for line in lines)


def test_who_has_the_last_copy_and_cannot_read_it_stays_and_says_where_it_is() -> None:
    """Its file is kept, whatever happens to the new one, and can be put back."""

    async def script(scene: Triple) -> None:
        for key in KEYS:
            await scene.write(key)
        await equal(scene)
        victim, others = scene.master, [scene.leader, scene.third]
        before = scene.load.rows_of(victim)
        settle_on_disk(victim)
        for node in scene.world.nodes.values():
            node.crash()
        path = victim.dir / "data.db"
        whole = path.read_bytes()
        DAMAGES["no database"](path)
        for node in others:
            DAMAGES["gone"](node.dir / "data.db")
        for node in scene.world.nodes.values():
            node.start()
        words = (f"{victim} has none of the rows that it had", "damaged/", "restore a backup")
        await scene.world.until(lambda: told(scene, *words), "a word", 60.0)
        await asyncio.sleep(20.0)
        assert not scene.load.masters()
        for damage in ("first page", "no database"):  # the disk is bad: the new file suffers too
            victim.crash()
            DAMAGES[damage](path)
            victim.start()
            await scene.world.until(lambda: victim.instance is not None, f"{victim} to be up", 30.0)
            kept = (victim.dir / "damaged" / "data.db").read_bytes()
            assert kept[100:] == whole[100:]
        victim.crash()
        for name in ("data.db-wal", "data.db-shm"):
            (victim.dir / name).unlink(missing_ok=True)
        path.write_bytes(whole[:100] + kept[100:])  # somebody has mended it
        victim.start()
        await well_again(scene)
        await scene.calm()
        assert all(scene.load.rows_of(node) == before for node in scene.world.nodes.values())

    played("async", script)


def test_who_takes_a_copy_when_its_master_is_lost_is_not_waited_for() -> None:
    """It could not promise without rows, and had nobody to get them from: nobody was named."""

    async def script(scene: Triple) -> None:
        for key in KEYS:
            await scene.write(key)
        await equal(scene)
        lacking, heir = scene.third, scene.leader
        lacking.crash()
        DAMAGES["gone"](lacking.dir / "data.db")
        scene.cut(lacking, scene.master)
        lacking.start()
        await scene.world.until(
            lambda: lacking.instance is not None and inside(lacking).replication.place.must_copy,
            "one without rows",
            30.0,
        )
        scene.master.crash()
        await scene.world.until(lambda: scene.load.masters() == [heir], "another master", 60.0)
        scene.mend(lacking, scene.master)
        await scene.calm()

    played("async", script)


@pytest.mark.parametrize("problem", [apsw.FullError, apsw.IOError, apsw.CantOpenError])
def test_a_disk_that_is_full_or_does_not_answer_is_no_damage(
    problem: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be whole: to put it aside would make an instance without rows of it."""
    path = tmp_path / "data.db"
    DataStore(path, "me", now_micros=lambda: 0).close()

    def refuse(connection: apsw.Connection) -> None:
        raise problem("not now")

    monkeypatch.setattr("cairn.storage.data_db.data_store.open_log", refuse)
    with pytest.raises(StorageDamaged, match=r"data\.db cannot be opened") as caught:
        DataStore(path, "me", now_micros=lambda: 0)
    assert not isinstance(caught.value, Unreadable)


def test_of_a_sync_pair_the_one_without_rows_is_given_up_by_one_command() -> None:
    """The other one is no majority, and waits. What helps is said by the one that has none."""
    world = world_of("a", "b", "c", "d", factor=2, mode="sync")
    load = Load(world)

    async def script() -> None:
        await founded(world)
        await load.create_table()
        leader = world.leader()
        assert leader is not None
        masters = load.masters()
        victim = next(node for node in masters if node is not leader)
        pair = inside(victim).replication.place.members()
        other = next(world.nodes[name] for name in pair if name != victim.name)
        victim.crash()
        DAMAGES["no database"](victim.dir / "data.db")
        victim.start()
        way = f"cairn expel {victim.name} --force"
        await world.until(
            lambda: (
                victim.instance is not None and way in " ".join(inside(victim).health.problems())
            ),
            "what helps",
            30.0,
        )
        asker = inside(leader)
        request = ExpelRequest(asker.identity.cluster_uuid, victim.name, force=True)
        await in_process(leader, lambda: asker.leader.ask("expel", request, ExpelResponse, 10.0))
        await world.until(lambda: other in load.masters(), "the other one to be master", 60.0)

    world.run(script)
