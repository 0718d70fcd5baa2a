"""Each oracle fires on a violation made by hand."""

from __future__ import annotations

import pytest

from cairn.raft.cas import Predicate
from cairn.raft.types import ConfState, Entry, HardState, Message, MsgKind, Ready
from cairn.sim.clients import Replay
from cairn.sim.oracles import Oracles, Violation, quorums_overlap
from cairn.sim.requests import Op
from tests.raft.script import Script, ScriptNode


def led() -> tuple[Oracles, Script, ScriptNode]:
    """A healthy cluster of three, led by 1, with one entry committed, and oracles that saw it."""
    script, oracles = Script(3), Oracles()
    script.elect(1)
    script.propose(1, b"x")
    for node in script.nodes.values():
        oracles.looked_at(node)
    oracles.votes[2, script[1].term] = 1
    oracles.became_leader(script.nodes[1])
    oracles.leader_committed(script.nodes[1], script.nodes)
    return oracles, script, script.nodes[1]


def test_election_safety() -> None:
    oracles, _, leader = led()
    oracles.leaders[leader.core.term] = 2
    with pytest.raises(Violation, match="election safety"):
        oracles.became_leader(leader)


def test_election_by_a_quorum() -> None:
    oracles, _, leader = led()
    oracles.votes.clear()
    with pytest.raises(Violation, match="elected by a quorum"):
        oracles.became_leader(leader)


def test_a_campaign_with_an_unapplied_change() -> None:
    oracles, script, _ = led()
    node = script.nodes[2]
    node.hold_apply = True
    script.change(1, remove=3)
    node.core.become_candidate()
    node.durable.hard_state = HardState(node.core.term, 2)
    ask = Message(MsgKind.VOTE, 2, 1, node.core.term, 3, 2)
    with pytest.raises(Violation, match="campaign by the right members"):
        oracles.sends(node, ask, script.nodes)


def test_leader_completeness() -> None:
    oracles, _, leader = led()
    oracles.committed[leader.core.log.last + 1] = (leader.core.term, leader.core.term - 1)
    oracles.last_committed = leader.core.log.last + 1
    with pytest.raises(Violation, match="leader completeness"):
        oracles.became_leader(leader)


def test_leader_append_only() -> None:
    oracles, _, leader = led()
    term = leader.core.term
    oracles.handed_out(leader, Ready(1, entries=[Entry(term, 4), Entry(term, 5)]))
    with pytest.raises(Violation, match="leader append-only"):
        oracles.handed_out(leader, Ready(2, entries=[Entry(term, 4)]))


def test_log_matching() -> None:
    oracles, script, _ = led()
    oracles.handed_out(script.nodes[2], Ready(1, entries=[Entry(2, 4, 0, b"one")]))
    with pytest.raises(Violation, match="log matching"):
        oracles.handed_out(script.nodes[3], Ready(1, entries=[Entry(2, 4, 0, b"other")]))


def test_two_nodes_commit_different_entries() -> None:
    oracles, script, leader = led()
    oracles.committed[leader.core.log.committed] = (99, 99)
    oracles.seen[2] = (0, 0, 0)
    with pytest.raises(Violation, match="state machine safety"):
        oracles.looked_at(script.nodes[2])


def test_term_vote_and_commit_never_go_back() -> None:
    oracles, _, leader = led()
    core = leader.core
    core.log.committed -= 1
    with pytest.raises(Violation, match="monotone commit"):
        oracles.looked_at(leader)
    core.vote = 3
    with pytest.raises(Violation, match="monotone vote"):
        oracles.looked_at(leader)
    core.term -= 1
    with pytest.raises(Violation, match="monotone term"):
        oracles.looked_at(leader)


def test_a_commit_must_be_durable_on_a_quorum_and_of_the_own_term() -> None:
    oracles, script, leader = led()
    for node in (2, 3):
        script.nodes[node].durable.log.pop()
    with pytest.raises(Violation, match="commit is durable"):
        oracles.leader_committed(leader, script.nodes)
    leader.core.term += 1
    with pytest.raises(Violation, match="commit in own term"):
        oracles.leader_committed(leader, script.nodes)


def test_reads_must_be_fresh() -> None:
    oracles, _, leader = led()
    oracles.read_is_fresh(leader, 5, 5)
    with pytest.raises(Violation, match="read is fresh"):
        oracles.read_is_fresh(leader, 4, 5)


