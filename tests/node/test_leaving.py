"""Whom an instance waits for that was told to stop."""

from __future__ import annotations

from cairn.model.members.topology import Grade, State
from cairn.node.boot.shutdown import all_leave, missing_voters, needs_vote
from cairn.raft.types import ConfState
from tests.governor.builders import instance, view_of

VOTERS = (1, 2, 3)
LEAVES = State(Grade.OFFLINE, 1)


def test_a_majority_within_reach_can_let_it_go() -> None:
    assert missing_voters(VOTERS, {1, 2}) == []


def test_too_few_within_reach_cannot_even_if_it_leads_itself() -> None:
    assert missing_voters(VOTERS, {1}) == [2, 3]


def test_a_learner_does_not_count_as_one_that_can_decide() -> None:
    assert missing_voters(VOTERS, {1, 4, 5}) == [2, 3]


def test_voters_that_leave_too_are_not_waited_for() -> None:
    all_go = view_of(instance("i2", 2, target=LEAVES), instance("i3", 3, LEAVES, LEAVES))
    assert all_leave(all_go.cluster, [2, 3])


def test_voters_that_nobody_told_to_stop_may_come_back() -> None:
    one_stays = view_of(instance("i2", 2, target=LEAVES), instance("i3", 3))
    assert not all_leave(one_stays.cluster, [2, 3])


def test_a_voter_stays_until_the_others_can_decide_without_it() -> None:
    """Of three one has died: the one that stays needs the vote of the one that leaves, until the
    voters are changed, the step in between included."""
    assert needs_vote(ConfState(VOTERS), 3, {2})
    assert needs_vote(ConfState((2,), voters_outgoing=VOTERS), 3, {2})
    assert not needs_vote(ConfState((2,)), 3, {2})
    assert not needs_vote(ConfState(VOTERS), 3, {1, 2})
    assert not needs_vote(ConfState(VOTERS), 3, set())  # nobody stays
    assert not needs_vote(ConfState(VOTERS, (4,)), 4, {2})  # a learner has no vote
