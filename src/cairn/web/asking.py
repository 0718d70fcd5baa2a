"""Statements that come over HTTP: run for a user who has logged in, answered as JSON."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from math import isfinite
from sys import getsizeof
from time import perf_counter
from typing import Any

from cairn.model.errors import InvalidParameter, QueryCanceled, Unsupported
from cairn.model.tracing import without_parent
from cairn.model.types.values import OIDS
from cairn.model.unexpected import owned
from cairn.net.spans import ACTIVE, Span
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.context import LATE, OF_CLUSTER, Context
from cairn.pgwire.values.formats import text_encoder
from cairn.server.audit import Who
from cairn.server.caller import Caller
from cairn.server.calls import calls
from cairn.server.face import PgFace
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.files.pieces import plain
from cairn.web.logins import TooBusy, User

MOST_ROWS = 1_000
MOST_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 30.0
TOGETHER = 8  # statements of all consoles of this instance
SAFE = 2**53  # JavaScript knows no larger whole number
_OF_A_SESSION = (plans.SessionPlan, plans.CopyPlan, plans.CursorPlan, plans.NamedPlan)


class Running:
    """One statement on its way. `stop` ends what can be ended: reading, not a write half-way."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self._reading: asyncio.Task[Any] | None = None

    def stop(self) -> None:
        self.cancelled.set()
        if self._reading is not None:
            self._reading.cancel()

    def watch(self, reading: asyncio.Task[Any] | None) -> None:
        self._reading = reading
        if reading is not None and self.cancelled.is_set():
            reading.cancel()


class Asking:
    def __init__(self, face: PgFace) -> None:
        self._face = face
        self._running = 0

    async def run(self, user: User, address: str, text: str, running: Running) -> dict[str, Any]:
        if self._running >= TOGETHER:
            raise TooBusy("too many statements of consoles run on this instance; try again")
        if not text.strip():
            raise InvalidParameter("there is no statement")
        self._running += 1
        try:
            return await self._run(user, address, text.encode("utf-8", "replace"), running)
        finally:
            self._running -= 1

    async def _run(self, user: User, address: str, text: bytes, running: Running) -> dict[str, Any]:
        face, loop = self._face, asyncio.get_running_loop()
        context = Context(
            user_id=user.id,
            user=user.name,
            preference=str(face.instance.state.setting("read_preference", "leader")),
            row_max=OF_CLUSTER,
            opcode_max=OF_CLUSTER,
            deadline=loop.time() + TIMEOUT_S,
            cancelled=running.cancelled,
            watch=running.watch,
            takes_pieces=True,
            face=face,
        )
        assert context.deadline is not None
        timer = loop.call_at(context.deadline, running.stop)
        begun, statistics = perf_counter(), face.statistics
        text, parent = without_parent(text)
        cached: Cached | None = None
        span: Span | None = None
        try:
            cached = await self._understood(text, user)
            span = face.instance.watching.tracer.statement(parent, cached.seen, user.name, address)
            ACTIVE.set(span)  # of this request alone
            plan = cached.prepared.plan
            if isinstance(plan, _OF_A_SESSION):
                raise Unsupported(
                    f"{cached.prepared.tag} needs a session of its own",
                    hint="use psql or a driver for it",
                )
            is_run = not isinstance(plan, plans.ExplainPlan) or plan.options.is_run
            if cached.prepared.param_types and is_run:
                raise InvalidParameter("a statement with parameters cannot be run here")
            cached.check_rights(user.id, face.catalog)
            who = Who(user.name, address)
            work = self._outcome(cached, context)
            outcome = await face.audit.noted(who, plan, cached.text, work)
            rows, is_all = await self._taken(outcome, context)
            took_s = perf_counter() - begun
            hops = context.travelled.hops
            count = outcome.count if outcome.rows is None else len(rows)
            statistics.ended(cached.seen, took_s, count, hops, 0)
            if span is not None:
                span.attributes |= {"db.response.returned_rows": count, "cairn.hops": int(hops)}
                span.end()
            return _told(cached, outcome, rows, is_all, took_s)
        except Exception as problem:
            told = owned(problem, "a statement of the console")
            if isinstance(told, QueryCanceled) and context.is_late():
                told = QueryCanceled(LATE, hint=f"the console waits {TIMEOUT_S:g} s")
            statistics.failed(None if cached is None else cached.seen, told.sqlstate)
            if span is not None:
                span.end(told.sqlstate)
            raise told from None
        finally:
            timer.cancel()

    async def _understood(self, text: bytes, user: User) -> Cached:
        face = self._face
        found = face.statements.at_once(text, (), user.id, face.catalog)
        return found or await face.statements.later(text, (), user.id, lambda: face.catalog)

    async def _outcome(self, cached: Cached, context: Context) -> Outcome:
        plan = cached.prepared.plan
        if isinstance(plan, plans.CallPlan):
            answer = await calls.call(Caller(self._face, context), plan, ())
            return Outcome([(answer,)], 1, cached.prepared.tag)
        return await self._face.executor.run(cached, (), context)

    async def _taken(self, outcome: Outcome, context: Context) -> tuple[list[Any], bool]:
        """The first rows, and whether that is all. What is not shown is not held either."""
        rows, more = list(outcome.rows or ()), outcome.more
        size = _size(rows)
        is_all = more is None
        try:
            while more is not None and len(rows) <= MOST_ROWS and size <= MOST_BYTES:
                following = await context.watched(more.next(context))
                if following is None:
                    is_all = True
                    break
                rows += plain(following)
                size += _size(plain(following))
        finally:
            if more is not None:
                more.close()
        return rows[:MOST_ROWS], is_all and len(rows) <= MOST_ROWS


def _size(rows: list[Any]) -> int:
    return sum(getsizeof(value) for row in rows for value in row)


def _told(
    cached: Cached, outcome: Outcome, rows: list[Any], is_all: bool, took_s: float
) -> dict[str, Any]:
    columns = cached.prepared.columns
    shown: Sequence[Any] = rows if cached.convert is None else cached.convert(rows)
    writers = [text_encoder(OIDS[column.type]) for column in columns]
    made: list[list[Any]] = []
    size = 0
    for row in shown:
        values = [_plain(value, write) for value, write in zip(row, writers, strict=True)]
        size += sum(len(value) if isinstance(value, str) else 8 for value in values)
        if size > MOST_BYTES:
            is_all = False
            break
        made.append(values)
    return {
        "columns": [{"name": column.name, "type": column.type.value} for column in columns],
        "rows": None if outcome.rows is None else made,
        "is_all": is_all,
        "tag": outcome.tag,
        "notices": list(outcome.notices),
        "took_ms": round(took_s * 1000, 3),
    }


def _plain(value: Any, write: Callable[[Any], bytes]) -> Any:
    """As JSON has it, without loss; what JSON or JavaScript cannot hold is text, as psql has it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -SAFE <= value <= SAFE:
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    return write(value).decode(errors="replace")
