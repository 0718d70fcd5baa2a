"""A write on its way to the replicasets that have its rows, and the verdicts that come back.

One replicaset: it is simply done. Several: all are asked whether they could, then all do it; what
each of them did is told, whatever became of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import msgspec

from cairn.model.errors import (
    CairnError,
    CasRetry,
    NotSent,
    OutcomeUnknown,
    PartialWrite,
    Unreachable,
)
from cairn.model.rpc import WriteRequest, WriteResponse
from cairn.model.sharding.spans import Ranges, of_buckets
from cairn.node.statements.asker.measuring import written
from cairn.node.statements.asker.owners import MOVING, Owners, Params, patience_s
from cairn.node.statements.context import LATE, Context
from cairn.sql import plans
from cairn.storage.files.pieces import Row

WRITE_S, LONG_WRITE_S = 30.0, 600.0  # of some rows by their keys, and of many
AGAIN = 64  # attempts of a part whose rows others change in between
LAST_WORD_S = 0.5  # for the verdict on a write that was told to end

T = TypeVar("T")
#: What each replicaset has to do, for all buckets of a statement or only for some of them.
Requests = Callable[[Ranges | None], dict[str, WriteRequest]]
Again = Callable[[], Awaitable[None]]


class Back:
    """What RETURNING gathers."""

    def __init__(self, plan: plans.Returning, params: Params) -> None:
        self._plan, self._clause = plan, plan.clause(params)
        self.rows: list[Row] = []
        self.inserted: list[tuple[int, plans.Row]] = []

    def asking(self, request: WriteRequest) -> WriteRequest:
        statements = (request.sql, *(sql for sql, _ in request.more))
        told = tuple(at for at, sql in enumerate(statements) if self._plan.is_told(sql))
        return msgspec.structs.replace(request, returning=self._clause, told=told)


class Dispatch:
    """Of one statement. `back` gathers what RETURNING tells."""

    def __init__(self, owners: Owners, context: Context, back: Back | None = None) -> None:
        self._owners, self._context, self._back = owners, context, back

    async def write_at(
        self, replicaset: str, request: WriteRequest, *, may_end: bool = True
    ) -> WriteResponse:
        """Done there, or an error that says whether it may have been done.

        `may_end`: a cancel takes it back. Not where others do their part of the same statement.
        """
        if may_end:
            self._context.check()
        if self._back is None or request.check_only:  # the check round tells nothing yet
            return await self._ask(replicaset, request, may_end)
        request = self._back.asking(request)
        answer = await self._ask(replicaset, request, may_end)
        self._back.rows += answer.rows
        return answer

    async def _ask(self, replicaset: str, request: WriteRequest, may_end: bool) -> WriteResponse:
        stage, owners = self._context.stage, self._owners
        target = owners.routes.master(replicaset)
        asking = self._ask_master(target, replicaset, request, may_end)
        if stage is None:
            return await asking
        is_here = target == owners.raft_id
        work = stage.at(owners.name_of(target), replicaset, is_here=is_here)
        return await written(work, request, asking)

    async def _ask_master(
        self, target: int, replicaset: str, request: WriteRequest, may_end: bool
    ) -> WriteResponse:
        context, owners = self._context, self._owners
        try:
            if target == owners.raft_id:
                owners.local += 1
                if may_end and context.watch is not None:  # who watches looks at the clock as well
                    return await owners.execution.writes.write_or_end(request, context.cancelled)
                async with asyncio.timeout_at(context.deadline if may_end else None):
                    return await owners.execution.writes.write(request)
            owners.forwarded += 1
            context.travelled.hops += 1
            most_s = WRITE_S if request.ranges is None else LONG_WRITE_S
            return await owners.peers.call(
                target,
                "write_rows",
                request,
                WriteResponse,
                context.left_s(most_s) if may_end else most_s,
                must_end=may_end,
                last_word_s=LAST_WORD_S if may_end else 0.0,
            )
        except NotSent as problem:
            raise owners.no_answer(replicaset, target, problem) from None
        except Unreachable as problem:
            if request.check_only:
                context.check()
            raise unknown(f"the master of {replicaset}", problem) from None
        except TimeoutError:
            if request.check_only:
                context.check()
            raise OutcomeUnknown(
                f"{LATE}; the write had begun",
                hint="look whether the rows are there before trying again",
            ) from None

    async def write_all(
        self, requests: Requests, *, may_end: bool = True, again: Again | None = None
    ) -> int:
        """One replicaset: just do it. Several: check everywhere, then do it.

        `again`: what makes `requests` anew for those whose rows were changed since the check.
        """
        watched = self._context.watched if may_end else _awaited

        async def single() -> int:
            wanted = requests(None)
            if not wanted:
                return 0
            if len(wanted) > 1:
                raise _Several
            [(owner, request)] = wanted.items()
            return (await self.write_at(owner, request)).row_count

        context, following = self._context, self._owners.following
        try:
            return await watched(following(single, context))
        except _Several:
            pass

        begun = ExitStack()

        async def check() -> dict[str, WriteRequest]:
            wanted = requests(None)
            trial = {
                owner: msgspec.structs.replace(request, check_only=True)
                for owner, request in wanted.items()
            }
            with ExitStack() as kept:
                for table in {request.table for request in wanted.values()}:
                    kept.enter_context(self._owners.under_way.write(table))
                await asyncio.gather(*(self.write_at(o, r) for o, r in trial.items()))
                begun.push(kept.pop_all())
            return wanted

        with begun:
            wanted = await watched(following(check, context))
            context.check()
            context.check_wanted()
            return _judge(await self._do_all(wanted, requests, again))

    async def _do_all(
        self, wanted: dict[str, WriteRequest], requests: Requests, again: Again | None
    ) -> list[tuple[str, Any]]:
        """What became of each part, by replicaset.

        A part that certainly was not executed, because its buckets or its master moved, is sent
        again to whoever owns those buckets now. The others are never repeated: from here on, what
        stands in the way of the rest is part of the outcome, not a reason to begin anew. Nor does a
        cancel or a time limit end it: it takes about as long as the check before it has taken.
        """
        settled: list[tuple[str, Any]] = []
        attempts = 0
        begun = asyncio.get_running_loop().time()
        while wanted:
            answers = await asyncio.gather(
                *(self.write_at(o, request, may_end=False) for o, request in wanted.items()),
                return_exceptions=True,
            )
            left: Ranges = ()
            is_changed = False
            attempts += 1
            waited_s = asyncio.get_running_loop().time() - begun
            for (owner, request), answer in zip(wanted.items(), answers, strict=True):
                if isinstance(answer, MOVING) and waited_s < patience_s(answer):
                    left += request.ranges if request.ranges else of_buckets(request.buckets)
                elif isinstance(answer, CasRetry) and again is not None and attempts < AGAIN:
                    left += of_buckets(request.buckets)
                    is_changed = True
                else:
                    settled.append((owner, answer))
            if not left:
                break
            if not is_changed:
                await self._owners.moved()
            try:
                if is_changed and again is not None:
                    await again()
                wanted = await self._owners.following(
                    partial(_later, requests, left), self._context, may_end=False
                )
            except CairnError as problem:
                if not settled:
                    raise
                return [*settled, (f"buckets {left}", problem)]
        return settled


async def _awaited(work: Coroutine[Any, Any, T]) -> T:
    return await work


async def _later(requests: Requests, left: Ranges) -> dict[str, WriteRequest]:
    return requests(left)


def unknown(who: str, problem: CairnError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{who} did not answer: {problem.message}",
        hint="look whether the rows are there before trying again",
    )


class _Several(Exception):
    """A write needs more than one replicaset."""


def _judge(answers: list[tuple[str, Any]]) -> int:
    """All done, or an error that lists what happened where."""
    if not any(isinstance(answer, BaseException) for _, answer in answers):
        return sum(answer.row_count for _, answer in answers)
    lines = []
    for replicaset, answer in sorted(answers, key=lambda each: each[0]):
        if isinstance(answer, WriteResponse):
            lines.append(f"{replicaset}: done({answer.row_count})")
        elif isinstance(answer, OutcomeUnknown):
            lines.append(f"{replicaset}: unknown ({answer.message})")
        elif isinstance(answer, CairnError):
            lines.append(f"{replicaset}: not executed ({answer.message})")
        else:
            lines.append(f"{replicaset}: unknown ({answer})")
    raise PartialWrite(
        "the write was carried out on some replicasets only",
        detail="; ".join(lines),
        hint="what was done stays: repeat the statement for the rest only",
    )
