"""`COPY … TO STDOUT (FORMAT arrow)`: columns in bulk, for Spark and whoever else reads Arrow.

Each CopyData message carries one whole Arrow IPC stream: a schema and a batch of rows. Rows that
live here are streamed (`scans.py`, `scan_pool.py`); rows of others are asked for a few buckets at
a time. A query that restricts `bucket_id` is answered only by a member of the replicaset that
owns those buckets: anyone else says PC001 before the first row, and the reader plans anew.
The way in is `arrow_in.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cairn.node.watching.client import Client
from cairn.server.caller import Caller
from cairn.server.scan.arrow_in import BatchDecoder
from cairn.server.scan.arrow_types import BatchEncoder
from cairn.server.scan.scans import Chunks, Encode, begun, chunks, is_by_bucket
from cairn.server.statements import Cached

__all__ = ["BatchDecoder", "copy_out"]


async def copy_out(
    session: Client, caller: Caller, asked: Callable[[], Cached], drained: Callable[[], Any]
) -> int:
    """Send the rows of a query; the number of rows sent. `asked` plans it for the present."""
    query = asked()
    if is_by_bucket(query):
        found = await chunks(caller, query, _encode(query), None)
    else:

        async def begin() -> Chunks:
            nonlocal query
            query = asked()
            return await chunks(caller, query, _encode(query), None)

        found = await begun(caller, begin)
    count, is_begun, width = 0, False, len(query.prepared.columns)
    async for chunk, data in found:
        if not is_begun:
            session.pg.copy_out_response(1, width)
            is_begun = True
        session.pg.copy_data(data)
        session.flush()
        await drained()
        count += chunk
    if not is_begun:
        session.pg.copy_out_response(1, width)
        session.pg.copy_data(_encode(query)(()))  # the columns of an empty answer
    session.pg.copy_done()
    return count


def _encode(query: Cached) -> Encode:
    """For rows that are encoded by the instance itself; the library is loaded when one is."""

    @functools.cache
    def encoder() -> BatchEncoder:
        columns = query.prepared.columns
        return BatchEncoder([each.name for each in columns], [each.type for each in columns])

    return lambda rows: encoder().encode(rows)
