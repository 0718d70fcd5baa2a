"""Last of all: operations that were put into `_pico_governor_queue` (seeds/003).

Step 0 makes the table known, the next one fills it with the upgrade; then the first pending row is
run. A failed row stops the queue and nothing else: topology, failover and DDL stand above it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.governor.actions import Action, Propose, RunOperation
from cairn.governor.view import ClusterView
from cairn.model import rows
from cairn.model import system_tables as system
from cairn.model.ops import Insert
from cairn.model.ranges import whole_table

_QUEUE = system.PICO_GOVERNOR_QUEUE


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


def fill_queue(view: ClusterView) -> Iterator[Action]:
    """An empty queue begins with the operations of the catalogue's version."""
    if view.has_queue and not view.queue and view.upgrade:
        yield Propose(
            step="insert upgrade operation",
            subject=view.upgrade[0].batch_id,
            ops=tuple(Insert(_QUEUE.id, rows.queue_row(each)) for each in view.upgrade),
            ranges=(whole_table(_QUEUE.id),),
            say=f"{len(view.upgrade)} upgrade operations are queued",
        )


def run_queue(view: ClusterView) -> Iterator[Action]:
    if view.pending_ddl is not None or any(each.status == "failed" for each in view.queue):
        return
    for each in view.queue:
        if each.status == "pending":
            yield RunOperation(
                step=f"run {each.op_format} operation step",
                subject=f"operation {each.id}",
                op_id=each.id,
                op=each.op,
                op_format=each.op_format,
            )
            return
