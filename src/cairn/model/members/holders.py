"""Who has the rows of a replicaset, and which rows go with an instance that leaves for good.

Both the admission of an expulsion and the governor that carries it out ask here: what was safe when
it was asked for may not be safe any more when it is done.
"""

from __future__ import annotations

from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import BucketRange, Grade, Instance, Replicaset, ReplicasetState

#: Reasons of a target state. Rows are given up only by the second.
EXPEL, EXPEL_BY_FORCE = "expel", "expel by force"


def is_staying(instance: Instance) -> bool:
    return Grade.EXPELLED not in (instance.current_state.grade, instance.target_state.grade)


def _staying(cluster: Cluster, instance: Instance) -> list[Instance]:
    """The other members that have rows of the replicaset and are not leaving."""
    replicaset = cluster.replicasets.get(instance.replicaset_name)
    if replicaset is None:
        return []
    return [
        member
        for member in cluster.members(replicaset.name)
        if member.name != instance.name and is_staying(member) and member.name in replicaset.members
    ]


def heirs(cluster: Cluster, instance: Instance) -> list[Instance]:
    """Members that keep the replicaset's rows when `instance` is gone.

    As long as the master stays, any member that stays is one: the master has every row. If the
    master is the one who goes, only somebody who is Online can take over what it has.
    """
    staying = _staying(cluster, instance)
    master = cluster.master_of(instance.replicaset_name)
    if any(member is master for member in staying):
        return staying
    return [
        member
        for member in staying
        if member.current_state.grade is Grade.ONLINE and member.target_state.grade is Grade.ONLINE
    ]


def lost_with(
    cluster: Cluster, instance: Instance, sharded_tiers: frozenset[str]
) -> tuple[BucketRange, ...]:
    """Ranges whose rows nobody else has; empty when the instance may go without harm."""
    if instance.tier not in sharded_tiers or heirs(cluster, instance):
        return ()
    return tuple(cluster.owned(instance.replicaset_name))


def kept_by(cluster: Cluster, instance: Instance) -> tuple[str, ...]:
    """Members that stay and have rows, perhaps not the last ones: they may not be Online now."""
    return tuple(member.name for member in _staying(cluster, instance))


def takers(cluster: Cluster, tier: str, without: str) -> list[Replicaset]:
    """Replicasets that can be given buckets of `without`, by name."""
    return sorted(
        (
            replicaset
            for replicaset in cluster.replicasets.values()
            if replicaset.tier == tier
            and replicaset.name != without
            and replicaset.weight > 0
            and replicaset.state is not ReplicasetState.TO_BE_EXPELLED
            and any(is_staying(member) for member in cluster.members(replicaset.name))
        ),
        key=lambda replicaset: replicaset.name,
    )


def ranges_in_words(ranges: tuple[BucketRange, ...] | list[BucketRange]) -> str:
    return ", ".join(f"{each.start}–{each.end}" for each in ranges)
