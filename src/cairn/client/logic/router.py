"""Where a statement goes: bucket, owner, instance, and the reason when it cannot be told.

Pure: chance and time are handed in. What is decided here can be shown by `explain_route()`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cairn.client.logic.metadata import Metadata
from cairn.client.settings import ReadFrom, Settings
from cairn.client.stats import Stats
from cairn.model.errors import Unreachable
from cairn.topology.routing_table import RoutingTable
from cairn.topology.view import KnownInstance

log = logging.getLogger("cairn.client")

EJECTED_S = 1.0  # an instance that cannot be reached is left alone so long
ONE_OF_MANY_S = 2.0  # to let us in, the first time; where there are others to ask


class Route(msgspec.Struct, frozen=True):
    """`reason` is empty when the statement goes straight to the rows."""

    address: str
    bucket: int | None = None
    replicaset: str | None = None  # name or uuid, for people
    instance: str | None = None
    reason: str = ""
    cached: bool = False

    def __str__(self) -> str:
        cached = "metadata cached" if self.cached else "metadata asked for"
        to = self.instance or self.address
        if not self.reason:
            return f"bucket {self.bucket} → {self.replicaset} → {to}, {cached}"
        known = "" if self.bucket is None else f"bucket {self.bucket} → "
        return f"{known}any instance ({to}): {_REASONS.get(self.reason, self.reason)}"


_REASONS = {
    "switched_off": "routing is switched off",
    "no_parameters": "the statement has no parameters",
    "no_metadata": "the server sent no metadata for it",
    "unbounded": "its distribution key is not given by parameters",
    "no_topology": "the topology is not known yet",
    "unknown_tier": "the buckets of its tier are not known",
    "no_bucket": "a key value is not of its column's type",
    "no_owner": "the bucket has no owner yet",
    "no_master": "the owner has no master that may be connected to",
    "unreachable": "the owner could not be reached a moment ago",
    "not_allowed": "the owner's address is not allowed",
    "no_replica": "the owner has no replica online",
}


class Router:
    def __init__(
        self,
        settings: Settings,
        table: RoutingTable,
        stats: Stats,
        chance: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self.settings, self.table, self.stats = settings, table, stats
        self._chance, self._clock = chance, clock
        self._ejected: dict[str, float] = {}  # address → until
        self._slow: set[str] = set()  # failed the last time: they get more time at the next
        self._allowed: dict[str, bool] = {}
        self._logged: set[str] = set()
        self._seen = -1  # the table's `changes` that `_masters` was made from
        self._turns: list[str] = []
        self._masters: dict[str, tuple[int, dict[int, str]]] = {}  # by tier: count, by bucket

    # --- one statement ------------------------------------------------------------------------

    def direct(self, metadata: Metadata, params: Sequence[Any]) -> str | None:
        """The address of the owner's master; None whenever there is more to say (see `route`)."""
        table = self.table
        if table.changes != self._seen:
            self._seen, self._masters, self._turns = table.changes, {}, []
        if not self.settings.routing:
            return self._in_turn()
        tier = metadata.tier
        if tier is None or not metadata.positions or (self._ejected and self._any_ejected()):
            return None
        masters = self._masters.get(tier)
        if masters is None:
            masters = self._masters[tier] = (table.bucket_count(tier), {})
        count, addresses = masters
        bucket = metadata.bucket(params, count) if count else None
        if bucket is None:
            return None
        address = addresses.get(bucket)
        if address is None:
            address = table.master_address(tier, bucket)
            if address is None or not self._is_allowed(address):
                return None
            addresses[bucket] = address
        return address

    def _in_turn(self) -> str | None:
        """Without routing: every online instance in its turn."""
        if not self._turns:
            known = [each.address for each in self.table.online() if each.address]
            self._turns = [address for address in known if self.is_good(address)]
            self._chance.shuffle(self._turns)
        if not self._turns:
            return None
        self._turns.append(self._turns.pop(0))
        return self._turns[-1]

    def route(
        self, metadata: Metadata, params: Sequence[Any], read_from: ReadFrom, cached: bool = True
    ) -> Route:
        if not self.settings.routing:
            return self._anywhere("switched_off", cached)
        if not metadata.positions or metadata.tier is None:
            return self._anywhere("unbounded" if metadata.told else "no_metadata", cached)
        table = self.table
        count = table.bucket_count(metadata.tier)
        if not count:
            return self._anywhere("unknown_tier" if table.is_ready else "no_topology", cached)
        bucket = metadata.bucket(params, count)
        if bucket is None:
            return self._anywhere("no_bucket", cached)
        owner = table.owner(metadata.tier, bucket)
        if owner is None:
            return self._anywhere("no_owner", cached, bucket)
        if read_from == "master":
            chosen = table.master(owner)
            missing = "no_master"
        else:
            chosen, missing = self._reader(owner, read_from), "no_replica"
        if chosen is None or chosen.address is None:
            return self._anywhere(missing, cached, bucket)
        if not self._is_allowed(chosen.address):
            return self._anywhere("not_allowed", cached, bucket)
        if self._ejected and self._is_ejected(chosen.address):
            return self._anywhere("unreachable", cached, bucket)
        replicaset = table.view.replicasets[owner]
        return Route(
            chosen.address, bucket, replicaset.name or owner, chosen.name or chosen.uuid, "", cached
        )

    def _reader(self, owner: str, read_from: ReadFrom) -> KnownInstance | None:
        master = self.table.master(owner)
        fit = [
            each
            for each in self.table.online(owner)
            if each is not master and each.address and not self._is_ejected(each.address)
        ]
        if read_from == "any" and master is not None:
            fit.append(master)
        return self._chance.choice(fit) if fit else master

    def _anywhere(self, reason: str, cached: bool, bucket: int | None = None) -> Route:
        found = self.any_instance()
        return Route(found[0], bucket, None, found[1], reason, cached)

    def anywhere(self, reason: str) -> Route:
        return self._anywhere(reason, True)

    # --- instances ----------------------------------------------------------------------------

    def any_instance(self, *, but: frozenset[str] = frozenset()) -> tuple[str, str | None]:
        """A random healthy instance: address and name. Configured addresses if none is known."""
        tiers = self.settings.tiers
        known = [
            (each.address, each.name or each.uuid)
            for each in self.table.online()
            if each.address and (not tiers or each.tier in tiers)
        ]
        found = [
            each
            for each in known
            if each[0] not in but and not self._is_ejected(each[0]) and self._is_allowed(each[0])
        ]
        if found:
            return self._chance.choice(found)
        contacts = [
            address
            for address in self.settings.hosts
            if address not in but and self.table.may_contact(address)
        ]
        alive = [address for address in contacts if not self._is_ejected(address)]
        if not contacts:
            if but:
                return self.any_instance()
            raise Unreachable(
                "every configured address belonged to an instance that was expelled",
                hint="give the driver an address of a member",
            )
        return self._chance.choice(alive or contacts), None

    def failed(self, address: str) -> None:
        """It could not be connected to, or the connection broke."""
        self.stats.connections_failed += 1
        self._ejected[address] = self._clock() + EJECTED_S * (1 + self._chance.random())
        self._slow.add(address)

    def reached(self, address: str) -> None:
        self._ejected.pop(address, None)
        self._slow.discard(address)

    def patience_s(self, address: str) -> float:
        """With a new connection to it."""
        limit = self.settings.connect_timeout_s
        others = {*self.settings.hosts, *(each.address for each in self.table.online())}
        is_alone = others <= {address, None}
        return limit if is_alone or address in self._slow else min(limit, ONE_OF_MANY_S)

    def is_missed(self, address: str) -> bool:
        """Whether the cluster says that nobody is Online there."""
        online = {each.address for each in self.table.online()}
        return bool(online) and address not in online

    def is_good(self, address: str) -> bool:
        """Allowed, and not found dead a moment ago."""
        return self._is_allowed(address) and not self._is_ejected(address)

    def _is_ejected(self, address: str) -> bool:
        until = self._ejected.get(address)
        return until is not None and self._clock() < until

    def _any_ejected(self) -> bool:
        now = self._clock()
        self._ejected = {each: until for each, until in self._ejected.items() if until > now}
        return bool(self._ejected)

    def _is_allowed(self, address: str) -> bool:
        known = self._allowed.get(address)
        if known is None:
            known = self._allowed[address] = self.settings.allows(address)
            if not known:
                self.stats.addresses_refused += 1
                log.warning("address %s is not allowed; see the setting allow_hosts", address)
        return known

    # --- telling ------------------------------------------------------------------------------

    def count(self, sql: str, route: Route) -> None:
        """Count the decision; an unbounded text is logged once, with the reason."""
        if not route.reason:
            self.stats.routed += 1
            return
        self.stats.fallbacks[route.reason] += 1
        if sql not in self._logged and len(self._logged) < 10_000:
            self._logged.add(sql)
            log.info("not routed: %s: %s", _REASONS.get(route.reason, route.reason), sql[:500])
