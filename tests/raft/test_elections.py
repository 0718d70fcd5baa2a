"""Who may lead, and who must not disturb."""

from __future__ import annotations

from cairn.raft.types import Message, MsgKind, Role
from tests.raft.script import Script


def test_a_cluster_elects_one_leader_by_itself() -> None:
    script = Script(5)
    script.tick(60)
    assert len(script.leaders()) == 1
    leader = script.leaders()[0]
    assert all(node.core.leader == leader for node in script.nodes.values())


def test_a_shorter_log_cannot_win() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"x")
    script.crash(1)
    script.heal()
    script[2].election_elapsed = 100  # its lease has run out
    script[3].campaign()
    script.settle()
    assert script[3].role is not Role.LEADER
    script.elect(2)


def test_a_pre_vote_changes_nothing() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    term = script[3].term
    script.tick(100, 3)
    assert script[3].term == term
    assert script[3].role is Role.PRE_CANDIDATE


def test_a_returning_node_does_not_depose_a_leader_that_is_alive() -> None:
    script = Script(3, pre_vote=False)
    script.elect(1)
    script.cut(3)
    script.tick(100, 3)
    later = script[3].term
    assert later > script[1].term
    script.heal()
    script[2].step(Message(MsgKind.VOTE, 3, 2, later, 9, later - 1))
    assert script[2].dropped["campaign while a leader is alive"] == 1
    assert script[2].leader == 1


def test_a_node_of_a_later_term_is_taken_back() -> None:
    """It refuses the leader's words, and says so: otherwise it would stay out."""
    script = Script(3, pre_vote=False)
    script.elect(1)
    script.cut(3)
    script.tick(60, 3)
    script.heal()
    script.tick(80)
    assert len(script.leaders()) == 1
    assert len({node.core.term for node in script.nodes.values()}) == 1


def test_a_leader_without_a_quorum_steps_down() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script.tick(21, 1)
    assert script[1].role is Role.FOLLOWER


def test_votes_are_counted_once_per_voter() -> None:
    script = Script(5, pre_vote=False)
    core = script[1]
    core.campaign()
    core.persisted(core.ready().number)
    for _ in range(3):
        core.step(Message(MsgKind.VOTE_RESP, 2, 1, core.term))
    assert core.role is Role.CANDIDATE
    core.step(Message(MsgKind.VOTE_RESP, 3, 1, core.term))
    assert core.role is Role.LEADER


def test_votes_of_strangers_and_learners_do_not_count() -> None:
    script = Script(3, learners=2, pre_vote=False)
    core = script[1]
    core.campaign()
    core.persisted(core.ready().number)
    for node in (4, 5, 77):
        core.step(Message(MsgKind.VOTE_RESP, node, 1, core.term))
    assert core.role is Role.CANDIDATE
    assert core.dropped == {"vote of a non-voter": 2, "unknown peer": 1}


def test_a_vote_of_an_older_term_does_not_count() -> None:
    script = Script(3, pre_vote=False)
    core = script[1]
    for _ in range(2):
        core.campaign()
        core.persisted(core.ready().number)
    core.step(Message(MsgKind.VOTE_RESP, 2, 1, core.term - 1))
    assert core.role is Role.CANDIDATE
    assert core.dropped["older term"] == 1


def test_a_learner_votes_when_asked_but_never_campaigns() -> None:
    script = Script(1, learners=1)
    script.tick(100, 2)
    assert script[2].role is Role.FOLLOWER
    script[2].step(Message(MsgKind.VOTE, 1, 2, 5, 9, 4))
    assert script[2].vote == 1


def test_one_vote_per_term_and_it_survives_a_crash() -> None:
    script = Script(3)
    core = script[3]
    core.step(Message(MsgKind.VOTE, 1, 3, 5, 9, 4))
    script.nodes[3].work()
    script.crash(3)
    script.restart(3)
    script[3].step(Message(MsgKind.VOTE, 2, 3, 5, 9, 4))
    ready = script[3].ready()
    assert ready.messages_after_persist[0].reject
    assert script[3].vote == 1


def test_a_leader_that_is_refused_is_still_a_leader() -> None:
    """Refused appends refresh the follower's patience."""
    script = Script(3)
    script.elect(1)
    core = script[2]
    for _ in range(100):
        core.tick()
        core.step(Message(MsgKind.APP, 1, 2, core.term, 99, core.term))
    assert core.role is Role.FOLLOWER
    assert core.leader == 1


def test_garbage_is_counted_and_dropped() -> None:
    core = Script(3)[1]
    core.step(Message(MsgKind.APP, 2, 3, 5))
    core.step(Message(MsgKind.APP_RESP, 9, 1, 5))
    core.step(Message(MsgKind.HEARTBEAT_RESP, 2, 1, 1))
    core.step(Message(MsgKind.READ_INDEX_RESP, 2, 1, read_seq=3))
    core.step(Message(MsgKind.TRANSFER_LEADER, 9, 1, index=2))
    core.step(Message(MsgKind.HEARTBEAT, 2, 1, 1))
    core.step(Message(MsgKind.APP, 3, 1, 1))
    assert core.dropped == {
        "misdelivered": 1,
        "unknown peer": 2,
        "answer to someone who does not lead": 1,
        "unknown read": 1,
        "second leader in a term": 1,
    }


def test_who_may_not_campaign_votes_for_others_when_its_leader_is_gone() -> None:
    """Its timer began anew each time, so it took the dead leader for one that was just heard."""
    script = Script(3)
    script.elect(1)
    script.nodes[2].hold_apply = True
    script.change(1, add_learner=4)
    assert script[2].elections.obstacle() == "campaign with an unapplied conf change"
    script[2].election_timeout = script[2].config.election_tick
    script.crash(1)
    script.tick(60)
    assert script.leaders() == [3]
