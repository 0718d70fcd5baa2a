"""The coordinator's reads: one owner, some or all of them, and a merge of what they gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from cairn.model.errors import (
    PlanOutdated,
)
from cairn.model.rpc import ReadRequest, ReadResponse
from cairn.model.settings import limits
from cairn.node.statements.asker.asking import Asking, Told
from cairn.node.statements.asker.gathering import Answer, Gathering
from cairn.node.statements.asker.hops import Answered, Hop, Hops
from cairn.node.statements.asker.measuring import opened
from cairn.node.statements.asker.meetings import FIRST_BYTES, Begun
from cairn.node.statements.asker.owners import Owners, Params
from cairn.node.statements.asker.streams import (
    READ_S,
    First,
    Gathered,
    Merge,
    PartHere,
    Stream,
    all_of,
)
from cairn.node.statements.context import Context
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.sql import plans
from cairn.storage.files.pieces import PIECE_BYTES, Row, plain
from cairn.storage.merging import Merger

#: A merge that would only hand the gathered rows through.
PLAIN_MERGE = re.compile(r"SELECT (r\d+)\.x0 AS x0(?:, \1\.x(\d+) AS x\2)* FROM m0 AS \1")
FIRST_OF_THEM = re.compile(rf"{PLAIN_MERGE.pattern} LIMIT (?P<limit>\d+)")


class Reads:
    """The reading half of the coordinator."""

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self._asking = Asking(owners)
        self._gathering = Gathering(owners, self._asking)
        self._away = Hops("read_rows", ReadResponse, READ_S)

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
        except PlanOutdated:
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
                found += await self._read_at(replicaset, request(owned), context)
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
        try:
            met = None
            if plan.meetings and context.overlay is None:
                met = await self._begin(plan, values, tables, context, begun)
            return await self._merged(met or plan, values, tables, context, begun)
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
        """Begin its fragments. A plan, if one of them is to stay where its rows are."""
        for fragment in plan.fragments:
            begun.keep(
                fragment,
                *await self._gathering.gather(fragment, values, tables, context, first=FIRST_BYTES),
            )
        while (behind := begun.behind(plan.fragments)) is not None:
            await behind.go_on(context)
        left = [at for at, each in enumerate(plan.fragments) if begun.is_open(each)]
        meeting = plan.meeting_at(left[0]) if len(left) == 1 else None
        if meeting is None:
            return None
        prepare = self.owners.execution.reads.open_reads.run
        begun.sending = await prepare(context.user_id, begun.parcels, meeting.plan)
        if begun.sending is None:
            return None
        begun.drop(plan.fragments[left[0]])
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
        work: list[Callable[[Any], Any]] = [merge.begin(context.opcode_max, spill_max)]
        try:
            for fragment in plan.fragments:
                sending = begun.sending if fragment.sent else None
                rows, more = begun.take(fragment) or await self._gathering.gather(
                    fragment, values, tables, context, sending=sending
                )
                work.append(partial(_table, len(fragment.types), rows))
                if more is None:
                    continue
                try:
                    while part := await more.next(context):
                        await merge.run(*work, partial(_add, plain(part)))
                        work = []
                finally:
                    more.close()
            args = plan.bind(values)
            work += [lambda merger: merger.start(plan.sql, args)]
            piece = await merge.run(*work, lambda merger: merger.take(PIECE_BYTES))
        except BaseException:
            merge.close()
            raise
        if not piece.is_last:
            return piece.rows, merge
        merge.close()
        return piece.rows, None

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
        bucket = plan.bucket(params)
        assert plan.tier is not None
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


def _table(width: int, rows: list[Row], merger: Merger) -> None:
    merger.table(width, rows)


def _add(rows: list[Row], merger: Merger) -> None:
    merger.add(rows)
