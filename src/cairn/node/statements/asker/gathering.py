"""Rows of one fragment from all that own some of them; who moved is asked again, and only they."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from cairn.model.rpc import ReadRequest, RowShape
from cairn.model.sharding.spans import Ranges
from cairn.node.statements.asker.asking import Asking
from cairn.node.statements.asker.meetings import Sending
from cairn.node.statements.asker.owners import MOVING, REPLAN_S, Owners, Params
from cairn.node.statements.asker.streams import Gathered, Part, Stream, piece_bytes
from cairn.node.statements.context import Context
from cairn.sql import plans
from cairn.storage.files.pieces import Encoded, Row, Rows, too_many

Answer = tuple[list[Row], Stream | None]  # some rows, and where the rest comes from


class Gathering:
    def __init__(self, owners: Owners, asking: Asking) -> None:
        self._owners, self._asking = owners, asking

    async def gather(
        self,
        fragment: plans.Fragment,
        params: Params,
        tables: dict[int, int],
        context: Context,
        shape: RowShape | None = None,
        *,
        sending: Sending | None = None,
        first: int = 0,
    ) -> Answer:
        """The rows of one fragment. With a shape, whole pieces may come as the client's.

        `first` bytes are asked of each owner at first; 0: a piece.
        """
        context = context.within(fragment)
        if context.stage is not None:
            context.stage.sends = len(fragment.sent)
        args = fragment.bind(params)
        asked = {table: tables[table] for table in fragment.tables if table in tables}
        rows: list[Row] = []
        parts: list[Part] = []
        encoded: list[Rows] = []
        count = 0
        left: Ranges | None = None
        deadline = asyncio.get_running_loop().time() + REPLAN_S
        try:
            while True:
                targets = self._owners.targets(fragment, params, left)
                if sending is not None:
                    targets = sending.narrowed(targets)
                later = piece_bytes(len(targets))
                piece = min(first or later, later)
                calls = [
                    self._asking.open_at(
                        replicaset,
                        ReadRequest(
                            fragment.with_ranges(list(ranges)),
                            args if sending is None else (*args, *sending.args(ranges)),
                            asked,
                            ranges=ranges,
                            preference=context.preference,
                            row_max=context.row_max,
                            opcode_max=context.opcode_max,
                            is_local=context.is_local,
                            piece_bytes=piece,
                            user=context.user_id,
                            shape=shape,
                            later_bytes=later if piece < later else 0,
                        ),
                        context,
                    )
                    for replicaset, ranges in targets.items()
                ]
                if len(calls) == 1 and left is None:
                    answers: list[Any] = [await calls[0]]
                else:
                    answers = await _all_told(calls)
                left = ()
                problem: BaseException | None = None
                for ranges, answer in zip(targets.values(), answers, strict=True):
                    if isinstance(answer, MOVING) and asyncio.get_running_loop().time() < deadline:
                        left += ranges  # only these, of whoever owns them now: others were read
                    elif isinstance(answer, BaseException):
                        problem = problem or answer
                    else:
                        count += len(answer[0])
                        if isinstance(answer[0], Encoded):
                            encoded.append(answer[0])
                        else:
                            rows = rows + answer[0] if rows else answer[0]
                        parts += [answer[1]] if answer[1] is not None else []
                if problem is not None:
                    raise problem
                if context.row_max and count > context.row_max:
                    raise too_many(context.row_max)
                if not left:
                    break
                await self._owners.moved()
        except BaseException:
            for part in parts:
                part.close()
            raise
        if not parts and not encoded:
            return rows, None
        return rows, Gathered(parts, context.row_max, count, encoded)


async def _all_told(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The answers and errors of all. Who stops waiting ends those that are told already, too."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    except BaseException:
        for task in tasks:
            if not task.cancel() and not task.cancelled() and task.exception() is None:
                part = task.result()[1]
                if part is not None:
                    part.close()
        raise
