"""The coordinator's reads: one owner, some or all of them, and a merge of what they gave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from cairn.model.errors import (
    CairnError,
    NoMaster,
    NotOwner,
    PlanOutdated,
    ReadInterrupted,
    TableUnderDdl,
    Unreachable,
)
from cairn.model.rpc import ReadRequest, ReadResponse, RowShape
from cairn.model.settings import limits
from cairn.model.sharding.spans import Ranges, intersection
from cairn.net.link import Link
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.quorum import Voters
from cairn.node.rows.routes import Routes
from cairn.node.statements.asker.hops import Answered, Hop, Hops
from cairn.node.statements.asker.measuring import opened, size_of
from cairn.node.statements.asker.meetings import FIRST_BYTES, Begun, Sending
from cairn.node.statements.asker.streams import (
    READ_S,
    First,
    Gathered,
    Merge,
    Part,
    PartAway,
    PartHere,
    Stream,
    all_of,
    piece_bytes,
    rows_of,
)
from cairn.node.statements.context import Context
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.node.statements.owner.execution import Execution
from cairn.node.waiting import signalled
from cairn.sql import plans
from cairn.storage.files.pieces import PIECE_BYTES, Encoded, Row, Rows, plain, too_many
from cairn.storage.merging import Merger

REPLAN_S = 5.0  # how long a statement follows a moving topology before it gives up
#: A merge that would only hand the gathered rows through.
PLAIN_MERGE = re.compile(r"SELECT (r\d+)\.x0 AS x0(?:, \1\.x(\d+) AS x\2)* FROM m0 AS \1")
FIRST_OF_THEM = re.compile(rf"{PLAIN_MERGE.pattern} LIMIT (?P<limit>\d+)")
#: What certainly did not happen, because rows, masters or tables are moving.
MOVING = (NotOwner, NoMaster, TableUnderDdl)

Params = Sequence[Any]
Answer = tuple[list[Row], Stream | None]  # some rows, and where the rest comes from
Told = tuple[Rows, Part | None]  # the same of one owner
T = TypeVar("T")


class Reads:
    """The reading half of the coordinator."""

    def __init__(
        self,
        raft_id: int,
        state: GlobalState,
        peers: Peers,
        voters: Voters,
        execution: Execution,
    ) -> None:
        self.raft_id, self.state, self.peers, self.execution = raft_id, state, peers, execution
        self._voters = voters
        self._routes = Routes(state.cluster)
        self._away = Hops("read_rows", ReadResponse, READ_S)
        self.local = 0  # statements whose rows were here
        self.forwarded = 0  # statements that went one hop to the owner
        self._cursors = 0  # numbers by which owners know our longer reads

    @property
    def routes(self) -> Routes:
        if self._routes.cluster is not self.state.cluster:
            cluster, touched = self.state.cluster, self.state.touched_since(self._routes.cluster)
            known = self._routes
            self._routes = Routes(cluster) if touched is None else known.after(cluster, touched)
        return self._routes

    # --- reads ------------------------------------------------------------------------------------

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
            self._check_versions(tables)
        except PlanOutdated:
            return None
        link = self.link_to_owner(plan.tier, args[0])  # type: ignore[arg-type]
        if link is None:
            return None
        request = ReadRequest(plan.sql, args, tables, args[0], user=user)  # type: ignore[arg-type]
        return self._away.ask(link, request, callback)

    def link_to_owner(self, tier: str, bucket: int) -> Link | None:
        """The open link to the master that has the bucket, when it is another instance."""
        try:
            target = self.routes.master(self.routes.owner(tier, bucket))
        except CairnError:
            return None
        link = None if target == self.raft_id else self.peers.link_now(target)
        if link is None or not link.is_open:
            return None
        self.forwarded += 1
        return link

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

        return await context.watched(self.following(attempt, context))

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
            return await context.watched(self.following(attempt, context))
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
            for replicaset, owned in self.routes.group(tier, buckets).items():
                found += await self._read_at(replicaset, request(owned), context)
            return found

        return await self.following(attempt, context)

    async def following(self, attempt: Callable[[], Awaitable[T]], context: Context) -> T:
        """Repeat what certainly did not happen while the topology moves, for a bounded time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REPLAN_S
        while True:
            try:
                return await attempt()
            except (*MOVING, ReadInterrupted) as problem:  # nothing of it was told yet
                context.check()
                if loop.time() >= deadline:
                    if (lost := self._voters.no_quorum()) is not None:
                        problem.detail, problem.hint = lost.message, lost.hint
                    raise
            await self.moved()

    async def moved(self) -> None:
        """Until the picture of the cluster changes, or a moment has passed."""
        await signalled(self.state.news, 0.05)

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
        self._check_versions(tables)
        if isinstance(plan, plans.PointRead):
            return await self._point_read(plan, params, tables, context)
        values = list(params)
        for step in plan.steps:
            found = await self._read(step.plan, values, tables, context.within(step.plan))
            values = [*values, *[None] * (step.number - len(values))]
            values[step.number - 1] = step.value(found)
        if len(plan.fragments) == 1:
            if PLAIN_MERGE.fullmatch(plan.sql):
                shape = context.shape
                return await self._gather(plan.fragments[0], values, tables, context, shape)
            if limited := FIRST_OF_THEM.fullmatch(plan.sql):
                answer = await self._gather(plan.fragments[0], values, tables, context)
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
                fragment, *await self._gather(fragment, values, tables, context, first=FIRST_BYTES)
            )
        while (behind := begun.behind(plan.fragments)) is not None:
            await behind.go_on(context)
        left = [at for at, each in enumerate(plan.fragments) if begun.is_open(each)]
        meeting = plan.meeting_at(left[0]) if len(left) == 1 else None
        if meeting is None:
            return None
        prepare = self.execution.reads.open_reads.run
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
        merge = Merge(self.execution.reads.open_reads, context, *encode)
        spill_max = int(self.state.setting("sql_spill_max_bytes", limits.SPILL_BYTES))
        work: list[Callable[[Any], Any]] = [merge.begin(context.opcode_max, spill_max)]
        try:
            for fragment in plan.fragments:
                sending = begun.sending if fragment.sent else None
                rows, more = begun.take(fragment) or await self._gather(
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
                here = context.stage.at(self.name_of(self.raft_id), "", is_here=True)
                reading = opened(here, reading)
            rows, rest = await reading
            return plain(rows), None if rest is None else Gathered([rest], 0, len(rows))
        bucket = plan.bucket(params)
        assert plan.tier is not None
        replicaset = self.routes.owner(plan.tier, bucket)
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
        rows, rest = await self._open_at(replicaset, request, context)
        return plain(rows), None if rest is None else Gathered([rest], 0, len(rows))

    async def _open_global(self, sql: str, args: Sequence[Any], most: int, user: int) -> Told:
        rows = None if most else self.execution.reader.quick(sql, args)
        if rows is not None:
            return rows, None
        open_reads = self.execution.reads.open_reads
        read = open_reads.open(sql, args, 0, most, None, lambda: None, whose=user)
        piece = await read.take()
        return piece.rows, None if piece.is_last else PartHere(self.execution, read)

    async def _read_at(self, replicaset: str, request: ReadRequest, context: Context) -> list[Row]:
        return plain((await self._open_at(replicaset, request, context))[0])

    async def _open_at(self, replicaset: str, request: ReadRequest, context: Context) -> Told:
        if context.overlay is not None and context.overlay.is_at(replicaset):
            return await context.overlay.read(request), None
        target = self.routes.reader(replicaset, request.preference, self.raft_id)
        try:
            return await self._open_from(target, replicaset, request, context)
        except NotOwner:
            if request.preference != "any" or target == self.routes.master(replicaset):
                raise
        # A replica may know of a hand-over before it has the rows; the master has them.
        return await self._open_from(self.routes.master(replicaset), replicaset, request, context)

    async def _open_from(
        self, target: int, replicaset: str, request: ReadRequest, context: Context
    ) -> Told:
        if context.stage is None:
            return await self._ask(target, replicaset, request, context)
        work = context.stage.at(self.name_of(target), replicaset, is_here=target == self.raft_id)
        if context.stage.sends and not work.is_here:
            work.came(0, size_of(request.args[-context.stage.sends :]))
        return await opened(work, self._ask(target, replicaset, request, context))

    async def _ask(
        self, target: int, replicaset: str, request: ReadRequest, context: Context
    ) -> Told:
        if target == self.raft_id:
            return await self._open_here(request, context)
        self.forwarded += 1
        context.travelled.hops += 1
        part: PartAway | None = None
        if request.piece_bytes:
            self._cursors += 1
            number = self.raft_id << 40 | self._cursors
            request = msgspec.structs.replace(request, cursor=number)
            part = PartAway(self.peers, target, number)
        try:
            answer = await self.peers.call(
                target,
                "read_rows",
                request,
                ReadResponse,
                context.left_s(READ_S),
                must_end=True,
            )
        except BaseException as problem:
            if part is not None and not isinstance(problem, NotOwner):
                part.close()  # its answer may be on the way
            if isinstance(problem, Unreachable):  # a read may be asked again, of whoever follows
                raise self.no_answer(replicaset, target, problem) from None
            raise
        context.told.came(answer.stale_s)
        return rows_of(answer), part if answer.cursor else None

    async def _open_here(self, request: ReadRequest, context: Context) -> Told:
        self.local += 1
        if not request.piece_bytes:
            rows = await self.execution.reads.read(request, context.cancelled)
            context.told.came(self.execution.reads.stale_s(request))
            return rows, None
        piece, read = await self.execution.reads.first_piece(request)
        context.told.came(self.execution.reads.stale_s(request))
        return piece.rows, None if read is None else PartHere(self.execution, read)

    def no_answer(self, replicaset: str, target: int, problem: Unreachable) -> NoMaster:
        lost = self._voters.no_quorum()
        return NoMaster(
            f"instance {self.name_of(target)} of replicaset {replicaset} does not answer",
            detail=problem.message,
            hint=lost.hint
            if lost
            else "a new master is named within seconds: repeat the statement",
        )

    def name_of(self, raft_id: int) -> str:
        row = self.state.cluster.by_raft_id(raft_id)
        return row.name if row is not None else str(raft_id)

    async def _gather(
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
                targets = self.targets(fragment, params, left)
                if sending is not None:
                    targets = sending.narrowed(targets)
                later = piece_bytes(len(targets))
                piece = min(first or later, later)
                calls = [
                    self._open_at(
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
                await self.moved()
        except BaseException:
            for part in parts:
                part.close()
            raise
        if not parts and not encoded:
            return rows, None
        return rows, Gathered(parts, context.row_max, count, encoded)

    def targets(
        self, fragment: plans.Fragment, params: Params, only: Ranges | None = None
    ) -> dict[str, Ranges]:
        """Which replicasets to ask, each with the buckets it is asked about."""
        buckets = fragment.bucket_set(params)
        if buckets is None:
            found = self.routes.all_ranges(fragment.tier)
        else:
            found = {
                replicaset: tuple((bucket, bucket) for bucket in owned)
                for replicaset, owned in self.routes.group(fragment.tier, buckets).items()
            }
        if only is None:
            return found
        cut = {replicaset: intersection(ranges, only) for replicaset, ranges in found.items()}
        return {replicaset: ranges for replicaset, ranges in cut.items() if ranges}

    def _check_versions(self, tables: dict[int, int]) -> None:
        """A read planned for another schema is planned again rather than repeated."""
        if not tables:
            return
        catalog = self.state.catalog
        for table, version in tables.items():
            found = catalog.table_by_id(table)
            if found is None or (found.operable and found.schema_version != version):
                raise PlanOutdated("a table has changed since the statement was planned")


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
