"""From a bucket to the instance that answers for it, as of one picture of the cluster."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from copy import copy

from cairn.governor.buckets import waiting_for
from cairn.model.errors import NoMaster, NotInPrerequisiteState, NotOwner
from cairn.model.members.cluster import BucketKey, Cluster
from cairn.model.members.topology import BucketRange, Grade
from cairn.model.sharding.spans import Ranges, merged, spliced


class Routes:
    """Look-ups made once per picture; statements keep none of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._starts: dict[str, list[int]] = {}
        self._owners: dict[str, list[str]] = {}
        self._ranges: dict[str, dict[str, Ranges]] = {}  # tier → replicaset → what it owns
        ranges: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for bucket in cluster.buckets:
            self._starts.setdefault(bucket.tier, []).append(bucket.start)
            self._owners.setdefault(bucket.tier, []).append(bucket.owner)
            of_tier = ranges.setdefault(bucket.tier, {})
            of_tier.setdefault(bucket.owner, []).append((bucket.start, bucket.end))
        for tier, of_tier in ranges.items():
            self._ranges[tier] = {owner: merged(found) for owner, found in of_tier.items()}

    def after(self, cluster: Cluster, touched: Iterable[BucketKey]) -> Routes:
        """The same as `Routes(cluster)`, from these and the ranges that changed since.

        The cost does not grow with the number of ranges. What statements hold stays as it was.
        """
        found = copy(self)
        found.cluster = cluster
        keys = list(touched)
        if not keys:
            return found
        found._starts, found._owners, found._ranges = (
            dict(self._starts),
            dict(self._owners),
            dict(self._ranges),
        )
        for tier in {tier for tier, _ in keys}:
            found._starts[tier] = list(self._starts.get(tier, ()))
            found._owners[tier] = list(self._owners.get(tier, ()))
            found._ranges[tier] = dict(self._ranges.get(tier, {}))
        out = [row for key in keys if (row := self.cluster.bucket_row(key)) is not None]
        into = [row for key in keys if (row := cluster.bucket_row(key)) is not None]
        for row in out:
            at = bisect_left(found._starts[row.tier], row.start)
            del found._starts[row.tier][at], found._owners[row.tier][at]
        for row in into:
            at = bisect_left(found._starts[row.tier], row.start)
            found._starts[row.tier].insert(at, row.start)
            found._owners[row.tier].insert(at, row.owner)
        for tier, owner in {(row.tier, row.owner) for row in (*out, *into)}:
            ranges = found._ranges[tier]
            ranges[owner] = spliced(
                ranges.get(owner, ()), _spans(out, tier, owner), _spans(into, tier, owner)
            )
            if not ranges[owner]:
                del ranges[owner]
        for tier in {row.tier for row in out if not found._starts[row.tier]}:
            del found._starts[tier], found._owners[tier], found._ranges[tier]
        return found

    def owner(self, tier: str, bucket: int) -> str:
        """The replicaset that owns a bucket."""
        starts = self._starts.get(tier)
        if not starts:
            raise self._no_buckets(tier)
        return self._owners[tier][bisect_right(starts, bucket) - 1]

    def all_ranges(self, tier: str) -> dict[str, Ranges]:
        """Every replicaset of the tier with the ranges it owns."""
        found = self._ranges.get(tier)
        if not found:
            raise self._no_buckets(tier)
        return found

    def group(self, tier: str, buckets: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """Buckets by the replicaset that owns them."""
        found: dict[str, list[int]] = {}
        for bucket in sorted(set(buckets)):
            found.setdefault(self.owner(tier, bucket), []).append(bucket)
        return {replicaset: tuple(owned) for replicaset, owned in found.items()}

    def master(self, replicaset: str) -> int:
        """raft_id of the instance that may write there now."""
        row = self.cluster.replicasets.get(replicaset)
        if row is None:
            raise NotOwner(f"replicaset {replicaset} is gone")
        if row.current_master_name != row.target_master_name:
            raise NoMaster(
                f"replicaset {replicaset} is changing its master"
                + (f" to {row.target_master_name}" if row.target_master_name else ""),
                hint="try again in a moment",
            )
        master = self.cluster.instances.get(row.current_master_name)
        if master is None:
            raise NoMaster(f"replicaset {replicaset} has no master")
        return master.raft_id

    def reader(self, replicaset: str, preference: str, here: int) -> int:
        """raft_id of an instance to read from; ourselves when we will do."""
        master = self.master(replicaset) if preference != "replica" else 0
        if preference == "leader":
            return master
        row = self.cluster.replicasets[replicaset]
        fit = [
            member.raft_id
            for member in self.cluster.members(replicaset)
            if member.current_state.grade is Grade.ONLINE
            and member.name in row.members
            and (preference == "any" or member.name != row.current_master_name)
        ]
        if here in fit:
            return here
        if not fit and preference == "replica" and set(row.members) <= {row.current_master_name}:
            raise NotInPrerequisiteState(  # nobody who could come back in a moment
                f"replicaset {replicaset} has no instance to read from ({preference})",
                hint="it has one member; read with read_preference = any",
            )
        if not fit:
            raise NoMaster(f"replicaset {replicaset} has no instance to read from ({preference})")
        return fit[here % len(fit)]

    def _no_buckets(self, tier: str) -> NotInPrerequisiteState:
        known = self.cluster.tiers.get(tier)
        if known is None:
            return NotInPrerequisiteState(f"tier '{tier}' doesn't exist")
        why = "; ".join(waiting_for(self.cluster, tier)) or "the governor to distribute buckets"
        return NotInPrerequisiteState(
            f"tier {tier} has no buckets yet: waiting for {why}", sqlstate="57P03"
        )


def _spans(rows: Iterable[BucketRange], tier: str, owner: str) -> list[tuple[int, int]]:
    return [(row.start, row.end) for row in rows if (row.tier, row.owner) == (tier, owner)]
