"""What all buckets of a cluster say: who has how many, and which have to move.

To read all of them takes a while where there are many, so it is done once for each map, and only
when somebody asks.
"""

from __future__ import annotations

from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Replicaset, ReplicasetState
from cairn.moves import ranges, shares


class Outlook:
    """Of one map, one set of replicasets and the tiers that have sharded tables."""

    def __init__(self, cluster: Cluster, sharded_tiers: frozenset[str]) -> None:
        self._cluster, self._sharded_tiers = cluster, sharded_tiers
        self._held: dict[str, dict[str, int]] = {}
        self._plan: list[tuple[str, shares.Wanted]] | None = None

    def fits(self, cluster: Cluster, sharded_tiers: frozenset[str]) -> bool:
        mine = self._cluster
        return (
            mine.buckets is cluster.buckets
            and mine.replicasets is cluster.replicasets
            and mine.tiers is cluster.tiers
            and self._sharded_tiers == sharded_tiers
        )

    def held(self, tier: str) -> dict[str, int]:
        """Buckets by who will have them once everything under way has ended."""
        if tier not in self._held:
            self._held[tier] = shares.held(self._cluster.tier_buckets(tier))
        return self._held[tier]

    def plan(self) -> list[tuple[str, shares.Wanted]]:
        """Every move that is still to be begun, were there no limits."""
        if self._plan is None:
            tiers = sorted(self._sharded_tiers & self._cluster.tiers.keys())
            self._plan = [(tier, each) for tier in tiers for each in self.wanted(tier)]
        return self._plan

    def wanted(self, tier: str) -> list[shares.Wanted]:
        rows = self._cluster.tier_buckets(tier)
        if not rows:
            return []
        ranges.check_cover(rows, self._cluster.tiers[tier].bucket_count)
        return shares.plan(rows, weights(self._cluster, tier))


def weights(cluster: Cluster, tier: str) -> dict[str, float]:
    """What each replicaset shall have in proportion. Who is not ready or leaves gets nothing.

    A weight that nobody set is 1 as long as the replicaset is there: one that is down keeps its
    buckets, its rows come back with it.
    """
    return {each.name: _weight(each) for each in cluster.replicasets.values() if each.tier == tier}


def _weight(replicaset: Replicaset) -> float:
    if replicaset.state is not ReplicasetState.READY:
        return 0.0
    return 1.0 if replicaset.weight_origin == "auto" else replicaset.weight
