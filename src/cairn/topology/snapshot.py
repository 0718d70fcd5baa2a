"""The whole topology as events: what a service connection hears before ReadyForQuery."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from cairn.model.members.cluster import Cluster
from cairn.model.members.events import (
    AnyEvent,
    EventBuckets,
    EventInstance,
    EventReplicaset,
    Heartbeat,
    Hello,
    Range,
    SnapshotEnd,
    TierFacts,
    Version,
)
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    ConnectionType,
    Grade,
    Instance,
    Position,
    Replicaset,
    State,
    Tier,
)

Piece: TypeAlias = tuple[int, int, dict[str, Any]]


def snapshot_events(
    cluster: Cluster, *, position: Position, timestamp: str, version: Version
) -> list[AnyEvent]:
    """Replicasets, instances, buckets, all at one applied position.

    In 0.1 every bucket is told as active at the replicaset that serves it; neighbouring ranges
    of which the same is told are one. In 0.2 `hello` comes first and `snapshot_end` last.
    """
    at = (timestamp, position)
    events: list[AnyEvent] = []
    if version != "0.1":
        events.append(hello(cluster, version))
    for replicaset in cluster.replicasets.values():
        fields = told_replicaset(replicaset, cluster, version)
        events.append(EventReplicaset("replace", "replicaset", *at, replicaset.uuid, **fields))
    for instance in cluster.instances.values():
        fields = told_instance(instance, cluster, version)
        uuid = instance.uuid
        events.append(EventInstance("replace", "instance", *at, instance_uuid=uuid, **fields))
    for tier in sorted({each.tier for each in cluster.buckets}):
        for start, end, fields in pieces(
            cluster.buckets, tier, lambda each: _settled(each, cluster, version)
        ):
            events.append(
                EventBuckets("replace", "bucket", *at, tier, bucket_id=Range(start, end), **fields)
            )
    if version != "0.1":
        events.append(snapshot_end(position, reset=True))
    return events


def _settled(each: BucketRange, cluster: Cluster, version: Version) -> dict[str, Any]:
    fields = told_buckets(each, cluster, version)
    return fields | {"state": "active"} if version == "0.1" else fields


def hello(cluster: Cluster, version: Version = "0.2") -> Hello:
    """The first notice of a 0.2 stream, whether it then resumes or not."""
    tiers = tuple(
        TierFacts(tier.name, tier.bucket_count, tier.hash_version)
        for tier in cluster.tiers.values()
    )
    return Hello("hello", cluster.cluster_uuid, version, tiers)


def snapshot_end(position: Position, *, reset: bool) -> SnapshotEnd:
    """`reset=False` ends a resume: the client keeps what it knew."""
    return SnapshotEnd("snapshot_end", position, reset)


def heartbeat(position: Position) -> Heartbeat:
    """Every event up to `position` has been told."""
    return Heartbeat("heartbeat", position)


# --- what is told about a row, in a snapshot and later --------------------------------------------


def told_state(state: State, version: Version) -> str:
    """0.1 knows three words: what is on its way up is not there yet."""
    if version != "0.1" or state.grade in (Grade.ONLINE, Grade.EXPELLED):
        return state.grade.value
    return Grade.OFFLINE.value


def told_replicaset(found: Replicaset, cluster: Cluster, version: Version) -> dict[str, Any]:
    master = cluster.instances.get(found.current_master_name)
    told: dict[str, Any] = {"current_master_uuid": None if master is None else master.uuid}
    if version != "0.1":
        told |= {"tier": found.tier, "name": found.name}
    return told


def told_instance(found: Instance, cluster: Cluster, version: Version) -> dict[str, Any]:
    told: dict[str, Any] = {
        "tier": found.tier,
        "replicaset_uuid": found.replicaset_uuid,
        "current_state": told_state(found.current_state, version),
        "address": cluster.address(found.raft_id, ConnectionType.PGPROTO),
    }
    if version != "0.1":
        told |= {"incarnation": found.current_state.incarnation, "name": found.name}
    return told


def told_tier(found: Tier) -> dict[str, Any]:
    return {"bucket_count": found.bucket_count, "hash_version": found.hash_version}


def told_buckets(found: BucketRange, cluster: Cluster, version: Version) -> dict[str, Any]:
    """The state, who serves the range and, while it is copied, who will."""
    state = found.state
    if version == "0.1" and state is not BucketState.COPIED:
        state = BucketState.ACTIVE
    told = {"state": state.value, "current_replicaset_uuid": _uuid(cluster, found.owner)}
    if version != "0.1" and state is BucketState.COPYING and found.target_replicaset is not None:
        told["next_replicaset_uuid"] = _uuid(cluster, found.target_replicaset)
    return told


def _uuid(cluster: Cluster, replicaset: str) -> str:
    found = cluster.replicasets.get(replicaset)
    return "" if found is None else found.uuid


def pieces(
    ranges: Iterable[BucketRange], tier: str, told: Callable[[BucketRange], dict[str, Any]]
) -> list[Piece]:
    """(start, end, what is told), in order, neighbours of which the same is told made one."""
    found: list[Piece] = []
    mine = [each for each in ranges if each.tier == tier]
    for each in sorted(mine, key=lambda each: each.start):
        fields = told(each)
        if found and found[-1][1] + 1 == each.start and found[-1][2] == fields:
            found[-1] = (found[-1][0], each.end, fields)
        else:
            found.append((each.start, each.end, fields))
    return found
