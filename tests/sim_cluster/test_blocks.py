"""Blocks while masters change and buckets move: all or nothing, and in one order."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from cairn.model.errors import BlockConflict, CairnError
from cairn.model.rpc import BlockRequest, ReadRequest
from cairn.node.statements.blocks import block_owner, open_block
from cairn.node.statements.context import Context
from cairn.sim.cluster.loads.block_lists import _Texts
from cairn.sim.cluster.loads.load import TABLE
from cairn.sim.cluster.trial import BlockTrial
from cairn.storage.data_db import touched
from tests.sim_cluster.scenes import Triple


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="cairn")


def run(seed: int, kind: str) -> tuple[BlockTrial, str | None]:
    trial = BlockTrial(seed, kind)
    result = trial.run()
    return trial, result.failure


@pytest.mark.parametrize(
    ("kind", "seed"), [("strikes", 2), pytest.param("moves", 1, marks=pytest.mark.slow)]
)
def test_blocks_are_serial_under_blows(kind: str, seed: int) -> None:
    trial, failure = run(seed, kind)
    how = f"python -m cairn.sim.cluster --kind blocks-{kind} --seeds {seed} --trace"
    assert failure is None, f"{how}: {failure}"
    assert {"read", "append", "put", "do", "plainly", "rollback"} <= set(trial.registers.ways)
    assert trial.registers.done > 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["masters", "strikes", "restarts", "schema", "moves-strikes"])
def test_blocks_are_serial_in_many_ways(kind: str) -> None:
    for seed in range(200, 206):
        _, failure = run(seed, kind)
        assert failure is None, f"blocks-{kind}, seed {seed}: {failure}"


# --- planted bugs: what judges blocks must see them -----------------------------------------------


@pytest.mark.slow
def test_a_commit_that_compares_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_owner, "digest", lambda told, ordered: b"same")
    monkeypatch.setattr(open_block, "digest", lambda told, ordered: b"same")
    _, failure = run(1, "masters")
    assert failure is not None and ("circle" in failure or "not in list" in failure)


def test_what_is_kept_of_a_statement_though_others_wrote_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(touched.Touched, "is_since", lambda self, *what: False)
    _, failure = run(2, "masters")
    assert failure is not None and "not in list" in failure


@pytest.mark.slow
def test_a_block_that_is_not_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    work = block_owner.BlockOwner._work

    def committed(self: Any, request: Any, *more: Any) -> Any:
        return work(self, msgspec.structs.replace(request, is_commit=True), *more)

    monkeypatch.setattr(block_owner.BlockOwner, "_work", committed)
    _, failure = run(1, "masters")
    assert failure is not None


# --- directed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["DELETE FROM t{0}", "SELECT 1; DELETE FROM t{0}", "PRAGMA user_version = 7"]
)
def test_a_peer_s_read_behind_a_block_only_reads(text: str) -> None:
    scene = Triple("async")

    async def live() -> None:
        await scene.ready()
        instance = scene.master.instance
        assert instance is not None
        read = ReadRequest(text.format(TABLE.id), (), {TABLE.id: 1}, ranges=((1, 30),))
        request = BlockRequest((), is_commit=True, tier="default", read=read)

        async def ask() -> Any:
            return await instance.block_owner.run(request)

        with pytest.raises(CairnError) as told:
            await scene.world.loop.create_task(ask(), context=scene.master.process.context)
        assert told.value.sqlstate == "42501"
        assert instance.data.store.connection.pragma("user_version") == 0

    scene.world.run(live)


@pytest.mark.parametrize("at", ["master", "third"])
def test_a_block_is_one_record_wherever_it_was_asked(at: str) -> None:
    scene = Triple("async")

    async def live() -> None:
        await scene.ready()
        node = getattr(scene, at)
        assert node.instance is not None and scene.master.instance is not None
        data = scene.master.instance.data
        before = data.vclock[data.store.origin]
        texts, executor = _Texts(node), node.instance.executor
        table = "INSERT INTO t (a, b) VALUES ($1, $2)"
        change = "UPDATE t SET b = b || '!' WHERE a = $1"
        text = f"DO $$ BEGIN {table}; {change}; {table.replace('$1', '$3')}; END $$"

        async def ask() -> Any:
            return await executor.run(texts.statement(text), (1000, "x", 1001), Context())

        await scene.world.loop.create_task(ask(), context=node.process.context)
        assert data.vclock[data.store.origin] == before + 1
        reading = InBlock(scene, node)
        found = [list((await reading.run(LOOK, key)).rows) for key in (1000, 1001)]
        assert found == [[("x!",)], [("x",)]]

    scene.world.run(live)


class InBlock:
    """A client's block at one instance."""

    def __init__(self, scene: Triple, node: Any) -> None:
        self._scene, self._node, self._texts = scene, node, _Texts(node)
        self._open = open_block.OpenBlock(node.instance.executor)

    async def run(self, text: str, *params: Any) -> Any:
        statement = self._texts.statement(text)
        return await self._inside(lambda: self._open.run(statement, params, Context()))

    async def commit(self) -> None:
        await self._inside(lambda: self._open.commit(Context()))

    async def _inside(self, work: Any) -> Any:
        context = self._node.process.context
        return await self._scene.world.loop.create_task(work(), context=context)


WRITE = "UPDATE t SET b = b || $2 WHERE a = $1"
LOOK = "SELECT b FROM t WHERE a = $1"


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_block_outlives_its_master_if_what_it_saw_is_still_so(is_changed: bool) -> None:
    scene = Triple("sync")

    async def live() -> None:
        await scene.ready()
        first = InBlock(scene, scene.third)
        await first.run("INSERT INTO t (a, b) VALUES ($1, $2)", 1000, "x")
        await first.commit()
        block = InBlock(scene, scene.third)
        assert list((await block.run(LOOK, 1000)).rows) == [("x",)]
        assert (await block.run(WRITE, 1000, "+mine")).count == 1
        assert list((await block.run(LOOK, 1000)).rows) == [("x+mine",)]
        scene.master.crash()
        await scene.renamed()
        if is_changed:
            other = InBlock(scene, scene.third)
            await other.run(WRITE, 1000, "+other")
            await other.commit()
            with pytest.raises(BlockConflict):
                await block.commit()
        else:
            await block.commit()
        found = await InBlock(scene, scene.third).run(LOOK, 1000)
        assert list(found.rows) == [("x+other",) if is_changed else ("x+mine",)]

    scene.world.run(live)


def test_a_block_without_a_master_is_told_to_come_again() -> None:
    scene = Triple("sync")

    async def live() -> None:
        await scene.ready()
        block = InBlock(scene, scene.third)
        await block.run("INSERT INTO t (a, b) VALUES ($1, $2)", 1000, "x")
        scene.master.crash()
        scene.leader.crash()
        await asyncio.sleep(3.0)  # the links to them are known to be lost
        with pytest.raises(BlockConflict):
            await block.commit()

    scene.world.run(live)
