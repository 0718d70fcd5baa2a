"""One picture of the cluster as a client knows it: members, masters, owners of bucket ranges."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from cairn.model.members.events import (
    AnyEvent,
    EventBuckets,
    EventInstance,
    EventReplicaset,
    EventTier,
    Heartbeat,
    Hello,
    SnapshotEnd,
    TierFacts,
)
from cairn.model.members.topology import Position

NOWHERE = Position(0, 0)


class KnownReplicaset(msgspec.Struct):
    uuid: str
    master_uuid: str | None = None
    tier: str | None = None
    name: str | None = None


class KnownInstance(msgspec.Struct):
    uuid: str
    replicaset_uuid: str | None = None
    tier: str | None = None
    state: str | None = None
    address: str | None = None
    incarnation: int | None = None
    name: str | None = None

    @property
    def is_online(self) -> bool:
        return self.state == "Online"


class Served(msgspec.Struct, frozen=True):
    """What is known of a range: its state, who serves it now and, while copied, who will."""

    state: str
    owner: str
    next_owner: str | None = None


class Intervals:
    """Disjoint ranges in order. Setting a part of a known range cuts that range."""

    __slots__ = ("_ends", "_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[Served] = []

    def __len__(self) -> int:
        return len(self._starts)

    def get(self, bucket: int) -> Served | None:
        at = bisect_right(self._starts, bucket) - 1
        return self._values[at] if at >= 0 and bucket <= self._ends[at] else None

    @property
    def highest(self) -> int:
        return self._ends[-1] if self._ends else 0

    def set(self, start: int, end: int, value: Served | None) -> None:
        """Overwrite `start`…`end`; None makes a hole."""
        starts, ends, values = self._starts, self._ends, self._values
        if not ends or start > ends[-1]:  # a snapshot comes in order
            if value is not None:
                starts.append(start)
                ends.append(end)
                values.append(value)
            return
        low = bisect_right(starts, start) - 1
        if low < 0 or ends[low] < start:
            low += 1  # the first range that `start`…`end` touches, if any
        high = bisect_right(starts, end)
        pieces: list[tuple[int, int, Served]] = []
        if low < high and starts[low] < start:
            pieces.append((starts[low], start - 1, values[low]))
        if value is not None:
            pieces.append((start, end, value))
        if low < high and ends[high - 1] > end:
            pieces.append((end + 1, ends[high - 1], values[high - 1]))
        starts[low:high] = [piece[0] for piece in pieces]
        ends[low:high] = [piece[1] for piece in pieces]
        values[low:high] = [piece[2] for piece in pieces]

    def ranges(self) -> list[tuple[int, int, Served]]:
        """In order, equal neighbours made one."""
        found: list[tuple[int, int, Served]] = []
        for start, end, value in zip(self._starts, self._ends, self._values, strict=True):
            if found and found[-1][1] + 1 == start and found[-1][2] == value:
                found[-1] = (found[-1][0], end, value)
            else:
                found.append((start, end, value))
        return found


class View:
    """One picture of the cluster. Replaced as a whole by a snapshot, else changed in place."""

    def __init__(self) -> None:
        self.replicasets: dict[str, KnownReplicaset] = {}
        self.instances: dict[str, KnownInstance] = {}
        self.tiers: dict[str, TierFacts] = {}
        self.buckets: dict[str, Intervals] = {}
        self.position = NOWHERE

    def apply(self, event: AnyEvent) -> None:
        match event:
            case EventBuckets():  # first: there are most of these
                self._apply_buckets(event)
            case EventReplicaset(op="delete"):
                self.replicasets.pop(event.replicaset_uuid, None)
            case EventReplicaset():
                uuid = event.replicaset_uuid
                replicaset = self.replicasets.setdefault(uuid, KnownReplicaset(uuid))
                replicaset.master_uuid = event.current_master_uuid or replicaset.master_uuid
                replicaset.tier = event.tier or replicaset.tier
                replicaset.name = event.name or replicaset.name
            case EventInstance(op="delete"):
                self.instances.pop(event.instance_uuid, None)
            case EventInstance():
                self._apply_instance(event)
            case EventTier(op="delete"):
                self.tiers.pop(event.tier, None)
                self.buckets.pop(event.tier, None)
            case EventTier():
                old = self.tiers.get(event.tier) or TierFacts(event.tier, 0, 2)
                count = event.bucket_count or old.bucket_count
                version = event.hash_version or old.hash_version
                self.tiers[event.tier] = TierFacts(event.tier, count, version)
            case Hello():
                self.tiers = {tier.name: tier for tier in event.tiers}
            case SnapshotEnd() | Heartbeat():
                pass
        raft = getattr(event, "raft", None)
        if raft is not None and raft > self.position:
            self.position = raft

    def _apply_instance(self, event: EventInstance) -> None:
        uuid = event.instance_uuid
        known = self.instances.setdefault(uuid, KnownInstance(uuid))
        known.replicaset_uuid = event.replicaset_uuid or known.replicaset_uuid
        known.tier = event.tier or known.tier
        known.state = event.current_state or known.state
        known.address = event.address or known.address
        known.name = event.name or known.name
        if event.incarnation is not None:
            known.incarnation = event.incarnation

    def _apply_buckets(self, event: EventBuckets) -> None:
        ranges = self.buckets.setdefault(event.tier, Intervals())
        served = None
        if event.op == "replace":
            owner = event.current_replicaset_uuid or ""
            served = Served(event.state or "active", owner, event.next_replicaset_uuid)
        ranges.set(event.bucket_id.start, event.bucket_id.end, served)
