"""`COPY … TO STDOUT (FORMAT arrow)`: columns in bulk, for Spark and whoever else reads Arrow.

Each CopyData message carries one whole Arrow IPC stream: a schema and a batch of rows. Rows that
live here are streamed (`scans.py`, `scan_pool.py`); rows of others are asked for a few buckets at
a time. A query that restricts `bucket_id` is answered only by a member of the replicaset that
owns those buckets: anyone else says PC001 before the first row, and the reader plans anew.
The way in is `arrow_in.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from cairn.model.errors import NotOwner
from cairn.model.rpc import ReadResponse
from cairn.node.reading import How
from cairn.node.routes import Ranges
from cairn.server import scan_pool, scans
from cairn.server.arrow_in import BatchDecoder
from cairn.server.arrow_types import BATCH_ROWS, BatchEncoder
from cairn.server.scans import Encode, local_chunks
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.connection import Connection

__all__ = ["BatchDecoder", "copy_out", "local_chunks"]

REMOTE_BUCKETS = 100  # asked of another instance at a time
REMOTE_S = 30.0


async def copy_out(session: Connection, query: Cached, drained: Callable[[Connection], Any]) -> int:
    """Send the rows of `query`; the number of rows sent."""
    columns = query.prepared.columns
    count, is_begun = 0, False
    async for chunk, data in await _chunks(session, query):
        if not is_begun:
            session.pg.copy_out_response(1, len(columns))
            is_begun = True
        session.pg.copy_data(data)
        session._flush()
        await drained(session)
        count += chunk
    if not is_begun:
        session.pg.copy_out_response(1, len(columns))
        session.pg.copy_data(_encode(query)(()))  # the columns of an empty answer
    session.pg.copy_done()
    return count


def _encode(query: Cached) -> Encode:
    """For rows that are encoded by the instance itself."""
    columns = query.prepared.columns
    return BatchEncoder([each.name for each in columns], [each.type for each in columns]).encode


async def _chunks(session: Connection, query: Cached) -> AsyncIterator[tuple[int, bytes]]:
    values = query.prepared.start((), session.now())
    fragment = scans.only_fragment(query.prepared.plan)
    if fragment is None:
        return _gathered(session, query, values)
    targets = scans.targets_of(session, fragment, values)
    away = scans.away(session, targets)
    if not away:
        ranges = tuple(part for found in targets.values() for part in found)
        request = scans.read_request(session, query, fragment, values, ranges)
        found = await scan_pool.scan(session, request, query.prepared.columns)
        return found or scans.streamed(session, request, _encode(query))
    if fragment.buckets is not None and b"bucket_id" in query.text:
        raise NotOwner(
            "the asked buckets do not belong to this replicaset",
            detail=f"owner: {', '.join(away)}",
            hint="read the topology again and ask the owner",
        )
    return _collected(session, query, fragment, values, targets)


async def _collected(
    session: Connection,
    query: Cached,
    fragment: plans.Fragment,
    values: list[Any],
    targets: dict[str, Ranges],
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of several replicasets, a few buckets at a time; each answer is checked by its owner."""
    instance, dispatcher = session.service.instance, session.service.dispatcher
    encode = _encode(query)
    for replicaset, ranges in targets.items():
        for part in _cut(ranges):
            request = scans.read_request(session, query, fragment, values, (part,))
            target = dispatcher.routes.reader(replicaset, session.preference, instance.raft_id)
            if target == instance.raft_id:
                rows = await session.service.execution.read(request, session.cancelled)
            else:
                answer = await instance.peers.call(
                    target, "read_rows", request, ReadResponse, REMOTE_S
                )
                rows = answer.rows
            for start in range(0, len(rows), BATCH_ROWS):
                chunk = rows[start : start + BATCH_ROWS]
                yield len(chunk), await asyncio.to_thread(encode, chunk)


def _cut(ranges: Ranges) -> list[tuple[int, int]]:
    return [
        (start, min(start + REMOTE_BUCKETS - 1, high))
        for low, high in ranges
        for start in range(low, high + 1, REMOTE_BUCKETS)
    ]


async def _gathered(
    session: Connection, query: Cached, values: list[Any]
) -> AsyncIterator[tuple[int, bytes]]:
    """Whatever needs a merge or lives in global tables: all of it, then in pieces."""
    rows = await session.service.dispatcher.read(
        query.prepared.plan,  # type: ignore[arg-type]
        values,
        query.sharded,
        How(session.preference, cancelled=session.cancelled),
    )
    encode = _encode(query)
    for start in range(0, len(rows), BATCH_ROWS):
        chunk = rows[start : start + BATCH_ROWS]
        yield len(chunk), await asyncio.to_thread(encode, chunk)
