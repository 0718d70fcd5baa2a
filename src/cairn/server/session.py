"""One client's session: the simple protocol, on top of everything the layers below can do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from cairn.model.errors import CairnError
from cairn.node.executor import Outcome
from cairn.pgwire.decoders import decode_string
from cairn.pgwire.requests import (
    BadMessage,
    Bind,
    CancelReceived,
    Close,
    Describe,
    Execute,
    Flush,
    NeedTls,
    Parse,
    Query,
    SaslInitial,
    SaslResponse,
    StartupReceived,
    Sync,
    Terminate,
)
from cairn.pgwire.rows import row_encoder
from cairn.server import calls
from cairn.server.extended_query import AT_ONCE_ROWS, ExtendedQuery
from cairn.server.statements import QUICK_TEXT, Cached
from cairn.sql import plans
from cairn.sql.api import split

YIELD_EVERY = 10  # statements of one text
_JSON_ROW = row_encoder([114], [0])


class Session(ExtendedQuery):
    """A connection with all its requests. `connection` ← `entering` ← `extended_query` ← this."""

    def _on_query(self, request: Query) -> Coroutine[Any, Any, None] | None:
        self._simple = True
        self.book.begin_simple_query()
        service = self.service
        text = request.sql
        if calls.matches(text):
            return self._run_call(text)
        if b";" not in text[:-1]:
            cached = service.statements.at_once(text, (), self.user_id, service.catalog)
            if cached is None:
                return self._run_long(text)
            self._check(cached)
            outcome = self._try_at_once(cached)
            if outcome is not None:
                self._send_simple(cached, outcome)
                self._end_simple()
                return None
            return self._run_simple(cached)
        return self._run_texts(text)

    def _try_at_once(self, cached: Cached) -> Outcome | None:
        if cached.prepared.param_types:
            place = cached.text.decode(errors="replace").find("$") + 1
            raise CairnError("there is no parameter $1", sqlstate="42P02", position=place or None)
        return self._now(cached, ())

    async def _run_call(self, text: bytes) -> None:
        answer = await calls.call(self.caller(), text)
        self.pg.row_description([("result", 114, 0)])
        self.pg.raw(_JSON_ROW((answer,)))
        self.pg.command_complete("CALL")
        self._end_simple()

    async def _run_long(self, text: bytes) -> None:
        cached = await self._understood(text)
        self._check(cached)
        await self._run_simple(cached)

    async def _run_texts(self, text: bytes) -> None:
        if len(text) <= QUICK_TEXT:
            pieces = split(decode_string(text))
        else:
            pieces = await asyncio.to_thread(lambda: split(decode_string(text)))
        if not pieces:
            self.pg.empty_query()
        for at, piece in enumerate(pieces):
            cached = await self._understood(piece.encode())
            self._check(cached)
            await self._run_one(cached)
            if at % YIELD_EVERY == YIELD_EVERY - 1:  # others want to be answered too
                await self._sent()
        self._end_simple()

    async def _run_simple(self, cached: Cached) -> None:
        await self._run_one(cached)
        self._end_simple()

    async def _run_one(self, cached: Cached) -> None:
        outcome = self._try_at_once(cached)
        if outcome is None:
            plan = cached.prepared.plan
            if isinstance(plan, plans.CopyPlan):
                await self._start_copy(cached, plan)
                return
            outcome = await self._run(cached, ())
        if outcome.rows is None or len(outcome.rows) <= AT_ONCE_ROWS:
            self._send_simple(cached, outcome)
            return
        for notice in outcome.notices:
            self.pg.notice(notice)
        shape = cached.signature.shape((), ())
        self.pg.raw(shape.description)
        await self.send_rows(outcome.rows, shape.encode_row, cached.convert)
        self.pg.command_complete(outcome.tag)

    def _send_simple(self, cached: Cached, outcome: Outcome) -> None:
        for notice in outcome.notices:
            self.pg.notice(notice)
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self.pg.command_complete(outcome.tag)
            else:
                self.pg.empty_query()
            return
        shape = cached.signature.shape((), ())
        self.pg.raw(shape.description)
        if cached.convert is not None:
            rows = cached.convert(rows)
        if rows:
            self.pg.raw(b"".join(map(shape.encode_row, rows)))
        self.pg.command_complete(outcome.tag)

    def _end_simple(self) -> None:
        if self._simple:
            self._simple = False
            self.pg.ready(self.status)


Session.handlers = {
    Bind: Session._on_bind,
    Execute: Session._on_execute,
    Describe: Session._on_describe,
    Sync: Session._on_sync,
    Parse: Session._on_parse,
    Query: Session._on_query,
    Close: Session._on_close,
    Flush: Session._on_flush,
    Terminate: Session._on_terminate,
    BadMessage: Session._on_bad,
    StartupReceived: Session._on_startup,
    SaslInitial: Session._on_sasl_initial,
    SaslResponse: Session._on_sasl_response,
    CancelReceived: Session._on_cancel,
    NeedTls: Session._on_tls,
}
