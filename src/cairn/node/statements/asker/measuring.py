"""Noting what was asked of an instance, for EXPLAIN ANALYZE only."""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from cairn.model.measured import Work
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.node.statements.asker.streams import Part
from cairn.node.statements.context import Context
from cairn.storage.files.pieces import Encoded, Packed, Rows

T = TypeVar("T")


def size_of(rows: Any) -> int:
    """As it travels between instances."""
    if isinstance(rows, Encoded):
        return len(rows.data)
    if isinstance(rows, Packed):
        return rows.size
    return len(msgspec.msgpack.encode(rows))


async def opened(
    work: Work, asking: Awaitable[tuple[Rows, Part | None]]
) -> tuple[Rows, Part | None]:
    """The first rows of an instance; the pieces after them are noted as they are taken."""
    rows, part = await _timed(work, asking)
    work.came(len(rows), 0 if work.is_here else size_of(rows))
    return rows, None if part is None else MeasuredPart(part, work)


async def written(
    work: Work, request: WriteRequest, asking: Awaitable[WriteResponse]
) -> WriteResponse:
    """The trial round of a write over several replicasets changes nothing, and counts no rows."""
    answer = await _timed(work, asking)
    size = 0 if work.is_here else size_of(request) + size_of(answer)
    work.came(0 if request.check_only else answer.row_count, size)
    return answer


async def _timed(work: Work, asking: Awaitable[T]) -> T:
    begun = perf_counter()
    try:
        return await asking
    finally:
        work.waited(perf_counter() - begun)


class MeasuredPart:
    def __init__(self, part: Part, work: Work) -> None:
        self._part, self._work = part, work

    @property
    def is_over(self) -> bool:
        return self._part.is_over

    async def take(self, context: Context) -> Rows:
        rows = await _timed(self._work, self._part.take(context))
        self._work.came(len(rows), 0 if self._work.is_here else size_of(rows))
        return rows

    def close(self) -> None:
        self._part.close()
