"""Reads that may take only so many steps of SQLite's machine: `sql_vdbe_opcode_max`.

Only statements that have such a limit come here; they are counted on a thread, at every instance
that has rows for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from cairn.model.errors import LimitExceeded, QueryCanceled, Unreachable
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.node.execution import Execution
from cairn.node.reading import READ_S, How, Params, Reads
from cairn.sql import plans
from cairn.storage.readers import Cancelled, Row, too_many, translated

METHOD = "read_limited"
MERGE_STEP = 10_000  # the merger looks that often (`storage.readers.Merger`)
_STEP = 1_000  # steps between two looks, when that many are allowed


class LimitedRequest(ReadRequest, frozen=True):
    opcode_max: int = 0


class LimitedExecution(Execution):
    """This instance's own rows, read with a limit."""

    def __init__(self, execution: Execution, opcode_max: int = 0) -> None:
        self.__dict__.update(execution.__dict__)  # the same connections, threads and checks
        self._opcode_max = opcode_max

    async def read(self, request: ReadRequest, cancelled: Cancelled | None = None) -> list[Row]:
        assert isinstance(request, LimitedRequest)
        self.check_read(request)
        rows = await self.counted(request, cancelled or threading.Event())
        self.check_read(request)  # still ours, still with a lease: only now it is an answer
        replication = self._instance.replication
        if request.preference == "leader" and request.tables and replication.is_sync():
            await replication.wait_safe(self._instance.data.vclock.get(self._uuid, 0))
        return rows

    async def counted(self, request: LimitedRequest, cancelled: Cancelled) -> list[Row]:
        def work() -> list[Row]:
            return _counted_rows(self.thread_reader().connection, request, cancelled)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def merge(
        self,
        gathered: Sequence[tuple[int, Sequence[Row]]],
        sql: str,
        args: Sequence[Any],
        cancelled: Cancelled,
    ) -> list[Row]:
        """What the coordinator does with gathered rows counts like a part of its own."""
        flag = _CountingFlag(cancelled, self._opcode_max)
        try:
            return await super().merge(gathered, sql, args, flag)
        except QueryCanceled:
            if flag.is_over:
                raise _reached(self._opcode_max) from None
            raise

    async def handle(self, request: LimitedRequest) -> ReadResponse:
        flag = Cancelled()
        try:
            return ReadResponse(await self.read(request, flag), self.stale_s(request))
        except asyncio.CancelledError:
            flag.set()
            raise


def _reached(opcode_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"Reached a limit on max executed vdbe opcodes. Limit: {opcode_max}",
        hint="narrow the statement, or allow more: SET sql_vdbe_opcode_max (0: no limit)",
    )


class _CountingFlag(Cancelled):
    """Asked every `MERGE_STEP` steps of a merge whether to stop."""

    def __init__(self, cancelled: Cancelled, opcode_max: int) -> None:
        super().__init__()
        self._cancelled, self._left = cancelled, opcode_max

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def is_set(self) -> bool:
        self._left -= MERGE_STEP
        return self.is_over or self._cancelled.is_set()


def _counted_rows(
    connection: apsw.Connection, request: LimitedRequest, cancelled: Cancelled
) -> list[Row]:
    step = min(_STEP, request.opcode_max)
    count = 0

    def look() -> bool:
        nonlocal count
        count += step
        return count > request.opcode_max or cancelled.is_set()

    connection.set_progress_handler(look, step)
    try:
        rows: list[Row] = connection.execute(request.sql, request.args).fetchall()
    except apsw.InterruptError:
        if count <= request.opcode_max:
            raise QueryCanceled("canceling statement due to user request") from None
        raise _reached(request.opcode_max) from None
    except apsw.Error as problem:
        raise translated(problem) from None
    finally:
        connection.set_progress_handler(None)
    if request.row_max and len(rows) > request.row_max:
        raise too_many(request.row_max)
    return rows


class LimitedReads(Reads):
    """One statement's own coordinator: the same walks, with every part counted by itself."""

    def __init__(self, base: Reads, opcode_max: int) -> None:
        self.__dict__.update(base.__dict__)
        self._limit = opcode_max
        self.execution = self._owner = LimitedExecution(base.execution, opcode_max)

    def _limited(self, request: ReadRequest) -> LimitedRequest:
        fields: dict[str, Any] = {name: getattr(request, name) for name in _FIELDS}
        return LimitedRequest(**fields, opcode_max=self._limit)

    async def _point_read(
        self, plan: plans.PointRead, params: Params, tables: dict[int, int], how: How
    ) -> list[Row]:
        if plan.bucket is not None:
            return await super()._point_read(plan, params, tables, how)
        request = LimitedRequest(plan.sql, plan.bind(params), {}, opcode_max=self._limit)
        return await self._owner.counted(request, how.cancelled)

    async def _read_at(self, replicaset: str, request: ReadRequest, how: How) -> list[Row]:
        asked, instance = self._limited(request), self.instance
        target = self.routes.reader(replicaset, request.preference, instance.raft_id)
        if target == instance.raft_id:
            rows = await self._owner.read(asked, how.cancelled)
            how.came(self._owner.stale_s(asked))
            return rows
        try:
            answer = await instance.peers.call(
                target, METHOD, asked, ReadResponse, READ_S, must_end=True
            )
        except Unreachable as problem:  # a read may be asked again, of whoever follows
            raise self._no_answer(replicaset, target, problem) from None
        how.came(answer.stale_s)
        return answer.rows


_FIELDS: tuple[str, ...] = ReadRequest.__struct_fields__


def handler(execution: Execution) -> Callable[[LimitedRequest], Any]:
    """What this instance does when another asks it."""
    return LimitedExecution(execution).handle
