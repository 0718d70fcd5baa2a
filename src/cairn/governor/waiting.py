"""What an idle governor waits for, and what a person can do about it.

"Idle" with nothing to say must mean: everything is as it should be.
"""

from __future__ import annotations

import re

from cairn.governor.buckets import waiting_for
from cairn.governor.rules.leaving import lacks_heirs, may_give_up
from cairn.governor.view import ClusterView
from cairn.model.members.holders import is_staying, lost_with, ranges_in_words
from cairn.model.members.topology import Grade, Instance, Replicaset


def unreadable(problem: str) -> str:
    return f"a row cannot be understood: {problem}; write a good value with UPDATE"


def waits(view: ClusterView, told: list[str]) -> list[str]:
    """Everything that is not as it should be and that no rule can mend now."""
    found = [line for key in sorted(view.waiting) if (line := f"{key[0]}: {key[1]}") not in told]
    found += [
        f"operation {each.id} failed: {each.status_description}"
        for each in view.queue
        if each.status == "failed"
    ]
    found += view.stopped_links
    for tier in sorted(view.cluster.tiers):
        if view.cluster.tiers[tier].bucket_count and not view.cluster.tier_buckets(tier):
            found += [f"waiting for {why}" for why in waiting_for(view.cluster, tier)]
    for replicaset in view.replicasets():
        found += _without_master(view, replicaset)
        found += _all_damaged(view, replicaset)
    for instance in view.instances():
        found += _leaving(view, instance)
    said = set(re.findall(r"[\w.-]+", " ".join((*told, *found))))
    found += [
        f"{each.name} is {each.current_state}, not yet {each.target_state}"
        for each in view.instances()
        if each.current_state != each.target_state and each.name not in said
    ]
    return found


def _without_master(view: ClusterView, replicaset: Replicaset) -> list[str]:
    """Buckets that nobody can write: whoever has their rows is not there."""
    owned = view.cluster.owned(replicaset.name)
    members = view.cluster.members(replicaset.name)
    is_leaving = bool(members) and not any(map(is_staying, members))
    if not owned or is_leaving or _is_served(view, replicaset):
        return []
    holders = [
        name
        for name in replicaset.members
        if (row := view.cluster.instances.get(name)) is not None and is_staying(row)
    ]
    holders.sort(key=lambda name: name != replicaset.current_master_name)
    away = [
        name
        for name in holders
        if view.cluster.instances[name].target_state.grade is not Grade.ONLINE
    ]
    last = "give the rows up with cairn expel NAME --force for each of them"
    if away:
        way = f"start {', '.join(away)}, or {last}"
    elif holders:
        way = f"{', '.join(holders)} run, and cannot give a majority of them yet; or {last}"
    else:
        rest = ", ".join(each.name for each in members) or "nobody"
        way = f"its rows are gone with those who had them: expel the rest ({rest}) with --force"
    return [
        f"{replicaset.name} has no master, buckets {ranges_in_words(owned)} cannot be used: {way}"
    ]


def _all_damaged(view: ClusterView, replicaset: Replicaset) -> list[str]:
    """Its master has lost rows, and nobody who is there could take its place."""
    rows = [view.cluster.instances.get(name) for name in replicaset.members]
    holders = [row for row in rows if row is not None and is_staying(row)]
    whole = [row for row in holders if row.name not in view.damaged]
    master = replicaset.current_master_name
    if master not in view.damaged:
        return []
    if any(map(view.is_steady, whole)):
        return [
            f"{master} stays master of {replicaset.name} although it is damaged: nobody else gets "
            f"all of its rows; cairn expel {master} --force gives up what only it has"
        ] * lacks_heirs(view, replicaset)
    away = ", ".join(row.name for row in whole if row.target_state.grade is not Grade.ONLINE)
    damaged = ", ".join(row.name for row in holders if row.name in view.damaged)
    way = f"start {away}, or restore a backup" if away else "restore a backup"
    return [
        f"every copy of {replicaset.name} that is there is damaged ({damaged}): "
        f"{way}; what can be read is served"
    ]


def _is_served(view: ClusterView, replicaset: Replicaset) -> bool:
    master = view.cluster.master_of(replicaset.name)
    return (
        master is not None
        and master.target_state.grade is Grade.ONLINE
        and replicaset.target_master_name == master.name
    )


def _leaving(view: ClusterView, instance: Instance) -> list[str]:
    if instance.target_state.grade is not Grade.EXPELLED:
        return []
    name = instance.name
    if not may_give_up(view, instance):
        lost = lost_with(view.cluster, instance, view.sharded_tiers)
        return [
            f"{name} cannot leave: nobody else is known to have the rows of buckets "
            f"{ranges_in_words(lost)}; start another instance of {instance.replicaset_name}, or "
            f"lose them with cairn expel {name} --force"
        ]
    if instance.current_state.grade is not Grade.EXPELLED and instance.raft_id in view.voters:
        return [f"{name} leaves when another instance can take its vote in Raft: add one"]
    return [f"{name} is leaving"]
