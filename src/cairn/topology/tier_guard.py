"""Which changes of tiers a running cluster may make: see `guard.py`, which asks this."""

from __future__ import annotations

import re

import msgspec

from cairn.model.errors import CheckViolation, NotInPrerequisiteState
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, Replicaset, Tier

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")
#: What may change while the cluster runs. Everything else is part of where rows lie.
CHANGEABLE = ("replication_factor", "replication_mode")


def check_tiers(before: Cluster, after: Cluster, sharded_tiers: frozenset[str]) -> bool:
    """Refuse what rows or people do not survive. Whether any tier changes at all."""
    if before.tiers == after.tiers:
        return False
    for name in sorted(before.tiers.keys() - after.tiers.keys()):
        _check_unused(before, name, sharded_tiers)
    for name in sorted(after.tiers):
        new, old = after.tiers[name], before.tiers.get(name)
        if old is None:
            _check_new(before, new)
        elif old != new:
            _check_changed(after, old, new)
    return True


def _check_unused(cluster: Cluster, name: str, sharded_tiers: frozenset[str]) -> None:
    if cluster.tiers[name].is_default:
        raise NotInPrerequisiteState(f"{name} is the tier of tables that name none")
    if name in sharded_tiers:
        raise NotInPrerequisiteState(f"tier {name} has tables", hint="drop them first")
    used = sorted(each.name for each in cluster.instances.values() if each.tier == name)
    used += sorted(each.name for each in cluster.replicasets.values() if each.tier == name)
    if used:
        raise NotInPrerequisiteState(
            f"tier {name} is not empty: {', '.join(used)}", hint="expel its instances first"
        )


def _check_new(before: Cluster, tier: Tier) -> None:
    if not _NAME.fullmatch(tier.name):
        raise CheckViolation(
            f"{tier.name[:60]!r} is no name of a tier",
            hint="its replicasets and instances are called after it: letters, digits, _ - .",
        )
    if tier.is_default and any(each.is_default for each in before.tiers.values()):
        raise CheckViolation("there is a default tier already", hint="name the tier of each table")


def _check_changed(after: Cluster, old: Tier, new: Tier) -> None:
    for field in msgspec.structs.fields(Tier):
        if field.name in CHANGEABLE or getattr(old, field.name) == getattr(new, field.name):
            continue
        raise CheckViolation(
            f"{field.name} of tier {old.name} is fixed when the tier is made",
            hint=f"what can be changed: {', '.join(CHANGEABLE)}",
        )
    if new.replication_mode == "sync" != old.replication_mode:
        for replicaset in sorted(after.replicasets.values(), key=lambda each: each.name):
            if replicaset.tier == new.name:
                _check_has_majority(after, replicaset)


def _check_has_majority(after: Cluster, replicaset: Replicaset) -> None:
    """In sync mode a write waits for a majority: without one the change would stop them all."""
    awake = [
        name
        for name in replicaset.members
        if (row := after.instances.get(name)) is not None
        and row.current_state.grade is row.target_state.grade is Grade.ONLINE
    ]
    needed = len(replicaset.members) // 2 + 1
    if replicaset.members and len(awake) < needed:
        raise NotInPrerequisiteState(
            f"writes to {replicaset.name} would wait: {len(awake)} of its "
            f"{len(replicaset.members)} members are Online, sync mode needs {needed}",
            hint="bring them back first",
        )
