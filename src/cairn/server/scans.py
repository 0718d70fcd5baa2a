"""Rows that live on this instance, streamed: read by one cursor in one read transaction.

They leave as they are read, so memory stays flat. As text they are read by a thread of the
instance; as Arrow by a worker process (`scan_pool.py`), or by the thread where it cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from cairn.model.errors import QueryCanceled
from cairn.model.rpc import ReadRequest
from cairn.node.routes import Ranges, merged
from cairn.server.arrow_types import BATCH_ROWS, Row
from cairn.server.statements import Cached
from cairn.sql import plans
from cairn.storage.readers import RowReader, translated

if TYPE_CHECKING:
    from cairn.server.connection import Connection

Encode = Callable[[Sequence[Row]], bytes]


def local_chunks(
    session: Connection, query: Cached, encode: Encode
) -> AsyncIterator[tuple[int, bytes]] | None:
    """The rows in pieces as they are read, if all of them live here; None if they do not."""
    fragment = only_fragment(query.prepared.plan)
    if fragment is None:
        return None
    values = query.prepared.start((), session.now())
    targets = targets_of(session, fragment, values)
    if away(session, targets):
        return None
    ranges = tuple(part for found in targets.values() for part in found)
    request = read_request(session, query, fragment, values, ranges)
    return streamed(session, request, encode)


def away(session: Connection, targets: dict[str, Ranges]) -> list[str]:
    """Replicasets whose rows another instance has to read."""
    routes, raft_id = session.service.dispatcher.routes, session.service.instance.raft_id
    return sorted(
        name for name in targets if routes.reader(name, session.preference, raft_id) != raft_id
    )


def only_fragment(plan: plans.Plan) -> plans.Fragment | None:
    """The fragment of a plan that does nothing but hand its rows through."""
    from cairn.node.reading import PLAIN_MERGE

    if not isinstance(plan, plans.ScatterRead) or plan.steps or len(plan.fragments) != 1:
        return None
    return plan.fragments[0] if PLAIN_MERGE.fullmatch(plan.sql) else None


def targets_of(
    session: Connection, fragment: plans.Fragment, values: list[Any]
) -> dict[str, Ranges]:
    routes = session.service.dispatcher.routes
    buckets = fragment.bucket_set(values)
    if buckets is None:
        return routes.all_ranges(fragment.tier)
    return {
        replicaset: merged((bucket, bucket) for bucket in owned)
        for replicaset, owned in routes.group(fragment.tier, buckets).items()
    }


def read_request(
    session: Connection, query: Cached, fragment: plans.Fragment, values: list[Any], ranges: Ranges
) -> ReadRequest:
    return ReadRequest(
        fragment.with_ranges(list(ranges)),
        fragment.bind(values),
        {table: query.sharded[table] for table in fragment.tables if table in query.sharded},
        ranges=ranges,
        preference=session.preference,
    )


async def streamed(
    session: Connection, request: ReadRequest, encode: Encode
) -> AsyncIterator[tuple[int, bytes]]:
    """Rows of this instance: one cursor on a connection and a thread of their own."""
    execution = session.service.execution
    execution.check_read(request)
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1, thread_name_prefix="copy")
    scan = _Scan(session, request, encode)
    following = loop.run_in_executor(pool, scan.following)
    try:
        while (found := await following) is not None:
            following = loop.run_in_executor(pool, scan.following)  # while the client takes this
            yield found
        execution.check_read(request)  # still ours: only now the rows are an answer
    finally:
        scan.is_over = True
        pool.submit(scan.close)
        pool.shutdown(wait=False)


class _Scan:
    """The cursor of one COPY. Everything but the making happens on its own thread."""

    def __init__(self, session: Connection, request: ReadRequest, encode: Encode) -> None:
        instance = session.service.instance
        self._paths = instance.data.store.path, instance.store.path
        self._register = session.service.execution._register
        self._request, self._encode = request, encode
        self._cancelled = session.cancelled
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
                self._reader = RowReader(*self._paths, self._register)
                self._reader.connection.set_progress_handler(self._is_stopped, 10_000)
                self._cursor = self._reader.connection.execute(
                    self._request.sql, self._request.args
                )
            rows = list(islice(self._cursor, BATCH_ROWS))
        except apsw.InterruptError:
            raise QueryCanceled("canceling statement due to user request") from None
        except apsw.Error as problem:
            raise translated(problem) from None
        return (len(rows), self._encode(rows)) if rows else None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
