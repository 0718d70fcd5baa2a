"""What a session runs: may it, how, until when; its cancel, and what is counted of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter, time
from typing import Any, TypeVar, cast

import msgspec

from cairn.model.errors import (
    CairnError,
    QueryCanceled,
    StatementInvalidated,
)
from cairn.model.rpc import WriteResponse
from cairn.model.tables.catalog import Catalog
from cairn.model.tracing import Parent, without_parent
from cairn.model.types.row_shape import RowShape
from cairn.net.spans import ACTIVE, Span
from cairn.node.statements.asker.hops import Hop
from cairn.node.statements.asker.streams import Stream
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.context import ASKED, LATE, TAKEN, Context, Taken, Travelled
from cairn.node.statements.temporary.tables import Temps
from cairn.node.watching.statistics import Seen
from cairn.pgwire.server.extended import StatementBook
from cairn.pgwire.server.server import PgServer
from cairn.server.audit import Who
from cairn.server.caller import Caller
from cairn.server.calls import calls
from cairn.server.face import PgFace
from cairn.server.session.blocks import ACTIONS, Block, Modes, check_reading
from cairn.server.session.cursors import Cursors, Named
from cairn.server.session.locks import SessionLocks
from cairn.server.session.settings import Parameters, check_known, is_on
from cairn.server.session.temp_statements import TempStatements, is_own
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.files.pieces import Rows

T = TypeVar("T")
_WRITES = (*plans.CHANGES, plans.Returning, plans.BlockPlan)


class Running:
    """`end` is what happens when its time is over, `lost` when it has lost its locks."""

    def __init__(
        self,
        face: PgFace,
        pg: PgServer,
        book: StatementBook[Cached],
        block: Block,
        parameters: Parameters,
        who: Callable[[], Who],
        end: Callable[[], None],
        lost: Callable[[CairnError], None],
    ) -> None:
        self._face, self._pg, self._book, self._block = face, pg, book, block
        self._parameters, self._who, self._end = parameters, who, end
        self.cursors, self.named = Cursors(book, block), Named(face, book, lambda: self.catalog)
        self._taken = Taken()
        self.locks = SessionLocks(face.instance.locks, block, lost, self._warn)
        self.own = TempStatements(face, block, who, lambda: self.catalog)
        self.cancelled = threading.Event()
        self._cancel_reason = ""
        self._deadline: float | None = None  # of what is running, by the loop's clock
        self._clock: asyncio.TimerHandle | None = None  # which rings then
        self.reading: asyncio.Task[Any] | None = None  # the part of it that a cancel may end
        self.query, self.query_at = b"", 0.0  # that runs or ran last, and when by the wall's clock
        self.seen: Seen | None = None  # where what runs is counted
        self._begun_s = 0.0  # when it began, to measure by
        self.hops = self.told_bytes = 0  # of what runs
        self._tracer = face.instance.watching.tracer
        self.parent: Parent | None = None  # the trace that the client's text named
        self._span: Span | None = None  # of what runs, if it is traced
        self._is_traced = False  # whether that was decided for what runs
        self._sent = 0  # rows of a longer answer so far

    @property
    def temps(self) -> Temps | None:
        return self.own.temps

    @property
    def catalog(self) -> Catalog:
        """What names mean in this session."""
        base = self._face.catalog
        return base if self.temps is None else self.temps.catalog(base)

    # --- its time and its end ---------------------------------------------------------------------

    def begin(self) -> None:
        """The event is made here and not when the task begins: a cancel may come in between. A
        thread that still looks at the old one sees it set.
        """
        self.cancelled = threading.Event()

    def started(self) -> None:
        self._cancel_reason = ASKED
        self.start_clock()

    def cancel(self) -> None:
        self.cancelled.set()
        if self.reading is not None:
            self.reading.cancel()  # the answer of another instance is not waited for

    def check_wanted(self) -> None:
        if self.cancelled.is_set():
            raise QueryCanceled(self._cancel_reason)

    def _time_out(self) -> None:
        self._cancel_reason = LATE
        self._end()

    def watch(self, reading: asyncio.Task[Any] | None) -> None:
        """What a cancel may end: reading, which changes nothing."""
        self.reading = reading
        if reading is not None and self.cancelled.is_set():
            reading.cancel()

    def start_clock(self) -> None:
        """For the next statement: a text of several may set the limit of those after it."""
        self.stop_clock()
        if timeout_s := self._parameters.context.timeout_s:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + timeout_s
            self._clock = loop.call_at(self._deadline, self._time_out)

    def stop_clock(self) -> None:
        self._deadline = None
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    # --- statements -------------------------------------------------------------------------------

    def text(self, told: bytes) -> bytes:
        """What a client asks, without the comment that names its trace."""
        self.parent = None
        if b"*/" not in told[-4:]:
            return told
        text, self.parent = without_parent(told)
        return text

    def check(self, cached: Cached, text: bytes = b"") -> None:
        """May it run now, as it was planned, for this user, in this block?

        `text` is what the client sent, where its values were taken out.
        """
        self.query, self.query_at = text or cached.text, time()
        self.count(cached)
        if self._tracer.is_on:
            self._begin_trace(cached)
        catalog = self.catalog
        if not cached.is_fresh(catalog):
            planned, present = catalog.first_change(cached.prepared.tables)
            raise StatementInvalidated(prepared_version=planned, current_version=present)
        cached.check_rights(self._parameters.context.user_id, catalog)
        if self._block.status != "I":
            self._block.check(cached.prepared)
        elif self._parameters.is_read_only:
            check_reading(cached.prepared)

    def count(self, cached: Cached) -> None:
        self.seen, self._begun_s = cached.seen, perf_counter()
        self.hops = self.told_bytes = 0

    def is_traced(self) -> bool:
        """Whether some statement may be: it takes the ordinary way, which tells its parts."""
        return self._tracer.is_on

    def is_free(self) -> bool:
        """Of whatever each statement has to be looked at for by itself."""
        is_timed = self._parameters.context.timeout_s
        return not (is_timed or self._tracer.is_on or self.temps is not None)

    def asking(self) -> Context:
        """What an answer of this turn needs: it has no time to be late or cancelled."""
        return self._parameters.context

    def finished(self, rows: int) -> None:
        """What was checked last has come to its end, and its answer is said."""
        seen = self.seen
        if seen is not None:
            self.seen = None
            took_s = perf_counter() - self._begun_s
            self._face.statistics.ended(seen, took_s, rows, self.hops, self.told_bytes)
            if self._is_traced:
                self.end_trace(rows)

    def failed(self, problem: CairnError) -> None:
        self._face.statistics.failed(self.seen, problem.sqlstate)
        self.seen = None
        self.end_trace(0, problem.sqlstate)

    def _begin_trace(self, cached: Cached) -> None:
        """Whatever runs after this in the same task, or is asked of others by it, is part of it."""
        self._is_traced, self._sent = True, 0
        parent, who = self.parent or self._parameters.parent, self._who()
        self._span = self._tracer.statement(parent, cached.seen, who.user, who.address)
        ACTIVE.set(self._span)

    def end_trace(self, rows: int, problem: str = "") -> None:
        span, self._span = self._span, None
        self._is_traced = False
        if span is not None:
            span.attributes["db.response.returned_rows"] = rows or self._sent
            span.attributes["cairn.hops"] = int(self.hops)
            span.end(problem)

    def sent_rows(self, cached: Cached, count: int) -> None:
        """Some rows of a longer answer: they are counted as they leave."""
        cached.seen.rows += count
        self._sent += count
        self._face.statistics.rows += count

    async def understood(self, text: bytes, oids: tuple[int, ...] = ()) -> Cached:
        """A long text is read on a thread. Who cancels does not wait for the end of it."""
        face = self._face
        cached = face.statements.at_once(text, oids, self._parameters.context.user_id, self.catalog)
        if cached is not None:
            return cached
        self.query, self.query_at = text, time()
        work = face.statements.later(
            *(text, oids, self._parameters.context.user_id),
            lambda: self.catalog,
            self.cancelled.is_set,
        )
        return await self.context().watched(work)

    def now(self, cached: Cached, values: Sequence[Any]) -> Outcome | None:
        """The outcome without waiting for anybody, for what can have one."""
        plan = cached.prepared.plan
        if type(plan) is plans.SessionPlan:
            if self._block.waits_to_commit(plan) or (plan.action == "discard" and self.temps):
                return None
            if self.locks.waits_for(plan):
                return None
            return self._own(plan, cached.prepared.complete(0))
        if type(plan) is plans.CursorPlan or type(plan) is plans.NamedPlan:
            return None
        context = self._parameters.context
        token = TAKEN.set(self._taken) if cached.takes else None
        try:
            if self._block.open is not None:
                return self._block.now(cached, values, context)
            return self._face.executor.now(cached, values, context)
        finally:
            if token is not None:
                TAKEN.reset(token)

    def start(
        self, cached: Cached, values: Sequence[Any], done: Callable[[Any], None]
    ) -> Hop | None:
        """Begin what needs no task, for what can do without one.

        `done` has an answer or an error. Of what is part of a block it has a function that goes on.
        """
        context, plan = self._parameters.context, cached.prepared.plan
        token = TAKEN.set(self._taken) if cached.takes else None
        try:
            if self._block.may_hop(cached) and type(plan) is not plans.SessionPlan:
                return self._face.executor.start(cached, values, context, done)
            if context.timeout_s or self._is_traced or self.temps is not None:
                return None
            if type(plan) is not plans.SessionPlan:
                return (
                    None
                    if cached.prepared.options
                    else self._block.start(cached, values, context, done)
                )
            if not self._block.waits_to_commit(plan) or self.locks.waits_for(plan):
                return None
            tag = cached.prepared.complete(0)
            return self._block.start_commit(context, done, lambda: self._own(plan, tag))
        finally:
            if token is not None:
                TAKEN.reset(token)

    def told(self, cached: Cached, values: Sequence[Any], result: Any) -> Outcome | None:
        """What `done` was given, as an outcome; None: nothing was done, and `run` is the way."""
        if callable(result):
            return cast("Outcome | None", result())
        if isinstance(result, WriteResponse):
            self._block.wrote()
            count, rows = result.row_count, list(result.rows) if cached.prepared.columns else None
            return Outcome(rows, count, cached.prepared.complete(count))
        count = len(result.rows)
        outcome = Outcome(result.rows, count, cached.prepared.complete(count))
        self._block.noted(cached, values, self._parameters.context, outcome)
        return outcome

    async def run(
        self, cached: Cached, params: Sequence[Any], formats: tuple[int, ...] | None = None
    ) -> Outcome:
        """With format codes, rows of a long answer may come as messages in these formats."""
        if self._is_traced:
            ACTIVE.set(self._span)  # it may be begun anew in the task of somebody's answer
        work = self._run(cached, params, formats)
        return await self._face.audit.noted(self._who(), cached.prepared.plan, cached.text, work)

    async def run_many(self, cached: Cached, params: Sequence[Sequence[Any]]) -> list[bool]:
        """Which executions of one statement are done, together; `run` is the way for the others."""
        if cached.takes:
            self.notes_numbers()
        work = self._face.executor.run_many(cached, params, context := self.context())
        return await self._ended(work, context)

    async def _run(
        self, cached: Cached, params: Sequence[Any], formats: tuple[int, ...] | None = None
    ) -> Outcome:
        """What reads can be cancelled; from its first change on a statement runs on."""
        context, plan = self.context(), plans.carried_out(cached.prepared.plan)
        if cached.takes:
            self.notes_numbers()
        if isinstance(plan, plans.SessionPlan) and plan.action == "discard":
            self._block.check_discard(plan)
            if self.temps is not None and plan.name in ("all", "temp", "temporary"):
                await self._ended(self.temps.discard(context), context)
        if isinstance(plan, plans.SessionPlan):
            try:
                if self._block.waits_to_commit(plan):
                    await self._ended(self._block.commit(context), context)
                return self._own(plan, cached.prepared.complete(0))
            finally:
                await self.locks.end(plan, context)
        if isinstance(plan, plans.LockPlan):
            return await self._call_locks(cached, plan, params, context)
        if isinstance(plan, plans.AttemptPlan):
            return await self._attempt(cached, plan)
        if isinstance(plan, plans.CallPlan):
            answer = await calls.call(Caller(self._face, context), plan, params)
            return Outcome([(answer,)], 1, cached.prepared.tag)
        if isinstance(plan, plans.CursorPlan):
            return await self.cursors.run(cached, plan, params, self._run, self.following)
        if isinstance(plan, plans.NamedPlan):
            if plan.action == "prepare":
                self.named.keep(cached, plan)
                return Outcome(None, 0, cached.prepared.tag)
            inner, values = await self.named.executed(plan, context, self.understood, self.check)
            self.check(inner, cached.text)
            return self.now(inner, values) or await self._run(inner, values, formats)
        if isinstance(plan, plans.DdlPlan) and (plan.temp or is_own(cached.prepared, plan)):
            return await self._ended(self.own.change(cached.prepared, plan, context), context)
        travelled = Travelled()
        shape = None
        if formats is not None and type(cached.prepared.plan) is plans.ScatterRead:
            columns = cached.prepared.columns
            types, scales = [each.type for each in columns], [each.scale for each in columns]
            codes = (each.code(fmt) for each, fmt in zip(columns, formats, strict=True))
            shape = RowShape(tuple(types), tuple(scales), tuple(codes))
        context = msgspec.structs.replace(
            context, takes_pieces=True, travelled=travelled, shape=shape
        )
        if self._block.open is not None and not self.own.is_outside(cached):
            carried, told_with, given = await self.own.carried(cached, params, context)
            work = self._block.open.run(carried, told_with, context, given)
            outcome = await self._ended(work, context)
        else:
            outcome = await self._ended(self._face.executor.run(cached, params, context), context)
            if isinstance(plan, _WRITES):
                self._block.wrote(cached.prepared.tag)
        self.hops = travelled.hops
        if outcome.stale_s is not None:  # as a parameter that every driver can read
            told = str(round(outcome.stale_s * 1000))
            self._parameters.note("read_staleness_ms", told)
            self._pg.parameter_status("read_staleness_ms", told)
        return outcome

    async def _call_locks(
        self, cached: Cached, plan: plans.LockPlan, params: Sequence[Any], context: Context
    ) -> Outcome:
        """One call after the other, with arguments that a query of its own has found."""
        inner = await self.understood(plan.query.encode(), cached.oids)
        self.check(inner, cached.text)
        outcome = self.now(inner, params) or await self._run(inner, params)
        [given] = outcome.rows or [()]
        told: list[Any] = []
        at = 0
        for item in plan.items:
            count = 1 if item is None else item.arguments
            values = given[at : at + count]
            at += count
            if item is None:
                told += values
            else:
                called = self.locks.call(item, values, context)
                told.append(await self._ended(called, context))
        return Outcome([tuple(told)], 1, cached.prepared.complete(1))

    async def _attempt(self, cached: Cached, plan: plans.AttemptPlan) -> Outcome:
        if plan.condition:
            asked = f"SELECT 1 WHERE {plan.condition}"
            if not (await self._inner(asked, cached)).rows:
                return Outcome(None, 0, cached.prepared.tag)
        try:
            outcome = await self._inner(plan.statement, cached)
        except CairnError as problem:
            if not plan.forgives(problem.sqlstate):
                raise
            return Outcome(None, 0, cached.prepared.tag, (f"{problem}, skipping",))
        return Outcome(None, 0, cached.prepared.tag, outcome.notices)

    async def _inner(self, text: str, cached: Cached) -> Outcome:
        """A statement inside of another one."""
        inner = await self.understood(text.encode())
        self.check(inner, cached.text)
        return self.now(inner, ()) or await self._run(inner, ())

    def _warn(self, text: str) -> None:
        self._pg.notice(text, "WARNING", "01000")

    def notes_numbers(self) -> None:
        """What runs in this task takes numbers for this session."""
        TAKEN.set(self._taken)

    async def as_one(self, work: Coroutine[Any, Any, T]) -> T:
        """What changes temporary tables bit by bit, all of it or nothing."""
        assert self.temps is not None
        return await self.temps.as_one(self.context(), work)

    async def _ended(self, work: Coroutine[Any, Any, T], context: Context) -> T:
        """Who cancels it, or lets it run out of time, is told so."""
        try:
            return await work
        except QueryCanceled:
            if context.is_late():
                raise QueryCanceled(LATE) from None
            if context.cancelled.is_set():
                raise QueryCanceled(self._cancel_reason) from None
            raise  # a limit of its own ended it, and says which

    async def following(self, more: Stream) -> Rows | None:
        """More rows of a longer answer; None at its end."""
        context = self.context()
        return await self._ended(context.watched(more.next(context)), context)

    def context(self) -> Context:
        """Of a statement that has begun: it has a deadline, and can be cancelled."""
        return msgspec.structs.replace(
            self._parameters.context,
            deadline=self._deadline,
            cancelled=self.cancelled,
            temps=self.temps,
        )

    def caller(self) -> Caller:
        return Caller(self._face, self.context())

    def _setting(self, asked: plans.AskedSetting) -> str | None:
        """What `current_setting` and `set_config` tell."""
        if asked.value is not None:
            check_known(asked.name, self._face.catalog)
            self._parameters.set(asked.name, asked.value, is_local=asked.is_local)
            if asked.is_local and self._block.status == "I":
                return asked.value  # of a transaction that is over
        try:
            return self._parameters.show(asked.name)
        except CairnError as problem:
            if asked.is_quiet and problem.sqlstate == "42704":
                return None
            raise

    def _own(self, plan: plans.SessionPlan, tag: str) -> Outcome:
        """What only the session knows how to run: SET, SHOW, BEGIN, DEALLOCATE …"""
        name, parameters = plan.name or "", self._parameters
        match plan.action:
            case action if action in ACTIONS:
                tag, notices = self._block.change(
                    plan, tag, parameters.context, parameters.transaction_modes()
                )
                self.locks.changed(plan)
                parameters.block_changed(plan.action, self._block.depth)
                return Outcome(None, 0, tag, notices)
            case "set_characteristics":
                parameters.set_transaction_modes(Modes(plan.value))
            case "show" if name in ("transaction_isolation", "transaction_read_only"):
                mode = self._block.mode(name) or str(parameters.show(f"default_{name}"))
                return Outcome([(mode,)], 1, tag)
            case "show" if name == "all":
                listed = parameters.show_all()
                return Outcome(listed, len(listed), tag)
            case "settings":
                return Outcome([tuple(map(self._setting, plan.asked))], 1, tag)
            case "show":
                return Outcome([(parameters.show(name),)], 1, tag)
            case "set" if name == "transaction_read_only":
                self._block.be_read_only(is_on(plan.value or ""))
            case "set":
                check_known(name, self._face.catalog)
                told = parameters.set(name, plan.value or "", is_local=plan.is_local)
                return Outcome(None, 0, tag, told)
            case "reset":
                parameters.reset(name)
            case "deallocate" if plan.name is not None:
                self._book.deallocate(name.encode())
            case "deallocate":
                self._book.deallocate_all()
            case "discard" if name == "sequences":
                self._taken.forget()
            case "discard" if name == "all":
                self._block.check_discard(plan)
                self._taken.forget()
                self._book.deallocate_all()
                parameters.reset("all")
        return Outcome(None, 0, tag, plan.notices)
