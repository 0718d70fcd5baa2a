"""`forward = on | off | ro_to_rw`: how far a statement may travel from the instance that got it.

`off`: every bucket is here, and this instance is the master; `ro_to_rw`: one replicaset, which may
be one hop away. Checked before anything is sent or written. And where it should have gone at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cairn.model.errors import InvalidParameter, NotOwner
from cairn.model.members.topology import ConnectionType
from cairn.node.rows.routes import Routes
from cairn.sql import plans


def check_forward(
    how: str, preference: str, plan: plans.Plan, values: Sequence[Any], routes: Routes, here: int
) -> None:
    """Refuse a statement whose rows are farther away than it may go; `here` is our raft_id."""
    if how == "on":
        return
    if how == "off" and preference == "replica":
        raise InvalidParameter('"forward = off" is not compatible with "read_preference = replica"')
    found = _replicasets(routes, plan, values)
    if len(found) > 1:
        raise NotOwner(
            f'cannot satisfy "forward = {how}": buckets span multiple nodes, '
            'try using "forward = on" instead'
        )
    if how == "off" and any(routes.master(each) != here for each in found):
        raise NotOwner(
            'cannot satisfy "forward = off": buckets are not present on the current node, '
            'try using "forward = ro_to_rw" instead'
        )


def _replicasets(routes: Routes, plan: Any, values: Sequence[Any]) -> set[str]:
    """Who takes part; nobody for global tables. Where rows go that are yet to be read is not known:
    they may go anywhere."""
    match plan:
        case plans.Returning(write=write):
            return _replicasets(routes, write, values)
        case plans.PointRead(bucket=bucket, tier=tier) | plans.PointWrite(bucket=bucket, tier=tier):
            return set() if bucket is None else {routes.owner(str(tier), bucket(values))}
        case plans.ScatterRead(steps=steps, fragments=fragments):
            found = {
                name
                for fragment in fragments
                for name in _of_fragment(routes, fragment, values, is_known=not steps)
            }
            return found.union(*(_replicasets(routes, step.plan, values) for step in steps))
        case plans.ScatterWrite(steps=steps, fragment=fragment):
            return _of_fragment(routes, fragment, values, is_known=not steps)
        case plans.ShardedInsert(rows=rows, tier=tier):
            return set(routes.group(tier, (bucket for bucket, _ in rows(values))))
        case plans.InsertSelect(tier=tier) | plans.KeyedWrite(tier=tier):
            return set(routes.all_ranges(tier))
    return set()


def _of_fragment(
    routes: Routes, fragment: plans.Fragment, values: Sequence[Any], *, is_known: bool
) -> set[str]:
    buckets = fragment.bucket_set(values) if is_known else None
    if buckets is None:
        return set(routes.all_ranges(fragment.tier))
    return set(routes.group(fragment.tier, buckets))


def hop_hint(plan: plans.Plan, values: Sequence[Any], routes: Routes, here: int) -> tuple[str, ...]:
    """Who owns the bucket of a statement that came to the wrong instance."""
    if isinstance(plan, plans.Returning):
        plan = plan.write
    if not isinstance(plan, plans.PointRead | plans.PointWrite) or plan.bucket is None:
        return ()
    assert plan.tier is not None
    bucket, cluster = plan.bucket(values), routes.cluster
    replicaset = cluster.replicasets[routes.owner(plan.tier, bucket)]
    master = cluster.by_raft_id(routes.master(replicaset.name))
    if master is None or master.raft_id == here:
        return ()
    hint = {
        "map": "hop",
        "tier": plan.tier,
        "bucket_id": bucket,
        "replicaset_uuid": replicaset.uuid,
        "instance_uuid": master.uuid,
        "address": cluster.address(master.raft_id, ConnectionType.PGPROTO),
        "raft": {"term": cluster.position.term, "index": cluster.position.index},
    }
    return (json.dumps(hint),)
