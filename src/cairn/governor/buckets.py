"""How buckets are divided among replicasets: contiguous ranges by weight, in order of names."""

from __future__ import annotations

from cairn.model.log.ops import Delete, Dml, Replace
from cairn.model.members.cluster import Cluster
from cairn.model.members.holders import takers
from cairn.model.members.topology import BucketRange, BucketState, Grade
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system


def shares(weights: list[float], total: int) -> list[int]:
    """Cumulative rounding: the sum is exact, and dividing again changes nothing."""
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    found: list[int] = []
    running, given = 0.0, 0
    for weight in weights:
        running += weight
        upto = int(running / whole * total + 0.5)
        found.append(upto - given)
        given = upto
    return found


def ideal(cluster: Cluster, tier: str, *, without: str = "") -> list[BucketRange]:
    """Every bucket of the tier given to a replicaset with weight; empty if there is none."""
    count = cluster.tiers[tier].bucket_count
    holders = sorted(
        (r for r in cluster.replicasets.values() if r.tier == tier and r.name != without),
        key=lambda replicaset: replicaset.name,
    )
    sizes = shares([replicaset.weight for replicaset in holders], count)
    found: list[BucketRange] = []
    start = 1
    for replicaset, size in zip(holders, sizes, strict=True):
        if size:
            end = start + size - 1
            found.append(BucketRange(tier, start, end, BucketState.ACTIVE, replicaset.name))
            start += size
    return found


def redistribution(cluster: Cluster, tier: str, *, without: str = "") -> list[Dml]:
    """The rows that turn the present distribution into the ideal one; empty if it is that."""
    wanted = ideal(cluster, tier, without=without)
    present = cluster.tier_buckets(tier)
    if not wanted or _owners(wanted) == _owners(present):
        return []
    starts = {bucket.start for bucket in wanted}
    found: list[Dml] = [
        Delete(system.PICO_BUCKET.id, (tier, bucket.start))
        for bucket in present
        if bucket.start not in starts
    ]
    found += [Replace(system.PICO_BUCKET.id, rows.bucket_row(bucket)) for bucket in wanted]
    return found


def given_away(cluster: Cluster, tier: str, lost: str) -> list[Dml]:
    """New owners for what a lost replicaset owned, and for nothing else: rows do not move along.

    Each range is divided by weight; empty if nobody can take them.
    """
    holders = takers(cluster, tier, lost)
    found: list[Dml] = []
    for bucket in cluster.tier_buckets(tier):
        if bucket.owner != lost or not holders:
            continue
        start = bucket.start
        sizes = shares([each.weight for each in holders], bucket.end - bucket.start + 1)
        for holder, size in zip(holders, sizes, strict=True):
            if size:
                end = start + size - 1
                piece = BucketRange(tier, start, end, BucketState.ACTIVE, holder.name)
                found.append(Replace(system.PICO_BUCKET.id, rows.bucket_row(piece)))
                start += size
    return found


def _owners(ranges: list[BucketRange]) -> list[tuple[int, int, str]]:
    """Neighbouring ranges of one owner are one range."""
    merged: list[tuple[int, int, str]] = []
    for bucket in sorted(ranges, key=lambda each: each.start):
        if merged and merged[-1][2] == bucket.owner and merged[-1][1] + 1 == bucket.start:
            merged[-1] = (merged[-1][0], bucket.end, bucket.owner)
        else:
            merged.append((bucket.start, bucket.end, bucket.owner))
    return merged


def waiting_for(cluster: Cluster, tier: str) -> list[str]:
    """Why the tier has no buckets yet: "replicaset default_1: 1 of 2 instances"."""
    factor = cluster.tiers[tier].replication_factor
    return [
        f"replicaset {replicaset.name}: {_rising(cluster, replicaset.name)} of {factor} instances"
        for replicaset in sorted(cluster.replicasets.values(), key=lambda r: r.name)
        if replicaset.tier == tier and _rising(cluster, replicaset.name) < factor
    ]


def _rising(cluster: Cluster, replicaset: str) -> int:
    return sum(member.target_state.grade is Grade.ONLINE for member in cluster.members(replicaset))
