"""Advisory locks of sessions that are no more: their instance has gone, or lives another life.

A life that is to be Online is still believed; so is one whose instance may not know yet that it was
given up (`view.keeps_locks`): its sessions may run statements, counting on their locks.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.governor.actions import Action, Propose
from cairn.governor.view import ClusterView
from cairn.model.log.ops import Dml
from cairn.model.members.topology import Grade, State
from cairn.model.tables.closing import marks, opened
from cairn.model.tables.locks import given_up, rows_of

AT_ONCE = 200  # locks in one entry


def release_lost_locks(view: ClusterView) -> Iterator[Action]:
    for raft_id, incarnation in view.locks.lives():
        if raft_id in view.keeps_locks or _is_alive(view, raft_id, incarnation):
            continue
        keys = view.locks.of_life(raft_id, incarnation)[:AT_ONCE]
        found: list[Dml] = []
        for key in keys:
            locks = view.locks.of(key)
            gone = [each for each in locks if each.owner[:2] == (raft_id, incarnation)]
            found += given_up(locks, gone)
        instance = view.cluster.by_raft_id(raft_id)
        name = f"instance {raft_id}" if instance is None else instance.name
        # A life that ended does not begin again: nothing but the locks themselves may change.
        yield Propose(
            step="release locks",
            subject=name,
            ops=tuple(found),
            ranges=tuple(map(rows_of, keys)),
            say=f"{len(keys)} advisory locks of {name} are released: its sessions are gone",
        )


def open_closed_rows(view: ClusterView) -> Iterator[Action]:
    """Of global tables: whoever meant to delete them is gone. Without the mark nobody does."""
    lost = [row for row in view.closing if not _is_alive(view, row[2], row[3])][:AT_ONCE]
    if lost:
        keys = [(row[0], row[1]) for row in lost]
        yield Propose(
            step="open closed rows",
            subject=f"instance {lost[0][2]}",
            ops=opened(keys),
            ranges=marks(keys),
            say=f"{len(keys)} rows that were about to be deleted stay: who deleted them is gone",
        )


def _is_alive(view: ClusterView, raft_id: int, incarnation: int) -> bool:
    instance = view.cluster.by_raft_id(raft_id)
    return instance is not None and instance.target_state == State(Grade.ONLINE, incarnation)
