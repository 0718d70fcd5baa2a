"""The upstream's side of a pull: who may have which records, and what was sent to whom."""

from __future__ import annotations

import asyncio

from cairn.model.errors import NoMaster
from cairn.model.records import Packed
from cairn.node.rows.links import Traffic
from cairn.node.rows.sync_counting import SyncCounting
from cairn.replication.applier import OtherReplicaset
from cairn.replication.relay import (
    Rows,
    Subscribe,
    check_history,
    has_news,
    select,
    wanted_origins,
)
from cairn.replication.routing import Routing
from cairn.storage.row_log import LogReader

BATCH_BYTES = 2 * 1024 * 1024  # of one origin; a single record may be longer
#: Between two answers with few records, in async mode: a pull and a commit for each write of a lone
#: client cost more than the write (docs/adr/0016).
LINGER_S = 0.005


class Relaying(SyncCounting):
    """Answers SUBSCRIBE. `Replication` is built on it and is a subscriber itself."""

    routing: Routing
    relayed: dict[str, dict[str, Traffic]]  # subscriber uuid → origin → what was sent
    _reader: LogReader
    _entered: asyncio.Event
    _must_copy: bool
    _routes_version: int
    _answered: dict[str, float]  # subscriber uuid → when it last got records

    async def handle_subscribe(self, request: Subscribe) -> Rows:
        self._check_peer(request.replicaset, request.subscriber)
        await self._complete()
        data = self.data
        if request.epoch == self._history.epoch:
            check_history(request, data.vclock, self._reader.epoch_at)
        self._acknowledge(request)
        await self._news_for(request)
        if not data.fence.is_sync:
            await self._gather(request)
        vclock = dict(data.vclock)
        records = select(request, vclock, self._reader.oldest, self._read)
        sent = self.relayed.setdefault(request.subscriber, {})
        for record in records:
            sent.setdefault(record.origin, Traffic()).count(record)
        version = self._routes_version
        routes = None
        if request.seen_routes != version:
            routes = self.routing.publications()
        return Rows(records, vclock, data.epoch, version, routes, self._history.epoch)

    async def _news_for(self, request: Subscribe) -> None:
        """Until there is something to say, at most `wait_s`.

        What only others asked for is no news: in a mesh every row would wake everybody's pulls.
        A new epoch is: acknowledgements begin anew in it.
        """
        loop, history = asyncio.get_running_loop(), self._history
        until = loop.time() + request.wait_s
        while (
            not has_news(request, self.data.vclock)
            and request.seen_routes == self._routes_version
            and history is self._history
            and (left := until - loop.time()) > 0
        ):
            await self.data.wait_moved(left)
            await self._complete()  # an epoch may have come meanwhile

    async def _gather(self, request: Subscribe) -> None:
        """The first record after a pause goes at once; those that follow it closely go together."""
        vclock, loop = self.data.vclock, asyncio.get_running_loop()
        waiting = sum(
            max(vclock.get(origin, 0) - request.vclock.get(origin, 0), 0)
            for origin in wanted_origins(request, vclock)
        )
        if not waiting:
            return
        left = self._answered.get(request.subscriber, 0.0) + LINGER_S - loop.time()
        if left > 0 and waiting < request.limit // 4:
            await asyncio.sleep(left)
            await self._complete()
        self._answered[request.subscriber] = loop.time()

    async def _complete(self) -> None:
        """Rows are given only by an instance that has them all, of the present history."""
        await self._entered.wait()
        if self._must_copy:
            raise NoMaster("this instance has no complete rows itself")

    def _read(self, origin: str, after: int, limit: int) -> list[Packed]:
        return self._reader.packed(origin, after, limit, BATCH_BYTES)

    def _check_peer(self, replicaset_uuid: str, subscriber: str) -> None:
        """Rows never cross replicasets."""
        found = self._replicaset()
        row = self._state.cluster.by_uuid(subscriber)
        if found is None or row is None:
            raise NoMaster("this instance does not know its replicaset or the subscriber yet")
        mine, theirs = found[1], row.replicaset_name
        if mine.uuid != replicaset_uuid or theirs != mine.name:
            raise OtherReplicaset(
                f"{row.name} of {theirs} asked {self._name} of {mine.name} for rows: "
                "rows never cross replicasets"
            )
