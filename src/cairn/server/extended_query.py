"""The extended protocol: Parse, Bind, Describe, Execute, Close, Sync; and COPY, used by both."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from cairn.model.errors import (
    CairnError,
    QueryCanceled,
    StatementInvalidated,
    Unreachable,
)
from cairn.model.rpc import ReadResponse, WriteResponse
from cairn.model.unexpected import owned
from cairn.node.context import LATE
from cairn.node.executor import Outcome
from cairn.pgwire.extended import Portal
from cairn.pgwire.requests import Bind, Close, Describe, Execute, Flush, Parse, Sync
from cairn.server import running
from cairn.server.at_once import MOVING, AtOnce
from cairn.server.copying import CopyIn, copy_out
from cairn.server.metadata import metadata_notice
from cairn.server.statements import Cached
from cairn.sql import plans

AT_ONCE_ROWS = 500  # that are encoded in one turn of the loop

#: A read may be asked again in any case.
_ANYWHERE = (*MOVING, Unreachable)


class ExtendedQuery(AtOnce):
    """Statements and portals of one connection, and running what they hold."""

    def _on_parse(self, request: Parse) -> Coroutine[Any, Any, None] | None:
        self._simple = False
        self.book.check_name(request.name)
        service = self.service
        cached = service.statements.at_once(
            request.sql, request.param_oids, self.user_id, service.catalog
        )
        if cached is None:
            return self._parse_later(request)
        self._parsed(request, cached)
        return None

    async def _parse_later(self, request: Parse) -> None:
        self._parsed(request, await self._understood(request.sql, request.param_oids))

    async def _understood(self, text: bytes, oids: tuple[int, ...] = ()) -> Cached:
        """A long text is read on a thread. Who cancels does not wait for the end of it."""
        service = self.service
        cached = service.statements.at_once(text, oids, self.user_id, service.catalog)
        if cached is not None:
            return cached
        work = service.statements.later(text, oids, self.user_id, service.catalog)
        return await self.running_context().watched(work)

    def _parsed(self, request: Parse, cached: Cached) -> None:
        service = self.service
        cached.check_rights(self.user_id, service.catalog)
        if self.wants_metadata:
            self.pg.notice(metadata_notice(cached, service.catalog))
        self.book.parse(request.name, cached, cached.signature)
        self.pg.parse_complete()

    def _on_bind(self, request: Bind) -> None:
        self._simple = False
        statement = self.book.statement(request.statement)
        catalog = self.service.catalog
        if not statement.plan.is_fresh(catalog):
            self._refresh(statement, catalog)
        if self._run_at_once(request, statement):
            return
        self.book.bind(request)
        self.pg.bind_complete()

    def _refresh(self, statement: Any, catalog: Any) -> None:
        """The schema moved: an error for those who asked for it, a new plan for the others."""
        stale: Cached = statement.plan
        if self.wants_invalidation:
            planned, present = catalog.first_change(stale.prepared.tables)
            name = statement.name.decode() if self.wants_invalidation == "named" else None
            raise StatementInvalidated(prepared_version=planned, current_version=present, name=name)
        fresh = self.service.statements.replanned(stale, self.user_id, catalog)
        statement.plan, statement.signature = fresh, fresh.signature

    def _on_describe(self, request: Describe) -> None:
        self._simple = False
        if request.kind == "P":
            self.pg.raw(self.book.portal(request.name).shape.description)
        else:
            signature = self.book.statement(request.name).signature
            self.pg.raw(signature.parameter_description + signature.statement_rows)

    def _on_execute(self, request: Execute) -> Coroutine[Any, Any, None] | None:
        self._simple = False
        portal = self.book.portal(request.portal)
        if portal.rows is not None:
            most = request.max_rows or len(portal.rows)
            if portal.is_raw or min(most, len(portal.rows) - portal.sent) > AT_ONCE_ROWS:
                return self._send_many(portal, request.max_rows)
            self._send_portal(portal, request.max_rows)
            return None
        cached = portal.statement.plan
        self._check(cached)
        outcome = self._now(cached, portal.values)
        if outcome is not None:
            self._finish_execute(portal, outcome, request.max_rows)
            return None
        if self._start(portal, cached, request.max_rows):
            return None
        plan = cached.prepared.plan
        if isinstance(plan, plans.CopyPlan):
            return self._start_copy(cached, plan)
        return self._execute(portal, request.max_rows)

    def _now(self, cached: Cached, values: Sequence[Any]) -> Outcome | None:
        """The outcome without waiting for anybody, for what can have one."""
        plan = cached.prepared.plan
        if type(plan) is plans.SessionPlan:
            return running.session_plan(self, plan, cached.prepared.complete(0))
        return self.service.executor.now(cached, values, self.context)

    def _start(self, portal: Portal[Cached], cached: Cached, max_rows: int) -> bool:
        """A row written here, or a row one hop away: no task, the answer comes by a callback."""
        prepared = cached.prepared
        is_read = type(prepared.plan) is plans.PointRead

        def done(result: ReadResponse | WriteResponse | CairnError) -> None:
            self._hop = None
            self._waiting = False
            if self._closing:
                return
            if isinstance(result, _ANYWHERE if is_read else MOVING):  # it did not happen
                self._begin(self._execute(portal, max_rows))
                return
            try:
                if isinstance(result, CairnError):
                    self._failed(result)
                elif isinstance(result, WriteResponse):
                    self.wrote()
                    self.pg.command_complete(prepared.complete(result.row_count))
                else:
                    count = len(result.rows)
                    outcome = Outcome(result.rows, count, prepared.complete(count))
                    self._finish_execute(portal, outcome, max_rows)
            except Exception as problem:
                self._failed(owned(problem, "the answer of another instance"))
            self._pump()

        begun = self.service.executor.start(cached, portal.values, self.context, done)
        self._waiting = begun is not None
        self._hop = begun if is_read else None  # a write is never ended half-way
        return self._waiting

    def _check(self, cached: Cached) -> None:
        catalog = self.service.catalog
        if not cached.is_fresh(catalog):
            planned, present = catalog.first_change(cached.prepared.tables)
            raise StatementInvalidated(prepared_version=planned, current_version=present)
        cached.check_rights(self.user_id, catalog)
        if self.status != "I":
            running.check_transaction(self, cached)

    async def _execute(self, portal: Portal[Cached], max_rows: int) -> None:
        outcome = await self._run(portal.statement.plan, portal.values)
        rows = outcome.rows
        if rows is None or len(rows) <= AT_ONCE_ROWS or 0 < max_rows <= AT_ONCE_ROWS:
            self._finish_execute(portal, outcome, max_rows)
            return
        for notice in outcome.notices:
            self.pg.notice(notice)
        portal.rows, portal.sent = rows, 0
        portal.is_raw = True
        await self._send_many(portal, max_rows)

    async def _send_many(self, portal: Portal[Cached], max_rows: int) -> None:
        """Many rows of a portal, as the client takes them."""
        rows, start = portal.rows, portal.sent
        end = len(rows) if not max_rows else min(start + max_rows, len(rows))
        convert = portal.statement.plan.convert if portal.is_raw else None
        await self.send_rows(rows[start:end], portal.shape.encode_row, convert)
        portal.sent = max(end, start)
        if end < len(rows):
            self.pg.portal_suspended()
        else:
            portal.rows = ()
            sent = max(end - start, 0)
            self.pg.command_complete(portal.statement.plan.prepared.complete(sent))

    async def _run(self, cached: Cached, params: Sequence[Any]) -> Outcome:
        """What reads can be cancelled; from its first change on a statement runs on."""
        context = self.running_context()
        try:
            outcome = await self.service.executor.run(cached, params, context)
        except QueryCanceled:
            raise QueryCanceled(LATE if context.is_late() else self._cancel_reason) from None
        if isinstance(cached.prepared.plan, (*plans.CHANGES, plans.Returning)):
            self.wrote()
        self.tell_staleness(outcome.stale_s)
        return outcome

    def _finish_execute(self, portal: Portal[Cached], outcome: Outcome, max_rows: int) -> None:
        for notice in outcome.notices:
            self.pg.notice(notice)
        cached = portal.statement.plan
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self.pg.command_complete(outcome.tag)
            else:
                self.pg.empty_query()
            return
        if cached.convert is not None:
            rows = cached.convert(rows)
        encode = portal.shape.encode_row
        if not max_rows or len(rows) <= max_rows:
            if len(rows) == 1:
                self.pg.raw(encode(rows[0]))
            elif rows:
                self.pg.raw(b"".join(map(encode, rows)))
            self.pg.command_complete(outcome.tag)
            portal.rows, portal.sent = (), len(rows)
            return
        portal.rows, portal.sent = rows, 0
        self._send_portal(portal, max_rows)

    def _send_portal(self, portal: Portal[Cached], max_rows: int) -> None:
        """The next rows of a suspended portal."""
        rows, start = portal.rows, portal.sent
        end = len(rows) if not max_rows else min(start + max_rows, len(rows))
        if start < end:
            self.pg.raw(b"".join(map(portal.shape.encode_row, rows[start:end])))
        portal.sent = max(end, start)
        if end < len(rows):
            self.pg.portal_suspended()
        else:
            sent = max(end - start, 0)
            self.pg.command_complete(portal.statement.plan.prepared.complete(sent))

    def _on_close(self, request: Close) -> None:
        self._simple = False
        self.book.close(request.kind, request.name)
        self.pg.close_complete()

    def _on_sync(self, request: Sync) -> None:
        self._simple = False
        self.book.sync(in_transaction=self.status != "I")
        self.pg.ready(self.status)

    def _on_flush(self, request: Flush) -> None:
        self._flush()

    # --- COPY -------------------------------------------------------------------------------------

    async def _start_copy(self, cached: Cached, plan: plans.CopyPlan) -> None:
        if plan.direction == "out":
            count = await copy_out(self, cached, plan)
            self.pg.command_complete(f"COPY {count}")
            return
        self._copy = CopyIn(self, plan)
        self.pg.copy_in_response(0, len(plan.columns))
        self._flush()
        try:
            count = await self._copy.run()
        finally:
            self._copy = None
        self.wrote()
        self.pg.command_complete(f"COPY {count}")
