"""Schema changes that meet a failover or an abort: afterwards every table can be used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cairn.model.log import ops
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.model.tables.schema import Column, Index
from cairn.model.types.values import ColumnType
from cairn.node.rows.data_plane import DataPlane
from cairn.sim.cluster.loads.load import _SCHEMA as SCHEMA
from cairn.sim.cluster.loads.load import COUNT, TABLE
from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, hold, inside, played
from tests.sim_cluster.test_data_rules import answer_of, in_process
from tests.sim_cluster.test_sync_answers import follow_nobody

APPLY_S = 30.0  # `ddl_apply_timeout`

ADDED = ops.AddColumns(TABLE.id, "t", (Column("n", ColumnType.INTEGER),))


async def prepare(scene: Triple, change: ops.Ddl = ADDED) -> None:
    """A schema change, up to the entry that begins it."""
    leader = inside(scene.leader)
    version = int(leader.state.cluster.properties["next_schema_version"])
    op = ops.DdlPrepare(version, change)
    await in_process(
        scene.leader, lambda: leader.proposer.cas(op, leader.proposer.predicate(SCHEMA))
    )


def has_ended(node: SimNode) -> bool:
    return inside(node).state.pending_ddl() is None


async def usable(scene: Triple, master: SimNode) -> None:
    """Read and written by the catalogue's schema, as soon as the master has its lease."""
    table = inside(master).state.catalog.tables["t"]
    execution = scene.load.execution(master)
    values = "?, ?, ?" + ", ?" * (len(table.columns) - len(TABLE.columns))
    row: tuple[Any, ...] = (3, 2, "after", *(None for _ in table.columns[len(TABLE.columns) :]))
    insert = WriteRequest(
        *(TABLE.id, table.schema_version),
        f"INSERT INTO {TABLE.physical_name} VALUES ({values})",
        *((row,), (3,)),
    )
    read = ReadRequest(COUNT, (), {TABLE.id: table.schema_version}, ranges=((1, 30),))
    want = {TABLE.id: table.schema_version}
    instance = inside(master)
    await scene.world.until(
        lambda: instance.lease.is_held(instance.data.fence.epoch), "the lease", 5.0
    )
    await scene.world.until(lambda: instance.data.versions == want, "the schema", 20.0)
    done = await in_process(master, lambda: execution.writes.write(insert))
    assert (done.row_count, await answer_of(master, lambda: execution.reads.read(read))) == (
        1,
        [(2,)],
    )


def test_a_new_master_makes_the_change_that_its_predecessor_took_along() -> None:
    """Async: it was committed, its record had reached nobody, and a new master has no lease yet
    when it is named.
    """

    async def script(scene: Triple) -> None:
        again = [follow_nobody(scene.leader), follow_nobody(scene.third)]
        await asyncio.sleep(1.0)  # pulls that were under way
        await prepare(scene)
        await scene.world.until(lambda: has_ended(scene.leader), "the change", 60.0)
        scene.master.crash()
        for follow in again:
            follow()
        heir = await scene.renamed()
        assert len(inside(heir).state.catalog.tables["t"].columns) == 3
        await usable(scene, heir)

    played("async", script)


def test_a_change_that_was_aborted_while_it_was_queued_is_not_made() -> None:
    """It stood behind a statement that took longer than `ddl_apply_timeout`."""

    async def script(scene: Triple) -> None:
        release = hold(scene.master)
        await prepare(scene)
        limit_s = APPLY_S + 0.5  # a request that is under way then is not waited for
        await scene.world.until(
            lambda: has_ended(scene.leader) and has_ended(scene.master), "the abort", limit_s
        )
        release()
        await asyncio.sleep(1.0)
        assert len(inside(scene.master).state.catalog.tables["t"].columns) == 2
        await usable(scene, scene.master)

    played("async", script)


def test_a_change_that_is_aborted_while_it_is_made_is_undone() -> None:
    """The master has made it, the leader hears of it too late."""

    async def script(scene: Triple) -> None:
        master, leader = inside(scene.master), inside(scene.leader)
        made = master.peers.handlers["apply_schema_change"]

        async def slow(*arguments: Any) -> Any:
            await made(*arguments)
            await asyncio.sleep(1000.0)

        master.peers.handlers["apply_schema_change"] = slow
        await prepare(scene)
        version = int(leader.state.cluster.properties["pending_schema_version"])
        await scene.world.until(
            lambda: master.data.versions[TABLE.id] == version, "the change at the master", 10.0
        )
        await scene.world.until(lambda: has_ended(scene.master), "the abort", 120.0)
        assert len(master.state.catalog.tables["t"].columns) == 2
        await usable(scene, scene.master)

    played("async", script)


@pytest.mark.parametrize(
    "change",
    [ADDED, ops.CreateIndex(Index(TABLE.id, 2, "t_b", ("b",)))],
    ids=["a column", "an index"],
)
def test_a_master_that_was_away_when_a_table_was_emptied_empties_it_at_the_next_change(
    change: ops.Ddl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between the commit of a TRUNCATE and its own part of it; the change that came before
    it was back gave the table a version behind the TRUNCATE's, and the rows stayed."""

    async def script(scene: Triple) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(DataPlane, "reconcile", lambda self: None)
            await prepare(scene, ops.TruncateTable(TABLE.id, "t"))
            await scene.world.until(
                lambda: has_ended(scene.leader) and has_ended(scene.master), "the TRUNCATE", 60.0
            )
        assert scene.load.rows_of(scene.master)
        await prepare(scene, change)
        await scene.world.until(lambda: has_ended(scene.master), "the change", 60.0)
        for node in (scene.master, scene.third):
            await scene.world.until(lambda n=node: not scene.load.rows_of(n), "no rows", 10.0)

    played("sync", script)
