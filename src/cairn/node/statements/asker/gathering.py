"""Rows of one fragment from all that own some of them; who moved is asked again, and only they."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

import msgspec

from cairn.model.errors import MotionLimit
from cairn.model.rpc import ReadRequest, SplitRequest
from cairn.model.sharding.parts import ByBuckets
from cairn.model.sharding.spans import Ranges
from cairn.model.tables.schema import TEMP_TIER
from cairn.model.types.row_shape import RowShape
from cairn.native.library import PACKED_WIDTH
from cairn.node.statements.asker.asking import Asking, SplitPart, Told
from cairn.node.statements.asker.meetings import Sending
from cairn.node.statements.asker.owners import MOVING, Owners, Params, patience_s
from cairn.node.statements.asker.streams import Gathered, Stream, piece_bytes
from cairn.node.statements.context import Context
from cairn.sql import plans
from cairn.sql.render.sent import Split
from cairn.sql.render.slots import with_ranges
from cairn.storage.files.pieces import Encoded, Row, Rows, joined, plain, too_many

Answer = tuple[list[Row], Stream | None]  # some rows, and where the rest comes from
#: Asks a replicaset about its ranges, as one of so many.
Ask = Callable[[str, Ranges, int], Coroutine[Any, Any, Told]]
GROWTH = 4
Narrow = Callable[[dict[str, Ranges]], dict[str, Ranges]]


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
        """The rows of one fragment. With a shape, whole pieces may come as the client's."""
        rows, more = await self.packed(
            *(fragment, params, tables, context, shape),
            sending=sending,
            first=first,
            is_packed=False,
        )
        return plain(rows), more

    async def packed(
        self,
        fragment: plans.Fragment,
        params: Params,
        tables: dict[int, int],
        context: Context,
        shape: RowShape | None = None,
        *,
        sending: Sending | None = None,
        first: int = 0,
        is_packed: bool = True,
    ) -> tuple[Rows, Stream | None]:
        """The same; rows may be packed, for whoever does not look at them.

        `first` bytes are asked of each owner at first, and not many more after them, as all may be
        for nothing; 0: a piece.
        """
        context = context.within(fragment)
        if fragment.tier == TEMP_TIER:
            buckets = fragment.bucket_set(params)
            sql = fragment.with_ranges(None if buckets is None else [(b, b) for b in buckets])
            return await opened_here(context, self._owners, sql, fragment.bind(params))
        if context.stage is not None:
            context.stage.sends = len(fragment.sent)
        request = self._request(fragment, (), tables, context)

        def ask(replicaset: str, ranges: Ranges, count: int) -> Coroutine[Any, Any, Told]:
            later = piece_bytes(count)
            if first:
                later = min(later, GROWTH * first)
            piece = min(first or later, later)
            sql, args = fragment.asked(params, ranges)
            asked = msgspec.structs.replace(
                request,
                sql=sql,
                grouped=with_ranges(fragment.grouped, list(ranges)),
                args=args if sending is None else (*args, *sending.args(ranges)),
                ranges=ranges,
                piece_bytes=piece,
                shape=shape,
                later_bytes=later if piece < later else 0,
                is_packed=is_packed and len(fragment.types) <= PACKED_WIDTH,
            )
            return self._asking.open_at(replicaset, asked, context)

        narrowed = None if sending is None else sending.narrowed
        return _gathered(
            await self._from_all(fragment, params, tables, context, ask, narrowed), context
        )

    async def whole(
        self,
        fragment: plans.Fragment,
        where: tuple[str, Ranges],
        params: Params,
        tables: dict[int, int],
        context: Context,
    ) -> Answer:
        """The same from the one replicaset that has all of them. If some are moving, nothing of it
        was told: all is to be asked again."""
        replicaset, ranges = where
        context = context.within(fragment)
        sql, args = fragment.asked(params, ranges)
        asked = msgspec.structs.replace(
            self._request(fragment, (), tables, context),
            sql=sql,
            args=args,
            ranges=ranges,
            piece_bytes=piece_bytes(1),
            shape=context.shape,
        )
        told = await self._asking.open_at(replicaset, asked, context)
        try:
            _check_count([told], context)
        except MotionLimit:
            if told[1] is not None:
                told[1].close()
            raise
        rows, more = _gathered([told], context)
        return plain(rows), more

    async def deal(
        self,
        split: Split,
        params: Params,
        tables: dict[int, int],
        context: Context,
        *,
        parts: int,
        buckets: ByBuckets | None,
        spill_max: int,
    ) -> list[SplitPart]:
        """Its rows as they are dealt out by every owner: begun, and to be fetched from there."""
        fragment: plans.Fragment = split.fragment
        request = self._request(fragment, fragment.bind(params), tables, context)

        def ask(replicaset: str, ranges: Ranges, count: int) -> Coroutine[Any, Any, Told]:
            read = msgspec.structs.replace(
                request,
                sql=fragment.with_ranges(list(ranges)),
                ranges=ranges,
                piece_bytes=piece_bytes(count),
            )
            asked = SplitRequest(
                read, parts, split.places, split.width, split.keeps_null, spill_max, buckets
            )
            return self._asking.split_at(replicaset, asked, context)

        answers = await self._from_all(fragment, params, tables, context, ask)
        return [part for _, part in answers if isinstance(part, SplitPart)]

    def _request(
        self,
        fragment: plans.Fragment,
        args: Sequence[Any],
        tables: dict[int, int],
        context: Context,
    ) -> ReadRequest:
        """What is the same for all owners; no `args` where each of them has its own."""
        return ReadRequest(
            fragment.sql,
            tuple(args),
            {table: tables[table] for table in fragment.tables if table in tables},
            preference=context.preference,
            row_max=context.row_max,
            opcode_max=context.opcode_max,
            is_local=context.is_local,
            user=context.user_id,
        )

    async def _from_all(
        self,
        fragment: plans.Fragment,
        params: Params,
        tables: dict[int, int],
        context: Context,
        ask: Ask,
        narrowed: Narrow | None = None,
    ) -> list[Told]:
        """What all owners told. Ranges that moved are asked again, of who has them now."""
        found: list[Told] = []
        left: Ranges | None = None
        begun = asyncio.get_running_loop().time()
        try:
            while True:
                targets = self._owners.targets(fragment, params, left)
                if narrowed is not None:
                    targets = narrowed(targets)
                calls = [
                    ask(replicaset, ranges, len(targets)) for replicaset, ranges in targets.items()
                ]
                if len(calls) == 1 and left is None:
                    answers: list[Any] = [await calls[0]]
                else:
                    answers = await all_told(calls)
                left = ()
                waited_s = asyncio.get_running_loop().time() - begun
                problem: BaseException | None = None
                for ranges, answer in zip(targets.values(), answers, strict=True):
                    if isinstance(answer, MOVING) and waited_s < patience_s(answer):
                        left += ranges  # only these: others were read
                    elif isinstance(answer, BaseException):
                        problem = problem or answer
                    else:
                        found.append(answer)
                if problem is not None:
                    raise problem
                _check_count(found, context)
                if not left:
                    return found
                await self._owners.moved()
                self._owners.check_versions(tables)  # else some would be read before a change
        except BaseException:
            for _, part in found:
                if part is not None:
                    part.close()
            raise


def _check_count(answers: list[Told], context: Context) -> None:
    if 0 < context.row_max < sum(len(told) for told, _ in answers):
        raise too_many(context.row_max)


def _gathered(answers: list[Told], context: Context) -> tuple[Rows, Stream | None]:
    rows: Rows = []
    encoded: list[Rows] = []
    for told, _ in answers:
        if isinstance(told, Encoded):
            encoded.append(told)
        else:
            rows = joined(rows, told)
    parts = [part for _, part in answers if part is not None]
    if not parts and not encoded:
        return rows, None
    count = sum(len(told) for told, _ in answers)
    return rows, Gathered(parts, context.row_max, count, encoded)


async def opened_here(context: Context, owners: Owners, sql: str, args: Sequence[Any]) -> Answer:
    """Rows of the session's temporary tables."""
    begun = perf_counter()
    found: Answer = await context.read_temps(sql, args)
    if context.stage is not None:
        here = context.stage.at(owners.name_of(owners.raft_id), "", is_here=True)
        here.waited(perf_counter() - begun)
        here.came(len(found[0]), 0)
    return found


async def all_told(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
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
