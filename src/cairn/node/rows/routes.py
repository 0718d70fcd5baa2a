"""From a bucket to the instance that answers for it, as of one picture of the cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from cairn.governor.buckets import waiting_for
from cairn.model.cluster import Cluster
from cairn.model.errors import NoMaster, NotInPrerequisiteState, NotOwner
from cairn.model.spans import Ranges, merged
from cairn.model.topology import Grade


class Routes:
    """Look-ups made once per picture; statements keep none of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._starts: dict[str, list[int]] = {}
        self._owners: dict[str, list[str]] = {}
        ranges: dict[str, dict[str, list[tuple[int, int]]]] = {}  # tier → replicaset → ranges
        for bucket in cluster.buckets:
            self._starts.setdefault(bucket.tier, []).append(bucket.start)
            self._owners.setdefault(bucket.tier, []).append(bucket.owner)
            of_tier = ranges.setdefault(bucket.tier, {})
            of_tier.setdefault(bucket.owner, []).append((bucket.start, bucket.end))
        self._ranges: dict[str, dict[str, Ranges]] = {
            tier: {owner: merged(found) for owner, found in of_tier.items()}
            for tier, of_tier in ranges.items()
        }

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
