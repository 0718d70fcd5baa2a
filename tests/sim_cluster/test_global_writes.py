"""Statements about global tables at an instance that lags behind: what they answer is not stale."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from cairn.node.statements.context import Context
from cairn.sim.cluster.node import SimNode
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_data_rules import answer_of, in_process

LAG_S = 0.5  # how long the third hears nothing of the leader: less than what makes it Offline


class _Statement(NamedTuple):
    prepared: Prepared
    sharded: dict[int, int]
    oids: tuple[int, ...] = ()


def running(node: SimNode, text: str) -> asyncio.Task[Any]:
    async def work() -> Any:
        instance = inside(node)
        catalog = instance.state.catalog
        prepared = prepare(text, catalog)
        statement = _Statement(prepared, catalog.sharded(prepared.tables))
        return (await instance.executor.run(statement, (), Context(user_id=1))).tag

    return in_process(node, lambda: answer_of(node, work))


async def prepared_scene(scene: Triple) -> None:
    create = "CREATE TABLE words (a INT PRIMARY KEY, b INT) DISTRIBUTED GLOBALLY"
    assert await running(scene.leader, create) == "CREATE TABLE"
    assert await running(scene.leader, "INSERT INTO words VALUES (1, 1)") == "INSERT 0 1"
    await scene.world.settled()


def at_a_lagging_instance(first: str, second: str) -> str:
    """`first` is acknowledged while the third does not hear of it; what `second` is told there."""
    answers = []

    async def script(scene: Triple) -> None:
        await prepared_scene(scene)
        scene.world.wire.cut(scene.leader.name, scene.third.name)
        await running(scene.leader, first)
        asked = running(scene.third, second)
        await asyncio.sleep(LAG_S)
        scene.world.wire.heal()
        answers.append(await asked)
        await scene.calm()

    played("async", script)
    return str(answers[0])


def test_an_update_finds_a_row_that_was_acknowledged_elsewhere() -> None:
    insert, update = "INSERT INTO words VALUES (2, 2)", "UPDATE words SET b = 3 WHERE a = 2"
    assert at_a_lagging_instance(insert, update) == "UPDATE 1"


def test_an_insert_is_not_refused_for_a_row_that_was_deleted_elsewhere() -> None:
    delete, insert = "DELETE FROM words WHERE a = 1", "INSERT INTO words VALUES (1, 9)"
    assert at_a_lagging_instance(delete, insert) == "INSERT 0 1"


def test_a_write_that_finds_nothing_says_so() -> None:
    insert, update = "INSERT INTO words VALUES (2, 2)", "UPDATE words SET b = 3 WHERE a = 7"
    assert at_a_lagging_instance(insert, update) == "UPDATE 0"
    assert at_a_lagging_instance(insert, "INSERT INTO words VALUES (1, 1)") == "23505"
