"""Writes that bring their rows back: what the owner does, and the coordinator's walk to it.

The owner's statement ends in RETURNING, so the rows told are those that the same statement changed,
inside the same transaction; a write that is taken back tells nothing. A statement that reached
only some of its replicasets is an error (PC006) like any other write, and has no rows.
"""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError, CasRetry, OutcomeUnknown, Unreachable
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.node.dispatch import WRITE_S, Dispatcher
from cairn.node.execution import Execution
from cairn.node.reading import Params
from cairn.sql import plans
from cairn.sql.constraints import translate
from cairn.storage.readers import Row
from cairn.storage.state_machine import constraint_error

METHOD = "write_returning"


class ReturningRequest(WriteRequest, frozen=True):
    """A write; the `told` ones of its statements (0: `sql`, then `more`) end in RETURNING."""

    clause: str = ""
    told: tuple[int, ...] = (0,)


class ReturningResponse(WriteResponse, frozen=True):
    rows: list[tuple[Any, ...]] = []


class ReturningExecution(Execution):
    """This instance's own rows once more, for requests whose rows are wanted back."""

    def __init__(self, execution: Execution) -> None:
        self.__dict__ = execution.__dict__  # the same connections, threads and checks

    def _write(self, request: WriteRequest, is_quick: bool, is_alone: bool) -> WriteResponse:
        assert isinstance(request, ReturningRequest)
        store = self._instance.data.store
        store.check_master()
        store.check_version(request.table, request.version)
        if request.ranges is not None:
            store.check_ranges(request.ranges)
        store.check_buckets(request.buckets)
        connection, rows = store.connection, list[Row]()

        def run() -> int:
            for at, (sql, bindings) in enumerate(((request.sql, request.rows), *request.more)):
                text = sql + request.clause if at in request.told else sql
                for each in bindings:
                    rows.extend(connection.execute(text, each).fetchall())
                if at == 0 and request.must_change not in (None, store.pending_changes()):
                    raise CasRetry("a row changed between reading and writing; try again")
            return store.count_rows()

        try:
            count, lsn = store.statement(run, alone=is_alone)
        except apsw.ConstraintError as problem:
            only = request.rows[0] if len(request.rows) == 1 and not request.more else None
            verdict = translate(str(problem), self._instance.state.catalog, only)
            raise verdict or constraint_error(problem) from None
        except apsw.Error as problem:
            raise CairnError(f"{type(problem).__name__}: {problem}") from None
        return ReturningResponse(count, lsn, rows)


class Returner(Dispatcher):
    """One statement's own coordinator: the same walks, and the rows that come back on them."""

    def __init__(self, base: Dispatcher, plan: plans.Returning, params: Params) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._plan = base, plan
        self._clause = plan.clause(params)
        self._owner = ReturningExecution(base.execution)
        self._rows: list[Row] = []
        self._inserted: list[tuple[int, plans.Row]] = []

    async def run(self, params: Params, tables: dict[int, int]) -> list[Row]:
        base, local, forwarded = self._base, self.local, self.forwarded
        try:
            await self.write(self._plan.write, params, tables=tables)
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
        asked = ReturningRequest(
            **msgspec.structs.asdict(request),
            clause=self._clause,
            told=tuple(at for at, sql in enumerate(statements) if self._plan.is_told(sql)),
        )
        answer = await self._ask(replicaset, asked)
        self._rows.extend(tuple(row) for row in answer.rows)
        return answer

    async def _ask(self, replicaset: str, request: ReturningRequest) -> ReturningResponse:
        target = self.routes.master(replicaset)
        if target == self.instance.raft_id:
            self.local += 1
            answer = await self._owner.write(request)
            assert isinstance(answer, ReturningResponse)
            return answer
        self.forwarded += 1
        try:
            return await self.instance.peers.call(
                target, METHOD, request, ReturningResponse, WRITE_S
            )
        except Unreachable as problem:
            if "cannot connect" in problem.message or "is not known" in problem.message:
                raise self._no_answer(replicaset, target, problem) from None
            raise OutcomeUnknown(
                f"the master of {replicaset} did not answer: {problem.message}",
                hint="look whether the rows are there before trying again",
            ) from None


def handler(execution: Execution) -> Any:
    """What this instance does when another asks it."""
    owner = ReturningExecution(execution)

    def handle(request: ReturningRequest) -> asyncio.Future[WriteResponse]:
        return owner.write(request)

    return handle
