"""Linearizable reads: a leader proves that it leads before it answers."""

from __future__ import annotations

from cairn.raft.types import Message, MsgKind, ReadState
from tests.raft.script import Script


def test_a_leader_answers_after_a_round_of_heartbeats() -> None:
    script = Script(3)
    core = script.elect(1)
    core.read_index(b"r")
    assert core.outbox.read_states == []
    script.settle()
    assert script.nodes[1].reads == [ReadState(core.log.committed, b"r")]


def test_a_leader_without_a_quorum_does_not_answer_and_fails_the_read_when_it_falls() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script[1].read_index(b"r")
    script.settle()
    assert script.nodes[1].reads == []
    script.tick(30, 1)
    assert script.nodes[1].failed_reads == [b"r"]


def test_a_new_leader_waits_for_its_first_commit() -> None:
    script = Script(3)
    core = script.elect(1)
    script.cut(1)
    core.become_follower(core.term, 0)
    core.become_candidate()
    core.become_leader()
    core.read_index(b"r")
    for node in (2, 3):
        core.step(Message(MsgKind.HEARTBEAT_RESP, node, 1, core.term))
    assert core.tenure is not None
    assert len(core.tenure.reads.pending) == 0
    assert len(core.tenure.reads.early) == 1
    script.heal()
    script.tick(3)
    assert script.nodes[1].reads == [ReadState(core.log.committed, b"r")]


def test_an_earlier_answer_does_not_confirm_a_later_read() -> None:
    script = Script(3)
    core = script.elect(1)
    core.read_index(b"first")
    script.settle()
    assert core.tenure is not None
    seq = core.tenure.reads.seq
    script.cut(1)
    core.read_index(b"second")
    script.settle()
    for node in (2, 3):
        core.step(Message(MsgKind.HEARTBEAT_RESP, node, 1, core.term, read_seq=seq))
    script.settle()
    assert [read.token for read in script.nodes[1].reads] == [b"first"]


def test_an_answer_to_a_round_that_was_never_asked_is_dropped() -> None:
    core = Script(3).elect(1)
    core.step(Message(MsgKind.HEARTBEAT_RESP, 2, 1, core.term, read_seq=99))
    assert core.dropped["answers a round that was never asked"] == 1


def test_a_lone_voter_answers_at_once() -> None:
    script = Script(1)
    core = script.elect(1)
    core.read_index(b"r")
    script.settle()
    assert script.nodes[1].reads == [ReadState(core.log.committed, b"r")]


def test_a_follower_asks_the_leader() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"x")
    script[2].read_index(b"r")
    script.settle()
    assert script.nodes[2].reads == [ReadState(script[1].log.committed, b"r")]


def test_a_late_answer_to_a_follower_is_nobodys() -> None:
    """The same token asked again is another read: the first answer must not serve it."""
    script = Script(3)
    script.elect(1)
    follower = script[2]
    follower.read_index(b"r")
    late = Message(MsgKind.READ_INDEX_RESP, 1, 2, index=1, context=b"r")
    late.read_seq = follower.forwarded.seq
    follower.become_follower(follower.term, 1)
    follower.read_index(b"r")
    follower.step(late)
    assert follower.outbox.read_states == []
    assert follower.dropped["unknown read"] == 1


def test_reads_fail_without_a_leader_and_during_a_transfer() -> None:
    script = Script(3)
    script[1].read_index(b"a")
    script.settle()
    assert script.nodes[1].failed_reads == [b"a"]
    script.elect(1)
    script.cut(3)
    script[1].transfer_leader(3)
    script[1].read_index(b"b")
    script.settle()
    assert script.nodes[1].failed_reads == [b"a", b"b"]


def test_acks_of_learners_confirm_nothing() -> None:
    script = Script(3, learners=2)
    core = script.elect(1)
    script.cut(1, 4, 5)
    core.read_index(b"r")
    script.settle()
    assert script.nodes[1].reads == []
