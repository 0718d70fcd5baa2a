"""Rows for COPY, streamed: those of this instance by one cursor in one read transaction.

They leave as they are read, so memory stays flat. Many rows of a plain scan, and all that go as
Arrow, are read by a worker process (`scan_pool.py`); the rest, and what a worker cannot, by a
thread of the instance. Rows of others are asked for a few buckets at a time.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import msgspec

from cairn.model.errors import (
    CairnError,
    LimitExceeded,
    NoMaster,
    NotOwner,
    PlanOutdated,
    QueryCanceled,
    TableUnderDdl,
)
from cairn.model.rpc import ReadRequest
from cairn.model.settings import limits
from cairn.model.sharding.spans import Ranges, merged
from cairn.model.types.row_shape import RowShape
from cairn.node.statements.context import ASKED
from cairn.server.caller import Caller
from cairn.server.scan import pool as scan_pool
from cairn.server.scan.arrow_types import BATCH_ROWS, Row
from cairn.server.scan.statement import ENOUGH, LinesAsked, Scan
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.files.pieces import plain
from cairn.storage.readers import RowReader
from cairn.storage.sqlite_errors import translated

Encode = Callable[[Sequence[Row]], bytes]
Chunks = AsyncIterator[tuple[int, bytes]]
MOVED = (NotOwner, NoMaster)
FIRST_BUCKETS = 10  # asked of another instance; then more or fewer, as they turn out
HANDY = 2 * 1024 * 1024  # bytes of an answer: longer ones keep a link's other messages waiting


Begin = Callable[[], Awaitable[Chunks]]
HELD_BACK = 256 * 1024  # bytes of an answer that wait for those behind them


async def begun(caller: Caller, begin: Begin) -> Chunks:
    """The same pieces. Until the first leave here nobody was told anything: it is begun anew while
    buckets, masters or tables change, as every statement is. A short answer leaves as a whole."""

    async def attempt() -> tuple[list[tuple[int, bytes]], Chunks]:
        found, held, size = await begin(), [], 0
        try:
            async for piece in found:
                held.append(piece)
                size += len(piece[1])
                if size >= HELD_BACK:
                    break
        except PlanOutdated as problem:
            raise TableUnderDdl(problem.message) from None  # it is planned anew, too
        return held, found

    work = caller.executor.reads.owners.following(attempt, caller.context)
    held, rest = await caller.context.watched(work)
    return _behind(held, rest)


async def _behind(held: list[tuple[int, bytes]], rest: Chunks) -> Chunks:
    while held:
        yield held.pop(0)
    async for piece in rest:
        yield piece


def is_by_bucket(query: Cached) -> bool:
    """Who names buckets knows the topology, and asks another owner by itself."""
    fragment = only_fragment(query.prepared.plan)
    return fragment is not None and fragment.buckets is not None and b"bucket_id" in query.text


async def chunks(
    caller: Caller, query: Cached, encode: Encode, asked: LinesAsked | RowShape | None
) -> Chunks:
    """(rows, bytes) of the answer's pieces: lines, rows in binary, or Arrow if nothing is asked."""
    values = query.prepared.start((), caller.instance.runtime.wall_clock())
    fragment = only_fragment(query.prepared.plan)
    if fragment is None:
        return _gathered(caller, query, values, encode)
    targets = targets_of(caller, fragment, values)
    if others := away(caller, targets):
        if asked is None and is_by_bucket(query):
            raise NotOwner(
                "the asked buckets do not belong to this replicaset",
                detail=f"owner: {', '.join(others)}",
                hint="read the topology again and ask the owner",
            )
        return _collected(caller, query, fragment, values, targets, encode)
    ranges = tuple(part for found in targets.values() for part in found)
    request = read_request(caller, query, fragment, values, ranges)
    try:
        if asked is None or await _is_for_a_worker(caller, request):
            found = await scan_pool.scan(caller, request, query.prepared.columns, asked)
            if found is not None:
                return found
    except MOVED:
        if asked is None and fragment.buckets is not None:
            raise  # whoever asked for these buckets here knows whom to ask next
    return _collected(caller, query, fragment, values, targets, encode)


