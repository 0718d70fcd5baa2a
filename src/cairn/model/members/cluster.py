"""The topology at one Raft position: what the system tables say about members and buckets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import msgspec

from cairn.model.members.moves import Move
from cairn.model.members.topology import (
    BucketRange,
    ConnectionType,
    Grade,
    Instance,
    Position,
    Replicaset,
    Tier,
)

#: Tier and first bucket of a range.
BucketKey = tuple[str, int]


class Cluster(msgspec.Struct, frozen=True):
    """An immutable picture, made anew whenever an applied entry touches one of its tables."""

    position: Position = Position(0, 0)
    instances: dict[str, Instance] = {}
    replicasets: dict[str, Replicaset] = {}
    tiers: dict[str, Tier] = {}
    addresses: dict[tuple[int, str], str] = {}  # (raft_id, connection type) → address
    buckets: tuple[BucketRange, ...] = ()  # ordered by tier, then start
    moves: dict[int, Move] = {}  # ranges on their way, and those that have ended lately
    properties: dict[str, Any] = {}
    problems: tuple[str, ...] = ()  # rows that could not be understood as they are

    @property
    def last_raft_id(self) -> int:
        found = self.properties.get("last_raft_id", 0)
        return found if isinstance(found, int) else 0

    @property
    def cluster_uuid(self) -> str:
        return str(self.properties.get("cluster_uuid", ""))

    def by_raft_id(self, raft_id: int) -> Instance | None:
        for instance in self.instances.values():
            if instance.raft_id == raft_id:
                return instance
        return None

    def by_uuid(self, uuid: str) -> Instance | None:
        for instance in self.instances.values():
            if instance.uuid == uuid:
                return instance
        return None

    def find(self, name_or_uuid: str) -> Instance | None:
        return self.instances.get(name_or_uuid) or self.by_uuid(name_or_uuid)

    def members(self, replicaset: str) -> list[Instance]:
        """Instances of a replicaset that are not expelled, by name."""
        found = [
            instance
            for instance in self.instances.values()
            if instance.replicaset_name == replicaset
            and instance.current_state.grade is not Grade.EXPELLED
        ]
        return sorted(found, key=lambda instance: instance.raft_id)

    def master_of(self, replicaset: str) -> Instance | None:
        """Who is master there: the named one, if it is a member that has the rows.

        A name alone makes nobody a master: another instance may have it by now.
        """
        found = self.replicasets.get(replicaset)
        row = None if found is None else self.instances.get(found.current_master_name)
        if found is None or row is None or row.name not in found.members:
            return None
        is_there = row.replicaset_name == replicaset
        return row if is_there and row.current_state.grade is not Grade.EXPELLED else None

    def address(self, raft_id: int, kind: ConnectionType) -> str | None:
        return self.addresses.get((raft_id, kind.value))

    def peer_addresses(self) -> dict[int, str]:
        return {
            raft_id: address
            for (raft_id, kind), address in self.addresses.items()
            if kind == ConnectionType.PEER
        }

    def tier_buckets(self, tier: str) -> list[BucketRange]:
        return [bucket for bucket in self.buckets if bucket.tier == tier]

    def buckets_near(self, tier: str, start: int, end: int) -> list[BucketRange]:
        """The ranges that hold these buckets, and one neighbour on each side."""
        low = bisect_right(self.buckets, (tier, start - 1), key=_bucket_key)
        high = bisect_right(self.buckets, (tier, end + 1), key=_bucket_key)
        return [row for row in self.buckets[max(low - 1, 0) : high] if row.tier == tier]

    def bucket_row(self, key: BucketKey) -> BucketRange | None:
        """The range that begins there."""
        at = bisect_left(self.buckets, key, key=_bucket_key)
        found = self.buckets[at] if at < len(self.buckets) else None
        return found if found is not None and (found.tier, found.start) == key else None

    def owned(self, replicaset: str) -> list[BucketRange]:
        """Ranges that the replicaset serves at this position."""
        return [bucket for bucket in self.buckets if bucket.owner == replicaset]


def _bucket_key(row: BucketRange) -> BucketKey:
    return row.tier, row.start
