"""A row of a global table goes only when no row names it, whoever lags or dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cairn.model.log import ops
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import answer_of
from tests.sim_cluster.test_global_writes import LAG_S, running

STATUSES = 3
ORPHANS = "SELECT c2 FROM t{child} WHERE c2 NOT IN (SELECT c0 FROM raft.t{parent})"


async def tables(scene: Triple) -> None:
    for text in (
        "CREATE TABLE status (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
        "CREATE TABLE task (id INT PRIMARY KEY, no INT, status INT REFERENCES status)",
        "CREATE INDEX ON task (status)",
    ):
        assert str(await running(scene.leader, text)).startswith("CREATE")
    for at in range(STATUSES):
        assert await running(scene.leader, f"INSERT INTO status VALUES ({at})") == "INSERT 0 1"
    await scene.world.settled()


def orphans(scene: Triple) -> list[Any]:
    """At the master of now: rows that name nothing."""
    [master] = scene.load.masters()
    instance = inside(master)
    catalog = instance.state.catalog
    child, parent = catalog.tables["task"].id, catalog.tables["status"].id
    store = instance.data.store
    return list(store.connection.execute(ORPHANS.format(child=child, parent=parent)))


def play(script: Callable[[Triple], Awaitable[None]], mode: str = "async") -> None:
    async def run(scene: Triple) -> None:
        await tables(scene)
        await script(scene)
        await scene.calm(may_lose=mode == "async")
        assert orphans(scene) == []
        await scene.world.until(
            lambda: not inside(scene.leader).state.closing, "no marks to be left", 10.0
        )

    played(mode, run)


def test_a_row_is_not_deleted_before_a_lagging_master_knows() -> None:
    """It answers reads, and still has the row when another one is told to name it."""
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        scene.world.wire.cut(scene.leader.name, scene.master.name)
        gone = running(scene.third, "DELETE FROM status WHERE id = 1")
        await asyncio.sleep(LAG_S / 2)
        came = running(scene.master, "INSERT INTO task VALUES (7, 7, 1)")
        await asyncio.sleep(LAG_S / 2)
        scene.world.wire.heal()
        answers.extend((await came, await gone))

    play(script)
    assert answers == ["INSERT 0 1", "23503"]


def held_before_it_goes(node: Any) -> asyncio.Event:
    """Its deletions have asked everybody, and wait for the event."""
    release = asyncio.Event()
    parents = inside(node).executor.global_writes._parents
    look = parents._check_unnamed

    async def later(*args: Any) -> None:
        await look(*args)
        await release.wait()

    parents._check_unnamed = later  # type: ignore[method-assign]
    return release


def test_a_row_that_is_closed_is_named_by_nobody_until_it_is_gone() -> None:
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        release = held_before_it_goes(scene.third)
        gone = running(scene.third, "DELETE FROM status WHERE id = 1")
        await scene.world.until(lambda: bool(inside(scene.master).state.closing), "the mark", 5.0)
        came = running(scene.master, "INSERT INTO task VALUES (7, 7, 1)")
        many = running(
            scene.third, "INSERT INTO task SELECT k, k, 1 FROM generate_series(11, 19) k"
        )
        other = await running(scene.master, "INSERT INTO task VALUES (8, 8, 2)")
        assert other == "INSERT 0 1" and not came.done() and not many.done()
        release.set()
        answers.extend((await gone, await came, await many))

    play(script)
    assert answers == ["DELETE 1", "23503", "23503"]


def test_a_row_that_was_acknowledged_elsewhere_can_be_named() -> None:
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        scene.world.wire.cut(scene.leader.name, scene.master.name)
        assert await running(scene.leader, "INSERT INTO status VALUES (50)") == "INSERT 0 1"
        came = running(scene.master, "INSERT INTO task VALUES (7, 7, 50)")
        await asyncio.sleep(LAG_S)
        scene.world.wire.heal()
        answers.append(await came)

    play(script)
    assert answers == ["INSERT 0 1"]


def test_who_dies_before_it_has_deleted_a_row_leaves_it_open() -> None:
    """The governor takes back the marks of a life that is over."""
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        async def dies(*args: Any) -> None:
            scene.third.crash()
            await asyncio.sleep(1.0)

        parents = inside(scene.third).executor.global_writes._parents
        parents._all_see = dies  # type: ignore[method-assign]
        gone = running(scene.third, "DELETE FROM status WHERE id = 1")
        await scene.world.until(lambda: bool(inside(scene.master).state.closing), "the mark", 5.0)
        answers.append(await running(scene.master, "INSERT INTO task VALUES (7, 7, 1)"))
        gone.cancel()

    play(script)
    assert answers == ["INSERT 0 1"]


def test_a_foreign_key_that_is_made_meanwhile_is_asked_about() -> None:
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        more = "CREATE TABLE other (id INT PRIMARY KEY, status INT)"
        assert await running(scene.leader, more) == "CREATE TABLE"
        assert await running(scene.leader, "INSERT INTO other VALUES (1, 1)") == "INSERT 0 1"
        release = held_before_it_goes(scene.third)
        gone = running(scene.third, "DELETE FROM status WHERE id = 1")
        await scene.world.until(lambda: bool(inside(scene.leader).state.closing), "the mark", 5.0)
        text = "ALTER TABLE other ADD FOREIGN KEY (status) REFERENCES status"
        answers.append(await running(scene.leader, text))
        release.set()
        answers.append(await gone)

    play(script)
    assert answers == ["ALTER TABLE", "23503"]


def _worker(scene: Triple, rng: random.Random, number: int) -> Awaitable[None]:
    async def work() -> None:
        for at in range(12):
            node: SimNode = rng.choice(list(scene.world.nodes.values()))
            status = rng.randrange(STATUSES)
            text = rng.choice(
                (
                    f"INSERT INTO task VALUES ({number * 100 + at}, 0, {status})",
                    f"DELETE FROM task WHERE status = {status}",
                    f"DELETE FROM status WHERE id = {status}",
                    f"INSERT INTO status VALUES ({status})",
                )
            )
            if node.is_running:
                await asyncio.wait((running(node, text),), timeout=3.0)
            else:
                await asyncio.sleep(0.2)

    return work()


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 9))]
)
def test_no_orphans_while_masters_die(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def script(scene: Triple) -> None:
        work = asyncio.gather(*(_worker(scene, rng, number) for number in range(6)))
        for _ in range(2):
            await asyncio.sleep(rng.uniform(0.05, 1.0))
            victim = rng.choice(list(scene.world.nodes.values()))
            victim.crash()
            await asyncio.sleep(rng.uniform(0.5, 3.0))
            victim.start()
        await work

    play(script, "sync")


def test_the_guard_of_the_log_holds_without_the_one_who_asks() -> None:
    """Whoever forgets to ask is not let through: an entry without its mark does nothing."""
    answers: list[str] = []

    async def script(scene: Triple) -> None:
        await running(scene.master, "INSERT INTO task VALUES (7, 7, 1)")
        instance = inside(scene.third)
        change = ops.Delete(instance.state.catalog.tables["status"].id, (1,))

        async def work() -> None:
            await instance.proposer.cas(ops.Batch((change,)), instance.proposer.predicate(()))

        answers.append(await answer_of(scene.third, work))

    play(script)
    assert answers == ["PC004"]
