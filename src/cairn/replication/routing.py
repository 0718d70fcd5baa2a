"""Who subscribes to whose rows through whom: the table `_routing`, decided.

Each instance keeps its own rows (subscriber, source, via, depth) and tells them downstream. A
direct link has depth 1; a path through an upstream is one longer than the upstream's own. The
shortest path wins, the first of equals stays. On connect and on a shorter path: resubscribe, then
publish. On disconnect: withdraw and publish, then look for another path, then publish again.

Rows travel outside the data vclock: (publisher, incarnation, counter) orders them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Uuid: TypeAlias = str
SILENCE_TICKS = 8  # without a heartbeat, before a publisher's rows are forgotten


class Route(msgspec.Struct, frozen=True, array_like=True):
    """One row of `_routing`; its subscriber is the publication's publisher."""

    source: Uuid
    via: Uuid
    depth: int


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """All rows of one subscriber, as of its (incarnation, counter)."""

    publisher: Uuid
    incarnation: int
    counter: int
    routes: tuple[Route, ...] = ()
    beat: int = 0  # the publisher's heartbeat: rows live as long as it goes on

    @property
    def age(self) -> tuple[int, int, int]:
        return self.incarnation, self.counter, self.beat


class Resubscribe(msgspec.Struct, frozen=True):
    """Subscribe anew at `upstream`, from the durable vclock, with this list of origins."""

    upstream: Uuid
    origins: tuple[Uuid, ...]


class Publish(msgspec.Struct, frozen=True):
    publication: Publication


Effect: TypeAlias = Resubscribe | Publish


