"""Runs a planned statement: the one place that knows what to do for each kind of plan.

Sessions, the governor's queue, CALLs and Spark's doors all come through here, with a `Context`.
There are three doors, each wider than the one before:

`now`    the answer in this turn: a row that is here, read by its key, or a few rows that are;
`start`  no task: a row written here, or a row one hop away; the answer comes by a callback;
`run`    everything, to its end or to its deadline.

The first two refuse (None) whatever has to be looked at first: options, limits, hints, deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from cairn.model.errors import (
    InvalidParameter,
    NumbersNeeded,
    PlanOutdated,
    QueryCanceled,
    StatementInvalidated,
    Unsupported,
)
from cairn.model.measured import Run
from cairn.native.point_inserts import PointInsert
from cairn.node.consensus.global_state import GlobalState
from cairn.node.runtime import Runtime
from cairn.node.statements.asker.explaining import Explaining, Inner
from cairn.node.statements.asker.forwarding import check_forward, hop_hint
from cairn.node.statements.asker.hops import HERE, Answered, Hop
from cairn.node.statements.asker.numbers import Numbers
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.asker.streams import Stream
from cairn.node.statements.asker.writing import Asked, Writes
from cairn.node.statements.at_once import AtOnce, Outcome, Row
from cairn.node.statements.blocks.asking import Blocks, Statement
from cairn.node.statements.changes.filled_tables import FilledTables
from cairn.node.statements.changes.schema_changes import SchemaChanges
from cairn.node.statements.context import ASKED, OF_CLUSTER, TAKEN, Context, Told
from cairn.node.statements.global_tables.global_writes import GlobalWrites
from cairn.node.statements.temporary.writes import TempWrites
from cairn.sql import plans
from cairn.sql.api import prepare
from cairn.sql.plans import Prepared

REPLANS = 10
LOOK_EVERY = 1_000  # rows
LIMITS = {"sql_motion_row_max": 0, "sql_vdbe_opcode_max": 0}
FEW_ROWS = (plans.Returning, plans.ShardedInsert, plans.InsertSelect)
_OF_SESSION = (plans.SessionPlan, plans.CursorPlan, plans.NamedPlan, *plans.INSIDE)


def _check_options(prepared: Prepared, values: Sequence[Any]) -> None:
    """`OPTION (name = $1)`: literals were checked when the statement was read."""
    for name, place in prepared.options.items():
        given = values[place - 1] if isinstance(place, int) else 0
        if given is None or given < 0:
            raise InvalidParameter(
                f"expected option {name} to be a non-negative integer, got: {given}"
            )


class Executor:
    def __init__(
        self,
        state: GlobalState,
        runtime: Runtime,
        reads: Reads,
        writes: Writes,
        global_writes: GlobalWrites,
        schema_changes: SchemaChanges,
        numbers: Numbers,
        blocks: Blocks,
    ) -> None:
        self.blocks = blocks
        self.numbers = numbers
        self._state, self._now = state, runtime.wall_clock
        self.execution, self.reads, self.writes = reads.owners.execution, reads, writes
        self.global_writes, self._schema_changes = global_writes, schema_changes
        self._filled_tables = FilledTables(schema_changes, self._fill)
        self._explaining = Explaining(state, reads)
        self._temp_writes = TempWrites(reads)
        self._at_once = AtOnce(state, runtime, reads)
        self.now, self.answer = self._at_once.now, self._at_once.answer

    def read_settings(self) -> None:
        self._at_once.read_settings()

    # --- without waiting, without a task ----------------------------------------------------------

    def start(
        self,
        statement: Statement,
        params: Sequence[Any],
        context: Context,
        callback: Answered[Any],
    ) -> Hop | None:
        """A few rows written here or one hop away, or a row read there, or some rows of several
        owners. The callback has a
        ReadResponse, a WriteResponse or an error. A statement with a time limit is left to `run`,
        which watches the clock."""
        prepared = statement.prepared
        plan = prepared.plan
        if context.timeout_s or prepared.options:
            return None
        if type(plan) is plans.PointWrite:
            values = self._values(prepared, params)
            if self.writes.start_here(plan, values, callback):
                return HERE
            if self._at_once.may_hop(prepared, context):
                return self.writes.start_away(plan, values, callback)
        elif (
            type(plan) is plans.PointRead
            and self._at_once.may_hop(prepared, context)
            and self._at_once.reads_plainly(prepared, context)
            and not context.is_local
        ):
            values = self._values(prepared, params)
            user = context.user_id
            return self.reads.start_away(plan, values, statement.sharded, callback, user)
        elif type(plan) is plans.ScatterRead:
            if not self._at_once.reads_shortly(prepared, context) or context.is_local:
                return None
            values = self._values(prepared, params)
            user, short = context.user_id, self.reads.short
            return short.start(plan, values, statement.sharded, callback, user)
        elif type(plan) in FEW_ROWS:
            values = prepared.start(params, context.now or self._now())
            may_hop = self._at_once.may_hop(prepared, context)
            return self.writes.start_few(plan, values, callback, may_hop=may_hop)  # type: ignore[arg-type]
        return None

    def start_insert(
        self,
        statement: Statement,
        context: Context,
        what: PointInsert,
        asked: Asked,
        callback: Answered[Any],
    ) -> bool:
        """A new row here, which C reads from its request. The callback has a WriteResponse or an
        error. `NotPlain`, and False: nothing was done, and `start` is the way."""
        prepared = statement.prepared
        plan = prepared.plan
        if context.timeout_s or prepared.options or type(plan) is not plans.PointWrite:
            return False
        return self.writes.start_insert(plan, what, asked, callback)

    def _values(self, prepared: Prepared, params: Sequence[Any]) -> Sequence[Any]:
        if not (prepared.hidden or prepared.labels):
            return params
        return prepared.start(params, self._now())

    # --- to the end -------------------------------------------------------------------------------

    async def run_many(
        self, statement: Statement, params: Sequence[Sequence[Any]], context: Context
    ) -> list[bool]:
        """Which executions of a statement, that come together and change one row each, are done.
        `run` is the way for the others."""
        prepared = statement.prepared
        plan = prepared.plan
        while True:
            try:
                if isinstance(plan, plans.PointWrite):
                    found = [plan.bind(self._values(prepared, each)) for each in params]
                    rows = [(cast("int", args[0]), args) for args in found]  # the bucket
                elif isinstance(plan, plans.ShardedInsert):
                    values = [self._values(prepared, each) for each in params]
                    rows = [row for each in values for row in plan.rows(each)]
                    if len(rows) != len(params):
                        return [False] * len(params)
                else:
                    return [False] * len(params)
                break
            except NumbersNeeded as need:
                await self.numbers.more(need)
        return await self.writes.run_many(plan, rows, context)

    async def run(self, statement: Statement, params: Sequence[Any], context: Context) -> Outcome:
        """Run to the end; planned again, quietly, when a schema change came between."""
        for _ in range(REPLANS):
            try:
                return await self._run_with_numbers(statement, params, context)
            except PlanOutdated:
                if context.queued is not None:
                    raise  # the governor plans anew
                if context.wants_invalidation:
                    catalog = self._state.catalog
                    planned, present = catalog.first_change(statement.prepared.tables)
                    raise StatementInvalidated(
                        prepared_version=planned, current_version=present
                    ) from None
                statement = await context.face.plan_again(statement, context)
        return await self._run_with_numbers(statement, params, context)

    async def _run_with_numbers(
        self, statement: Statement, params: Sequence[Any], context: Context
    ) -> Outcome:
        """Rows of an INSERT are complete before the first one is sent: until then it can be begun
        anew with more numbers."""
        while True:
            try:
                return await self._run(statement, params, context)
            except NumbersNeeded as need:
                await self.numbers.more(need)

    async def _set_numbers(
        self, plan: plans.NumbersPlan, prepared: Prepared, values: list[Any], context: Context
    ) -> Outcome:
        rows = await self.reads.read(plan.read, values, {}, context.at_masters())
        table, asked = plan.numbers.table.id, []
        for at, (number, is_used) in enumerate(rows):
            if at % LOOK_EVERY == LOOK_EVERY - 1:
                await asyncio.sleep(0)
                context.check()
                context.check_wanted()
            if number is not None and is_used is not None:
                asked.append((number, plan.numbers.kept(number, is_used=bool(is_used))))
                if is_used and (taken := TAKEN.get()) is not None:
                    taken.last[table] = number
        await self.numbers.go_on(table, asked)
        told = [(number,) for number, _ in rows]
        given = told if prepared.columns else None  # ALTER SEQUENCE … RESTART tells nothing
        return Outcome(given, len(told), prepared.complete(len(told)))

    async def _run(self, statement: Statement, params: Sequence[Any], context: Context) -> Outcome:
        prepared = statement.prepared
        plan, tables = prepared.plan, statement.sharded
        values = prepared.start(params, context.now or self._now())
        hints: tuple[str, ...] = ()
        if context.wants_hints:
            hints = hop_hint(plan, values, self.reads.owners.routes, self.reads.owners.raft_id)
        if prepared.options:
            _check_options(prepared, values)
        self._check_forward(prepared, values, context)
        user, queued, deadline = context.user_id, context.queued, context.deadline
        context.check()
        match plan:
            case plans.TempWrite():
                catalog = context.catalog(self._state.catalog)
                told = await self._temp_writes.run(
                    prepared, plan, values, tables, context.at_masters(), catalog
                )
                rows = told.rows if prepared.columns else None
                return Outcome(rows, told.count, prepared.complete(told.count))
            case plans.PointRead() | plans.ScatterRead() | plans.TempRead():
                plan = plan.read if isinstance(plan, plans.TempRead) else plan
                asked = self._as_asked(prepared, values, context)
                rows, more = await self._read(plan, values, tables, asked)
                tag = prepared.complete(len(rows))
                return Outcome(rows, len(rows), tag, hints, asked.told.stale_s, more)
            case plans.Returning():
                rows = await self.writes.returning(plan, values, tables, context.at_masters())
                return Outcome(rows, len(rows), prepared.complete(len(rows)), hints)
            case plans.GlobalWrite():
                change = await self.global_writes.run(plan, values, tables, context.at_masters())
                tag = prepared.complete(change.row_count)
                return Outcome(change.rows, change.row_count, tag, is_queue_told=True)
            case plans.NumbersPlan():
                return await self._set_numbers(plan, prepared, values, context)
            case plans.CatalogRead():
                reading = context.face.read_catalog(plan, prepared, params, context)
                rows = await context.watched(reading)
                return Outcome(rows, len(rows), prepared.complete(len(rows)))
            case plans.ExplainPlan(options=explained):
                if not explained.is_run:
                    return await self._explained(prepared, params, context)
                return await self.analyze(
                    statement,
                    params,
                    context,
                    lambda inner, noting: self._run(inner, params, noting),
                )
            case plans.DdlPlan():
                return await self._change_schema(prepared, plan, context)
            case plans.AclPlan():
                notices = self._is_already_so(plan)
                extra = None if queued is None else queued.end
                await self._schema_changes.change_access(plan, user, extra, deadline)
                return Outcome(None, 0, prepared.complete(0), notices, is_queue_told=True)
            case plans.RoutinePlan():
                extra = None if queued is None else queued.end
                has_changed = await self._schema_changes.change_routine(plan, user, extra, deadline)
                said = () if has_changed else (plan.skipped,)
                return Outcome(None, 0, prepared.complete(0), said, is_queue_told=True)
            case plans.AlterSystemPlan():
                extra = None if queued is None else queued.end
                await self._schema_changes.alter_system(plan, user, extra, deadline)
                return Outcome(None, 0, prepared.complete(0), is_queue_told=True)
            case plans.BlockPlan():
                block = await self.blocks.whole(statement, params, context)
                given = block.rows if prepared.columns else None
                return Outcome(given, block.row_count, prepared.complete(block.row_count))
            case plans.EmptyPlan():
                return Outcome(None, 0, "")
            case _ if isinstance(plan, _OF_SESSION):
                raise Unsupported(f"{prepared.tag} needs a session, it cannot be run here")
            case plans.CopyPlan() | plans.CallPlan():
                raise Unsupported(f"{prepared.tag or 'this statement'} cannot be run here")
            case _:
                count = await self.writes.run(plan, values, tables, context.at_masters())
                return Outcome(None, count, prepared.complete(count), hints)

    async def _read(
        self, plan: plans.ReadPlan, values: Sequence[Any], tables: dict[int, int], context: Context
    ) -> tuple[list[Row], Stream | None]:
        """All rows, or the first of a longer answer for who takes it in pieces."""
        more: Stream | None = None
        if context.takes_pieces:
            rows, more = await self.reads.open(plan, values, tables, context)
        else:
            rows = await self.reads.read(plan, values, tables, context)
        if context.cancelled.is_set():
            if more is not None:
                more.close()
            raise QueryCanceled(ASKED)
        return rows, more

    async def _change_schema(
        self, prepared: Prepared, plan: plans.DdlPlan, context: Context
    ) -> Outcome:
        user, queued = context.user_id, context.queued
        if plan.temp is not None:  # a session makes its own, and nobody else has a place for it
            raise Unsupported(
                "CREATE TEMP TABLE needs a session of its own", hint="use psql or a driver for it"
            )
        if (plan.more or plan.fill) and queued is not None:
            raise Unsupported("a queued operation changes one table", hint="queue each")
        told: tuple[str, ...] = ()
        is_any = False

        def claim() -> None:
            self._check_still(prepared, context)
            if queued is not None:
                queued.end()

        if plan.fill:
            count = await self._filled_tables.make(plan, claim, context)
            said = plan.notices if count is not None else (plan.skipped,)
            return Outcome(None, count or 0, prepared.complete(count or 0), said)
        for one in (plan, *plan.more):
            has_changed = await self._schema_changes.run(
                one,
                user,
                None if queued is None else queued.op_id,
                is_upgrade=queued is not None and queued.is_upgrade,
                claim=claim if queued is None or not queued.is_upgrade else queued.end,
                deadline=context.deadline,
                wanted=context.check_wanted,
            )
            told += one.notices if has_changed else (one.skipped,)
            is_any = is_any or has_changed
        return Outcome(None, 0, prepared.complete(0), told, is_queue_told=is_any)

    async def _fill(self, plan: plans.DdlPlan, context: Context) -> int:
        """The rows of CREATE TABLE AS."""
        for left in range(REPLANS, -1, -1):
            catalog = context.catalog(self._state.catalog)
            insert = prepare(plan.fill, catalog, user_id=context.user_id)
            insert.check_rights(context.user_id, catalog)
            statement = Inner(insert, catalog.sharded(insert.tables), ())
            try:
                return (await self._run_with_numbers(statement, (), context)).count
            except PlanOutdated:
                if not left:
                    raise
        raise AssertionError("the last round answers or raises")

    def _check_still(self, prepared: Prepared, context: Context) -> None:
        """A schema change waits for others: its rights are those of the moment at which it is made,
        on what has these names then. Of several tables in one text some may be dropped by now."""
        catalog, user = context.catalog(self._state.catalog), context.user_id
        if not getattr(prepared.plan, "more", ()):
            now = prepare(prepared.text, catalog, user_id=user)
            if now.rights != prepared.rights:
                raise PlanOutdated("what the statement names has changed since it was planned")
        prepared.check_rights(user, catalog)

    # --- what a statement asks for ----------------------------------------------------------------

    def _as_asked(self, prepared: Prepared, values: Sequence[Any], context: Context) -> Context:
        """How a read is to be answered: as its OPTION says, else the session, else the cluster."""
        options = prepared.options
        concern = options.get("read_concern")
        return msgspec.structs.replace(
            context,
            preference=str(options.get("read_preference", context.preference)),
            is_local=context.is_local if concern is None else concern == "local",
            row_max=self._limit("sql_motion_row_max", context.row_max, prepared, values),
            opcode_max=self._limit("sql_vdbe_opcode_max", context.opcode_max, prepared, values),
            repartition=str(options.get("sql_repartition", context.repartition)),
            told=Told(),
        )

    def _limit(
        self, name: str, of_session: int, prepared: Prepared | None, values: Sequence[Any]
    ) -> int:
        asked: Any = None if prepared is None else prepared.options.get(name)
        if isinstance(asked, int):  # OPTION (name = $1)
            asked = values[asked - 1]
        if asked is None and of_session != OF_CLUSTER:
            asked = of_session
        if asked is None:
            asked = self._state.setting(name, LIMITS[name])
        return int(asked)

    def _check_forward(self, prepared: Prepared, values: Sequence[Any], context: Context) -> None:
        options = prepared.options
        how = str(options.get("forward") or context.forward)
        if how != "on":
            preference = str(options.get("read_preference", context.preference))
            here = self.reads.owners.raft_id
            check_forward(how, preference, prepared.plan, values, self.reads.owners.routes, here)

    # --- what a statement is told -----------------------------------------------------------------

    def _is_already_so(self, plan: plans.AclPlan) -> tuple[str, ...]:
        """What IF [NOT] EXISTS leaves out, in PostgreSQL's words."""
        exists = plan.name in self._state.catalog.users
        if not plan.if_exists or exists is not plan.action.startswith("create"):
            return ()
        return (f'role "{plan.name}" {"already exists" if exists else "does not exist"}, skipping',)

    # --- EXPLAIN ----------------------------------------------------------------------------------

    def explain(self, prepared: Prepared) -> list[str]:
        """How it is run, without its values; on a thread."""
        plan = plans.ExplainPlan(prepared)
        rows = self._explaining.rows(plan, None, self._limits(Context()), Context())
        return [line for (line,) in rows]

    async def analyze(
        self,
        statement: Statement,
        params: Sequence[Any],
        context: Context,
        run: Callable[[Statement, Context], Awaitable[Outcome]],
    ) -> Outcome:
        """EXPLAIN ANALYZE: `run` carries out the statement inside, with all its effects."""
        measured = await self._explaining.measured(statement, context, run)
        return await self._explained(statement.prepared, params, context, measured)

    async def _explained(
        self,
        prepared: Prepared,
        params: Sequence[Any],
        context: Context,
        measured: Run | None = None,
    ) -> Outcome:
        plan = prepared.plan
        assert isinstance(plan, plans.ExplainPlan)
        given = len(params) >= len(prepared.param_types)
        values = prepared.start(params, context.now or self._now()) if given else None
        rows = await asyncio.to_thread(
            self._explaining.rows, plan, values, self._limits(context), context, measured
        )
        count = len(rows)
        return Outcome(rows, count, prepared.complete(count), plan.options.notices)

    def _limits(self, context: Context) -> dict[str, int]:
        return {
            "sql_vdbe_opcode_max": self._limit("sql_vdbe_opcode_max", context.opcode_max, None, ()),
            "sql_motion_row_max": self._limit("sql_motion_row_max", context.row_max, None, ()),
        }
