"""Whether a change of the topology may be proposed: one admission for every way to it.

The leader asks it of each proposal, whoever made it (`cairn expel`, SQL, the queue, the governor),
in the same turn in which it appends. Nothing is decided from names alone: a change is judged by
the picture that it would make. Values by themselves are checked by `model/tables/table_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from cairn.model.errors import CairnError, CheckViolation, NotInPrerequisiteState
from cairn.model.log.ops import SCHEMA_RANGE, Dml, Insert, Replace, Update
from cairn.model.log.ranges import KeyRange, whole_table
from cairn.model.members.cluster import Cluster
from cairn.model.members.holders import (
    EXPEL_BY_FORCE,
    is_staying,
    lost_with,
    ranges_in_words,
    takers,
)
from cairn.model.members.moves import Phase
from cairn.model.members.topology import (
    BucketRange,
    BucketState,
    Grade,
    Instance,
    Replicaset,
    ReplicasetState,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.topology.changes import advanced
from cairn.topology.tier_guard import check_tiers

#: What a decision about leaving and owning reads: nothing of it may change before it is in the log.
READ: tuple[KeyRange, ...] = (
    SCHEMA_RANGE,
    *(
        whole_table(table.id)
        for table in (
            system.PICO_INSTANCE,
            system.PICO_REPLICASET,
            system.PICO_BUCKET,
            system.PICO_TIER,
        )
    ),
)
_TABLES = {
    system.PICO_INSTANCE.id,
    system.PICO_REPLICASET.id,
    system.PICO_BUCKET.id,
    system.PICO_PEER_ADDRESS.id,
    system.PICO_TIER.id,
}


Row: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Any, ...]


class _Change(msgspec.Struct, frozen=True):
    table: int
    old: Row | None
    new: Row | None


def is_of_topology(changes: Iterable[Dml]) -> bool:
    return any(change.table in _TABLES for change in changes)


def check_change(
    changes: Sequence[Dml],
    cluster: Cluster,
    sharded_tiers: frozenset[str],
    *,
    force: bool = False,
    is_unsafe: bool = False,
) -> tuple[KeyRange, ...]:
    """Refuse what would end the cluster or lose rows; else what must not change meanwhile.

    `force` gives up rows on purpose, `is_unsafe` moves buckets without their rows (for repairs).
    """
    after = picture_after(cluster, changes)
    _check_names(cluster, after)
    leaving = _newly_expelled(cluster, after)
    for instance in leaving:
        refusal = why_not_expel(after, instance, sharded_tiers, force)
        if refusal is not None:
            raise refusal
    _check_targets(cluster, after, force)
    is_deciding = check_tiers(cluster, after, sharded_tiers) or bool(leaving)
    if cluster.replicasets.keys() - after.replicasets.keys() or after.buckets != cluster.buckets:
        _check_owners(cluster, after, sharded_tiers, is_unsafe)
        is_deciding = True
    return READ if is_deciding else ()


def picture_after(cluster: Cluster, changes: Iterable[Dml]) -> Cluster:
    """The cluster as these operations would leave it."""
    buckets = {(each.tier, each.start): each for each in cluster.buckets}
    new: dict[tuple[int, Key], Row | None] = {}
    found: list[_Change] = []
    for op in changes:
        if op.table not in _TABLES:
            continue
        table = system.BY_ID[op.table]
        if isinstance(op, Insert | Replace):
            key = tuple(op.row[at] for at in table.key_positions)
        else:
            key = tuple(op.key)
        place = (op.table, key)
        old = new[place] if place in new else _row(cluster, buckets, op.table, key)
        row = _row_after(op, old, len(table.columns))
        if row is not None or old is not None:
            new[place] = row
            found.append(_Change(op.table, old, row))
    return advanced(cluster, found, cluster.position)


def _row_after(op: Dml, old: Row | None, width: int) -> Row | None:
    match op:
        case Insert(row=row) | Replace(row=row):
            return (*row, *(None,) * (width - len(row)))
        case Update(changes=assigned) if old is not None:
            new = list(old)
            for at, value in assigned:
                new[at] = value
            return tuple(new)
        case _:
            return None


def _row(
    cluster: Cluster, buckets: dict[tuple[str, int], BucketRange], table: int, key: Key
) -> Row | None:
    """The row of that key as the picture has it."""
    made: Any
    if table == system.PICO_INSTANCE.id:
        made = cluster.instances.get(key[0])
        return None if made is None else rows.instance_row(made)
    if table == system.PICO_REPLICASET.id:
        made = cluster.replicasets.get(key[0])
        return None if made is None else rows.replicaset_row(made)
    if table == system.PICO_BUCKET.id:
        made = buckets.get((key[0], key[1]))
        return None if made is None else rows.bucket_row(made)
    if table == system.PICO_TIER.id:
        made = cluster.tiers.get(key[0])
        return None if made is None else rows.tier_row(made)
    made = cluster.addresses.get((key[0], key[1]))
    return None if made is None else (key[0], made, key[1])


# --- names ----------------------------------------------------------------------------------------


def _check_names(before: Cluster, after: Cluster) -> None:
    """Every name in a changed row belongs to somebody, and nobody goes while named."""
    for instance in after.instances.values():
        if before.instances.get(instance.name) == instance:
            continue
        if instance.replicaset_name not in after.replicasets:
            raise _unknown("replicaset", instance.replicaset_name, after.replicasets)
        if instance.tier not in after.tiers:
            raise _unknown("tier", instance.tier, after.tiers)
    for replicaset in after.replicasets.values():
        earlier = before.replicasets.get(replicaset.name)
        if earlier == replicaset:
            continue
        if replicaset.tier not in after.tiers:
            raise _unknown("tier", replicaset.tier, after.tiers)
        if earlier is not None and earlier.awaits_naming:
            _check_naming(earlier, replicaset)
        known = () if earlier is None else earlier.members
        named = [name for name in replicaset.members if name not in known]
        if earlier is None or earlier.target_master_name != replicaset.target_master_name:
            named.append(replicaset.target_master_name)
        if earlier is None or earlier.current_master_name != replicaset.current_master_name:
            named.append(replicaset.current_master_name)
        own = {
            each.name
            for each in after.instances.values()
            if each.replicaset_name == replicaset.name
        }
        for name in named:
            if name and name not in own:
                raise _unknown(f"instance of {replicaset.name}", name, own)
        master = replicaset.target_master_name
        if master and master in named and master not in replicaset.members:
            raise CheckViolation(
                f"{master} does not have the rows of {replicaset.name} yet",
                hint=f"those who can be its master: {', '.join(replicaset.members)}",
            )
    for name in before.replicasets.keys() - after.replicasets.keys():
        left = [each.name for each in after.instances.values() if each.replicaset_name == name]
        if left:
            raise CheckViolation(f"{name} still has instances: {', '.join(left)}")
    for name in before.instances.keys() - after.instances.keys():
        if before.instances[name].current_state.grade is not Grade.EXPELLED:
            raise CheckViolation(
                f"{name} is a member of the cluster", hint=f"use cairn expel {name}"
            )
    members = {each.raft_id for each in after.instances.values()}
    for raft_id, kind in after.addresses.keys() - before.addresses.keys():
        if raft_id not in members:
            raise CheckViolation(f"an address ({kind}) of instance {raft_id}, which does not exist")


def _unknown(what: str, name: str, known: Iterable[str]) -> CairnError:
    return CheckViolation(
        f'there is no {what} named "{name}"', hint=f"known: {', '.join(sorted(known)) or 'none'}"
    )


# --- target states --------------------------------------------------------------------------------


def _newly_expelled(before: Cluster, after: Cluster) -> list[Instance]:
    return [
        instance
        for name, instance in sorted(after.instances.items())
        if instance.target_state.grade is Grade.EXPELLED
        and (earlier := before.instances.get(name)) is not None
        and earlier.target_state.grade is not Grade.EXPELLED
    ]


def _check_targets(before: Cluster, after: Cluster, force: bool) -> None:
    for name, instance in after.instances.items():
        earlier = before.instances.get(name)
        if earlier is None or earlier == instance:
            continue
        was, wanted = earlier.target_state, instance.target_state
        if was.grade is Grade.EXPELLED and wanted != was:
            raise NotInPrerequisiteState(f'cannot update expelled instance "{name}"')
        reason = instance.target_state_reason
        if reason == EXPEL_BY_FORCE != earlier.target_state_reason and not force:
            raise CheckViolation(
                f"rows are not given up by UPDATE (instance {name})",
                hint=f"use CALL cairn_expel('{name}', true) or cairn expel {name} --force",
            )
        current = instance.current_state.incarnation
        if wanted != was and wanted.grade is Grade.ONLINE and wanted.incarnation < current:
            raise CheckViolation(
                f"target_state of {name}: incarnation {wanted.incarnation} is past",
                hint=f"use {current} or {current + 1}",
            )


def _check_naming(earlier: Replicaset, replicaset: Replicaset) -> None:
    """A wish would be taken for a naming: those who have promised would wait for ever."""
    if replicaset.target_master_name and replicaset.epoch == earlier.epoch:
        raise NotInPrerequisiteState(
            f"a master of {replicaset.name} is being named",
            hint="ask for another one when that is done",
        )


def why_not_expel(
    cluster: Cluster, instance: Instance, sharded_tiers: frozenset[str], force: bool
) -> CairnError | None:
    """What would be lost; None when the instance may go. `cluster` shows it as leaving already."""
    others = [each for each in cluster.instances.values() if each.name != instance.name]
    staying = [each for each in others if is_staying(each)]
    if not staying:
        return NotInPrerequisiteState(
            f"attempt to expel instance '{instance.name}' which is the only member in the cluster"
        )
    if not any(_may_vote(cluster, each) for each in staying):
        return NotInPrerequisiteState(
            f"{instance.name} is the last instance that may vote: the cluster would have no leader",
            hint="add an instance of a tier that can vote first",
        )
    name = instance.replicaset_name
    rest = [member for member in cluster.members(name) if is_staying(member)]
    owned = cluster.owned(name)
    if not rest and owned and not takers(cluster, instance.tier, name):
        return NotInPrerequisiteState(
            f"{name} owns buckets and no other replicaset of tier {instance.tier} is ready to "
            "take them",
            hint="fill another replicaset of the tier first",
        )
    lost = lost_with(cluster, instance, sharded_tiers)
    if force or not lost:
        return None
    holders = [each.name for each in rest if each.name in cluster.replicasets[name].members]
    first = f"start {', '.join(holders)}" if holders else f"cairn rebalance drain {name}"
    return NotInPrerequisiteState(
        f"{name} owns buckets {ranges_in_words(lost)} and {instance.name} is the last instance "
        "that is known to have their rows",
        hint=f"{first} first, or use --force (CALL cairn_expel('{instance.name}', true)) and lose "
        "these rows",
    )


def _may_vote(cluster: Cluster, instance: Instance) -> bool:
    tier = cluster.tiers.get(instance.tier)
    return tier is None or tier.can_vote


# --- buckets --------------------------------------------------------------------------------------


def _check_owners(
    before: Cluster, after: Cluster, sharded_tiers: frozenset[str], is_unsafe: bool
) -> None:
    last: BucketRange | None = None
    for bucket in after.buckets:
        owner = after.replicasets.get(bucket.owner)
        if owner is None or owner.tier != bucket.tier:
            raise _unknown(f"replicaset of tier {bucket.tier}", bucket.owner, after.replicasets)
        tier = after.tiers.get(bucket.tier)
        if tier is None or not bucket.start <= bucket.end <= tier.bucket_count:
            raise CheckViolation(f"{bucket.start}–{bucket.end} are no buckets of {bucket.tier}")
        if last is not None and last.tier == bucket.tier and last.end >= bucket.start:
            raise CheckViolation(f"bucket {bucket.start} of {bucket.tier} has two owners")
        last = bucket
    if is_unsafe:
        return
    for tier_name in sorted({each.tier for each in before.buckets}):
        _check_kept(before, after, tier_name, tier_name in sharded_tiers)


def _check_kept(before: Cluster, after: Cluster, tier: str, is_sharded: bool) -> None:
    """Every bucket keeps an owner. While there are rows, it changes only with them: by the
    hand-over of a frozen range, or because its replicaset is lost."""
    was, now = _owners(before, tier), _owners(after, tier)
    handed_over = _handed_over(before, after, tier)
    for bucket, owner in was.items():
        if bucket not in now:
            raise CheckViolation(f"bucket {bucket} of {tier} would have no owner")
        replicaset = after.replicasets.get(owner)
        is_gone = replicaset is None or replicaset.state is ReplicasetState.TO_BE_EXPELLED
        if is_sharded and now[bucket] != owner and not is_gone and bucket not in handed_over:
            raise CheckViolation(
                f"bucket {bucket} of {tier} belongs to {owner}, and its rows would stay there",
                hint="rows do not move with what is written to _pico_bucket: see `cairn rebalance`",
            )


def _handed_over(before: Cluster, after: Cluster, tier: str) -> set[int]:
    """Buckets whose move goes from frozen to copied: the target has all their rows."""
    frozen = {
        move.id
        for move in before.moves.values()
        if move.tier == tier and move.phase is Phase.FROZEN
    }
    return {
        bucket
        for row in after.tier_buckets(tier)
        if row.state is BucketState.COPIED and row.move_id in frozen
        for bucket in range(row.start, row.end + 1)
    }


def _owners(cluster: Cluster, tier: str) -> dict[int, str]:
    return {
        bucket: each.owner
        for each in cluster.tier_buckets(tier)
        for bucket in range(each.start, each.end + 1)
    }
