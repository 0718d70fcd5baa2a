"""Looking at this instance, and at all of them together."""

from __future__ import annotations

import asyncio
from typing import Any

from cairn.model.errors import CairnError, UndefinedObject
from cairn.model.members.topology import Grade
from cairn.model.watched import SignalRequest, SignalResponse, WatchRequest, WatchResponse
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.watching.activity import Activity, Asker
from cairn.node.watching.samples import Samples
from cairn.node.watching.statistics import Statistics
from cairn.node.watching.table_sizes import TableSizes
from cairn.node.watching.tracer import Tracer

WATCH_S = 2.0  # an instance that does not answer within this time is left out
TABLES_S = 30.0  # all pages are read


class Watching:
    """What an instance can tell of its work, and whom it asks for the rest."""

    def __init__(
        self,
        name: str,
        raft_id: int,
        state: GlobalState,
        peers: Peers,
        sizes: TableSizes,
    ) -> None:
        self._name, self._raft_id, self._state, self._peers = name, raft_id, state, peers
        self._sizes = sizes
        self.activity = Activity(lambda: state.catalog)
        self.statistics = Statistics()
        self.samples = Samples()
        self.tracer = Tracer(name)

    # --- this instance ----------------------------------------------------------------------------

    async def answer(self, request: WatchRequest) -> WatchResponse:
        parts, statistics = request.parts, self.statistics
        return WatchResponse(
            self._name,
            sessions=self.activity.seen() if "sessions" in parts else (),
            statements=statistics.statements() if "statements" in parts else (),
            evicted=statistics.evicted,
            slow=tuple(statistics.slow) if "slow" in parts else (),
            tables=await self._sizes.get() if "tables" in parts else (),
            samples=self._sampled(request),
        )

    def _sampled(self, request: WatchRequest) -> tuple[tuple[float, ...], ...]:
        if "samples" in request.parts:
            return self.samples.since(request.since_s)
        last = self.samples.last() if "last" in request.parts else None
        return () if last is None else (last,)

    async def signal(self, request: SignalRequest) -> SignalResponse:
        signals = self.activity.signals(Asker(request.user, request.user_id))
        send = signals.terminate if request.what == "end" else signals.cancel
        return SignalResponse(bool(send(request.pid)))

    # --- all of them ------------------------------------------------------------------------------

    async def ask_all(self, request: WatchRequest) -> list[WatchResponse]:
        """Of every instance that answers, by name; the silent ones are missing."""
        timeout_s = TABLES_S if "tables" in request.parts else WATCH_S

        async def one(raft_id: int) -> WatchResponse | None:
            if raft_id == self._raft_id:
                return await self.answer(request)
            try:
                return await self._peers.call(raft_id, "watch", request, WatchResponse, timeout_s)
            except CairnError:
                return None

        ids = [
            row.raft_id
            for row in self._state.cluster.instances.values()
            if row.current_state.grade is Grade.ONLINE or row.raft_id == self._raft_id
        ]
        found = await asyncio.gather(*map(one, ids))
        return sorted((each for each in found if each is not None), key=lambda each: each.name)

    async def signal_at(self, instance: str, pid: int, what: str, asker: Any) -> bool:
        """End a statement or a session, wherever it is. That instance checks who asks."""
        row = self._state.cluster.instances.get(instance)
        if row is None:
            raise UndefinedObject(f'instance "{instance}" does not exist')
        request = SignalRequest(pid, what, asker.user_id, asker.user)
        if row.raft_id == self._raft_id:
            return (await self.signal(request)).is_done
        answer = await self._peers.call(
            row.raft_id, "signal_session", request, SignalResponse, WATCH_S
        )
        return answer.is_done