async def _collected(
    caller: Caller,
    query: Cached,
    fragment: plans.Fragment,
    values: list[Any],
    targets: dict[str, Ranges],
    encode: Encode,
) -> Chunks:
    """Rows of several replicasets, one after the other.

    What leaves this instance before it is read is asked of its new owner. From then on the rows
    are those of one moment, at which they were ours, however long they are told.
    """
    instance, routes = caller.instance, caller.executor.reads.owners.routes
    for replicaset, ranges in targets.items():
        target = routes.reader(replicaset, caller.context.preference, instance.raft_id)
        if target == instance.raft_id:
            request = read_request(caller, query, fragment, values, ranges)
            is_begun = False
            try:
                async for piece in streamed(caller, request, encode):
                    is_begun = True
                    yield piece
                continue
            except MOVED:
                if is_begun:
                    raise
        async for piece in _asked_for(caller, query, fragment, values, encode, ranges):
            yield piece


async def _asked_for(
    caller: Caller,
    query: Cached,
    fragment: plans.Fragment,
    values: list[Any],
    encode: Encode,
    ranges: Ranges,
) -> Chunks:
    """Rows of another replicaset, as many buckets at a time as make a message of a handy size."""
    context = caller.context.without_limits()

    def request(owned: tuple[int, ...]) -> ReadRequest:
        asked = merged((bucket, bucket) for bucket in owned)
        return read_request(caller, query, fragment, values, asked)

    waiting, step = list(reversed(ranges)), FIRST_BUCKETS
    while waiting:
        if caller.context.cancelled.is_set():
            raise QueryCanceled(ASKED)
        low, last = waiting.pop()
        high = min(low + step - 1, last)
        try:
            rows = await caller.executor.reads.read_buckets(
                fragment.tier, range(low, high + 1), request, context
            )
        except CairnError as problem:
            if problem.sqlstate != LimitExceeded.sqlstate or step == 1:
                raise
            waiting.append((low, last))  # too much for one answer
            step = max(step // 4, 1)
            continue
        size = 0
        async for count, data in _encoded(rows, encode):
            size += len(data)
            yield count, data
        if high < last:
            waiting.append((high + 1, last))
        step = _next_step(step, size)


def _next_step(step: int, size: int) -> int:
    """How many buckets are asked for after `step` of them made `size` bytes. Each question may be a
    long way: few are better, but no bucket is like the others."""
    if size < HANDY // 32:
        return step * 16
    if size < HANDY // 2:
        return step * 2
    return max(step // 2, 1) if size > 2 * HANDY else step


async def _gathered(caller: Caller, query: Cached, values: list[Any], encode: Encode) -> Chunks:
    """Whatever needs a merge or lives in global tables."""
    plan: Any = query.prepared.plan
    plan = plan.read if isinstance(plan, plans.TempRead) else plan
    context = caller.context.without_limits()
    rows, more = await caller.executor.reads.open(plan, values, query.sharded, context)
    try:
        while rows:
            async for piece in _encoded(rows, encode):
                yield piece
            found = None if more is None else await context.watched(more.next(context))
            rows = plain(found or [])
    finally:
        if more is not None:
            more.close()


async def _encoded(rows: Sequence[Row], encode: Encode) -> Chunks:
    for start in range(0, len(rows), BATCH_ROWS):
        chunk = rows[start : start + BATCH_ROWS]
        yield len(chunk), await asyncio.to_thread(encode, chunk)


async def _is_for_a_worker(caller: Caller, request: ReadRequest) -> bool:
    """A scan of many rows, where the libraries for it are installed."""
    scan = Scan.of(request.sql, request.args)
    if scan is None or not has_libraries():
        return False
    sample = msgspec.structs.replace(request, sql=scan.sample)
    [(count,)] = await caller.execution.reads.read(sample, caller.context.cancelled)
    return bool(count >= ENOUGH)


@functools.cache
def has_libraries() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow"))


def away(caller: Caller, targets: dict[str, Ranges]) -> list[str]:
    """Replicasets whose rows another instance has to read."""
    routes, raft_id = caller.executor.reads.owners.routes, caller.instance.raft_id
    preference = caller.context.preference
    return sorted(name for name in targets if routes.reader(name, preference, raft_id) != raft_id)


def only_fragment(plan: plans.Plan) -> plans.Fragment | None:
    """The fragment of a plan that does nothing but hand its rows through."""
    from cairn.node.statements.asker.short.merges import PLAIN_MERGE

    if not isinstance(plan, plans.ScatterRead) or plan.steps or len(plan.fragments) != 1:
        return None
    return plan.fragments[0] if PLAIN_MERGE.fullmatch(plan.sql) else None


def targets_of(caller: Caller, fragment: plans.Fragment, values: list[Any]) -> dict[str, Ranges]:
    routes = caller.executor.reads.owners.routes
    buckets = fragment.bucket_set(values)
    if buckets is None:
        return routes.all_ranges(fragment.tier)
    return {
        replicaset: merged((bucket, bucket) for bucket in owned)
        for replicaset, owned in routes.group(fragment.tier, buckets).items()
    }


def read_request(
    caller: Caller, query: Cached, fragment: plans.Fragment, values: list[Any], ranges: Ranges
) -> ReadRequest:
    return ReadRequest(
        fragment.with_ranges(list(ranges)),
        fragment.bind(values),
        {table: query.sharded[table] for table in fragment.tables if table in query.sharded},
        ranges=ranges,
        preference=caller.context.preference,
        is_local=caller.context.is_local,
    )


async def streamed(
    caller: Caller, request: ReadRequest, encode: Encode
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of this instance: one cursor on a connection and a thread of their own."""
    execution = caller.execution
    still = execution.reads.still(request)
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, thread_name_prefix="copy")
    scan = _Scan(caller, request, encode)
    try:
        found = await loop.run_in_executor(pool, scan.following)
        epoch = still()
        while found is not None:
            following = loop.run_in_executor(pool, scan.following)  # while the client takes this
            yield found
            found = await following
        await execution.reads.check_told(request, epoch)  # only now the rows are one
    finally:
        scan.is_over = True
        pool.submit(scan.close)
        pool.shutdown(wait=False)


class _Scan:
    """The cursor of one COPY. Everything but the making happens on its own thread."""

    def __init__(self, caller: Caller, request: ReadRequest, encode: Encode) -> None:
        instance = caller.instance
        self._paths = instance.data.store.path, instance.store.path
        self._register = caller.execution.reads.register
        self._request, self._encode = request, encode
        self._cancelled = caller.context.cancelled
        self._reader: RowReader | None = None
        self._cursor: Any = None
        self.is_over = False  # nobody waits for more

    def _is_stopped(self) -> bool:
        return self.is_over or self._cancelled.is_set()

    def following(self) -> tuple[int, bytes] | None:
        """Rows and bytes of the next batch; None at the end."""
        import apsw

        try:
            if self._reader is None:
                self._reader = RowReader(
                    *self._paths, self._register, spill_max=lambda: limits.SPILL_BYTES
                )
                self._reader.may_spill()
                self._reader.connection.set_progress_handler(self._is_stopped, 10_000)
                self._cursor = self._reader.connection.execute(
                    self._request.sql, self._request.args
                )
            rows = list(islice(self._cursor, BATCH_ROWS))
        except apsw.InterruptError:
            raise QueryCanceled(ASKED) from None
        except apsw.Error as problem:
            told = translated if self._reader is None else self._reader.told
            raise told(problem) from None
        return (len(rows), self._encode(rows)) if rows else None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
