"""DML on global tables: planned at the applied position, proposed as one entry, tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from cairn.model import limits, ops
from cairn.model.errors import CasRetry, NotLeader, QueryCanceled, TimedOut
from cairn.model.ranges import Predicate
from cairn.model.system_tables import PICO_GOVERNOR_QUEUE as _QUEUE
from cairn.node.protected import check_writable, completed
from cairn.node.queue_rights import check_queued_rights
from cairn.node.quorum import Patience
from cairn.node.reading import Params, Reads
from cairn.sql import plans
from cairn.sql.passwords import with_password_hidden
from cairn.storage.readers import Row, TooLongHere

ROWS_OF_ENTRY = 200  # of a COPY
Planned = tuple[Predicate, plans.GlobalChange]


def _parts(rows: list[Params]) -> Iterator[list[Params]]:
    """Cut by number and by size: an entry that is too long is refused as a whole."""
    part: list[Params] = []
    size = 0
    for row in rows:
        part.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(part) >= ROWS_OF_ENTRY or size >= limits.COPY_ENTRY_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


class GlobalWrites(Reads):
    """What the coordinator does with rows that every instance has."""

    #: A password to what may be kept of it; set by whoever can make that.
    hide_password: Callable[[str], str] | None = None

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
        """Rows changed; see `change_global`."""
        change = await self.change_global(
            plan, params, user, timeout_s, extra_ops=extra_ops, **options
        )
        return change.row_count

    async def change_global(
        self,
        plan: plans.GlobalWrite,
        params: Params,
        user: int,
        timeout_s: float,
        *,
        extra_ops: Callable[[], Iterable[ops.Dml]] = tuple,
        **options: Any,
    ) -> plans.GlobalChange:
        """Plan, propose, and plan again if somebody was quicker.

        `extra_ops` go into the same entry; asked anew at each position, they may refuse it.
        """

        async def planned() -> Planned:
            rows = None
            if plan.read is not None:
                rows = await self._find(plan.read, params, options)
            predicate = self.instance.proposer.predicate(())
            extra = tuple(extra_ops())
            change = await self._change(plan, params, rows, options.get("how"))
            check_writable(
                plan.table,
                change.ops,
                is_upgrade=bool(options.get("is_upgrade")),
                is_unsafe=bool(options.get("is_unsafe")),
            )
            check_queued_rights(change.ops, self.instance.state.catalog, user)
            return predicate, replace(change, ops=(*self._hidden(completed(change.ops)), *extra))

        is_unsafe = bool(options.get("is_unsafe"))
        return await self._propose(planned, user, timeout_s, is_unsafe=is_unsafe)

    async def _change(
        self, plan: plans.GlobalWrite, params: Params, rows: list[Row] | None, how: Any
    ) -> plans.GlobalChange:
        """What the write changes. A long look at the tables is taken on a thread.

        The position was taken before: whatever changes these rows until the proposal is met by the
        compare-and-swap, so it does no harm when the thread sees a little more.
        """

        def work(read: Callable[[str, Params], list[Row]]) -> plans.GlobalChange:
            if rows is not None and plan.execute_rows is not None:
                return plan.execute_rows(read, params, rows)
            return plan.execute(read, params)

        try:
            return work(self.execution.reader.briefly)
        except TooLongHere:
            return await self.execution.on_thread(work, None if how is None else how.cancelled)

    async def _find(self, plan: plans.ReadPlan, params: Params, options: Any) -> list[Row]:
        """The rows that a write begins with; until they are there, `how` can end it."""
        tables, how = options.get("tables", {}), options.get("how")
        if how is None or how.watch is None:
            return await self.read(plan, params, tables, how)
        task = asyncio.get_running_loop().create_task(self.read(plan, params, tables, how))
        how.watch(task)
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise QueryCanceled("canceling statement due to user request") from None
        finally:
            how.watch(None)

    def _hidden(self, changes: tuple[ops.Dml, ...]) -> tuple[ops.Dml, ...]:
        """A queued CREATE USER keeps the verifier: no table has a password in clear."""
        hide = self.hide_password
        if hide is None or not any(change.table == _QUEUE.id for change in changes):
            return changes
        at = _QUEUE.position("op")

        def text(value: Any) -> Any:
            return with_password_hidden(value, hide) if isinstance(value, str) else value

        found: list[ops.Dml] = []
        for change in changes:
            if isinstance(change, ops.Insert | ops.Replace) and change.table == _QUEUE.id:
                row = (*change.row[:at], text(change.row[at]), *change.row[at + 1 :])
                change = msgspec.structs.replace(change, row=row)
            elif isinstance(change, ops.Update) and change.table == _QUEUE.id:
                sets = tuple((n, text(value) if n == at else value) for n, value in change.changes)
                change = msgspec.structs.replace(change, changes=sets)
            found.append(change)
        return tuple(found)

    async def insert_global(
        self, plan: plans.GlobalWrite, rows: list[Params], user: int, timeout_s: float
    ) -> int:
        """Many rows of one table, as many to an entry of the Raft log as fit well."""

        async def planned(part: list[Params]) -> Planned:
            predicate = self.instance.proposer.predicate(())
            found = [await self._change(plan, values, None, None) for values in part]
            change = plans.GlobalChange(
                tuple(op for one in found for op in one.ops),
                tuple(key for one in found for key in one.ranges),
                sum(one.row_count for one in found),
            )
            check_writable(plan.table, change.ops)
            check_queued_rights(change.ops, self.instance.state.catalog, user)
            return predicate, replace(change, ops=self._hidden(change.ops))

        count = 0
        for part in _parts(rows):
            done = await self._propose(partial(planned, part), user, timeout_s)
            count += done.row_count
        return count

    async def _propose(
        self,
        planned: Callable[[], Awaitable[Planned]],
        user: int,
        timeout_s: float,
        *,
        is_unsafe: bool = False,
    ) -> plans.GlobalChange:
        instance = self.instance
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        patience = Patience(instance.voters)
        while True:
            predicate, change = await planned()
            if not change.ops:
                return change
            predicate = msgspec.structs.replace(predicate, ranges=change.ranges)
            left_s = max(deadline - loop.time(), 0.01)
            try:
                await instance.proposer.cas(
                    ops.Batch(change.ops),
                    predicate,
                    timeout_s=left_s,
                    user=user,
                    is_unsafe=is_unsafe,
                )
                return change
            except (CasRetry, NotLeader):
                if loop.time() >= deadline or patience.is_over():
                    raise instance.voters.no_quorum() or TimedOut(
                        "the change met others again and again until its time was up"
                    ) from None
            await asyncio.sleep(instance.runtime.chance.uniform(0.002, 0.02))
