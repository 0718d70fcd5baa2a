"""Who asks for something that is no plain statement: a CALL, or the rows of a COPY.

It has what such work may know of a session, and nothing else of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.node.instance import Instance
from cairn.node.statements.context import Context
from cairn.node.statements.executor import Executor
from cairn.node.statements.owner.execution import Execution
from cairn.server.face import PgFace
from cairn.server.statements import Cached


@dataclass(frozen=True)
class Caller:
    face: PgFace
    context: Context

    @property
    def instance(self) -> Instance:
        return self.face.instance

    @property
    def executor(self) -> Executor:
        return self.face.executor

    @property
    def execution(self) -> Execution:
        return self.face.execution

    @property
    def catalog(self) -> Catalog:
        return self.context.catalog(self.face.catalog)

    def understood(self, text: str) -> Cached:
        """A statement of our own making, planned for this user; its rights are not checked."""
        statements = self.face.statements
        return statements.get(text.encode(), (), self.context.user_id, self.catalog)

    def allowed(self, text: str) -> Cached:
        """The same, if the user may run it."""
        found = self.understood(text)
        found.check_rights(self.context.user_id, self.catalog)
        return found

    async def rows(self, query: Cached) -> Sequence[tuple[Any, ...]]:
        """All rows of it, from the masters."""
        outcome = await self.executor.run(query, (), self.context.at_masters())
        return outcome.rows or ()
