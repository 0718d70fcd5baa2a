"""The upstream's side of a pull: who may have which records, and what was sent to whom."""

from __future__ import annotations

import asyncio

from cairn.model.log.records import Packed
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import Traffic
from cairn.node.rows.mesh import Mesh
from cairn.node.rows.place import Place
from cairn.replication.relay import (
    Rows,
    Subscribe,
    check_history,
    has_news,
    select,
    wanted_origins,
)
from cairn.storage.data_db.row_log import LogReader

BATCH_BYTES = 2 * 1024 * 1024  # of one origin; a single record may be longer
#: Between two answers with few records, in async mode: a pull and a commit for each write of a lone
#: client cost more than the write (docs/adr/0016).
LINGER_S = 0.005


class Relay:
    """Answers SUBSCRIBE."""

    def __init__(
        self,
        place: Place,
        data: DataPlane,
        reader: LogReader,
        acks: Acknowledgements,
        mesh: Mesh,
    ) -> None:
        self._place, self._data, self._reader = place, data, reader
        self._acks, self._mesh = acks, mesh
        self.sent: dict[str, dict[str, Traffic]] = {}  # subscriber uuid → origin → what was sent
        self._answered: dict[str, float] = {}  # subscriber uuid → when it last got records

    async def subscribe(self, request: Subscribe) -> Rows:
        self._place.check_peer(request.replicaset, request.subscriber)
        await self._place.complete()
        data = self._data
        if request.epoch == self._place.history.epoch:
            check_history(request, data.vclock, self._reader.epoch_at)
        self._acks.take(request)
        await self._news_for(request)
        if not data.fence.is_sync:
            await self._gather(request)
        vclock = dict(data.vclock)
        records = select(request, vclock, self._reader.oldest, self._read)
        sent = self.sent.setdefault(request.subscriber, {})
        for record in records:
            sent.setdefault(record.origin, Traffic()).count(record)
        version = self._mesh.version
        routes = None
        if request.seen_routes != version:
            routes = self._mesh.routing.publications()
        return Rows(records, vclock, data.epoch, version, routes, self._place.history.epoch)

    async def _news_for(self, request: Subscribe) -> None:
        """Until there is something to say, at most `wait_s`.

        What only others asked for is no news: in a mesh every row would wake everybody's pulls.
        A new epoch is: acknowledgements begin anew in it.
        """
        loop, history = asyncio.get_running_loop(), self._place.history
        until = loop.time() + request.wait_s
        while (
            not has_news(request, self._data.vclock)
            and request.seen_routes == self._mesh.version
            and history is self._place.history
            and (left := until - loop.time()) > 0
        ):
            await self._data.wait_moved(left)
            await self._place.complete()  # an epoch may have come meanwhile

    async def _gather(self, request: Subscribe) -> None:
        """The first record after a pause goes at once; those that follow it closely go together."""
        vclock, loop = self._data.vclock, asyncio.get_running_loop()
        waiting = sum(
            max(vclock.get(origin, 0) - request.vclock.get(origin, 0), 0)
            for origin in wanted_origins(request, vclock)
        )
        if not waiting:
            return
        left = self._answered.get(request.subscriber, 0.0) + LINGER_S - loop.time()
        if left > 0 and waiting < request.limit // 4:
            await asyncio.sleep(left)
            await self._place.complete()
        self._answered[request.subscriber] = loop.time()

    def _read(self, origin: str, after: int, limit: int) -> list[Packed]:
        return self._reader.packed(origin, after, limit, BATCH_BYTES)
