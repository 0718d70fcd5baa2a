"""Which rows this instance takes from whom. It carries out what `replication/routing.py` decides.

The rows of an origin reach an instance by one path: each upstream is asked for some origins only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cairn.model.log.records import Vclock
from cairn.model.members.topology import Instance as InstanceRow
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.place import Place
from cairn.replication.graph import edges_of
from cairn.replication.relay import Rows
from cairn.replication.routing import Effect, Publish, Routing

BEAT_S = 1.0
Table = list[tuple[str, str, str, int]]  # subscriber, source, upstream and depth of each route


class Mesh:
    """`on_routes` is given the routes when they have changed; `on_beat` is called every second."""

    def __init__(
        self,
        place: Place,
        data: DataPlane,
        incarnation: int,
        on_routes: Callable[[Table], None],
        on_beat: Callable[[], None],
    ) -> None:
        self._place, self._data = place, data
        self._on_routes, self._on_beat = on_routes, on_beat
        self.routing = Routing(place.uuid, incarnation)
        self.version = incarnation  # of our publications: never one that a subscriber has seen
        self._seen: dict[str, int] = {}  # versions of upstreams
        self._vclocks: dict[str, Vclock] = {}  # of upstreams, as last heard

    def upstreams(self) -> list[InstanceRow]:
        """All other members, unless the setting `replication_graph` says otherwise. Who needs all
        rows asks the master for them, whatever it says."""
        found, state = self._place.replicaset(), self._place.state
        if found is None:
            return []
        me, members = self._place.name, state.cluster.members(found[1].name)
        text = str(state.setting("replication_graph", "") or "")
        graph = edges_of(text, {member.name for member in members})
        giver = found[1].current_master_name if self._place.must_copy else ""
        return [
            member
            for member in members
            if member.name != me
            and (graph is None or (member.name, me) in graph or member.name == giver)
        ]

    async def beat(self) -> None:
        """Our heartbeat to those downstream, and an eye on the heartbeats that we hear."""
        while True:
            await asyncio.sleep(BEAT_S)
            before = self.routing.table()
            self._carry_out(self.routing.tick())
            if self.routing.table() != before:
                self._on_routes(self.routing.table())
            self.version += 1
            self._data.announce()
            self._on_beat()

    def reaches(self) -> set[str]:
        """Origins whose rows come to us, directly or through others."""
        return {route.source for route in self.routing.own.routes}

    def origins_at(self, upstream: str) -> tuple[str, ...]:
        """What routing takes from this upstream, and rows of origins that nobody can reach.

        The records of a dead instance have no live path, but those who have them can give them.
        """
        taken, reached = self.routing.origins_of(upstream), self.reaches()
        orphans = [
            origin
            for origin, lsn in self._vclocks.get(upstream, {}).items()
            if origin not in reached
            and origin not in (self._place.uuid, upstream)
            and lsn > self._data.vclock.get(origin, 0)
        ]
        return (*taken, *(origin for origin in orphans if origin not in taken))

    def seen_of(self, upstream: str) -> int:
        return self._seen.get(upstream, 0)

    def told(self, upstream: str, vclock: Vclock) -> None:
        """What an upstream has, said before the first pull."""
        self._vclocks[upstream] = vclock

    def heard(self, upstream: str, answer: Rows) -> None:
        self._vclocks[upstream] = answer.vclock
        self._carry_out(self.routing.connected(upstream))
        if answer.routes is not None:
            self._seen[upstream] = answer.routes_version
            before = self.routing.table()
            self._carry_out(self.routing.received(upstream, answer.routes))
            if self.routing.table() != before:
                self.version += 1  # what we know of others goes on downstream
                self._on_routes(self.routing.table())

    def lost(self, upstream: str) -> None:
        self._vclocks.pop(upstream, None)
        self._seen.pop(upstream, None)
        self._carry_out(self.routing.disconnected(upstream))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """A new list goes out with the next pull; rows are told with the next answer."""
        if any(isinstance(effect, Publish) for effect in effects):
            self.version += 1
            self._data.announce()
        if effects:
            self._on_routes(self.routing.table())
