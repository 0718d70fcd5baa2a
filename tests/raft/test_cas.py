"""Compare-and-swap against the log's tail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.raft.cas import (
    MOST_RANGES,
    Accepted,
    AlreadyAppended,
    CasLog,
    CompactedAway,
    ConflictFound,
    KeyRange,
    LeaderElsewhere,
    LogRecord,
    NotReady,
    Predicate,
    Standing,
    WrongTerm,
)

LEADS = Standing(is_leader=True, leader=1, term=3, committed_in_term=True)
A, B = KeyRange.point("t", b"a"), KeyRange.point("t", b"b")
ALL = KeyRange("t")


def tail() -> CasLog:
    log = CasLog(compacted_index=4)
    log.append(LogRecord(5, 2, b"five", (A,)))
    log.append(LogRecord(7, 3, b"seven", (B,)))
    return log


@pytest.mark.parametrize(
    ("predicate", "outcome"),
    [
        (Predicate(7, 3, (A, B)), Accepted()),
        (Predicate(5, 3, (A,)), Accepted()),
        (Predicate(4, 3, (A,)), ConflictFound(5, 2, b"five")),
        (Predicate(4, 3, (ALL,)), ConflictFound(5, 2, b"five")),
        (Predicate(5, 3, (ALL,)), ConflictFound(7, 3, b"seven")),
        (Predicate(4, 3, (KeyRange("other"),)), Accepted()),
        (Predicate(3, 3, (A,)), CompactedAway(4)),
        (Predicate(7, 2, (A,)), WrongTerm(2, 3)),
    ],
)
def test_what_a_check_says(predicate: Predicate, outcome: object) -> None:
    assert tail().check(predicate, b"new", (), LEADS) == outcome


def test_the_operations_own_ranges_count_as_well() -> None:
    assert tail().check(Predicate(5, 3), b"new", (B,), LEADS) == ConflictFound(7, 3, b"seven")


def test_ones_own_entry_is_success_even_among_conflicts() -> None:
    assert tail().check(Predicate(4, 3, (ALL,)), b"seven", (B,), LEADS) == AlreadyAppended(7, 3)


def test_only_a_leader_that_committed_in_its_term_decides() -> None:
    elsewhere = Standing(is_leader=False, leader=2, term=3, committed_in_term=False)
    assert tail().check(Predicate(7, 3), b"new", (), elsewhere) == LeaderElsewhere(2)
    fresh = Standing(is_leader=True, leader=1, term=3, committed_in_term=False)
    assert tail().check(Predicate(7, 3), b"new", (), fresh) == NotReady()


def test_entries_that_were_cut_or_compacted_are_forgotten() -> None:
    log = tail()
    log.append(LogRecord(6, 4, b"six", (A,)))
    assert log.check(Predicate(5, 3, (B,)), b"seven", (), LEADS) == Accepted()
    log.compact(6)
    assert log.check(Predicate(5, 3, (A,)), b"six", (), LEADS) == CompactedAway(6)
    log.rebuild(1, [LogRecord(2, 1, b"two", (A,))])
    assert log.check(Predicate(1, 3, (A,)), b"new", (), LEADS) == ConflictFound(2, 1, b"two")


def test_bulk_entries_are_remembered_while_their_ranges_are_few_enough() -> None:
    log = tail()
    third = tuple(KeyRange.point("t", b"%d" % at) for at in range(MOST_RANGES // 3))
    for index in range(8, 13):
        log.append(LogRecord(index, 3, b"%d" % index, third))
    assert log.check(Predicate(9, 3, (A,)), b"new", (), LEADS) == Accepted()
    assert log.check(Predicate(8, 3, (A,)), b"new", (), LEADS) == CompactedAway(9)
    assert log.check(Predicate(8, 3, (A,)), b"10", (), LEADS) == AlreadyAppended(10, 3)
    log.truncate_from(11)
    log.append(LogRecord(11, 4, b"again", (A,) * 2 * MOST_RANGES))  # one alone may have more
    assert log.check(Predicate(10, 3, (A,)), b"new", (), LEADS) == ConflictFound(11, 4, b"again")


bounds = st.none() | st.binary(max_size=1).filter(lambda b: not b or b[0] < 6)
ranges = st.builds(
    KeyRange, st.sampled_from(["t", "u"]), bounds, st.booleans(), bounds, st.booleans()
)
KEYS = [b"", *[bytes([a]) for a in range(7)], *[bytes([a, b]) for a in range(7) for b in (0, 9)]]


def holds(keys: KeyRange, key: bytes) -> bool:
    above = keys.low is None or key > keys.low or (key == keys.low and keys.low_inclusive)
    below = keys.high is None or key < keys.high or (key == keys.high and keys.high_inclusive)
    return above and below


@given(ranges, ranges)
def test_ranges_that_share_a_key_intersect(one: KeyRange, other: KeyRange) -> None:
    assert one.intersects(other) == other.intersects(one)
    if one.table == other.table and any(holds(one, k) and holds(other, k) for k in KEYS):
        assert one.intersects(other)
    if one.table != other.table:
        assert not one.intersects(other)
