"""The coordinator's reads: one owner, some or all of them, and a merge of what they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from cairn.model.errors import PlanOutdated, TableUnderDdl, UnknownCall
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.model.settings import limits
from cairn.model.tables.schema import TEMP_TIER
from cairn.node.statements.asker.asking import Asking, Told
from cairn.node.statements.asker.exchange import Exchange, dealt_out
from cairn.node.statements.asker.gathering import Answer, Gathering, opened_here
from cairn.node.statements.asker.hops import Answered, Hop, Hops
from cairn.node.statements.asker.joins import Joins
from cairn.node.statements.asker.measuring import opened
from cairn.node.statements.asker.meetings import FIRST_BYTES, Begun
from cairn.node.statements.asker.owners import Owners, Params
from cairn.node.statements.asker.short.merges import FIRST_OF_THEM, PLAIN_MERGE
from cairn.node.statements.asker.short.reads import ShortReads
from cairn.node.statements.asker.streams import (
    READ_S,
    First,
    Gathered,
    Merge,
    PartHere,
    Stream,
    all_of,
)
from cairn.node.statements.context import OFF, Context
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.sql import plans
from cairn.storage.files.pieces import PIECE_BYTES, Row, Rows, plain


class Reads:
    """The reading half of the coordinator."""

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self._asking = Asking(owners)
        self._gathering = Gathering(owners, self._asking)
        self.joins = Joins(owners)
        self._exchange = Exchange(owners, self._asking, self._gathering, self.joins)
        self._away = Hops("read_rows", ReadResponse, READ_S)
        self.short = ShortReads(owners, self._asking)

    def start_away(
        self,
        plan: plans.PointRead,
        params: Params,
        tables: dict[int, int],
        callback: Answered[ReadResponse],
        user: int = 0,
    ) -> Hop | None:
        """Ask the owner of the row; None: go the long way."""
        if plan.bucket is None or plan.tier is None:
            return None
        args = plan.bind(params)
        try:
            self.owners.check_versions(tables)
        except (PlanOutdated, TableUnderDdl):
            return None
        link = self.owners.link_to_owner(plan.tier, args[0])  # type: ignore[arg-type]
        if link is None:
            return None
        request = ReadRequest(plan.sql, args, tables, args[0], user=user)  # type: ignore[arg-type]
        return self._away.ask(link, request, callback)

    async def read(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        """All rows, for whoever needs them at once."""

        async def attempt() -> list[Row]:
            return await self._read(plan, params, tables, context)

        return await context.watched(self.owners.following(attempt, context))

    async def open(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> Answer:
        """The first rows, which are all of a short answer; the rest as it is taken."""

        opened: list[Stream] = []

        async def attempt() -> Answer:
            rows, more = await self._open(plan, params, tables, context)
            if more is not None:
                opened.append(more)
            return rows, more

        try:
            return await context.watched(self.owners.following(attempt, context))
        except BaseException:
            for each in opened:  # it was there, and nobody waits for it any more
                each.close()
            raise

    async def read_buckets(
        self,
        tier: str,
        buckets: Iterable[int],
        request: Callable[[tuple[int, ...]], ReadRequest],
        context: Context,
    ) -> list[Row]:
        """Ask each owner what `request` makes of its own buckets."""

        async def attempt() -> list[Row]:
            found: list[Row] = []
            for replicaset, owned in self.owners.routes.group(tier, buckets).items():
                asked = request(owned)
                self.owners.check_versions(asked.tables)
                found += await self._read_at(replicaset, asked, context)
            return found

        return await self.owners.following(attempt, context)

    async def _read(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> list[Row]:
        if context.shape is not None:
            context = msgspec.structs.replace(context, shape=None)
        rows, more = await self._open(plan, params, tables, context)
        return await all_of(rows, more, context)

    async def _open(
        self,
        plan: plans.ReadPlan,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> Answer:
        self.owners.check_versions(tables)
        if isinstance(plan, plans.PointRead):
            return await self._point_read(plan, params, tables, context)
        if plan.alone is not None:
            [fragment] = plan.alone.fragments
            if (where := self.owners.whole(fragment, params)) is not None:
                return await self._gathering.whole(fragment, where, params, tables, context)
        values = list(params)
        for step in plan.steps:
            found = await self._read(step.plan, values, tables, context.within(step.plan))
            values = [*values, *[None] * (step.number - len(values))]
            values[step.number - 1] = step.value(found)
        if len(plan.fragments) == 1:
            gather = self._gathering.gather
            if PLAIN_MERGE.fullmatch(plan.sql):
                shape = context.shape
                return await self._gathering.gather(
                    plan.fragments[0], values, tables, context, shape
                )
            if limited := FIRST_OF_THEM.fullmatch(plan.sql):
                answer = await gather(plan.fragments[0], values, tables, context)
                return _first(answer, int(limited["limit"]))
        return await self._merge(plan, values, tables, context)

    async def _merge(
        self, plan: plans.ScatterRead, values: Params, tables: dict[int, int], context: Context
    ) -> Answer:
        begun = Begun()
        way: plans.ScatterRead | None = None
        may_deal = plan.exchanges and context.repartition != OFF
        try:
            if context.overlay is None and (plan.meetings or may_deal):
                way = await self._begin(plan, values, tables, context, begun)
            return await self._merged(way or plan, values, tables, context, begun)
        except UnknownCall:  # somebody is of a version that deals out nothing
            if way is None or not dealt_out(way):
                raise
            begun.close()
            context = msgspec.structs.replace(context, repartition=OFF)
            return await self._merge(plan, values, tables, context)
        finally:
            begun.close()

    async def _begin(
        self,
        plan: plans.ScatterRead,
        values: Params,
        tables: dict[int, int],
        context: Context,
        begun: Begun,
    ) -> plans.ScatterRead | None:
        """Begin its fragments. A plan, if one of them is to stay where its rows are, or if several
        are to be dealt out."""
        exchange = self._exchange.foreseen(plan, values, context)
        apart = frozenset() if exchange is None else exchange.apart
        every = [at for at in range(len(plan.fragments)) if at not in apart]
        order = sorted(every, key=lambda at: not plan.fragments[at].is_narrow)
        for at in order:
            if at == order[-1] and begun.are_few() and plan.meeting_at(at) is not None:
                found = await self._meet(plan, frozenset((at,)), context, begun)
                if found is not None:
                    return found
            fragment = plan.fragments[at]
            begun.keep(
                fragment,
                *await self._gathering.packed(fragment, values, tables, context, first=FIRST_BYTES),
            )
        while (behind := begun.behind(least=1 if exchange else 2)) is not None:
            await behind.go_on(context)
        left = frozenset(at for at, each in enumerate(plan.fragments) if begun.is_open(each))
        if exchange is not None:
            return None if left else exchange.plan
        exchange = self._exchange.of(plan, left, context)
        if exchange is not None:
            self._exchange.note(plan, exchange, values)
            for at in left:
                begun.drop(plan.fragments[at])
            return exchange.plan
        return await self._meet(plan, left, context, begun)

    async def _meet(
        self, plan: plans.ScatterRead, left: frozenset[int], context: Context, begun: Begun
    ) -> plans.ScatterRead | None:
        stays = min(left, default=0)
        meeting = plan.meeting_at(stays) if len(left) == 1 else None
        if meeting is None:
            return None
        on_thread = self.owners.execution.reads.open_reads.run
        begun.sending = await on_thread(context.user_id, begun.packing(meeting.plan))
        if begun.sending is None:
            return None
        begun.drop(plan.fragments[stays])
        return meeting.plan

    async def _merged(
        self,
        plan: plans.ScatterRead,
        values: Params,
        tables: dict[int, int],
        context: Context,
        begun: Begun,
    ) -> Answer:
        """The merge over all fragments, those included that have `begun`."""
        encode = () if context.shape is None else (rows_encoder(context.shape),)
        merge = Merge(self.owners.execution.reads.open_reads, context, *encode)
        spill_max = int(self.owners.state.setting("sql_spill_max_bytes", limits.SPILL_BYTES))
        merge.begin(context.opcode_max, spill_max)
        apart = dealt_out(plan)
        whole: dict[int, Rows] = {}
        try:
            for at, fragment in enumerate(plan.fragments):
                rows: Rows = []
                more: Stream | None = None
                if fragment.splits:
                    rows, more = await self._exchange.gather(
                        plan, fragment, whole, values, tables, context, spill_max
                    )
                elif at not in apart:
                    sending = begun.sending if fragment.sent else None
                    rows, more = begun.take(fragment) or await self._gathering.packed(
                        fragment, values, tables, context, sending=sending
                    )
                if more is None:
                    whole[at] = rows
                await merge.table(fragment.storage, rows, more, context)
            for table, columns in plan.indexes:
                merge.index(table, columns)
            return await merge.answer(plan.sql, plan.bind(values))
        except BaseException:
            merge.close()
            raise

    async def _point_read(
        self,
        plan: plans.PointRead,
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> Answer:
        args = plan.bind(params)
        most = context.opcode_max
        if plan.bucket is None:
            reading = self._open_global(plan.sql, args, most, context.user_id)
            if context.stage is not None:
                here = context.stage.at(self.owners.name_of(self.owners.raft_id), "", is_here=True)
                reading = opened(here, reading)
            rows, rest = await reading
            return plain(rows), None if rest is None else Gathered([rest], 0, len(rows))
        assert plan.tier is not None
        if plan.tier == TEMP_TIER:
            return await opened_here(context, self.owners, plan.sql, args)
        bucket = plan.bucket(params)
        replicaset = self.owners.routes.owner(plan.tier, bucket)
        request = ReadRequest(
            plan.sql,
            args,
            tables,
            bucket,
            preference=context.preference,
            opcode_max=most,
            is_local=context.is_local,
            piece_bytes=PIECE_BYTES,
            user=context.user_id,
        )
        rows, rest = await self._asking.open_at(replicaset, request, context)
        return plain(rows), None if rest is None else Gathered([rest], 0, len(rows))

    async def _open_global(self, sql: str, args: Sequence[Any], most: int, user: int) -> Told:
        rows = None if most else self.owners.execution.reader.quick(sql, args)
        if rows is not None:
            return rows, None
        open_reads = self.owners.execution.reads.open_reads
        read = open_reads.open(sql, args, 0, most, None, lambda: None, whose=user)
        piece = await read.take()
        return piece.rows, None if piece.is_last else PartHere(self.owners.execution, read)

    async def _read_at(self, replicaset: str, request: ReadRequest, context: Context) -> list[Row]:
        return plain((await self._asking.open_at(replicaset, request, context))[0])


def _first(answer: Answer, limit: int) -> Answer:
    rows, more = answer
    if more is None:
        return rows[:limit], None
    if len(rows) < limit:
        return rows, First(more, limit - len(rows))
    more.close()
    return rows[:limit], None
