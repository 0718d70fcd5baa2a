"""DML on global tables: planned at the applied position, proposed as one entry, tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from cairn.model import ops
from cairn.model.errors import CasRetry, NotLeader, TimedOut
from cairn.model.ranges import Predicate
from cairn.node.protected import check_writable
from cairn.node.reading import Params, Reads
from cairn.sql import plans

ROWS_OF_ENTRY = 200  # of a COPY
Planned = tuple[Predicate, plans.GlobalChange]


class GlobalWrites(Reads):
    """What the coordinator does with rows that every instance has."""

    async def write_global(
        self,
        plan: plans.GlobalWrite,
        params: Params,
        user: int,
        timeout_s: float,
        *,
        extra_ops: Callable[[], Iterable[ops.Dml]] = tuple,
        **options: Any,
    ) -> int:
        """Plan, propose, and plan again if somebody was quicker.

        `extra_ops` go into the same entry; asked anew at each position, they may refuse it.
        """

        async def planned() -> Planned:
            rows = None
            if plan.read is not None:
                rows = await self.read(plan.read, params, options.get("tables", {}))
            predicate = self.instance.proposer.predicate(())
            extra = tuple(extra_ops())
            read_local = self.execution.reader.unhurried
            if rows is not None and plan.execute_rows is not None:
                change = plan.execute_rows(read_local, params, rows)
            else:
                change = plan.execute(read_local, params)
            check_writable(plan.table, change.ops, is_upgrade=bool(options.get("is_upgrade")))
            whole = plans.GlobalChange((*change.ops, *extra), change.ranges, change.row_count)
            return predicate, whole

        return await self._propose(planned, user, timeout_s)

    async def insert_global(
        self, plan: plans.GlobalWrite, rows: list[Params], user: int, timeout_s: float
    ) -> int:
        """Many rows of one table, some hundred to an entry of the Raft log."""

        async def planned() -> Planned:
            predicate = self.instance.proposer.predicate(())
            read_local = self.execution.reader.unhurried
            found = [plan.execute(read_local, values) for values in part]
            change = plans.GlobalChange(
                tuple(op for one in found for op in one.ops),
                tuple(key for one in found for key in one.ranges),
                sum(one.row_count for one in found),
            )
            check_writable(plan.table, change.ops)
            return predicate, change

        count = 0
        for start in range(0, len(rows), ROWS_OF_ENTRY):
            part = rows[start : start + ROWS_OF_ENTRY]
            count += await self._propose(planned, user, timeout_s)
        return count

    async def _propose(
        self, planned: Callable[[], Awaitable[Planned]], user: int, timeout_s: float
    ) -> int:
        instance = self.instance
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            predicate, change = await planned()
            if not change.ops:
                return change.row_count
            predicate = msgspec.structs.replace(predicate, ranges=change.ranges)
            left_s = max(deadline - loop.time(), 0.01)
            try:
                await instance.proposer.cas(
                    ops.Batch(change.ops), predicate, timeout_s=left_s, user=user
                )
                return change.row_count
            except (CasRetry, NotLeader):
                if loop.time() >= deadline:
                    raise TimedOut(
                        "the change met others again and again until its time was up"
                    ) from None
            await asyncio.sleep(instance.runtime.chance.uniform(0.002, 0.02))
