"""Changing members, and handing leadership over."""

from __future__ import annotations

import pytest

from cairn.raft.types import (
    ConfChangeSingle,
    ConfChangeV2,
    ConfState,
    ProposalDropped,
    Role,
)
from tests.raft.script import Script


def test_a_learner_joins_catches_up_and_is_promoted() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"a")
    script.add(4)
    script.change(1, add_learner=4)
    script.tick(3)
    assert script[4].conf == ConfState((1, 2, 3), (4,))
    assert script.nodes[4].data == [b"a"]
    script.change(1, add_voter=4)
    assert script[4].conf == ConfState((1, 2, 3, 4))


def test_a_second_change_waits_for_the_first_to_be_applied() -> None:
    script = Script(3)
    script.elect(1)
    script.nodes[1].hold_apply = True
    script.change(1, remove=3)
    with pytest.raises(ProposalDropped) as dropped:
        script.change(1, remove=2)
    assert dropped.value.reason == "conf change pending"
    script.nodes[1].hold_apply = False
    script.settle()
    assert script[1].conf == ConfState((1, 2))
    script.change(1, remove=2)
    assert script[1].conf == ConfState((1,))


def test_a_new_leader_is_careful_with_an_inherited_tail() -> None:
    script = Script(3)
    script.nodes[2].hold_apply = True
    script.elect(1)
    script[1].transfer_leader(2)
    script.settle()
    assert script[2].role is Role.LEADER
    with pytest.raises(ProposalDropped):
        script.change(2, remove=3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (ConfChangeV2(), "conf change refused"),
        (ConfChangeV2("auto", tuple(ConfChangeSingle("remove", n) for n in (1, 2, 3))), "refused"),
    ],
)
def test_impossible_changes_are_refused_before_they_enter_the_log(
    change: ConfChangeV2, reason: str
) -> None:
    script = Script(3)
    core = script.elect(1)
    last = core.log.last
    with pytest.raises(ProposalDropped, match=reason):
        core.propose_conf_change(change)
    assert core.log.last == last


def test_a_joint_change_is_left_by_itself() -> None:
    script = Script(3)
    script.elect(1)
    script.add(4)
    script.change(1, add_voter=4, remove=3)
    script.tick(3)
    assert script[1].conf == ConfState((1, 2, 4))
    assert script[4].conf == ConfState((1, 2, 4))


def test_an_explicit_joint_change_waits_to_be_left_and_needs_both_majorities() -> None:
    script = Script(3)
    script.elect(1)
    for node in (4, 5, 6):
        script.add(node)
        script.change(1, add_learner=node)
    replace = [ConfChangeSingle("add_voter", n) for n in (4, 5, 6)]
    replace += [ConfChangeSingle("remove", n) for n in (2, 3)]
    script.proven(1, ConfChangeV2("explicit", tuple(replace)))
    script.settle()
    script.tick(3)
    assert script[1].conf == ConfState((1, 4, 5, 6), (), (1, 2, 3))
    with pytest.raises(ProposalDropped, match="joint"):
        script.change(1, add_voter=7)
    script.cut(2, 3)
    index, _ = script.propose(1, b"x")
    assert script[1].log.committed < index
    script.heal()
    script.tick(3)
    script[1].propose_conf_change(ConfChangeV2())
    script.settle()
    assert script[5].conf == ConfState((1, 4, 5, 6))


def test_a_new_leader_leaves_the_joint_configuration_too() -> None:
    script = Script(5)
    script.elect(1)
    script.nodes[1].hold_apply = True
    script.change(1, "implicit", add_learner=3)
    script.crash(1)
    for node in (2, 3, 4, 5):
        script[node].election_elapsed = 100
    script.elect(2)
    script.tick(3)
    assert script[2].conf == ConfState((1, 2, 4, 5), (3,))


def test_a_removed_leader_steps_down_and_the_others_go_on() -> None:
    script = Script(3)
    script.elect(1)
    script.change(1, remove=1)
    assert script[1].role is Role.FOLLOWER
    script.tick(60)
    assert script.leaders()[0] in (2, 3)
    assert script[2].conf == script[3].conf == ConfState((2, 3))


def test_a_demoted_leader_steps_down() -> None:
    script = Script(3)
    script.elect(1)
    script.change(1, add_learner=1)
    assert script[1].role is Role.FOLLOWER
    script.tick(60)
    assert script[1].conf == ConfState((2, 3), (1,))


def test_the_last_voter_learns_from_a_refused_vote_that_it_is_alone() -> None:
    """The demoted leader has a longer log and cannot lead: without the commit that travels with
    votes nobody could."""
    script = Script(2)
    script.elect(1)
    script.nodes[1].hold_apply = True
    script.change(1, add_learner=1)
    script.cut(2)
    script.propose(1, b"tail")
    script.nodes[1].hold_apply = False
    # 2 has the change, but not the word that it is committed
    script[2].log.committed = script[2].log.applied = script[2].log.applying = 2
    script[2].members.change(ConfState((1, 2)))
    script.settle()
    assert script[1].role is Role.FOLLOWER
    script.heal()
    script.tick(60)
    assert script.leaders() == [2]


