"""Blocks at the instance that was asked: which replicaset has all their rows, and one hop there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from cairn.model.errors import (
    BlockConflict,
    BlockLeaves,
    CairnError,
    NotSent,
    OutcomeUnknown,
    PlanOutdated,
    QueryCanceled,
    Unreachable,
)
from cairn.model.rpc import BlockItem, BlockRequest, BlockResponse, ReadRequest
from cairn.model.types.values import datetime_to_micros, to_physical
from cairn.node.consensus.global_state import GlobalState
from cairn.node.runtime import Runtime
from cairn.node.statements.asker.owners import Params
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.blocks.block_owner import BlockOwner
from cairn.node.statements.context import LATE, Context
from cairn.node.statements.ending import Ticket
from cairn.sql import plans
from cairn.sql.plan.places import Place, places
from cairn.sql.plans import Prepared
from cairn.storage.files.pieces import Row

BLOCK_S = 30.0
LAST_WORD_S = 2.0  # for the verdict on a block that was told to end
_encode = msgspec.msgpack.Encoder().encode


class Statement(Protocol):
    """What was understood once, with the versions of the sharded tables it was planned for."""

    prepared: Prepared
    sharded: dict[int, int]
    oids: tuple[int, ...]  # of parameters, as they were declared


class Listed(msgspec.Struct, frozen=True):
    """A statement of a block with what routing it needs."""

    item: BlockItem
    places: tuple[Place, ...]
    is_write: bool
    size: int  # in bytes, as it travels
    buckets: frozenset[int] | None  # all that it may touch; None: that is not known


class Owner(NamedTuple):
    """Whose rows a block is about."""

    replicaset: str
    tier: str
    buckets: tuple[int, ...]
    is_all: bool


class Blocks:
    """Takes blocks to their owners. One for the instance."""

    def __init__(
        self, name: str, state: GlobalState, runtime: Runtime, reads: Reads, owner: BlockOwner
    ) -> None:
        self._name, self._state, self._reads, self._owner = name, state, reads, owner
        self.wall_clock = runtime.wall_clock

    async def whole(self, statement: Statement, params: Params, context: Context) -> BlockResponse:
        """A block that came as one statement: all of it, or nothing."""
        self.check_fresh(statement, context.user_id)
        listed = self.listed(statement, params, context)
        try:
            return await self.send([listed], context, is_commit=True)
        except BlockConflict:
            self.check_fresh(statement, context.user_id)  # nobody was told anything: plan it anew
            raise
        except BlockLeaves as problem:
            if statement.prepared.tag not in ("DO", "CALL"):  # its client knows of no block
                problem.detail = "A statement that writes in WITH is done in one transaction."
                problem.hint = (
                    "let its rows have the same distribution key, or use statements of their own"
                )
            raise

    def check_fresh(self, statement: Statement, user: int) -> None:
        """What is planned here need not be planned again here, if the rows are here too."""
        catalog = self._state.catalog
        for table, version in statement.sharded.items():
            found = catalog.table_by_id(table)
            if found is None or found.schema_version != version:
                raise PlanOutdated("a table has changed since the statement was planned")
        self._owner.learn(statement.prepared, statement.oids, user)

    def listed(
        self,
        statement: Statement,
        params: Params,
        context: Context,
        rows: Sequence[tuple[int, Row]] | None = None,
    ) -> Listed:
        """The statement with its values; `rows` are those of an INSERT that were made here."""
        prepared = statement.prepared
        plan = prepared.plan
        now = context.now or self.wall_clock()
        args = tuple(
            to_physical(type_, value)
            for type_, value in zip(prepared.param_types, params, strict=True)
        )
        item = BlockItem(
            prepared.text,
            context.user_id,
            datetime_to_micros(now),
            args,
            tuple(type_.value for type_ in prepared.param_types),
            statement.oids,
            statement.sharded,
            None if rows is None else tuple(rows),
        )
        is_write = not isinstance(plan, plans.PointRead | plans.ScatterRead)
        if rows is None:
            found = tuple(places(plan, prepared.start(params, now)))
        else:
            write = plan.write if isinstance(plan, plans.Returning) else plan
            assert isinstance(write, plans.InsertSelect)
            found = (Place(write.tier, frozenset(bucket for bucket, _ in rows)),)
        return Listed(item, found, is_write, len(_encode(item)), _all_buckets(found))

    # --- whose it is ------------------------------------------------------------------------------

    def owner(self, block: Iterable[Listed]) -> Owner:
        """The one replicaset that has all rows; else the block is refused, before it is begun."""
        routes = self._reads.owners.routes
        owners: dict[str, str] = {}  # to their tiers
        buckets: set[int] = set()
        is_all = False
        tiers: list[str] = []  # of which it is not known yet what is touched
        found = dict.fromkeys(place for listed in block for place in listed.places)
        for place in found:
            if not place.is_known:
                tiers.append(place.tier)
            elif place.buckets is None:
                is_all = True
                owners |= dict.fromkeys(routes.all_ranges(place.tier), place.tier)
            else:
                buckets |= place.buckets
                owners |= {routes.owner(place.tier, each): place.tier for each in place.buckets}
        if not owners and tiers:
            owners = dict.fromkeys(routes.all_ranges(tiers[0]), tiers[0])
            if len(owners) > 1:
                raise BlockLeaves(
                    "which replicaset has the rows of this block is known only when it runs",
                    hint="name the distribution key of one of its rows as a constant or parameter",
                )
        if not owners:  # global tables alone
            row = self._state.cluster.instances[self._name]
            owners = {row.replicaset_name: row.tier}
        if len(owners) > 1:
            raise BlockLeaves(
                f"a block stays inside one replicaset: this one needs rows of {_named(owners)}",
                detail="all of its tables' rows, or some of every replicaset"
                if is_all
                else f"buckets {', '.join(map(str, sorted(buckets)[:20]))}",
            )
        [(replicaset, tier)] = owners.items()
        return Owner(replicaset, tier, tuple(sorted(buckets)), is_all)

    def is_at(self, listed: Listed, replicaset: str) -> bool:
        try:
            return self.owner((listed,)).replicaset == replicaset
        except BlockLeaves:
            return False

    # --- on the way -------------------------------------------------------------------------------

    async def send(
        self,
        block: Sequence[Listed],
        context: Context,
        *,
        is_commit: bool,
        like: Sequence[Listed] = (),
        read: ReadRequest | None = None,
    ) -> BlockResponse:
        """Run at the owner, wherever that is by now; the answer of the last statement, or of
        `read` behind it. `like` are statements with the same owner."""

        async def attempt() -> BlockResponse:
            replicaset, request = self._request(block, context, is_commit, like, read)
            context.check()
            return await self._ask(replicaset, request, context)

        work = self._reads.owners.following(attempt, context)
        return await context.watched(work)

    def start(
        self,
        block: Sequence[Listed],
        context: Context,
        ticket: Ticket,
        callback: Callable[[Any], None],
        *,
        is_commit: bool,
        like: Sequence[Listed],
    ) -> bool:
        """`send` without a task, to rows that are here. False: nothing was begun. The callback has
        the answer, or an error; `Again`: nothing was done, and `send` is the way."""
        owners = self._reads.owners
        try:
            replicaset, request = self._request(block, context, is_commit, like)
            is_here = owners.routes.master(replicaset) == owners.raft_id
        except CairnError:
            return False
        if not is_here or not self._owner.start(request, ticket, callback):
            return False
        owners.local += 1
        return True

    def _request(
        self,
        block: Sequence[Listed],
        context: Context,
        is_commit: bool,
        like: Sequence[Listed],
        read: ReadRequest | None = None,
    ) -> tuple[str, BlockRequest]:
        """Whom to ask, as it is now, and for what."""
        self._check_schema(block)
        owner = self.owner((*like, *block))
        items = tuple(listed.item for listed in block)
        left_s = context.left_s(BLOCK_S)
        asked = (items, is_commit, owner.tier, owner.buckets, owner.is_all, left_s, read)
        return owner.replicaset, BlockRequest(*asked)

    def _check_schema(self, block: Sequence[Listed]) -> None:
        catalog = self._state.catalog
        # Each statement's: those before a change and those after it were planned for two tables.
        versions = {each for listed in block for each in listed.item.tables.items()}
        for table, version in sorted(versions):
            found = catalog.table_by_id(table)
            if found is None or found.schema_version != version:
                raise BlockConflict("a table of the block was changed or dropped")
            self._reads.owners.check_made(found)

    async def _ask(self, replicaset: str, request: BlockRequest, context: Context) -> BlockResponse:
        reads = self._reads
        target = reads.owners.routes.master(replicaset)
        try:
            if target == reads.owners.raft_id:
                reads.owners.local += 1
                if context.watch is not None:  # who watches looks at the clock as well
                    return await self._owner.run(request, context.cancelled)
                async with asyncio.timeout_at(context.deadline):
                    return await self._owner.run(request)
            reads.owners.forwarded += 1
            context.travelled.hops += 1
            return await reads.owners.peers.call(
                target,
                "run_block",
                request,
                BlockResponse,
                context.left_s(BLOCK_S),
                must_end=True,
                last_word_s=LAST_WORD_S,
            )
        except NotSent as problem:
            raise reads.owners.no_answer(replicaset, target, problem) from None
        except Unreachable as problem:
            context.check()
            if not request.is_commit:
                raise reads.owners.no_answer(replicaset, target, problem) from None
            raise _unknown(f"the master of {replicaset} did not answer: {problem}") from None
        except TimeoutError:
            if not request.is_commit:
                raise QueryCanceled(LATE) from None
            raise _unknown(LATE) from None


def _all_buckets(found: Iterable[Place]) -> frozenset[int] | None:
    buckets: set[int] = set()
    for place in found:
        if place.buckets is None or not place.is_known:
            return None
        buckets |= place.buckets
    return frozenset(buckets)


def _named(owners: Iterable[str]) -> str:
    names = sorted(owners)
    return f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}"


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{why}; the block may have been committed",
        hint="look whether its rows are there before trying again",
    )


def made_here(plan: Any) -> plans.InsertSelect | None:
    """An INSERT whose rows need no sharded table: its generated keys say where they belong."""
    write = plan.write if isinstance(plan, plans.Returning) else plan
    return write if isinstance(write, plans.InsertSelect) and _is_closed(write.read) else None


def _is_closed(read: plans.ReadPlan) -> bool:
    if isinstance(read, plans.PointRead):
        return read.bucket is None
    return not read.fragments and all(_is_closed(step.plan) for step in read.steps)
