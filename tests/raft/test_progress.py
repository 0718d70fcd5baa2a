"""How much may be sent to one follower, and when it is stuck no longer."""

from __future__ import annotations

import pytest

from cairn.raft.core import RaftCore
from cairn.raft.memory import MemoryStorage
from cairn.raft.progress import Flow, Progress
from cairn.raft.types import (
    Config,
    ConfState,
    Entry,
    HardState,
    RaftCorruption,
    Snapshot,
    SnapshotMeta,
)


def replicating(match: int = 5, window: int = 2) -> Progress:
    progress = Progress(match + 1, window, is_learner=False)
    progress.acknowledged(match)
    progress.become_replicate()
    return progress


def test_a_probe_sends_one_message_and_waits() -> None:
    progress = Progress(6, 2, is_learner=False)
    assert not progress.is_paused()
    progress.sent(3)
    assert progress.is_paused()
    assert progress.next == 6


def test_replication_runs_ahead_within_its_window() -> None:
    progress = replicating()
    progress.sent(2)
    assert (progress.next, progress.is_paused()) == (8, False)
    progress.sent(1)
    assert (progress.next, progress.is_paused()) == (9, True)
    progress.acknowledged(7)
    progress.free_inflight(7)
    assert (progress.match, progress.next, progress.is_paused()) == (7, 9, False)


def test_a_late_acknowledgement_is_no_news() -> None:
    progress = replicating()
    assert not progress.acknowledged(5)
    assert progress.acknowledged(6)
    assert progress.next == 7


def test_a_stale_refusal_changes_nothing() -> None:
    progress = replicating()
    assert not progress.refused(5, 0)
    probe = Progress(9, 2, is_learner=False)
    assert not probe.refused(3, 0)
    assert probe.next == 9


@pytest.mark.parametrize(("agree_at", "following"), [(3, 4), (0, 1), (20, 8)])
def test_a_refused_probe_goes_back_to_where_logs_may_agree(agree_at: int, following: int) -> None:
    probe = Progress(9, 2, is_learner=False)
    probe.sent(1)
    assert probe.refused(8, agree_at)
    assert (probe.next, probe.is_paused()) == (following, False)


@pytest.mark.parametrize(("ok", "following"), [(True, 21), (False, 6)])
def test_the_end_of_a_snapshot_is_a_probe(ok: bool, following: int) -> None:
    progress = replicating()
    progress.become_snapshot(20)
    assert progress.is_paused()
    progress.snapshot_ended(ok)
    assert (progress.flow, progress.next) == (Flow.PROBE, following)


def storage(commit: int = 0) -> MemoryStorage:
    made = MemoryStorage(ConfState((1,)))
    made.append([Entry(1, 1), Entry(1, 2), Entry(1, 3)])
    made.hard_state = HardState(1, 0, commit)
    return made


def test_a_restart_goes_on_from_what_the_state_machine_has() -> None:
    """The stored commit may lag behind what was applied."""
    core = RaftCore(Config(1), storage(commit=1), applied=2)
    assert (core.log.committed, core.log.applied) == (2, 2)
    assert core.ready().committed == []


@pytest.mark.parametrize(("commit", "applied"), [(4, 0), (0, 4)])
def test_a_commit_or_an_apply_past_the_log_is_corruption(commit: int, applied: int) -> None:
    with pytest.raises(RaftCorruption):
        RaftCore(Config(1), storage(commit), applied=applied)


def test_a_state_machine_older_than_the_log_is_corruption() -> None:
    made = storage(commit=3)
    made.snap = Snapshot(SnapshotMeta(2, made.term(2), ConfState((1,))), b"")
    made.compact(2)
    with pytest.raises(RaftCorruption):
        RaftCore(Config(1), made, applied=1)
