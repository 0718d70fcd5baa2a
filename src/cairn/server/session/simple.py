"""The simple protocol: texts of one or more statements."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from cairn.model.errors import CairnError
from cairn.node.statements.at_once import AT_ONCE_ROWS, Outcome
from cairn.node.statements.executor import REPLANS
from cairn.pgwire.server.requests import Query
from cairn.pgwire.values.decoders import decode_string
from cairn.server.session.copy.copying import copy_rows
from cairn.server.statements import QUICK_TEXT, Cached, ResultChanged
from cairn.sql import plans
from cairn.sql.parse.lexer import split

if TYPE_CHECKING:
    from cairn.server.session.session import Session

YIELD_EVERY = 10  # statements of one text


class Simple:
    __slots__ = ("_pg", "_session")

    def __init__(self, session: Session) -> None:
        self._session, self._pg = session, session.pg

    def query(self, request: Query) -> Coroutine[Any, Any, None] | None:
        session = self._session
        session.is_simple = True
        session.book.begin_simple_query()
        text = session.running.text(request.sql)
        if b";" in text[:-1]:
            return self._run_texts(text)
        found = self._known(text)
        if found is None:
            return self._run_long(text)
        cached, values = found
        session.running.check(cached, text)
        outcome = self._try_at_once(cached, values)
        if outcome is not None:
            self._finish(cached, outcome)
            return None
        if session.run_by_callback(
            cached,
            values,
            lambda outcome: self._finish(cached, outcome),
            lambda: self._run_simple(cached, values),
        ):
            return None
        return self._run_simple(cached, values)

    def _known(self, text: bytes) -> tuple[Cached, Sequence[Any]] | None:
        """The statement and its values, if it is known or soon understood."""
        face, user = self._session.face, self._session.user_id
        statements, catalog = face.statements, self._session.running.catalog
        cached = statements.known(text, (), user, catalog)
        if cached is None:
            found = statements.by_values(text, user, catalog)
            if found is not None:
                return found
            cached = statements.soon_made(text, (), user, catalog)
        return None if cached is None else (cached, ())

    def _try_at_once(self, cached: Cached, values: Sequence[Any]) -> Outcome | None:
        if cached.prepared.param_types and not values:
            place = cached.text.decode(errors="replace").find("$") + 1
            raise CairnError("there is no parameter $1", sqlstate="42P02", position=place or None)
        return self._session.running.now(cached, values)

    async def _run_long(self, text: bytes) -> None:
        cached = await self._session.running.understood(text)
        self._session.running.check(cached)
        await self._run_simple(cached, ())

    async def _run_texts(self, text: bytes) -> None:
        if len(text) <= QUICK_TEXT:
            pieces = split(decode_string(text))
        else:
            pieces = await asyncio.to_thread(lambda: split(decode_string(text)))
        if not pieces:
            self._pg.empty_query()
        for at, piece in enumerate(pieces):
            if at:
                self._session.running.start_clock()
                await self._session.running.locks.make_sure()
            one = piece.encode()
            cached, values = self._known(one) or (await self._session.running.understood(one), ())
            self._session.running.check(cached, one)
            await self._run_one(cached, values)
            if at % YIELD_EVERY == YIELD_EVERY - 1:  # others want to be answered too
                await self._session.sending.sent()
        await self._end_locks()
        self._end_simple()

    async def _run_simple(self, cached: Cached, values: Sequence[Any]) -> None:
        await self._run_one(cached, values)
        await self._end_locks()
        self._end_simple()

    async def _end_locks(self) -> None:
        """Of a transaction that was not begun by BEGIN: the text is all of it."""
        running = self._session.running
        if running.locks.has_ended():
            await running.locks.end(None, running.context())

    async def _run_one(self, cached: Cached, values: Sequence[Any]) -> None:
        """Nobody was told of its columns yet: if they change meanwhile, it tells the new ones."""
        running, face = self._session.running, self._session.face
        for left in range(REPLANS, -1, -1):
            try:
                await self._run_planned(cached, values)
                return
            except ResultChanged:
                if not left:
                    raise
            user = self._session.user_id
            cached = await face.statements.fresh(cached, user, lambda: face.catalog)
            running.check(cached)

    async def _run_planned(self, cached: Cached, values: Sequence[Any]) -> None:
        cached = self._session.running.cursors.shaped(cached)
        shape = cached.signature.shape((), ())
        outcome = self._try_at_once(cached, values)
        if outcome is None:
            plan = cached.prepared.plan
            if isinstance(plan, plans.CopyPlan):
                await copy_rows(self._session, cached)
                return
            outcome = await self._session.running.run(cached, values, shape.result_formats)
        is_short = outcome.rows is None or len(outcome.rows) <= AT_ONCE_ROWS
        if is_short and outcome.more is None:
            self._send_simple(cached, outcome)
            return
        for notice in outcome.notices:
            self._pg.notice(notice)
        self._pg.raw(shape.description)
        count = await self._session.sending.send_answer(outcome, cached, shape.encode_row)
        self._pg.command_complete(cached.prepared.complete(count))
        self._session.running.finished(count)

    def _finish(self, cached: Cached, outcome: Outcome) -> None:
        self._send_simple(cached, outcome)
        self._end_simple()

    def _send_simple(self, cached: Cached, outcome: Outcome) -> None:
        self._tell(cached, outcome)
        self._session.running.finished(outcome.count)

    def _tell(self, cached: Cached, outcome: Outcome) -> None:
        for notice in outcome.notices:
            self._pg.notice(notice)
        rows = outcome.rows
        if rows is None:
            if outcome.tag:
                self._pg.command_complete(outcome.tag)
            else:
                self._pg.empty_query()
            return
        shape = cached.signature.shape((), ())
        self._pg.raw(shape.description)
        if cached.convert is not None:
            rows = cached.convert(rows)
        if rows:
            data = b"".join(map(shape.encode_row, rows))
            self._pg.raw(data)
            self._session.running.told_bytes = len(data)
        self._pg.command_complete(outcome.tag)

    def _end_simple(self) -> None:
        session = self._session
        if session.is_simple:
            session.is_simple = False
            self._pg.ready(session.block.status)
