"""Majorities and joint majorities: known answers, and brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.raft.quorum import (
    VoteResult,
    committed_index,
    joint_committed_index,
    joint_vote_result,
    vote_result,
)
from cairn.raft.types import NO_LIMIT

WON, LOST, PENDING = VoteResult.WON, VoteResult.LOST, VoteResult.PENDING


@pytest.mark.parametrize(
    ("voters", "acked", "index"),
    [
        ((), {}, NO_LIMIT),
        ((1,), {}, 0),
        ((1,), {1: 12}, 12),
        ((1, 2), {1: 12}, 0),
        ((1, 2), {1: 12, 2: 5}, 5),
        ((1, 2, 3), {1: 12, 2: 5}, 5),
        ((1, 2, 3), {1: 12, 2: 5, 3: 6}, 6),
        ((1, 2, 3), {1: 12, 9: 12, 8: 12}, 0),
        ((1, 2, 3, 4), {1: 9, 2: 9, 3: 7, 4: 1}, 7),
        ((1, 2, 3, 4, 5), {1: 9, 2: 8, 3: 7}, 7),
    ],
)
def test_what_a_majority_has(voters: tuple[int, ...], acked: dict[int, int], index: int) -> None:
    assert committed_index(voters, acked) == index


@pytest.mark.parametrize(
    ("incoming", "outgoing", "acked", "index"),
    [
        ((1, 2, 3), (), {1: 5, 2: 4}, 4),
        ((1, 2, 3), (3, 4, 5), {1: 9, 2: 9, 3: 9}, 0),
        ((1, 2, 3), (3, 4, 5), {1: 9, 2: 9, 3: 9, 4: 3}, 3),
        ((1,), (2,), {1: 7, 2: 6}, 6),
    ],
)
def test_a_joint_commit_needs_both_halves(
    incoming: tuple[int, ...], outgoing: tuple[int, ...], acked: dict[int, int], index: int
) -> None:
    assert joint_committed_index(incoming, outgoing, acked) == index
    assert outgoing == () or joint_committed_index(outgoing, incoming, acked) == index


@pytest.mark.parametrize(
    ("voters", "votes", "result"),
    [
        ((), {}, WON),
        ((1,), {}, PENDING),
        ((1,), {1: False}, LOST),
        ((1, 2), {1: True}, PENDING),
        ((1, 2), {1: True, 2: False}, LOST),
        ((1, 2, 3), {1: True, 2: True}, WON),
        ((1, 2, 3), {1: True, 9: True, 8: True}, PENDING),
        ((1, 2, 3, 4), {1: True, 2: True, 3: False, 4: False}, LOST),
    ],
)
def test_votes(voters: tuple[int, ...], votes: dict[int, bool], result: VoteResult) -> None:
    assert vote_result(voters, votes) is result


@pytest.mark.parametrize(
    ("incoming", "outgoing", "votes", "result"),
    [
        ((1, 2, 3), (3, 4, 5), {1: True, 2: True}, PENDING),
        ((1, 2, 3), (3, 4, 5), {1: True, 2: True, 4: False, 5: False}, LOST),
        ((1, 2, 3), (3, 4, 5), {1: True, 3: True, 4: True}, WON),
    ],
)
def test_joint_votes(
    incoming: tuple[int, ...],
    outgoing: tuple[int, ...],
    votes: dict[int, bool],
    result: VoteResult,
) -> None:
    assert joint_vote_result(incoming, outgoing, votes) is result


ids = st.frozensets(st.integers(1, 8), max_size=7)


@given(voters=ids, acked=st.dictionaries(st.integers(1, 8), st.integers(0, 20)))
def test_the_index_is_the_largest_that_a_majority_reached(
    voters: frozenset[int], acked: dict[int, int]
) -> None:
    best = max(
        (i for i in range(21) if 2 * sum(acked.get(v, 0) >= i for v in voters) > len(voters)),
        default=NO_LIMIT,
    )
    assert committed_index(voters, acked) == (best if voters else NO_LIMIT)


@given(incoming=ids, outgoing=ids, votes=st.dictionaries(st.integers(1, 8), st.booleans()))
def test_joint_votes_are_symmetric_and_never_weaker(
    incoming: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    result = joint_vote_result(incoming, outgoing, votes)
    assert result is joint_vote_result(outgoing, incoming, votes)
    won = [vote_result(half, votes) is WON for half in (incoming, outgoing)]
    assert (result is WON) == all(won)