class Routing:
    """One instance's part. Its runner keeps the links and carries out the effects in order."""

    def __init__(self, me: Uuid, incarnation: int) -> None:
        self.me = me
        self._incarnation, self._counter = incarnation, 0
        self._live: dict[Uuid, None] = {}  # direct upstreams, in the order of connecting
        self._known: dict[Uuid, Publication] = {}  # of others, by publisher
        self._heard_at: dict[Uuid, int] = {}  # publisher → our tick at its last heartbeat
        self._ticks = 0
        self._own: dict[Uuid, Route] = {}  # by source
        self._told: dict[Uuid, tuple[Uuid, ...]] = {}  # upstream → origins subscribed there

    # --- what the table shows -------------------------------------------------------------------

    def table(self) -> list[tuple[Uuid, Uuid, Uuid, int]]:
        """(subscriber, source, via, depth): own rows first, then those of others."""
        rows = [(self.me, r.source, r.via, r.depth) for r in self._own.values()]
        for publisher in sorted(self._known):
            found = self._known[publisher].routes
            rows += [(publisher, r.source, r.via, r.depth) for r in found]
        return rows

    @property
    def own(self) -> Publication:
        routes = tuple(self._own[source] for source in sorted(self._own))
        return Publication(self.me, self._incarnation, self._counter, routes, self._ticks)

    def publications(self) -> list[Publication]:
        """What a downstream is told: our own rows and those that came to us."""
        return [self.own, *(self._known[publisher] for publisher in sorted(self._known))]

    def origins_of(self, upstream: Uuid) -> tuple[Uuid, ...]:
        """The white list for an upstream: itself first, then what is taken through it."""
        through = sorted(
            route.source
            for route in self._own.values()
            if route.via == upstream and route.source != upstream
        )
        return (upstream, *through)

    # --- what happens ---------------------------------------------------------------------------

    def connected(self, upstream: Uuid) -> list[Effect]:
        if upstream in self._live or upstream == self.me:
            return []
        self._live[upstream] = None
        return self._settle(first_withdraw=False)

    def disconnected(self, upstream: Uuid) -> list[Effect]:
        if upstream not in self._live:
            return []
        del self._live[upstream]
        self._told.pop(upstream, None)
        return self._settle(first_withdraw=True)

    def received(self, upstream: Uuid, publications: list[Publication]) -> list[Effect]:
        """What an upstream knows; older news of a publisher never replace newer ones."""
        if upstream not in self._live:
            return []
        changed = False
        for each in publications:
            known = self._known.get(each.publisher)
            if each.publisher == self.me or (known is not None and each.age <= known.age):
                continue
            self._heard_at[each.publisher] = self._ticks
            self._known[each.publisher] = each
            changed = changed or known is None or known.routes != each.routes
        return self._settle(first_withdraw=True) if changed else []

    def tick(self) -> list[Effect]:
        """Our own heartbeat. Rows of a publisher whose heartbeat stopped are nobody's rows.

        Without it, instances in a ring would go on telling each other of one that is dead.
        """
        self._ticks += 1
        silent = [
            publisher
            for publisher, heard_at in self._heard_at.items()
            if self._ticks - heard_at > SILENCE_TICKS
        ]
        for publisher in silent:
            del self._heard_at[publisher]
            del self._known[publisher]
        return self._settle(first_withdraw=True) if silent else []

    # --- deciding -------------------------------------------------------------------------------

    def _settle(self, *, first_withdraw: bool) -> list[Effect]:
        """Bring own routes to the shortest paths; what grows is told before what shrinks."""
        effects: list[Effect] = []
        if first_withdraw:
            lost = [s for s, route in self._own.items() if not self._is_usable(route)]
            for source in lost:
                del self._own[source]
            if lost:
                effects.append(self._publish())
        before = dict(self._own)
        for source in self._reachable():
            self._choose(source)
        if self._own == before and not self._stale_lists():
            return effects
        gained = [up for up in self._stale_lists() if self._has_more(up)]
        lost_some = [up for up in self._stale_lists() if up not in gained]
        for upstream in (*gained, *lost_some):  # the longer list first: rows twice, never none
            origins = self.origins_of(upstream)
            self._told[upstream] = origins
            effects.append(Resubscribe(upstream, origins))
        if self._own != before:
            effects.append(self._publish())
        return effects

    def _publish(self) -> Publish:
        self._counter += 1
        return Publish(self.own)

    def _stale_lists(self) -> list[Uuid]:
        return [up for up in self._live if self._told.get(up) != self.origins_of(up)]

    def _has_more(self, upstream: Uuid) -> bool:
        return bool(set(self.origins_of(upstream)) - set(self._told.get(upstream, ())))

    def _reachable(self) -> list[Uuid]:
        """Every source that a live upstream is, or says it has a path to."""
        found = dict.fromkeys(self._live)
        for upstream in self._live:
            known = self._known.get(upstream)
            if known is not None:
                found.update(dict.fromkeys(route.source for route in known.routes))
        found.pop(self.me, None)
        return list(found)

    def _choose(self, source: Uuid) -> None:
        present = self._own.get(source)
        best = present if present is not None and self._is_usable(present) else None
        for upstream in self._live:
            candidate = self._path(upstream, source)
            if candidate is not None and (best is None or candidate.depth < best.depth):
                best = candidate
        if best is None:
            self._own.pop(source, None)
        else:
            self._own[source] = best

    def _path(self, upstream: Uuid, source: Uuid) -> Route | None:
        """The path to `source` through a live upstream, if its chain can be trusted."""
        if upstream == source:
            return Route(source, source, 1)
        known = self._known.get(upstream)
        found = None
        if known is not None:
            found = next((route for route in known.routes if route.source == source), None)
        if found is None:
            return None
        candidate = Route(source, upstream, found.depth + 1)
        return candidate if self._chain_ends(upstream, source) else None

    def _is_usable(self, route: Route) -> bool:
        if route.via not in self._live:
            return False
        return self._path(route.via, route.source) == route

    def _chain_ends(self, start: Uuid, source: Uuid) -> bool:
        """Follow known rows from `start`: they must reach a direct link to `source`, held by one
        whose heartbeat still comes, without passing us or anybody twice."""
        passed = {self.me}
        at = start
        while True:
            if at in passed:
                return False
            passed.add(at)
            known = self._known.get(at)
            if known is None:
                return False
            route = next((each for each in known.routes if each.source == source), None)
            if route is None:
                return False
            if route.via == source:
                return route.depth == 1
            at = route.via
