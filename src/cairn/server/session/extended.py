"""The extended protocol: Parse, Bind, Describe, Execute, Close, Sync."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from cairn.model.errors import (
    NotInPrerequisiteState,
    StatementInvalidated,
)
from cairn.model.tables.catalog import Catalog
from cairn.node.statements.at_once import AT_ONCE_ROWS, Outcome
from cairn.pgwire.server.extended import Portal, Statement
from cairn.pgwire.server.requests import Bind, Close, Describe, Execute, Flush, Parse, Sync
from cairn.server.session.copy.copying import copy_rows
from cairn.server.session.shortcuts.at_once import AtOnce
from cairn.server.session.shortcuts.runs import Runs
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.files.pieces import Encoded

if TYPE_CHECKING:
    from cairn.server.session.session import Session


LONG_PARAM = 64 * 1024  # bytes of a parameter that is not read on the event loop


class Extended:
    """Statements and portals of one session."""

    __slots__ = ("_at_once", "_book", "_pg", "_runs", "_session", "lanes")

    def __init__(self, session: Session) -> None:
        self._session, self._pg, self._book = session, session.pg, session.book
        self._at_once, self._runs = AtOnce(session), Runs(session)
        self.lanes = self._at_once.lanes

    def parse(self, request: Parse) -> Coroutine[Any, Any, None] | None:
        self._book.check_name(request.name)
        face, text = self._session.face, self._session.running.text(request.sql)
        cached = face.statements.at_once(
            text, request.param_oids, self._session.user_id, self._session.running.catalog
        )
        if cached is None:
            return self._parse_later(request, text)
        self._parsed(request, cached)
        return None

    async def _parse_later(self, request: Parse, text: bytes) -> None:
        self._parsed(request, await self._session.running.understood(text, request.param_oids))

    def _parsed(self, request: Parse, cached: Cached) -> None:
        catalog = self._session.running.catalog
        cached.check_rights(self._session.user_id, catalog)
        cached = self._session.running.cursors.shaped(cached)
        if self._session.wants_metadata:
            self._pg.notice(_metadata_notice(request.sql, cached, catalog))
        key = cached.text, cached.oids
        statement = self._book.parse(request.name, cached, cached.signature, cached.size, key)
        statement.parent = self._session.running.parent
        self._pg.parse_complete()

    def bind(self, request: Bind) -> Coroutine[Any, Any, None] | None:
        statement = self._book.statement(request.statement)
        catalog = self._session.running.catalog
        if not statement.plan.is_fresh(catalog):
            fresh = self._refreshed(statement, catalog)
            if fresh is None:
                return self._refresh_later(request, statement)
            statement.plan, statement.signature = fresh, fresh.signature
        self._session.running.parent = statement.parent
        if _are_long(request) and len(request.params) == len(statement.signature.param_oids):
            return self._bind_later(request, statement)
        if self._at_once.run(request, statement):
            return None
        run = self._runs.begin(request, statement)
        if run is None:
            self._bind(request, statement)
        return run

    async def _bind_later(self, request: Bind, statement: Statement[Cached]) -> None:
        """Long parameters are read on a thread."""
        session = self._session
        reads = session.face.instance.execution.reads
        decoded = partial(statement.signature.decoded, request)
        values = await reads.apart(session.running.context(), decoded)
        self._bind(request, statement, values)

    def _bind(
        self, request: Bind, statement: Statement[Cached], values: list[Any] | None = None
    ) -> None:
        shaped = self._session.running.cursors.shaped(statement.plan)
        if shaped is not statement.plan:
            statement.plan, statement.signature = shaped, shaped.signature
        self._book.bind(request, values)
        self._pg.bind_complete()

    def _refreshed(self, statement: Statement[Cached], catalog: Catalog) -> Cached | None:
        """The schema moved: an error for those who asked for it, a new plan for the others."""
        stale = statement.plan
        if self._session.wants_invalidation:
            planned, present = catalog.first_change(stale.prepared.tables)
            name = statement.name.decode() if self._session.wants_invalidation == "named" else None
            raise StatementInvalidated(prepared_version=planned, current_version=present, name=name)
        statements, user = self._session.face.statements, self._session.user_id
        return statements.replanned_at_once(stale, user, catalog)

    async def _refresh_later(self, request: Bind, statement: Statement[Cached]) -> None:
        """A long text is understood on a thread."""
        session = self._session
        face = session.face
        work = face.statements.replanned(
            statement.plan, session.user_id, lambda: session.running.catalog
        )
        fresh = await session.running.context().watched(work)
        statement.plan, statement.signature = fresh, fresh.signature
        self._bind(request, statement)

    def describe(self, request: Describe) -> None:
        if request.kind == "P":
            self._pg.raw(self._book.portal(request.name).shape.description)
        else:
            signature = self._book.statement(request.name).signature
            self._pg.raw(signature.parameter_description + signature.statement_rows)

    def execute(self, request: Execute) -> Coroutine[Any, Any, None] | None:
        portal = self._book.portal(request.portal)
        if portal.more is not None:
            return self._send_more(portal, request.max_rows)
        if portal.rows is not None:
            most = request.max_rows or len(portal.rows)
            if portal.is_raw or min(most, len(portal.rows) - portal.sent) > AT_ONCE_ROWS:
                return self._send_many(portal, request.max_rows)
            self._send_portal(portal, request.max_rows)
            return None
        if portal.is_run:
            name = portal.name.decode(errors="replace")
            raise NotInPrerequisiteState(f'portal "{name}" cannot be run')
        statement, catalog = portal.statement, self._session.running.catalog
        if not statement.plan.is_fresh(catalog):  # the schema moved between Bind and Execute
            fresh = self._refreshed(statement, catalog)
            if fresh is not None:
                statement.plan, statement.signature = fresh, fresh.signature
        cached = statement.plan
        self._session.running.parent = statement.parent
        self._session.running.check(cached)
        portal.is_run = bool(cached.prepared.tag)  # an empty one changes nothing
        outcome = self._session.running.now(cached, portal.values)
        if outcome is not None:
            self._finish_execute(portal, outcome, request.max_rows)
            return None
        if self._session.run_by_callback(
            cached,
            portal.values,
            lambda outcome: self._finish_execute(portal, outcome, request.max_rows),
            lambda: self._execute(portal, request.max_rows),
        ):
            return None
        plan = cached.prepared.plan
        if isinstance(plan, plans.CopyPlan):
            return copy_rows(self._session, cached)
        return self._execute(portal, request.max_rows)

    async def _execute(self, portal: Portal[Cached], max_rows: int) -> None:
        formats = None if max_rows else portal.shape.result_formats
        outcome = await self._session.running.run(portal.statement.plan, portal.values, formats)
        rows = outcome.rows
        is_short = rows is None or len(rows) <= AT_ONCE_ROWS or 0 < max_rows <= AT_ONCE_ROWS
        if is_short and outcome.more is None:
            self._finish_execute(portal, outcome, max_rows)
            return
        for notice in outcome.notices:
            self._pg.notice(notice)
        portal.rows, portal.sent = rows, 0
        portal.is_raw = True
        portal.more = outcome.more
        if portal.name:
            self._book.weigh(portal)
        if outcome.more is not None:
            await self._send_more(portal, max_rows)
        else:
            await self._send_many(portal, max_rows)
        self._session.running.finished(0)  # its rows are counted as they are sent

    async def _send_more(self, portal: Portal[Cached], max_rows: int) -> None:
        """The next rows of an answer that is not all here."""
        session, cached = self._session, portal.statement.plan
        sent = 0
        try:
            while portal.more is not None:
                if portal.sent == len(portal.rows):
                    portal.rows, portal.sent = await session.running.following(portal.more), 0
                    if portal.rows is None:
                        portal.rows = ()
                        portal.close()
                        break
                if max_rows and sent == max_rows:
                    self._pg.portal_suspended()
                    return
                end = portal.sent + max_rows - sent if max_rows else len(portal.rows)
                rows = portal.rows
                part = rows if isinstance(rows, Encoded) else rows[portal.sent : end]
                await session.sending.send_rows(part, portal.shape.encode_row, cached.convert)
                portal.sent += len(part)
                sent += len(part)
                session.running.sent_rows(cached, len(part))
        except BaseException:
            portal.rows = None  # it cannot be run again: the rest of its rows is lost
            portal.close()
            raise
        self._pg.command_complete(cached.prepared.complete(sent))

    async def _send_many(self, portal: Portal[Cached], max_rows: int) -> None:
        """Many rows of a portal, as the client takes them."""
        rows, start = portal.rows, portal.sent
        end = len(rows) if not max_rows else min(start + max_rows, len(rows))
        convert = portal.statement.plan.convert if portal.is_raw else None
        await self._session.sending.send_rows(rows[start:end], portal.shape.encode_row, convert)
        portal.sent = max(end, start)
        self._session.running.sent_rows(portal.statement.plan, portal.sent - start)
        if end < len(rows):
            self._pg.portal_suspended()
        else:
            portal.rows = ()
            sent = max(end - start, 0)
            self._pg.command_complete(portal.statement.plan.prepared.complete(sent))

    def _finish_execute(self, portal: Portal[Cached], outcome: Outcome, max_rows: int) -> None:
        is_all = outcome.rows is None or not max_rows or len(outcome.rows) <= max_rows
        self._tell(portal, outcome, max_rows)
        self._session.running.finished(outcome.count if is_all else 0)

    def _tell(self, portal: Portal[Cached], outcome: Outcome, max_rows: int) -> None:
        for notice in outcome.notices:
            self._pg.notice(notice)
        cached = portal.statement.plan
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self._pg.command_complete(outcome.tag)
            else:
                self._pg.empty_query()
            return
        if cached.convert is not None:
            rows = cached.convert(rows)
        encode = portal.shape.encode_row
        if not max_rows or len(rows) <= max_rows:
            if rows:
                data = encode(rows[0]) if len(rows) == 1 else b"".join(map(encode, rows))
                self._pg.raw(data)
                self._session.running.told_bytes = len(data)
            self._pg.command_complete(outcome.tag)
            portal.rows, portal.sent = (), len(rows)
            return
        portal.rows, portal.sent = rows, 0
        self._book.weigh(portal)
        self._send_portal(portal, max_rows)

    def _send_portal(self, portal: Portal[Cached], max_rows: int) -> None:
        """The next rows of a suspended portal."""
        rows, start = portal.rows, portal.sent
        end = len(rows) if not max_rows else min(start + max_rows, len(rows))
        if start < end:
            self._pg.raw(b"".join(map(portal.shape.encode_row, rows[start:end])))
        portal.sent = max(end, start)
        self._session.running.sent_rows(portal.statement.plan, portal.sent - start)
        if end < len(rows):
            self._pg.portal_suspended()
        else:
            sent = max(end - start, 0)
            self._pg.command_complete(portal.statement.plan.prepared.complete(sent))

    def close(self, request: Close) -> None:
        self._book.close(request.kind, request.name)
        self._pg.close_complete()

    def sync(self, request: Sync) -> Coroutine[Any, Any, None] | None:
        if self._session.running.locks.has_ended():
            return self._sync_later(request)
        self._sync()
        return None

    async def _sync_later(self, request: Sync) -> None:
        """Locks of a transaction that was not begun by BEGIN end before it is told to be over."""
        running = self._session.running
        await running.locks.end(None, running.context())
        self._sync()

    def _sync(self) -> None:
        self._book.sync(in_transaction=self._session.block.status != "I")
        self._pg.ready(self._session.block.status)

    def flush(self, request: Flush) -> None:
        self._session.flush()


def _metadata_notice(text: bytes, cached: Cached, catalog: Catalog) -> str:
    """Which parameters form the distribution key: told after Parse."""
    prepared = cached.prepared
    tier = catalog.tiers.get(prepared.tier) if prepared.tier is not None else None
    return json.dumps(
        {
            "type": "PreparedStatementMetadata",
            "query": text.decode(),  # byte for byte: it is the client's cache key
            "tier": prepared.tier,
            "dk_cols": [number - 1 for number, _ in prepared.metadata],
            "dk_meta": [[number, oid] for number, oid in prepared.metadata],
            "hash_version": 2 if tier is None else tier.hash_version,
        },
        ensure_ascii=False,
    )


def _are_long(request: Bind) -> bool:
    return any(param is not None and len(param) > LONG_PARAM for param in request.params)
