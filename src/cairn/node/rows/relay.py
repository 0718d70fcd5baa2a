"""The upstream's side of a pull: who may have which records, and what was sent to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cairn.model.errors import CairnError
from cairn.model.log.records import Packed
from cairn.net.link import Later
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import Traffic
from cairn.node.rows.mesh import Mesh
from cairn.node.rows.place import Place
from cairn.node.runtime import spawn
from cairn.replication.applier import History
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


class _Held:
    """A pull without news; it is held until there are some or its time is over."""

    __slots__ = ("history", "later", "look", "request", "timer")
    look: Callable[[], None]
    timer: asyncio.TimerHandle

    def __init__(self, request: Subscribe, history: History, later: Later) -> None:
        self.request, self.history, self.later = request, history, later


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
        self._held: set[_Held] = set()

    def close(self) -> None:
        for held in list(self._held):
            self._let_go(held)

    async def subscribe(self, request: Subscribe) -> Rows:
        self._place.check_peer(request.replicaset, request.subscriber)
        await self._place.complete()
        self._heed(request)
        await self._news_for(request)
        if not self._data.fence.is_sync:
            await self._gather(request)
        return self._rows(request)

    def answer(self, request: Subscribe) -> Rows | Later | Awaitable[Rows]:
        """Where clients wait for the subscriber it costs no task, and no turn of the loop."""
        if not self._data.fence.is_sync or not self._place.is_complete:
            return self.subscribe(request)
        self._heed(request)
        if self._has_news(request, self._place.history):
            return self._rows(request)
        return self._hold(request)

    def _hold(self, request: Subscribe) -> Later:
        loop = asyncio.get_running_loop()
        held = _Held(request, self._place.history, Later())
        held.look = lambda: self._look_again(held)
        held.timer = loop.call_later(request.wait_s, self._let_answer, held)
        self._held.add(held)
        self._data.when_moved(held.look)
        return held.later

    def _look_again(self, held: _Held) -> None:
        if self._has_news(held.request, held.history):
            self._let_answer(held)
        elif held in self._held:
            self._data.when_moved(held.look)

    def _let_answer(self, held: _Held) -> None:
        if self._let_go(held):
            if self._place.is_complete:
                held.later.say(self._rows_or_problem(held.request))
            else:  # an epoch has come and is being entered
                spawn(self._answer_when_complete(held), "answer a pull")

    def _let_go(self, held: _Held) -> bool:
        """Whether it was held until now."""
        if held not in self._held:
            return False
        self._held.discard(held)
        self._data.forget(held.look)
        held.timer.cancel()
        return True

    async def _answer_when_complete(self, held: _Held) -> None:
        try:
            await self._place.complete()
        except CairnError as problem:
            held.later.say(problem)
        else:
            held.later.say(self._rows_or_problem(held.request))

    def _rows_or_problem(self, request: Subscribe) -> Rows | Exception:
        try:
            return self._rows(request)
        except Exception as problem:  # the link makes an error of it
            return problem

    def _heed(self, request: Subscribe) -> None:
        """Who asks, and what it has: nothing else may come in between."""
        self._place.check_peer(request.replicaset, request.subscriber)
        if request.epoch == self._place.history.epoch:
            check_history(request, self._data.vclock, self._reader.epoch_at)
        self._acks.take(request)

    def _rows(self, request: Subscribe) -> Rows:
        data = self._data
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

    def _has_news(self, request: Subscribe, history: History) -> bool:
        """What only others asked for is no news: in a mesh every row would wake everybody's pulls.
        A new epoch is: acknowledgements begin anew in it.
        """
        return (
            has_news(request, self._data.vclock)
            or request.seen_routes != self._mesh.version
            or history is not self._place.history
        )

    async def _news_for(self, request: Subscribe) -> None:
        """Until there is something to say, at most `wait_s`."""
        loop, history = asyncio.get_running_loop(), self._place.history
        until = loop.time() + request.wait_s
        while not self._has_news(request, history) and (left := until - loop.time()) > 0:
            await self._data.wait_moved(left)
            await self._place.complete()  # an epoch may have come meanwhile

    async def _gather(self, request: Subscribe) -> None:
        """The first record after a pause goes at once; those that follow it closely go together."""
        vclock, loop = self._data.vclock, asyncio.get_running_loop()
        waiting = sum(
            max(vclock.get(origin, 0) - request.asks_after(origin), 0)
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