def test_applied_entries_are_durable_and_equal_everywhere() -> None:
    oracles, script, leader = led()
    entry = leader.core.log.slice(3, 4)[0]
    assert oracles.applies(leader, entry, (1,))
    assert not oracles.applies(script.nodes[2], entry, (1,))
    with pytest.raises(Violation, match="state machine safety"):
        oracles.applies(script.nodes[3], entry, (2,))
    oracles.applied[3] = Entry(entry.term, 3, 0, b"other")
    with pytest.raises(Violation, match="state machine safety"):
        oracles.applies(script.nodes[3], entry, (1,))
    leader.durable.log.pop()
    with pytest.raises(Violation, match="applied is durable"):
        oracles.applies(leader, entry, (1,))


def test_a_snapshot_equals_replay() -> None:
    oracles, _, leader = led()
    oracles.states[3] = (1,)
    with pytest.raises(Violation, match="snapshot equals replay"):
        oracles.installs(leader, 3, (2,), leader.core.conf)


def test_configurations_are_equal_and_overlap() -> None:
    oracles, _, leader = led()
    oracles.confs[1] = ConfState((1, 2, 3))
    with pytest.raises(Violation, match="equal configurations"):
        oracles.same_conf(leader, 1, ConfState((1, 2)))
    with pytest.raises(Violation, match="equal configurations"):
        oracles.same_conf(leader, 4, ConfState((1, 2)))
    oracles.applied[5] = Entry(2, 5, 1)
    with pytest.raises(Violation, match="configuration overlap"):
        oracles.same_conf(leader, 5, ConfState((1, 4, 5)))
    assert quorums_overlap(ConfState((1, 2, 3)), ConfState((1, 4, 5), (), (1, 2, 3)))
    assert not quorums_overlap(ConfState((1, 2)), ConfState((3,)))


def test_one_change_is_pending_at_most() -> None:
    oracles, _, leader = led()
    oracles.one_pending_change(leader)
    term, last = leader.core.term, leader.core.log.last
    leader.core.log.append([Entry(term, last + 1, 1), Entry(term, last + 2, 1)])
    with pytest.raises(Violation, match="one pending change"):
        oracles.one_pending_change(leader)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(MsgKind.APP_RESP, 2, 1, 2, 9), "entry is not durable"),
        (Message(MsgKind.APP_RESP, 2, 1, 7), "term is not durable"),
        (Message(MsgKind.VOTE_RESP, 2, 3, 2), "vote is not durable"),
        (Message(MsgKind.VOTE, 2, 3, 2, 3, 2), "vote is not durable"),
        (Message(MsgKind.PRE_VOTE, 2, 3, 3, 9, 2), "log is not durable"),
        (Message(MsgKind.HEARTBEAT, 2, 3, 7), "term is not durable"),
    ],
)
def test_nothing_sent_contradicts_the_disk(message: Message, reason: str) -> None:
    oracles, script, _ = led()
    with pytest.raises(Violation, match=reason):
        oracles.sends(script.nodes[2], message, script.nodes)


def test_an_ack_of_another_entry_is_seen() -> None:
    oracles, script, leader = led()
    node = script.nodes[2]
    oracles.sends(node, Message(MsgKind.APP_RESP, 2, 1, 2, 3), script.nodes)
    node.durable.log[-1] = Entry(1, 3)
    with pytest.raises(Violation, match="another entry"):
        oracles.sends(node, Message(MsgKind.APP_RESP, 2, 1, 2, 3), script.nodes)
    assert leader.core.log.term(3) == 2


def test_one_vote_per_term_across_crashes() -> None:
    oracles, script, _ = led()
    node = script.nodes[2]
    oracles.sends(node, Message(MsgKind.VOTE_RESP, 2, 1, 2), script.nodes)
    node.durable.hard_state = HardState(2, 3)
    with pytest.raises(Violation, match="one vote per term"):
        oracles.sends(node, Message(MsgKind.VOTE_RESP, 2, 3, 2), script.nodes)
    node.core.vote = 3
    with pytest.raises(Violation, match="monotone vote"):
        oracles.restarted(node)
    node.core.term = 1
    with pytest.raises(Violation, match="monotone term"):
        oracles.restarted(node)


def test_cas_by_replay() -> None:
    replay = Replay()
    replay.applied(Op(1, 0, "w", 0, 0), 5)
    replay.applied(Op(2, 0, "p", 0, 0, predicate=Predicate(5, 1)), 6)
    with pytest.raises(Violation, match="CaS by replay"):
        replay.applied(Op(3, 0, "p", 0, 0, predicate=Predicate(5, 1)), 7)
    with pytest.raises(Violation, match="applied once"):
        replay.applied(Op(1, 0, "w", 0, 0), 8)
