"""DML on global tables: planned at the applied position, proposed as one entry, tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import (
    CasRetry,
    CheckViolation,
    NotLeader,
    TableUnderDdl,
    TimedOut,
    UniqueViolation,
)
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate
from cairn.model.settings import limits
from cairn.model.tables.schema import Table
from cairn.model.tables.system_tables import PICO_GOVERNOR_QUEUE as _QUEUE
from cairn.node.consensus.leader import Leader
from cairn.node.consensus.proposals import Proposer, Verdict
from cairn.node.consensus.protected import check_writable, completed
from cairn.node.consensus.quorum import Patience, Voters
from cairn.node.statements.asker.owners import Params
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.changes.access import check_queued_rights, owned
from cairn.node.statements.context import Context
from cairn.node.statements.global_tables.parents import Parents
from cairn.sql import plans
from cairn.sql.render.constraints import translate
from cairn.sql.statements.passwords import with_password_hidden
from cairn.storage.data_db.shapes import TooLongHere
from cairn.storage.files.pieces import Row

DML_S = 30.0
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


class GlobalWrites:
    """Changes of rows that every instance has. `hide` makes of a password what may be kept."""

    def __init__(
        self,
        reads: Reads,
        leader: Leader,
        proposer: Proposer,
        voters: Voters,
        chance: random.Random,
        hide: Callable[[str], str],
        parents: Parents,
    ) -> None:
        self._parents = parents
        self._reads, self._leader, self._proposer, self._voters = reads, leader, proposer, voters
        self._chance, self._hide = chance, hide

    async def run(
        self, plan: plans.GlobalWrite, params: Params, tables: dict[int, int], context: Context
    ) -> plans.GlobalChange:
        """Plan, propose, and plan again if somebody was quicker.

        What ends a queued operation goes into the same entry; asked anew at each position.
        """
        queued = context.queued

        async def planned() -> Planned:
            rows = None
            if plan.read is not None:
                rows = await self._reads.read(plan.read, params, tables, context.within(plan.read))
            predicate = self._proposer.predicate(())
            extra = () if queued is None else queued.end()
            change = await self._change(plan, params, rows, context)
            check_writable(
                plan.table,
                change.ops,
                is_upgrade=queued is not None and queued.is_upgrade,
                is_unsafe=context.is_unsafe,
            )
            check_queued_rights(change.ops, self._reads.owners.state.catalog, context.user_id)
            found = self._hidden(completed(change.ops), context.user_id)
            return predicate, replace(change, ops=(*found, *extra))

        return await self._propose(plan.table, planned, context)

    async def _change(
        self, plan: plans.GlobalWrite, params: Params, rows: list[Row] | None, context: Context
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
            return work(self._reads.owners.execution.reader.briefly)
        except TooLongHere:
            return await self._reads.owners.execution.reads.on_thread(
                work, context.cancelled, context.user_id
            )

    def _hidden(self, changes: tuple[ops.Dml, ...], user: int) -> tuple[ops.Dml, ...]:
        """A queued operation has an owner, and a queued CREATE USER keeps the verifier: no table
        has a password in clear."""
        if not any(change.table == _QUEUE.id for change in changes):
            return changes
        at = _QUEUE.position("op")

        def text(value: Any) -> Any:
            return with_password_hidden(value, self._hide) if isinstance(value, str) else value

        found: list[ops.Dml] = []
        for each in changes:
            change = owned(each, user)
            if isinstance(change, ops.Insert | ops.Replace) and change.table == _QUEUE.id:
                row = (*change.row[:at], text(change.row[at]), *change.row[at + 1 :])
                change = msgspec.structs.replace(change, row=row)
            elif isinstance(change, ops.Update) and change.table == _QUEUE.id:
                sets = tuple((n, text(value) if n == at else value) for n, value in change.changes)
                change = msgspec.structs.replace(change, changes=sets)
            found.append(change)
        return tuple(found)

    async def insert(self, plan: plans.GlobalWrite, rows: list[Params], context: Context) -> int:
        """Many rows of one table, as many to an entry of the Raft log as fit well."""

        async def planned(part: list[Params]) -> Planned:
            predicate = self._proposer.predicate(())
            found = [await self._change(plan, values, None, context) for values in part]
            change = plans.GlobalChange(
                tuple(op for one in found for op in one.ops),
                tuple(key for one in found for key in one.ranges),
                sum(one.row_count for one in found),
            )
            check_writable(plan.table, change.ops)
            check_queued_rights(change.ops, self._reads.owners.state.catalog, context.user_id)
            return predicate, replace(change, ops=self._hidden(change.ops, context.user_id))

        count = 0
        for part in _parts(rows):
            done = await self._propose(plan.table, partial(planned, part), context)
            count += done.row_count
        return count

    async def _propose(
        self, table: Table, planned: Callable[[], Awaitable[Planned]], context: Context
    ) -> plans.GlobalChange:
        owners = self._reads.owners
        loop = asyncio.get_running_loop()
        deadline = loop.time() + context.left_s(DML_S)
        patience = Patience(self._voters)
        is_sure = False  # that what was acknowledged elsewhere before is known here
        while True:
            try:
                if not table.is_system:
                    owners.check_operable(table, is_begun=context.is_under_way)
                predicate, change = await planned()
            except TableUnderDdl:
                context.check()
                context.check_wanted()
                if loop.time() >= deadline:
                    raise
                await owners.moved()
                continue
            except CasRetry:  # owners have told what is older or newer than what is here
                context.check()
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(self._chance.uniform(0.002, 0.02))
                continue
            except UniqueViolation:
                if is_sure:
                    raise
                change = None
            if change is None or not change.ops:
                # The compare-and-swap cannot find a verdict stale that proposes nothing.
                if change is not None and is_sure:
                    return change
                await self._leader.catch_up(max(deadline - loop.time(), 0.01))
                is_sure = True
                continue
            predicate = msgspec.structs.replace(predicate, ranges=change.ranges)
            try:
                await self._take(change, predicate, context, deadline)
                return change
            except TableUnderDdl:  # a foreign key came, or somebody else takes the same rows away
                context.check()
                if loop.time() >= deadline:
                    raise
            except CheckViolation as problem:
                raise (
                    translate(problem.message, self._reads.owners.state.catalog) or problem
                ) from None
            except (CasRetry, NotLeader):
                if loop.time() >= deadline or patience.is_over():
                    context.check()
                    raise self._voters.no_quorum() or TimedOut(
                        "the change met others again and again until its time was up"
                    ) from None
            await asyncio.sleep(self._chance.uniform(0.002, 0.02))

    async def _take(
        self, change: plans.GlobalChange, seen: Predicate, context: Context, deadline: float
    ) -> None:
        """Into the log, and applied here."""
        loop = asyncio.get_running_loop()

        def cas(changes: tuple[ops.Dml, ...], predicate: Predicate) -> Awaitable[Verdict]:
            return self._proposer.cas(
                ops.Batch(changes),
                predicate,
                timeout_s=max(deadline - loop.time(), 0.01),
                user=context.user_id,
                is_unsafe=context.is_unsafe,
            )

        named = self._parents.lost(change.ops)
        if named:
            await self._parents.propose(named, change, seen, context, cas)
        else:
            await cas(change.ops, seen)
