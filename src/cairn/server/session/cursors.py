"""What SQL itself keeps in the book of the protocol: cursors, which are portals, and statements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from cairn.model.errors import SyntaxProblem
from cairn.model.tables.catalog import Catalog
from cairn.node.statements.asker.streams import Stream
from cairn.node.statements.at_once import Outcome
from cairn.node.statements.context import Context
from cairn.pgwire.server.extended import Portal, Statement, StatementBook
from cairn.server.face import PgFace
from cairn.server.session.blocks import Block
from cairn.server.statements import Cached
from cairn.sql.plans import CursorPlan, NamedPlan
from cairn.sql.typing_rules import POSTGRES_NAMES
from cairn.storage.files.pieces import Rows, plain

Run = Callable[[Cached, Sequence[Any]], Awaitable[Outcome]]
Following = Callable[[Stream], Awaitable[Rows | None]]


class Cursors:
    def __init__(self, book: StatementBook[Cached], block: Block) -> None:
        self._book, self._block = book, block

    def shaped(self, cached: Cached) -> Cached:
        """FETCH gives the columns of its cursor, which is another one in each session; so does
        EXECUTE those of its statement."""
        plan = cached.prepared.plan
        if type(plan) is NamedPlan and plan.action == "execute":
            inner = self._book.statement(plan.name.encode()).plan.prepared
            return cached.of(replace(cached.prepared, columns=inner.columns, tag=inner.tag))
        if type(plan) is not CursorPlan or plan.action != "fetch":
            return cached
        columns = self._portal(plan).statement.plan.prepared.columns
        if columns == cached.prepared.columns:
            return cached
        return cached.of(replace(cached.prepared, columns=columns))

    def _portal(self, plan: CursorPlan) -> Portal[Cached]:
        return self._book.cursor((plan.name or "").encode())

    async def run(
        self,
        cached: Cached,
        plan: CursorPlan,
        params: Sequence[Any],
        run: Run,
        following: Following,
    ) -> Outcome:
        prepared = cached.prepared
        if plan.action == "declare":
            await self._declare(cached, plan, params, run)
        elif plan.action == "close":
            self._close(plan)
        else:
            portal = self._portal(plan)
            asked = _Asked(self._book, portal, plan.count)
            if plan.action == "fetch":
                first = await following(asked)
                return Outcome(plain(first or []), 0, prepared.complete(0), more=asked)
            count = 0
            while rows := await following(asked):
                count += len(rows)
            return Outcome(None, count, prepared.complete(count))
        return Outcome(None, 0, prepared.complete(0))

    async def _declare(
        self, cached: Cached, plan: CursorPlan, params: Sequence[Any], run: Run
    ) -> None:
        """The query begins now: its rows are those of this moment, whenever they are fetched."""
        assert plan.query is not None and plan.name is not None
        if not plan.is_held:
            self._block.check_open("DECLARE CURSOR")
        name = plan.name.encode()
        self._book.check_portal(name)
        query = cached.of(plan.query)
        outcome = await run(query, params)
        portal = Portal(
            name,
            Statement(b"", query, query.signature),
            list(params),
            query.signature.shape((), (1,) if plan.is_binary else ()),
            rows=outcome.rows or [],
            is_raw=True,
            is_run=True,
            more=outcome.more,
            is_held=plan.is_held,
            plan_bytes=query.size,
        )
        try:
            self._book.keep(portal)
        except BaseException:
            portal.close()
            raise

    def _close(self, plan: CursorPlan) -> None:
        if plan.name is None:
            self._book.close_portals()
        else:
            self._book.close("P", self._portal(plan).name)


class _Asked:
    """So many of the rows that a cursor still has, as a stream of their own."""

    def __init__(
        self, book: StatementBook[Cached], portal: Portal[Cached], count: int | None
    ) -> None:
        self._book, self._portal, self._left = book, portal, count

    async def next(self, context: Context) -> list[Any] | None:
        portal = self._portal
        if self._left == 0:
            return None
        if portal.sent >= len(portal.rows):
            if portal.more is None:
                return None
            try:
                rows = await portal.more.next(context)
            except BaseException:
                self._book.close("P", portal.name)  # rows are missing: it must not seem to end
                raise
            portal.rows, portal.sent = rows or [], 0
            if rows is None:
                portal.close()
                return None
        end = len(portal.rows) if self._left is None else portal.sent + self._left
        part = list(portal.rows[portal.sent : end])
        portal.sent += len(part)
        if self._left is not None:
            self._left -= len(part)
        return part

    def close(self) -> None:
        """The cursor stays, and has the rest."""


class Named:
    def __init__(
        self, face: PgFace, book: StatementBook[Cached], catalog: Callable[[], Catalog]
    ) -> None:
        self._face, self._book, self._catalog = face, book, catalog

    def keep(self, cached: Cached, plan: NamedPlan) -> None:
        assert plan.query is not None
        made = cached.of(plan.query, plan.oids)
        name, key = plan.name.encode(), (made.text, made.oids)
        self._book.parse(name, made, made.signature, made.size, key)

    async def executed(
        self,
        plan: NamedPlan,
        context: Context,
        understood: Callable[[bytes], Awaitable[Cached]],
        check: Callable[[Cached], None],
    ) -> tuple[Cached, list[Any]]:
        """The statement as it is planned now, and the values of its parameters."""
        statement = self._book.statement(plan.name.encode())
        if not statement.plan.is_fresh(self._catalog()):
            seen = statement.plan.seen
            work = self._face.statements.replanned(statement.plan, context.user_id, self._catalog)
            statement.plan = await context.watched(work)
            statement.plan.seen = seen
            statement.signature = statement.plan.signature
        types = statement.plan.prepared.param_types
        if len(plan.arguments) != len(types):
            raise SyntaxProblem(
                f'wrong number of parameters for prepared statement "{plan.name}"',
                detail=f"Expected {len(types)} parameters but got {len(plan.arguments)}.",
            )
        if not types:
            return statement.plan, []
        each = zip(plan.arguments, types, strict=True)
        texts = [f"({text})::{POSTGRES_NAMES[type_]}" for text, type_ in each]
        cached = await understood(f"SELECT {', '.join(texts)}".encode())
        check(cached)  # an argument may read tables
        outcome = await self._face.executor.run(cached, (), context)
        rows = outcome.rows or []
        [values] = rows if cached.convert is None else cached.convert(rows)
        return statement.plan, list(values)
