"""Instances that come up, a grade at a time.

Each grade is given to everybody who has earned it in one entry; a slow instance holds nobody.
Instances configure themselves from applied entries: questions are asked only where an answer is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cairn.governor.actions import Action, ConfigureReplication, Propose, SyncRaft
from cairn.governor.buckets import redistribution
from cairn.governor.rules.leaving import (
    instance_range,
    put_replicaset,
    replicaset_range,
    set_state,
)
from cairn.governor.view import ClusterView
from cairn.model.log.ops import Dml
from cairn.model.log.ranges import whole_table
from cairn.model.members.topology import Grade, Instance, ReplicasetState, State
from cairn.model.tables import system_tables as system

BATCH = 200  # subjects of one question or entry


def raised(instance: Instance, grade: Grade) -> Dml:
    """The current grade copies the incarnation of the target, as every change of it does."""
    return set_state(instance, State(grade, instance.target_state.incarnation))


def _is_new_incarnation(instance: Instance) -> bool:
    current, target = instance.current_state, instance.target_state
    return current.grade is Grade.OFFLINE or current.incarnation < target.incarnation


def sync_raft(view: ClusterView) -> Iterator[Action]:
    """3. → RaftSynced: their log has reached the leader's commit index."""
    waiting = [
        instance.name
        for instance in view.instances()
        if view.is_rising(instance)
        and _is_new_incarnation(instance)
        and view.in_raft(instance)
        and ("sync raft log", instance.name) not in view.waiting
    ]
    if waiting:
        yield SyncRaft(
            step="sync raft log", subject=",".join(waiting[:3]), instances=tuple(waiting[:BATCH])
        )


def configure_replication(view: ClusterView) -> Iterator[Action]:
    """4. → Replicated: they have the rows of their replicaset."""
    for replicaset in view.replicasets():
        waiting = [
            instance.name
            for instance in view.cluster.members(replicaset.name)
            if view.is_rising(instance)
            and not _is_new_incarnation(instance)
            and instance.current_state.grade is Grade.RAFT_SYNCED
            and ("configure replication", instance.name) not in view.waiting
        ]
        if waiting:
            yield ConfigureReplication(
                step="configure replication",
                subject=replicaset.name,
                replicaset=replicaset.name,
                instances=tuple(waiting),
            )


def extend_members(view: ClusterView) -> Iterator[Action]:
    """Who has the rows counts for a majority of them: one at a time."""
    for replicaset in view.replicasets():
        if replicaset.current_master_name != replicaset.target_master_name:
            continue
        if view.cluster.master_of(replicaset.name) is None:
            continue  # nobody to have the rows from
        for instance in view.cluster.members(replicaset.name):
            if instance.name in replicaset.members or not view.is_rising(instance):
                continue
            if instance.current_state.grade not in (
                Grade.REPLICATED,
                Grade.SHARDING_INITIALIZED,
                Grade.ONLINE,
            ):
                continue
            members = (*replicaset.members, instance.name)
            yield Propose(
                step="extend replicaset",
                subject=replicaset.name,
                ops=(put_replicaset(msgspec.structs.replace(replicaset, members=members)),),
                ranges=(replicaset_range(replicaset), instance_range(instance)),
                say=f"{instance.name} has the rows of {replicaset.name} and counts for it",
            )
            break


def fill_replicasets(view: ClusterView) -> Iterator[Action]:
    """A replicaset filled to its replication factor is ready and gets its weight (step 6)."""
    for replicaset in view.replicasets():
        if replicaset.state is ReplicasetState.TO_BE_EXPELLED:
            continue
        present = [
            member
            for member in view.cluster.members(replicaset.name)
            if view.is_rising(member)
            and member.current_state.grade
            in (Grade.REPLICATED, Grade.SHARDING_INITIALIZED, Grade.ONLINE)
        ]
        tier = view.cluster.tiers.get(replicaset.tier)
        if tier is None or tier.bucket_count == 0:
            continue
        becomes_ready = (
            replicaset.state is ReplicasetState.NOT_READY
            and len(present) >= tier.replication_factor
        )
        comes_back = (
            replicaset.state is ReplicasetState.READY
            and replicaset.weight == 0
            and replicaset.weight_origin == "auto"
            and bool(present)
        )
        if not becomes_ready and not comes_back:
            continue
        changed = msgspec.structs.replace(
            replicaset,
            state=ReplicasetState.READY,
            weight=1.0 if replicaset.weight_origin == "auto" else replicaset.weight,
        )
        yield Propose(
            step="update replicaset state",
            subject=replicaset.name,
            ops=(put_replicaset(changed),),
            ranges=(whole_table(system.PICO_INSTANCE.id), replicaset_range(replicaset)),
            say=f"{replicaset.name} is ready with {len(present)} instances",
        )


def distribute_buckets(view: ClusterView) -> Iterator[Action]:
    """First distribution, and anew by weight while no row could be left behind."""
    for tier in sorted(view.cluster.tiers.values(), key=lambda each: each.name):
        if tier.bucket_count == 0:
            continue
        has_buckets = bool(view.cluster.tier_buckets(tier.name))
        if has_buckets and tier.name in view.sharded_tiers:
            continue  # rows exist: only online moves may change owners
        if any(move.is_open and move.tier == tier.name for move in view.cluster.moves.values()):
            continue  # what is under way ends first
        found = redistribution(view.cluster, tier.name)
        if found:
            yield Propose(
                step="distribute buckets",
                subject=tier.name,
                ops=tuple(found),
                ranges=(
                    whole_table(system.PICO_BUCKET.id),
                    whole_table(system.PICO_TABLE.id),
                    whole_table(system.PICO_REPLICASET.id),
                ),
                say=f"buckets of tier {tier.name} are divided by weight",
            )


def _raise_all(view: ClusterView, below: Grade, to: Grade, step: str) -> Iterator[Action]:
    earned = [
        instance
        for instance in view.instances()
        if view.is_rising(instance)
        and not _is_new_incarnation(instance)
        and instance.current_state.grade is below
    ][:BATCH]
    if earned:
        names = ", ".join(instance.name for instance in earned[:5])
        yield Propose(
            step=step,
            subject=",".join(instance.name for instance in earned[:3]),
            ops=tuple(raised(instance, to) for instance in earned),
            ranges=tuple(instance_range(instance) for instance in earned),
            say=f"{to}: {names}" + (" …" if len(earned) > 5 else ""),
        )


def initialise_sharding(view: ClusterView) -> Iterator[Action]:
    """5. → ShardingInitialized: they know who owns which bucket (from applied entries)."""
    return _raise_all(
        view, Grade.REPLICATED, Grade.SHARDING_INITIALIZED, "update sharding configuration"
    )


def raise_online(view: ClusterView) -> Iterator[Action]:
    """6. → Online."""
    return _raise_all(
        view, Grade.SHARDING_INITIALIZED, Grade.ONLINE, "update instance state to online"
    )
