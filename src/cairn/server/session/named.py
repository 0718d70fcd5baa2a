"""Statements that SQL prepares: they stand in the same book as those of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cairn.model.errors import SyntaxProblem
from cairn.model.tables.catalog import Catalog
from cairn.node.statements.context import Context
from cairn.pgwire.server.extended import StatementBook
from cairn.server.face import PgFace
from cairn.server.statements import Cached
from cairn.sql.plans import NamedPlan
from cairn.sql.typing_rules import POSTGRES_NAMES


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
