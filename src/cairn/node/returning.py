"""Writes that bring their rows back.

The owner's statement ends in RETURNING, so the rows told are those that the same statement changed,
inside the same transaction; a write that is taken back tells nothing. A statement that reached
only some of its replicasets is an error (PC006) like any other write, and has no rows.
"""

from __future__ import annotations

import msgspec

from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.node.dispatch import Dispatcher
from cairn.node.reading import How, Params
from cairn.sql import plans
from cairn.storage.readers import Row


class Returner(Dispatcher):
    """One statement's own coordinator: the same walks, and the rows that come back on them."""

    def __init__(self, base: Dispatcher, plan: plans.Returning, params: Params) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._plan = base, plan
        self._clause = plan.clause(params)
        self._rows: list[Row] = []
        self._inserted: list[tuple[int, plans.Row]] = []

    async def run(self, params: Params, tables: dict[int, int], how: How) -> list[Row]:
        base, local, forwarded = self._base, self.local, self.forwarded
        try:
            await self.write(self._plan.write, params, tables=tables, how=how)
        finally:
            base.local += self.local - local
            base.forwarded += self.forwarded - forwarded
        return self._plan.arranged(self._rows, self._inserted)

    async def _insert(
        self,
        plan: plans.ShardedInsert | plans.InsertSelect,
        rows: list[tuple[int, plans.Row]],
        operation: str | None,
    ) -> int:
        self._inserted = rows
        return await super()._insert(plan, rows, operation)

    async def _write_at(self, replicaset: str, request: WriteRequest) -> WriteResponse:
        if request.check_only:  # the first round of rule 15 tells nothing yet
            return await super()._write_at(replicaset, request)
        statements = (request.sql, *(sql for sql, _ in request.more))
        told = tuple(at for at, sql in enumerate(statements) if self._plan.is_told(sql))
        asked = msgspec.structs.replace(request, returning=self._clause, told=told)
        answer = await super()._write_at(replicaset, asked)
        self._rows += answer.rows
        return answer
