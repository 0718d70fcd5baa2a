"""CREATE TABLE AS: the table with its rows, or neither, also when its time is over half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from cairn.model.errors import (
    CairnError,
    DdlAborted,
    OutcomeUnknown,
    PartialWrite,
    QueryCanceled,
    TimedOut,
)
from cairn.model.log import ops
from cairn.model.quoting import identifier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.node.statements.changes.schema_changes import SchemaChanges
from cairn.node.statements.context import ASKED, LATE, Context
from cairn.sql.plans import DdlPlan

Fill = Callable[[DdlPlan, Context], Awaitable[int]]


class FilledTables:
    """`fill` puts the rows into a table that is there."""

    def __init__(self, schema_changes: SchemaChanges, fill: Fill) -> None:
        self._schema_changes, self._fill = schema_changes, fill
        self._tasks: set[asyncio.Task[int | None]] = set()

    async def make(
        self, plan: DdlPlan, claim: Callable[[], object], context: Context
    ) -> int | None:
        """How many rows; None: the table was there before. A client that goes ends it as a cancel
        does: what has to be cleaned up is."""
        task = asyncio.get_running_loop().create_task(self._make(plan, claim, context))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            context.cancelled.set()
            raise

    def _ended(self, task: asyncio.Task[int | None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it was told, if there is still somebody to tell it to

    async def _make(
        self, plan: DdlPlan, claim: Callable[[], object], context: Context
    ) -> int | None:
        """Whether the table was made has to be known, so that is waited for beyond the time of the
        statement: a moment, unless the cluster has no majority."""
        made: list[Table] = []

        def build(now: Catalog, version: int, table_id: int) -> ops.Ddl | None:
            ddl = plan.build(now, version, table_id)
            if isinstance(ddl, ops.CreateTable):
                made[:] = [ddl.table]
            return ddl

        try:
            making = replace(plan, build=build)
            if not await self._schema_changes.run(
                making, context.user_id, claim=claim, wanted=partial(_check_wanted, context)
            ):
                return None
        except (TimedOut, OutcomeUnknown) as problem:
            if not made:
                raise
            raise _left_behind(made[-1], problem) from None
        try:
            if context.is_late() or context.cancelled.is_set():
                raise QueryCanceled(LATE if context.is_late() else ASKED)
            return await self._fill(plan, context)
        except BaseException as problem:
            await self._drop(made[-1], context)
            if isinstance(problem, OutcomeUnknown | PartialWrite):  # by now it is known
                if context.is_late():
                    raise QueryCanceled(LATE) from None
                why = f"the table was removed, its rows did not all come: {problem.message}"
                raise DdlAborted(why) from None
            raise

    async def _drop(self, table: Table, context: Context) -> None:
        def drop(now: Catalog, version: int, table_id: int) -> ops.Ddl | None:
            known = now.table_by_id(table.id)  # another may have its name by now
            return None if known is None else ops.DropTable(table.id, known.name)

        try:
            await self._schema_changes.run(DdlPlan(drop), context.user_id)
        except CairnError as problem:
            raise _left_behind(table, problem) from None


def _check_wanted(context: Context) -> None:
    context.check()
    context.check_wanted()


def _left_behind(table: Table, problem: CairnError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f'CREATE TABLE AS has failed, and table "{table.name}" may be left without its rows',
        detail=problem.message,
        hint=f"DROP TABLE IF EXISTS {identifier(table.name)}",
    )
