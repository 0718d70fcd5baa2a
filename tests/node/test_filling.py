"""Who asks for an index of a large table is answered until it is filled, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.log.records import Shape
from cairn.model.members.topology import Grade
from cairn.model.rpc import FillIndexRequest, FillIndexResponse
from cairn.model.tables.schema import Column, Computed, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.node.rows.upkeep import filling
from cairn.node.rows.upkeep.filling import Filling
from cairn.node.statements.changes.filled_first import FilledFirst
from cairn.sql.functions.functions import register
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files.sqlite import open_reader

COLUMNS = (Column("id", ColumnType.INTEGER, nullable=False), Column("n", ColumnType.INTEGER))
TABLE = Table(1024, "t", COLUMNS, ("id",), Sharded(("id",), "default"), schema_version=1)
BY_N, BY_BOTH = Index(1024, 1, "a", ("n",)), Index(1024, 2, "b", ("n", "id"))
BY_SIZE = Index(
    *(1024, 3, "c", ("n",)), computed=(Computed(0, "abs(n)", "abs(c1)", ColumnType.INTEGER),)
)
NO_SIZE = -(2**63)  # abs of it fails


class Rows:
    """A store with its writer, as an instance has them."""

    def __init__(self, path: Path) -> None:
        self.store = DataStore(path, "origin", now_micros=lambda: 0, register=register)

    async def run(self, work: Callable[[], Any], *, alone: bool) -> Any:
        await asyncio.sleep(0)
        return self.at_once(work)

    def at_once(self, work: Callable[[], Any]) -> Any:
        with self.store.connection:
            return work()

    def write(self, sql: str) -> None:
        def work() -> None:
            self.store.judge(clients=False)
            self.store.connection.execute(sql)
            self.store.take_changes()

        self.at_once(work)

    def shape(self, table: Table | None, *indexes: Index) -> None:
        self.at_once(lambda: self.store.apply_shape(Shape(1024, table, indexes)))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    monkeypatch.setattr(filling, "SMALL_ROWS", 10)
    monkeypatch.setattr(filling, "STEP_ROWS", 3)
    monkeypatch.setattr(filling, "LOOK_S", 0.01)
    made = Rows(tmp_path / "data.db")
    made.shape(TABLE)
    yield made
    made.store.close()


def fill_with(rows: Rows, count: int) -> None:
    for at in range(count):
        rows.write(f"INSERT INTO t1024 VALUES ({at % 7}, {at}, {at})")


def filling_of(rows: Rows) -> Filling:
    tiers = {"default": SimpleNamespace(bucket_count=10)}
    cluster = SimpleNamespace(instances={"i1": SimpleNamespace(tier="default")}, tiers=tiers)
    state: Any = SimpleNamespace(cluster=cluster)
    data: Any = rows
    return Filling("i1", state, data, register)


async def ask(fillings: Filling, index: Index) -> None:
    """Until it is filled."""
    async with asyncio.timeout(10):  # less than anybody is waited for who does not ask again
        while not (await fillings.answer(FillIndexRequest(index))).is_filled:
            await asyncio.sleep(0.001)


def names(rows: Rows) -> list[str]:
    found: list[Any] = rows.store.connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND name GLOB '[ix]1024*'"
    ).fetchall()
    return [name for (name,) in found]


@pytest.mark.parametrize("count", [5, 50], ids=["small", "large"])
def test_one_index_after_the_other(rows: Rows, count: int) -> None:
    async def scene() -> None:
        fillings = filling_of(rows)
        await ask(fillings, BY_N)
        rows.shape(TABLE, BY_N)
        await ask(fillings, BY_BOTH)
        rows.shape(TABLE, BY_N, BY_BOTH)
        await ask(fillings, BY_SIZE)
        rows.shape(TABLE, BY_N, BY_BOTH, BY_SIZE)

    fill_with(rows, count)
    asyncio.run(scene())
    assert sorted(names(rows)) == ["i1024_1", "i1024_2", "i1024_3"]
    assert rows.store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_what_was_wrong_is_told_once(rows: Rows) -> None:
    async def scene() -> None:
        fillings = filling_of(rows)
        with pytest.raises(CairnError):
            await ask(fillings, BY_SIZE)
        rows.write(f"UPDATE t1024 SET c1 = 3 WHERE c1 = {NO_SIZE}")
        await ask(fillings, BY_SIZE)

    fill_with(rows, 50)
    rows.write(f"UPDATE t1024 SET c1 = {NO_SIZE} WHERE c0 = 49")
    asyncio.run(scene())


@pytest.mark.parametrize("index", [BY_N, BY_SIZE], ids=["columns", "an expression"])
def test_a_table_that_is_made_anew_is_filled_anew(rows: Rows, index: Index) -> None:
    """As a full copy does it at a replica: whoever makes the index hears nothing of it."""

    async def scene() -> None:
        fillings = filling_of(rows)
        for _ in range(20):
            await fillings.answer(FillIndexRequest(index))
            await asyncio.sleep(0.001)
        rows.shape(None)
        rows.shape(TABLE)
        fill_with(rows, 30)
        await ask(fillings, index)

    fill_with(rows, 200)
    asyncio.run(scene())
    assert rows.at_once(lambda: rows.store.hidden.show(TABLE, index))
    assert rows.store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_who_only_looks_begins_nothing(rows: Rows) -> None:
    async def scene() -> list[FillIndexResponse]:
        fillings, look = filling_of(rows), FillIndexRequest(BY_N, only_look=True)
        before = await fillings.answer(look)
        fill_with(rows, 50)
        return [
            before,
            await fillings.answer(look),
            await fillings.answer(FillIndexRequest(BY_BOTH)),
        ]

    small, large, begun = asyncio.run(scene())
    assert (small.is_filled, large.is_filled) == (True, False)
    assert not begun.is_busy


@pytest.mark.parametrize("index", [BY_N, BY_SIZE], ids=["columns", "an expression"])
def test_no_index_is_begun_of_a_table_that_was_dropped_before_the_writers_turn(
    rows: Rows, index: Index
) -> None:
    """SQLite reads nothing of a file that has an index of no table."""

    async def scene() -> None:
        await filling_of(rows).answer(FillIndexRequest(index))
        rows.shape(None)
        for _ in range(20):
            await asyncio.sleep(0.001)

    fill_with(rows, 20)
    asyncio.run(scene())
    reader = open_reader(rows.store.path)
    assert reader.execute("SELECT count(*) FROM local_table").fetchall() == [(0,)]
    reader.close()


@pytest.mark.parametrize("index", [BY_N, BY_SIZE], ids=["columns", "an expression"])
def test_a_table_that_is_dropped_meanwhile_is_no_mistake(rows: Rows, index: Index) -> None:
    """Wherever it is by then: the schema change is told that there is no such table."""

    async def scene() -> None:
        fillings = filling_of(rows)
        for turns in range(12):
            rows.shape(TABLE)
            fill_with(rows, 20)
            asked = asyncio.ensure_future(fillings.answer(FillIndexRequest(index)))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            rows.shape(None)
            await asked
            for _ in range(20):
                await asyncio.sleep(0.001)
                assert (await fillings.answer(FillIndexRequest(index))).is_filled
        reader = open_reader(rows.store.path)
        assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        reader.close()

    asyncio.run(scene())


def test_two_statements_each_with_an_instance_do_not_wait_for_each_other_for_ever(
    rows: Rows, tmp_path: Path
) -> None:
    others = Rows(tmp_path / "others.db")
    others.shape(TABLE)
    stores, made = (rows, others), list[Index]()

    async def scene() -> None:
        both = [filling_of(each) for each in stores]

        async def make(at: int, index: Index) -> None:
            def find() -> tuple[Table, Index] | None:
                return None if index in made else (TABLE, index)

            async def call(raft_id: int, name: str, request: FillIndexRequest, *_: Any) -> Any:
                await asyncio.sleep(0.05)  # the network: each asks itself sooner
                return await both[raft_id - 1].answer(request)

            peers: Any = SimpleNamespace(call=call)
            first = FilledFirst(at + 1, two_instances(), peers, both[at].answer)
            await first.wait(find, asyncio.get_running_loop().time() + 10, tuple)
            made.append(index)
            for each in stores:
                each.shape(TABLE, *made)

        await asyncio.gather(make(0, BY_N), make(1, BY_BOTH))

    try:
        for each in stores:
            fill_with(each, 50)
        asyncio.run(scene())
        assert [sorted(names(each)) for each in stores] == [["i1024_1", "i1024_2"]] * 2
    finally:
        others.store.close()


def two_instances() -> Any:
    def row(raft_id: int) -> Any:
        state = SimpleNamespace(grade=Grade.ONLINE)
        return SimpleNamespace(
            raft_id=raft_id,
            tier="default",
            current_state=state,
            target_state=state,
            replicaset_name="r",
        )

    instances = {f"i{raft_id}": row(raft_id) for raft_id in (2, 1)}
    return SimpleNamespace(cluster=SimpleNamespace(instances=instances, replicasets={"r": None}))
