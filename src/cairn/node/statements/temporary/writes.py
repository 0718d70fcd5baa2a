"""Changes of temporary tables: what they read is read first, wherever it is; then the session's own
rows are changed, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cairn.model.errors import Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import TEMP_TIER
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.blocks.block_runs import BlockRun, Clock, Told
from cairn.node.statements.context import Context
from cairn.node.statements.temporary.tables import Temps
from cairn.sql import plans
from cairn.sql.plans import Prepared
from cairn.storage.files.pieces import Row, plain
from cairn.storage.temp_store import TempStore

Back = tuple[plans.Returning, str, list[Row]]
NEVER = float("inf")


class TempWrites:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def run(
        self,
        prepared: Prepared,
        plan: plans.TempWrite,
        values: list[Any],
        tables: dict[int, int],
        context: Context,
        catalog: Catalog,
    ) -> Told:
        """`tables`: of those that are not the session's, their versions."""
        temps = context.temps
        assert isinstance(temps, Temps)
        write = plan.write
        if isinstance(write, plans.BlockPlan):
            whole = replace(prepared, plan=write)
            return await temps.run(context, partial(self._block, whole, values, context, catalog))
        told: list[Row] = []
        back: Back | None = None
        if isinstance(write, plans.Returning):
            back, write = (write, write.clause(values), told), write.write
        if isinstance(write, plans.InsertSelect):
            return await self._insert(temps, write, values, tables, context, catalog, back)
        work = await self._prepared(write, values, tables, context)

        def change(store: TempStore) -> Told:
            before = store.connection.total_changes()
            made = work(_run_of(store, None, catalog, context), back)
            if back is not None:
                rows = back[0].arranged(told, made.given)
                return Told(len(rows), rows)
            count = store.connection.total_changes() - before
            return Told(count if made.count is None else made.count)

        return await temps.run(context, change)

    async def _prepared(
        self, write: plans.RowWrite, values: list[Any], tables: dict[int, int], context: Context
    ) -> Callable[[BlockRun, Back | None], _Made]:
        """What is left to do once all is read."""
        match write:
            case plans.KeyedWrite() as by_key:
                changes = by_key.changes(
                    await self._reads.read(write.read, values, tables, context)
                )

                def keyed(run: BlockRun, back: Back | None) -> _Made:
                    run.keyed(by_key, changes, back)
                    return _Made((), len(changes))

                return keyed
            case plans.ScatterWrite(steps=steps):
                for step in steps:
                    found = await self._reads.read(step.plan, values, tables, context)
                    values += [None] * (step.number - len(values))
                    values[step.number - 1] = step.value(found)
                write = replace(write, steps=())
        return lambda run, back: _Made(run.write(write, values, None, back), None)

    async def _insert(
        self,
        temps: Temps,
        write: plans.InsertSelect,
        values: list[Any],
        tables: dict[int, int],
        context: Context,
        catalog: Catalog,
        back: Back | None,
    ) -> Told:
        """INSERT … SELECT: as the rows come, however many there are."""
        if write.on_conflict == "update" or back is not None:
            found = await self._reads.read(write.read, values, tables, context)
            return await temps.run(
                context, partial(self._put, write, found, context, catalog, back)
            )
        rows, more = await self._reads.open(write.read, values, tables, context)

        async def put() -> int:
            part, count = rows, 0
            while part:
                work = partial(self._put, write, part, context, catalog, None)
                count += (await temps.work(context, work)).count
                part = [] if more is None else plain(await more.next(context) or [])
            return count

        try:
            return Told(await temps.as_one(context, put()))
        finally:
            if more is not None:
                more.close()

    def _put(
        self,
        write: plans.InsertSelect,
        found: Sequence[Row],
        context: Context,
        catalog: Catalog,
        back: Back | None,
        store: TempStore,
    ) -> Told:
        before = store.connection.total_changes()
        rows = write.rows(found)
        _run_of(store, None, catalog, context).write(write, [], rows, back)
        if back is not None:
            arranged = back[0].arranged(back[2], rows)
            return Told(len(arranged), arranged)
        return Told(store.connection.total_changes() - before)

    def _block(
        self,
        prepared: Prepared,
        values: list[Any],
        context: Context,
        catalog: Catalog,
        store: TempStore,
    ) -> Told:
        """WITH whose parts write, MERGE and DO: all at once, next to the session's rows."""
        reads = self._reads.owners.execution.reads.open_reads
        merger = reads.merger()
        try:
            with store.counting():
                return _run_of(store, merger, catalog, context).statement(prepared, values)
        finally:
            reads.give_back(merger)


class _Made:
    __slots__ = ("count", "given")

    def __init__(self, given: Sequence[tuple[int, Row]], count: int | None) -> None:
        self.given, self.count = given, count


def _run_of(store: TempStore, merger: Any, catalog: Catalog, context: Context) -> BlockRun:
    clock = Clock(lambda: 0.0, NEVER, False, context.cancelled)
    return BlockRun(store, merger, _only_temps, catalog, clock)


def _only_temps(tier: str, buckets: frozenset[int] | None) -> Sequence[tuple[int, int]]:
    if tier != TEMP_TIER:
        raise Unsupported(
            "a statement that writes in several parts cannot have temporary tables and others",
            hint="copy the rows into a temporary table first: CREATE TEMP TABLE … AS SELECT …",
        )
    return [(0, 1 << 31)] if buckets is None else [(each, each) for each in buckets]
