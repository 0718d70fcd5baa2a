"""Numbers for identity columns: taken from the cluster in blocks, given out here one by one.

A number is never given twice. Blocks that are not used up are lost with the process, so there are
gaps; and instances have blocks of their own, so numbers do not follow the order of time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

from cairn.model.errors import NumbersNeeded, OutOfRange
from cairn.model.log import ops
from cairn.model.log.ranges import KeyRange, one_key
from cairn.model.tables.system_tables import CAIRN_SEQUENCE
from cairn.model.types.values import INT64_MAX
from cairn.node.consensus.changing import propose_row
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer

FIRST, MOST = 1_000, 1 << 20
SOON_S = 1.0  # who asks again so soon needs more at a time


class Numbers:
    def __init__(self, state: GlobalState, proposer: Proposer) -> None:
        self._state, self._proposer = state, proposer
        self._guard = threading.Lock()  # statements are evaluated on threads
        self._blocks: dict[int, tuple[int, int]] = {}  # table → next, and the end of its block
        self._taking: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sizes: dict[int, tuple[int, float]] = {}

    def next(self, table: int, start: int) -> int:
        with self._guard:
            number, end = self._blocks.get(table, (0, 0))
            if number >= end:
                raise NumbersNeeded(table, start)
            self._blocks[table] = number + 1, end
            return number

    async def more(self, need: NumbersNeeded) -> None:
        """Another block, larger if the last one did not last."""
        table = need.table
        async with self._taking[table]:
            with self._guard:
                number, end = self._blocks.get(table, (0, 0))
                if number < end:
                    return  # somebody else has brought some meanwhile
            now = asyncio.get_running_loop().time()
            size, when = self._sizes.get(table, (FIRST // 2, now))
            size = min(2 * size, MOST) if now - when < SOON_S else FIRST
            first = await self._taken(table, need.start, size)
            self._sizes[table] = size, asyncio.get_running_loop().time()
            with self._guard:
                self._blocks[table] = first, first + size

    async def go_on(self, table: int, number: int, *, is_used: bool) -> None:
        """`setval`: the number that was given out last, or that is the next.

        Blocks that other instances have taken are theirs.
        """
        if number < 1:
            raise OutOfRange(f"setval: value {number} is out of bounds: numbers begin with 1")
        row = (table, min(number + is_used, INT64_MAX))  # behind the last one there is none

        def change() -> tuple[ops.Dml, KeyRange]:
            return ops.Replace(CAIRN_SEQUENCE.id, row), one_key(CAIRN_SEQUENCE.id, (table,))

        async with self._taking[table]:
            await propose_row(self._proposer, change)
            with self._guard:
                self._blocks.pop(table, None)

    async def _taken(self, table: int, start: int, size: int) -> int:
        first = start

        def change() -> tuple[ops.Dml, KeyRange]:
            nonlocal first
            known = self._state.next_number(table)
            first = start if known is None else known
            if first > INT64_MAX - size:
                raise OutOfRange("the numbers of this identity column are used up for good")
            row = (table, first + size)
            return ops.Replace(CAIRN_SEQUENCE.id, row), one_key(CAIRN_SEQUENCE.id, (table,))

        await propose_row(self._proposer, change)
        return first
