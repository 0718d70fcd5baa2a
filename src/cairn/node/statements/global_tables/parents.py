"""Rows of global tables that rows of sharded tables may name: how they are taken away.

They are closed by an entry of Raft. Every master says that it has seen that, and takes no more rows
that name them. Then the owners are asked whether some do, and the entry that takes the rows away
takes back the marks. In between a bucket may move and a master may change: whoever has a bucket
from then on has applied more than the mark, and a bucket without such rows gets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from cairn.model.errors import (
    CairnError,
    CasRetry,
    LimitExceeded,
    NotInPrerequisiteState,
    NotLeader,
    OutcomeUnknown,
    TableUnderDdl,
    UniqueViolation,
    Unreachable,
)
from cairn.model.log import ops
from cairn.model.log.ranges import Predicate
from cairn.model.quoting import identifier
from cairn.model.rpc import ClosingRequest, Empty
from cairn.model.tables.closing import MOST, Closed, closing, marks, opened
from cairn.model.tables.schema import ForeignKey, Table, physical_column
from cairn.model.tables.violations import still_named
from cairn.model.types.values import from_physical
from cairn.node.consensus.proposals import Proposer, Verdict
from cairn.node.runtime import spawn
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.context import Context
from cairn.sql import plans
from cairn.sql.api import prepare

SEEN_S = 3.0  # for one answer of a master
ASKED_AT_ONCE = 50  # rows in one question to the owners
OPENING_S = 600.0  # until a mark is left to the governor, which waits for the end of this instance
CHANGES = 5_000  # that are looked at, on the event loop
Key = tuple[int, str]
Values = dict[int, Any]  # by the places of their columns


class Parents:
    """`see_here` is what a master answers, on this instance."""

    def __init__(
        self,
        name: str,
        reads: Reads,
        proposer: Proposer,
        see_here: Callable[[ClosingRequest], Awaitable[Empty]],
    ) -> None:
        self._name, self._reads, self._proposer = name, reads, proposer
        self._see_here, self._owners = see_here, reads.owners

    # --- what goes --------------------------------------------------------------------------------

    def lost(self, changes: Sequence[ops.Dml]) -> list[Closed]:
        """Rows that others may name and that these changes take away, or give another key."""
        found: dict[Key, Closed] = {}
        catalog = self._owners.state.catalog
        for table_id in dict.fromkeys(change.table for change in changes):
            keys = {
                key.parent_columns
                for child, key in catalog.children_of(table_id)
                if key.is_global and not child.is_global
            }
            table = catalog.table_by_id(table_id)
            if keys and table is not None:
                own = [change for change in changes if change.table == table_id]
                found |= {each.key: each for each in self._lost_of(table, keys, own)}
        if len(found) > MOST:
            raise LimitExceeded(
                f"the statement takes away {len(found)} rows that others may name, and may at "
                f"most {MOST}",
                hint="take away fewer at a time",
            )
        return list(found.values())

    def _lost_of(
        self, table: Table, keys: set[tuple[int, ...]], changes: Sequence[ops.Dml]
    ) -> Iterator[Closed]:
        if len(changes) > CHANGES:
            raise LimitExceeded(
                f"the statement changes {len(changes)} rows that others may name, and may at most "
                f"{CHANGES}",
                hint="change fewer at a time",
            )
        places = sorted({at for columns in keys for at in columns})
        pairs = [self._values(table, places, change) for change in changes]
        for columns in keys:
            came = {_at(columns, new) for _, new in pairs if new is not None}
            gone = {_at(columns, old) for old, _ in pairs if old is not None}
            yield from (
                Closed(table.id, columns, values)
                for values in sorted(gone - came, key=repr)
                if None not in values
            )

    def _values(
        self, table: Table, places: Sequence[int], change: ops.Dml
    ) -> tuple[Values | None, Values | None]:
        """What others may name a row by, before and after, as this instance has it: who changes it
        meanwhile is met by the compare-and-swap."""
        row = None
        if isinstance(change, ops.Insert | ops.Replace):
            row = {at: change.row[at] for at in places}
        if isinstance(change, ops.Insert):
            return None, row
        key: Sequence[Any]
        if isinstance(change, ops.Replace):
            key = [change.row[at] for at in table.key_positions]
        else:
            key = change.key
        where = " AND ".join(f"{physical_column(at)} = ?" for at in table.key_positions)
        columns = ", ".join(map(physical_column, places))
        found = self._owners.execution.reader.briefly(
            f"SELECT {columns} FROM {table.physical_name} WHERE {where}", key
        )
        old = dict(zip(places, found[0], strict=True)) if found else None
        if isinstance(change, ops.Update) and old is not None:
            given = dict(change.changes)
            row = {at: given.get(at, value) for at, value in old.items()}
        return old, row

    # --- how it goes ------------------------------------------------------------------------------

    async def propose(
        self,
        rows: Sequence[Closed],
        change: plans.GlobalChange,
        seen: Predicate,
        context: Context,
        cas: Callable[[tuple[ops.Dml, ...], Predicate], Awaitable[Verdict]],
    ) -> None:
        """The change, once nobody names these rows any more or can begin to. `cas` proposes."""
        state = self._owners.state
        me = state.cluster.instances.get(self._name)
        if me is None:
            raise NotInPrerequisiteState("this instance has no place in the cluster")
        keys = tuple(each.key for each in rows)
        life = me.current_state.incarnation
        is_done = False
        try:
            try:
                closed = await cas(closing(rows, me.raft_id, life), seen)
            except UniqueViolation:
                raise TableUnderDdl("somebody else takes away the same rows") from None
            await self._all_see(rows, keys, closed.index, context)
            await self._check_unnamed(rows, context)
            # A foreign key that was made meanwhile is one that nobody has asked about.
            ranges = (*seen.ranges, *marks(keys), ops.SCHEMA_RANGE)
            since = Predicate(closed.index, closed.term, ranges)
            await cas((*change.ops, *opened(keys)), since)
            is_done = True
        finally:
            if not is_done:
                spawn(self._open(keys, me.raft_id, life), "rows that stay are opened again")

    async def _all_see(
        self, rows: Sequence[Closed], keys: tuple[Key, ...], index: int, context: Context
    ) -> None:
        tiers = {child.sharding.tier for child, _ in self._children(rows) if child.sharding}

        async def at(replicaset: str) -> None:
            async def attempt() -> None:
                target = self._owners.routes.master(replicaset)
                request = ClosingRequest(index, keys, SEEN_S)
                if target == self._owners.raft_id:
                    await self._see_here(request)
                    return
                try:
                    await self._owners.peers.call(target, "see_closing", request, Empty, SEEN_S)
                except Unreachable as problem:
                    raise self._owners.no_answer(replicaset, target, problem) from None

            await self._owners.following(attempt, context)

        routes = self._owners.routes
        names = {name for tier in tiers for name in routes.all_ranges(tier)}
        await asyncio.gather(*map(at, sorted(names)))

    def _children(self, rows: Sequence[Closed]) -> Iterator[tuple[Table, ForeignKey]]:
        """Of all instances, as of now: the marks are applied here."""
        catalog = self._owners.state.catalog
        for table_id in dict.fromkeys(each.table for each in rows):
            for child, key in catalog.children_of(table_id):
                if key.is_global and not child.is_global:
                    yield child, key

    async def _check_unnamed(self, rows: Sequence[Closed], context: Context) -> None:
        catalog = self._owners.state.catalog
        for child, key in self._children(rows):
            parent = catalog.table_by_id(key.parent)
            assert parent is not None
            own = [
                each.values
                for each in rows
                if (each.table, each.columns) == (key.parent, key.parent_columns)
            ]
            for start in range(0, len(own), ASKED_AT_ONCE):
                asked = own[start : start + ASKED_AT_ONCE]
                found = await self._named(child, key, asked, context)
                if found is not None:
                    raise still_named(key, child, parent, found)

    async def _named(
        self, child: Table, key: ForeignKey, asked: Sequence[tuple[Any, ...]], context: Context
    ) -> tuple[Any, ...] | None:
        """One of these that a row of the child names."""
        columns = [child.columns[at] for at in key.columns]
        names = [identifier(column.name) for column in columns]
        places = iter(range(1, len(asked) * len(names) + 1))
        each = " OR ".join(
            "(" + " AND ".join(f"{name} = ${next(places)}" for name in names) + ")" for _ in asked
        )
        listed = ", ".join(names)
        text = f"SELECT {listed} FROM {identifier(child.name)} WHERE {each} LIMIT 1"
        types = [column.type for column in columns] * len(asked)
        values = [value for row in asked for value in row]
        prepared = prepare(text, self._owners.state.catalog)
        params = [from_physical(*pair) for pair in zip(types, values, strict=True)]
        plan: Any = prepared.plan
        values = prepared.start(params)
        rows = await self._reads.read(plan, values, prepared.tables, context.at_masters())
        return tuple(rows[0]) if rows else None

    async def _open(self, keys: tuple[Key, ...], raft_id: int, life: int) -> None:
        """Until they are: rows that name these wait as long as they are closed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + OPENING_S
        while loop.time() < until:
            ours = {
                (row[0], row[1])
                for row in self._owners.state.closing
                if row[2:4] == (raft_id, life)
            }
            left = [key for key in keys if key in ours]
            if not left:
                return
            try:
                await self._proposer.cas(
                    ops.Batch(opened(left)), self._proposer.predicate(marks(left))
                )
            except (CasRetry, NotLeader, OutcomeUnknown):
                await asyncio.sleep(0.1)
            except CairnError as problem:
                logging.getLogger("cairn.closing").warning("rows stay closed: %s", problem)
                await asyncio.sleep(1.0)


def _at(columns: Sequence[int], row: Values) -> tuple[Any, ...]:
    return tuple(row[at] for at in columns)
