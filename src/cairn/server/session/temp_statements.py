"""Statements about temporary tables, as a session runs them: by itself, or as part of its block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NumbersNeeded, Unsupported
from cairn.model.quoting import identifier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.temporary import touches
from cairn.model.types.values import OIDS
from cairn.node.statements.asker.explaining import Inner
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.blocks.parts import Given
from cairn.node.statements.context import Context
from cairn.node.statements.temporary.tables import Temps
from cairn.server.audit import Who
from cairn.server.face import PgFace
from cairn.server.session.blocks import Block
from cairn.server.statements import Cached, as_cached
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared

MOST_ROWS = 10_000  # of a table that go along with a statement of a block


class TempStatements:
    def __init__(
        self, face: PgFace, block: Block, who: Callable[[], Who], catalog: Callable[[], Catalog]
    ) -> None:
        self._face, self._block, self._who, self._catalog = face, block, who, catalog
        self.temps: Temps | None = None  # from the first temporary table on

    def _made(self) -> Temps:
        if self.temps is None:
            face = self._face
            reads, numbers = face.execution.reads.open_reads, face.executor.numbers
            most = partial(face.number, "temp_tables_max_bytes")
            self.temps = Temps(reads, numbers, self._who().pid, self._block.hold, most)
            self._block.has_temps(self.temps)
        return self.temps

    def is_outside(self, cached: Cached) -> bool:
        """Whether the open block has no part in it: the session's own tables alone are touched."""
        open_, prepared = self._block.open, cached.prepared
        assert open_ is not None
        plan = plans.carried_out(prepared.plan)
        if not touches(prepared.tables):
            return False
        is_mixed = cached.sharded and (open_.has_written or open_.is_strict)
        return isinstance(plan, plans.TempRead | plans.TempWrite) and not is_mixed

    async def carried(
        self, cached: Cached, params: Sequence[Any], context: Context
    ) -> tuple[Cached, Sequence[Any], Given | None]:
        """A statement for the owner of the block's rows, which has no temporary tables: with the
        rows that it inserts, or with those of the tables as parameters."""
        if not touches(cached.prepared.tables):
            return cached, params, None
        from cairn.sql import given_rows  # brings sqlglot along

        prepared, open_ = cached.prepared, self._block.open
        assert open_ is not None
        is_mixed = cached.sharded and (open_.has_written or open_.is_strict)
        is_given = given_rows.inserted(prepared) is not None
        if is_given and not (is_mixed and given_rows.reads_others(prepared)):
            return cached, params, await self._given(cached, params, context)
        return *await self._with_rows(cached, params, context), None

    async def _with_rows(
        self, cached: Cached, params: Sequence[Any], context: Context
    ) -> tuple[Cached, Sequence[Any]]:
        from cairn.sql.carried_rows import Carried, as_lists, carried_columns, refused

        prepared, base, user = cached.prepared, self._face.catalog, context.user_id
        plan = prepared.plan
        written = plan.write if isinstance(plan, plans.Returning) else plan
        if not isinstance(written, (*plans.ROW_WRITES, plans.TempRead)):
            raise refused()
        asked = Carried(prepared.text, self._catalog(), prepared.param_types)
        try:
            told = prepare(asked.text, base, param_oids=tuple(asked.oids), user_id=user)
        except CairnError as problem:
            raise refused(problem.message) from None
        types = [(each.type, each.enum) for each in prepared.columns]
        if [(each.type, each.enum) for each in told.columns] != types:
            raise refused()
        values = list(params)
        for table in asked.tables:
            names = ", ".join(identifier(column.name) for column in carried_columns(table))
            text = f"SELECT {names} FROM pg_temp.{identifier(table.name)} LIMIT {MOST_ROWS + 1}"
            read = self._face.statements.get(text.encode(), (), user, self._catalog())
            rows = (await self._face.executor.run(read, (), context)).rows or ()
            values += as_lists(table, rows if read.convert is None else read.convert(list(rows)))
        made = as_cached(told.text.encode(), tuple(asked.oids), told, base)
        made.seen = cached.seen
        return made, values

    async def _given(self, cached: Cached, params: Sequence[Any], context: Context) -> Given | None:
        """Rows of temporary tables for a table of the cluster: they are read here, and given to
        the block."""
        from cairn.sql import given_rows

        prepared, open_, catalog = cached.prepared, self._block.open, self._face.catalog
        write = given_rows.inserted(prepared)
        assert write is not None and open_ is not None
        values = prepared.start(params, open_.now)
        reads, numbers = self._face.executor.reads, self._face.executor.numbers
        while True:
            try:
                found = await reads.read(write.read, values, cached.sharded, context.at_masters())
                break
            except NumbersNeeded as need:
                await numbers.more(need)
        told = given_rows.over_no_rows(prepared, catalog, context.user_id)
        sharded = catalog.sharded(told.tables)
        oids = tuple(OIDS[type_] for type_ in told.param_types)
        return Given(Inner(told, sharded, oids), write.rows(found))

    async def change(self, prepared: Prepared, plan: plans.DdlPlan, context: Context) -> Outcome:
        temps, told = self._made(), list[str]()
        context = msgspec.structs.replace(context, temps=temps)
        base, user = self._face.catalog, context.user_id
        count = 0
        if plan.fill:
            before, known = temps.picture, self._catalog()
            if not await temps.change(plan, user, base, context, is_ended=False):
                return Outcome(None, 0, prepared.complete(0), (plan.skipped,))
            try:
                count = await self._fill(plan, known, context)
            except BaseException:
                await temps.forget(before, context)
                raise
            temps.committed()
            return Outcome(None, count, prepared.complete(count), plan.notices)
        for one in (plan, *plan.more):
            has_changed = await temps.change(one, user, base, context)
            told += one.notices if has_changed else (one.skipped,)
        return Outcome(None, 0, prepared.complete(0), tuple(told))

    async def _fill(self, plan: plans.DdlPlan, before: Catalog, context: Context) -> int:
        """The rows of CREATE TEMP TABLE AS. Its query means what names meant `before` there was
        the table: `CREATE TEMP TABLE t AS SELECT * FROM t`."""
        user = context.user_id
        known = msgspec.structs.replace(
            self._catalog(), tables=before.tables, views=before.views, plans=None
        )
        insert = prepare(plan.fill, known, user_id=user)
        insert.check_rights(user, known)
        cached = as_cached(plan.fill.encode(), (), insert, known)
        # Planned anew, a name could mean the table itself: rather an error, if others change one.
        context = msgspec.structs.replace(context, wants_invalidation=True)
        if self._block.open is not None:
            if not self.is_outside(cached):
                from cairn.sql.carried_rows import refused

                raise refused()
            context = msgspec.structs.replace(context, now=self._block.open.now)
        return (await self._face.executor.run(cached, (), context)).count


def is_own(prepared: Prepared, plan: plans.DdlPlan) -> bool:
    """Whether a change of the schema is one of temporary tables."""
    if plan.fill or not touches(prepared.tables):
        return False
    if not all(touches((each,)) for each in prepared.tables):
        raise Unsupported(
            f"{prepared.tag} of temporary tables and others at once is not supported",
            hint="use a statement for each",
        )
    return True
