"""Snapshots on their way: who stopped asking is told, also after the last piece."""

from __future__ import annotations

from pathlib import Path

from cairn.model.rpc import SnapshotChunkRequest
from cairn.node.consensus.snapshots import PATIENCE_TICKS, SnapshotSender
from cairn.raft.types import ConfState
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

RECEIVER = 7


def test_a_receiver_that_dies_after_the_last_chunk_is_taken_for_gone(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")
    StateMachine(store.connection)
    store.put_applied(3, 1, ConfState((1, RECEIVER)))
    sender = SnapshotSender(store.path)
    snapshot = sender.make()
    assert snapshot is not None
    sender.sent(RECEIVER, 0)
    assert sender.chunk(SnapshotChunkRequest(snapshot.handle, 0), RECEIVER, 5).last
    assert sender.overdue(5 + PATIENCE_TICKS) == []
    assert sender.overdue(6 + PATIENCE_TICKS) == [RECEIVER]
    assert sender.overdue(7 + PATIENCE_TICKS) == []
