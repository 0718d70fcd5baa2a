"""Last of all: operations that were put into `_pico_governor_queue`.

Step 0 makes the table known, the next one fills it with the upgrade; then the first pending row is
run. A failed row stops the queue and nothing else: topology, failover and DDL stand above it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.governor.actions import Action, Propose, RunOperation
from cairn.governor.view import ClusterView
from cairn.model.log.ops import Insert, Replace
from cairn.model.log.ranges import whole_table
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system

_QUEUE = system.PICO_GOVERNOR_QUEUE
_PROPERTY = system.PICO_PROPERTY


def create_queue(view: ClusterView) -> Iterator[Action]:
    """The chicken and the egg: this table is made by code, in the system's id range."""
    if not view.has_queue:
        yield Propose(
            step="create governor queue",
            subject=_QUEUE.name,
            ops=(
                Insert(system.PICO_TABLE.id, rows.table_row(_QUEUE)),
                Insert(system.PICO_INDEX.id, rows.index_row(rows.primary_index(_QUEUE))),
            ),
            ranges=(whole_table(system.PICO_TABLE.id), whole_table(system.PICO_INDEX.id)),
            say="the governor queue is created",
        )


def raise_version(view: ClusterView) -> Iterator[Action]:
    """Every instance runs a newer version: from now on the cluster is of that version."""
    versions = {each.version for each in view.cluster.instances.values()}
    present = str(view.cluster.properties.get("cluster_version", ""))
    if len(versions) != 1:
        return
    [newer] = versions
    if _key(newer) > _key(present):
        yield Propose(
            step="update global cluster version",
            subject=newer,
            ops=(Replace(_PROPERTY.id, ("cluster_version", rows.to_json(newer))),),
            ranges=(whole_table(system.PICO_INSTANCE.id), whole_table(_PROPERTY.id)),
            say=f"all instances run {newer}: the cluster is of version {newer}",
        )


def fill_queue(view: ClusterView) -> Iterator[Action]:
    """Operations of versions that the catalogue has not reached yet, put in once."""
    if view.has_queue and view.upgrade:
        yield Propose(
            step="insert upgrade operation",
            subject=view.upgrade[0].batch_id,
            ops=tuple(Insert(_QUEUE.id, rows.queue_row(each)) for each in view.upgrade),
            ranges=(whole_table(_QUEUE.id),),
            say=f"{len(view.upgrade)} upgrade operations are queued",
        )


def finish_upgrade(view: ClusterView) -> Iterator[Action]:
    """All operations of the upgrade are done: the catalogue is of the cluster's version."""
    present = str(view.cluster.properties.get("system_catalog_version", ""))
    if view.version and view.version != present and not view.upgrade:
        if any(each.kind == "upgrade" and each.status != "done" for each in view.queue):
            return
        yield Propose(
            step="finish system catalog upgrade",
            subject=view.version,
            ops=(Replace(_PROPERTY.id, ("system_catalog_version", rows.to_json(view.version))),),
            ranges=(whole_table(_QUEUE.id), whole_table(_PROPERTY.id)),
            say=f"the system catalogue is of version {view.version}",
        )


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def run_queue(view: ClusterView) -> Iterator[Action]:
    failed = any(each.status == "failed" for each in view.queue)
    if view.pending_ddl is not None or failed:
        return
    upgrade_first = sorted(view.queue, key=lambda each: (each.kind != "upgrade", each.id))
    for each in upgrade_first:
        if each.status == "pending":
            yield RunOperation(
                step=f"run {each.op_format} operation step",
                subject=f"operation {each.id}",
                op_id=each.id,
                op=each.op,
                op_format=each.op_format,
                is_upgrade=each.kind == "upgrade",
                owner=each.owner,
            )
            return
