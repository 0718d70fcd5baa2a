"""The log against a plain list, and the order in which it becomes durable."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cairn.raft.log import RaftLog
from cairn.raft.memory import MemoryStorage
from cairn.raft.types import (
    ConfState,
    Entry,
    LogCompacted,
    LogUnavailable,
    RaftCorruption,
    Snapshot,
    SnapshotMeta,
)


def entries(*pairs: tuple[int, int]) -> list[Entry]:
    return [Entry(term, index, 0, b"%d" % term) for index, term in pairs]


def log_of(*terms: int, stable: bool = True) -> RaftLog:
    storage = MemoryStorage()
    made = entries(*enumerate(terms, 1))
    if stable:
        storage.append(made)
        return RaftLog(storage, commit=0, applied=0)
    log = RaftLog(storage, commit=0, applied=0)
    log.append(made)
    return log


def test_a_shorter_message_cuts_nothing() -> None:
    log = log_of(1, 1, 2)
    assert log.try_append(1, 1, 0, entries((2, 1))) == 2
    assert log.last == 3


def test_a_conflict_cuts_from_there_on() -> None:
    log = log_of(1, 1, 2)
    assert log.try_append(1, 1, 0, entries((2, 3))) == 2
    assert (log.last, log.last_term(), log.stable) == (2, 3, 1)


def test_an_append_needs_the_entry_before_it() -> None:
    log = log_of(1, 1)
    assert log.try_append(2, 9, 0, entries((3, 9))) is None
    assert log.try_append(5, 1, 0, entries((6, 1))) is None
    assert log.last == 2


def test_commit_goes_only_as_far_as_the_message_proves() -> None:
    log = log_of(1, 1, 1)
    log.try_append(1, 1, 3, [])
    assert log.committed == 1


def test_committed_entries_are_never_replaced() -> None:
    log = log_of(1, 1)
    log.commit_to(2)
    with pytest.raises(RaftCorruption):
        log.try_append(1, 1, 0, entries((2, 2)))


def test_a_commit_past_the_end_is_corruption_and_not_clamped() -> None:
    with pytest.raises(RaftCorruption):
        log_of(1).commit_to(2)
    storage = MemoryStorage()
    with pytest.raises(RaftCorruption):
        RaftLog(storage, commit=3, applied=0)


def test_nothing_is_applied_before_it_is_durable() -> None:
    log = log_of(1, 1, stable=False)
    log.commit_to(2)
    assert not log.has_applicable(1 << 20)
    log.storage.append(log.unwritten())  # type: ignore[attr-defined]
    log.hand_out()
    log.stabilised(2, 1)
    assert [entry.index for entry in log.take_applicable(1 << 20)] == [1, 2]
    assert log.take_applicable(1 << 20) == []


def test_a_write_that_was_cut_meanwhile_proves_nothing() -> None:
    log = log_of(1, 1, stable=False)
    log.hand_out()
    log.try_append(0, 0, 0, entries((1, 2)))
    log.stabilised(2, 1)
    assert log.stable == 0
    log.stabilised(1, 2)
    assert log.stable == 1


def test_a_snapshot_replaces_the_log() -> None:
    log = log_of(1, 1, 2)
    log.restore(Snapshot(SnapshotMeta(7, 3, ConfState((1,)))))
    assert (log.first_index(), log.last, log.committed, log.term(7)) == (8, 7, 7, 3)
    with pytest.raises(LogCompacted):
        log.term(3)
    with pytest.raises(LogUnavailable):
        log.term(8)
    assert not log.has_applicable(100)


@pytest.mark.parametrize(
    ("index", "term", "found"),
    [(6, 5, (6, 4)), (6, 3, (3, 2)), (6, 1, (1, 1)), (9, 9, (6, 4)), (6, 0, (0, 0))],
)
def test_where_two_logs_may_agree(index: int, term: int, found: tuple[int, int]) -> None:
    assert log_of(1, 2, 2, 4, 4, 4).agree_at_best(index, term) == found


class LogMachine(RuleBasedStateMachine):
    """Leaders of growing terms append, cut, commit; a disk follows with any delay."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.log = RaftLog(self.storage, commit=0, applied=0)
        self.model: list[int] = []  # terms; the entry's index is its place + 1
        self.term = 1
        self.writes: list[tuple[int, list[Entry], int, int]] = []

    @rule(count=st.integers(1, 4), newer=st.booleans(), back=st.integers(0, 5))
    def append(self, count: int, newer: bool, back: int) -> None:
        self.term += newer
        keep = max(self.log.committed, len(self.model) - back) if newer else len(self.model)
        new = entries(*[(keep + 1 + i, self.term) for i in range(count)])
        previous = self.model[keep - 1] if keep else 0
        assert self.log.try_append(keep, previous, 0, new) == keep + count
        self.model[keep:] = [self.term] * count

    @rule(steps=st.integers(1, 3))
    def commit(self, steps: int) -> None:
        self.log.commit_to(min(len(self.model), self.log.committed + steps))

    @rule()
    def hand_out(self) -> None:
        last_term = self.log.last_term() if self.log.last else 0
        self.writes.append((self.term, self.log.unwritten(), self.log.last, last_term))
        self.log.hand_out()

    @precondition(lambda self: self.writes)
    @rule()
    def persisted(self) -> None:
        term, new, index, index_term = self.writes.pop(0)
        self.storage.append(new)
        if term == self.term and self.log.unstable:
            self.log.stabilised(index, index_term)

    @rule(limit=st.integers(1, 10))
    def apply(self, limit: int) -> None:
        taken = self.log.take_applicable(limit)
        for entry in taken:
            assert self.storage.term(entry.index) == entry.term
        if taken:
            self.log.applied_to(taken[-1].index)

    @invariant()
    def same_as_the_list(self) -> None:
        log = self.log
        assert log.last == len(self.model)
        assert [log.term(i + 1) for i in range(log.last)] == self.model
        assert [e.term for e in log.slice(1, log.last + 1)] == self.model
        assert log.applied <= log.applying <= log.committed <= log.last
        assert log.applying <= log.stable <= log.last


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
