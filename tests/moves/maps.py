"""Small pictures of clusters whose buckets move, and what entries make of them."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import Move, MoveReport, Phase
from cairn.model.members.topology import BucketRange, BucketState, Grade, Position, State, Tier
from cairn.model.tables import system_tables as system
from cairn.moves import steps
from cairn.moves.decide import MovesView
from cairn.moves.outlook import Outlook
from cairn.moves.shares import Wanted
from cairn.moves.steps import Step
from cairn.topology.changes import advanced
from tests.governor.builders import instance, replicaset

ACTIVE = BucketState.ACTIVE


def row(start: int, end: int, owner: str, **fields: Any) -> BucketRange:
    return BucketRange("default", start, end, fields.pop("state", ACTIVE), owner, **fields)


def owner_of(cluster: Cluster, bucket: int) -> str | None:
    for found in cluster.buckets:
        if found.start <= bucket <= found.end:
            return found.owner
    return None


def cluster_of(*rows: BucketRange, count: int = 30, sets: str = "st", **fields: Any) -> Cluster:
    """Replicasets `s`, `t`, …, each with two instances; masters are s1, t1, …"""
    names = [f"{name}{n}" for name in sets for n in (1, 2)]
    return Cluster(
        position=Position(2, 10),
        instances={
            name: instance(name, at, replicaset=name[0]) for at, name in enumerate(names, 1)
        },
        replicasets={name: replicaset(name, f"{name}1", (f"{name}1", f"{name}2")) for name in sets},
        tiers={"default": Tier("default", 2, bucket_count=count)},
        buckets=rows or (row(1, count, "s"),),
        **fields,
    )


class _Change(msgspec.Struct, frozen=True):
    table: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


def applied(cluster: Cluster, step: Step) -> Cluster:
    """The picture after the entry, as every instance makes it."""
    changes = []
    for op in step.ops:
        if isinstance(op, ops.Replace):
            changes.append(_Change(op.table, None, tuple(op.row)))
        else:
            assert isinstance(op, ops.Delete)
            changes.append(_Change(op.table, _with_key(op.table, tuple(op.key)), None))
    position = Position(cluster.position.term, cluster.position.index + 1)
    return advanced(cluster, changes, position)


def _with_key(table: int, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of which only the key matters."""
    found = system.BY_ID[table]
    row: list[Any] = [None] * len(found.columns)
    for at, value in zip(found.key_positions, key, strict=True):
        row[at] = value
    return tuple(row)


def begun(cluster: Cluster, start: int = 11, end: int = 20, to: str = "t") -> Cluster:
    found = Wanted(start, end, "s", to)
    return applied(cluster, steps.start(cluster, "default", found, "why", "now"))


def frozen(cluster: Cluster, number: int = 1) -> Cluster:
    return applied(cluster, steps.freeze(cluster, cluster.moves[number], "now"))


def handed_over(cluster: Cluster, number: int = 1) -> Cluster:
    move = cluster.moves[number]
    return applied(cluster, steps.copied(cluster, move, final_report(cluster), "now"))


def final_report(cluster: Cluster, number: int = 1, **fields: Any) -> MoveReport:
    """What the target of a frozen move says when it has everything."""
    move = cluster.moves[number]
    made = MoveReport(
        number,
        f"{move.target}1",
        attempt=1,
        is_near=True,
        frozen_at=move.frozen_at,
        source_epoch=move.source_epoch,
        target_epoch=move.target_epoch,
        final={"s1": (7, 1)},
        first={"t1": (9, 1)},
    )
    return msgspec.structs.replace(made, **fields)


def view(cluster: Cluster, *reports: MoveReport, **fields: Any) -> MovesView:
    def side(report: MoveReport) -> str:
        return cluster.instances[report.instance].replicaset_name

    return msgspec.structs.replace(
        MovesView(
            cluster=cluster,
            outlook=Outlook(cluster, frozenset({"default"})),
            reports={(report.move, side(report)): report for report in reports},
            frozen_s={},
            resting_s={},
            now="now",
        ),
        **fields,
    )


def with_set(cluster: Cluster, name: str, **fields: Any) -> Cluster:
    changed = msgspec.structs.replace(cluster.replicasets[name], **fields)
    sets = {**cluster.replicasets, name: changed}
    return msgspec.structs.replace(cluster, replicasets=sets)


def without_set(cluster: Cluster, name: str) -> Cluster:
    sets = {key: each for key, each in cluster.replicasets.items() if key != name}
    return msgspec.structs.replace(cluster, replicasets=sets)


def offline(cluster: Cluster, name: str) -> Cluster:
    row = msgspec.structs.replace(cluster.instances[name], current_state=State(Grade.OFFLINE, 1))
    return msgspec.structs.replace(cluster, instances={**cluster.instances, name: row})


def phases(cluster: Cluster) -> dict[int, Phase]:
    return {move.id: move.phase for move in cluster.moves.values()}


def move_of(cluster: Cluster) -> Move:
    [move] = cluster.moves.values()
    return move