def test_nobody_campaigns_with_an_unapplied_change() -> None:
    script = Script(3)
    script.elect(1)
    script.nodes[2].hold_apply = True
    script.change(1, remove=3)
    script[2].election_elapsed = 100
    script[2].campaign()
    assert script[2].role is Role.FOLLOWER
    assert script[2].dropped["campaign with an unapplied conf change"] == 1


def test_leadership_is_handed_over() -> None:
    script = Script(3)
    script.elect(1)
    script[1].transfer_leader(3)
    with pytest.raises(ProposalDropped) as dropped:
        script[1].propose([b"x"])
    assert dropped.value.reason == "transfer"
    script.settle()
    assert script.leaders() == [3]
    assert script[1].election_timeout > 10


def test_a_follower_passes_a_transfer_on() -> None:
    script = Script(3)
    script.elect(1)
    script[2].transfer_leader(3)
    script.settle()
    assert script.leaders() == [3]


def test_a_target_that_lags_is_brought_up_first() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"x")
    script.heal()
    script[1].transfer_leader(3)
    script.tick(3)
    assert script.leaders() == [3]
    assert script.nodes[3].data == [b"x"]


def test_a_transfer_is_given_up_after_an_election_timeout() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script[1].transfer_leader(3)
    script.tick(11)
    script.propose(1, b"x")
    assert script.leaders() == [1]


@pytest.mark.parametrize("target", [1, 4, 9])
def test_leadership_is_not_handed_to_self_learners_or_strangers(target: int) -> None:
    script = Script(3, learners=1)
    core = script.elect(1)
    core.transfer_leader(target)
    script.settle()
    assert core.status().transferee == 0
    assert core.dropped["transfer to a non-voter"] == 1


def test_a_transfer_ends_when_its_target_is_removed() -> None:
    script = Script(3)
    core = script.elect(1)
    script.cut(3)
    script.proven(1, ConfChangeV2("auto", (ConfChangeSingle("remove", 3),)))
    core.transfer_leader(3)
    script.settle()
    assert core.status().transferee == 0


def test_a_snapshot_carries_the_joint_configuration() -> None:
    script = Script(3)
    core = script.elect(1)
    change = ConfChangeV2("explicit", (ConfChangeSingle("add_learner", 2),))
    with pytest.raises(ProposalDropped, match="unproven"):
        core.propose_conf_change(change)
    script.settle()  # all have answered
    script.cut(3)
    core.propose_conf_change(change)
    script.settle()
    script.compact(1)
    script.heal()
    script.tick(3)
    assert script[3].conf == ConfState((1, 3), (), (1, 2, 3), (2,))
    assert script[3].log.first_index() > 2


def test_a_vote_is_not_taken_away_while_those_who_stay_have_not_answered() -> None:
    script = Script(3)
    core = script.elect(1)
    script.crash(3)
    last = core.log.last
    for _ in range(5):
        with pytest.raises(ProposalDropped, match="unproven") as refused:
            script.change(1, remove=2)
        assert refused.value.detail == "no answer yet from 3"
        script.tick(1)
    assert (core.log.last, core.conf) == (last, ConfState((1, 2, 3)))
    script.change(1, "auto", remove=3)  # two of those who stay are there
    assert core.conf == ConfState((1, 2))
    script.change(1, "auto", remove=2)  # and one needs nobody else
    assert core.conf == ConfState((1,))


def test_an_answer_from_before_a_change_was_asked_for_proves_nothing() -> None:
    script = Script(3)
    script.elect(1)
    script.change(1, add_learner=4)  # the round of another change, and plain heartbeats
    script.tick(10)
    script.crash(3)
    with pytest.raises(ProposalDropped, match="unproven"):
        script.change(1, remove=2)


def test_a_proof_that_is_older_than_an_election_timeout_is_asked_for_again() -> None:
    script = Script(3)
    core = script.elect(1)
    change = ConfChangeV2("auto", (ConfChangeSingle("remove", 2),))
    with pytest.raises(ProposalDropped, match="unproven"):
        core.propose_conf_change(change)
    script.settle()
    script.crash(3)
    script.tick(11)
    with pytest.raises(ProposalDropped, match="unproven"):
        core.propose_conf_change(change)


def test_who_does_not_answer_when_a_vote_goes_is_named_after_two_heartbeats() -> None:
    script = Script(3)
    core = script.elect(1)
    script.crash(3)
    with pytest.raises(ProposalDropped, match="unproven"):
        script.change(1, remove=2)
    assert core.unanswered() == frozenset()
    script.tick(4)
    assert core.unanswered() == {3}
    script.restart(3)
    script.tick(4)
    assert core.unanswered() == frozenset()
