"""Copying the log, catching up, snapshots."""

from __future__ import annotations

import pytest

from cairn.raft.types import Entry, Message, MsgKind, RaftCorruption
from tests.raft.script import Script


def test_everyone_applies_the_same() -> None:
    script = Script(3, learners=1)
    script.elect(1)
    script.propose(1, b"a", b"b")
    script.propose(1, b"c")
    assert all(node.data == [b"a", b"b", b"c"] for node in script.nodes.values())


def test_a_minority_leader_commits_nothing_and_its_tail_is_replaced() -> None:
    script = Script(5)
    script.elect(1)
    script.cut(1, 2)
    script.propose(1, b"lost")
    script[3].election_elapsed = script[4].election_elapsed = script[5].election_elapsed = 100
    script.elect(3)
    script.propose(3, b"kept")
    script.heal()
    script.tick(5)
    assert all(node.data == [b"kept"] for node in script.nodes.values())


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """The story of figure 8 in "In Search of an Understandable Consensus Algorithm"."""
    script = Script(3)
    core = script.elect(1)
    term = core.term
    script.cut(1)
    script.propose(1, b"old")
    old = core.log.last
    core.become_follower(term + 5, 0)
    core.become_candidate()
    core.become_leader()
    core.step(Message(MsgKind.APP_RESP, 2, 1, core.term, old))
    core.step(Message(MsgKind.APP_RESP, 3, 1, core.term, old))
    assert core.log.committed < old
    core.step(Message(MsgKind.APP_RESP, 2, 1, core.term, core.log.last))
    core.step(Message(MsgKind.APP_RESP, 3, 1, core.term, core.log.last))
    assert core.log.committed == core.log.last


def test_acks_of_learners_and_strangers_do_not_commit() -> None:
    script = Script(3, learners=2)
    core = script.elect(1)
    script.cut(1)
    index, term = script.propose(1, b"x")
    for node in (4, 5, 77, 78):
        core.step(Message(MsgKind.APP_RESP, node, 1, term, index))
    assert core.log.committed < index
    core.step(Message(MsgKind.APP_RESP, 2, 1, term, index))
    assert core.log.committed == index


def test_an_ack_past_the_log_is_dropped() -> None:
    core = Script(3).elect(1)
    core.step(Message(MsgKind.APP_RESP, 2, 1, core.term, 1000))
    assert core.dropped["acknowledges more than was sent"] == 1
    assert core.log.committed == core.log.last


def test_a_diverged_follower_is_found_in_few_steps() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script.propose(1, *[b"lost"] * 50)
    script[2].election_elapsed = script[3].election_elapsed = 100
    script.elect(2)
    script.propose(2, b"kept")
    refusals = script[2].log.last
    script.heal()
    before = len(script.lost)
    script.tick(3)
    assert script.nodes[1].data == [b"kept"]
    assert len(script.lost) == before
    assert refusals < 10


def test_a_lost_window_is_found_by_the_next_heartbeat() -> None:
    script = Script(3, max_inflight=2, max_msg_bytes=1)
    script.elect(1)
    script.cut(3)
    script.propose(1, *[b"x"] * 10)
    script.heal()
    script.tick(3)
    assert len(script.nodes[3].data) == 10


def test_a_heartbeat_never_commits_past_what_was_acknowledged() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"x")
    script[1].tick()
    beats = [m for m in script[1].ready().messages if m.kind is MsgKind.HEARTBEAT]
    assert {m.to: m.commit for m in beats} == {2: script[1].log.committed, 3: 2}


def test_a_heartbeat_that_commits_what_we_lack_is_refused() -> None:
    core = Script(3)[2]
    core.step(Message(MsgKind.HEARTBEAT, 1, 2, 1, commit=7))
    assert core.log.committed == 1 and core.log.is_short()
    [told] = core.ready().messages
    assert (told.kind, told.reject, told.reject_hint) == (MsgKind.HEARTBEAT_RESP, True, 1)


def test_who_has_committed_something_else_does_not_say_that_it_has_the_leader_s() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"a", b"b")
    core = script[2]
    index, term = core.log.committed - 1, core.log.last_term()
    core.step(Message(MsgKind.APP, 1, 2, term, index, term, [Entry(term, index + 1, 0, b"b")]))
    for at, theirs, entries in (
        (index, term - 1, []),
        (index, term, [Entry(term + 1, index + 1, 0, b"c")]),
    ):
        with pytest.raises(RaftCorruption, match="expel it"):
            core.step(Message(MsgKind.APP, 1, 2, term + 1, at, theirs, entries))


def test_who_was_given_an_old_disk_gets_a_snapshot_if_it_has_to() -> None:
    script = Script(3)
    script.elect(1)
    old = script.nodes[2].durable.copy()
    script.propose(1, b"a", b"b")
    script.compact(1)
    script.crash(2)
    script.put_back(2, old)
    script.tick(5)
    assert script[2].log.applied == script[1].log.applied
    script.propose(1, b"c")
    assert script.nodes[2].data == [b"c"]


def test_a_follower_too_far_behind_gets_a_snapshot() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"a", b"b")
    script.compact(1)
    script.heal()
    script.tick(3)
    assert script[3].log.applied == script[1].log.applied
    script.propose(1, b"c")
    assert script.nodes[3].data == [b"c"]


def test_a_peer_whose_snapshot_was_lost_is_tried_again() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"a")
    script.compact(1)
    script[1].report_unreachable(3)
    script[1].step(Message(MsgKind.HEARTBEAT_RESP, 3, 1, script[1].term))
    script.settle()
    assert script[1].status().progress[3].state == "snapshot"
    script.heal()
    script.tick(5)
    assert script[3].log.applied < script[1].log.applied
    script[1].report_snapshot(3, False)
    script.tick(5)
    assert script[3].log.applied == script[1].log.applied


def test_a_snapshot_that_the_log_has_left_behind_is_followed_by_a_newer_one() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"a")
    script.compact(1)
    script[1].report_unreachable(3)
    script[1].step(Message(MsgKind.HEARTBEAT_RESP, 3, 1, script[1].term))
    script.settle()
    old = script.nodes[1].disk.view.snap
    assert script[1].status().progress[3].state == "snapshot"
    script.propose(1, b"b")
    script.propose(1, b"c")
    script.compact(1)
    script.heal()
    script[1].step(Message(MsgKind.APP_RESP, 3, 1, script[1].term, old.meta.index))
    script.tick(5)
    assert script[3].log.applied == script[1].log.applied


def test_an_old_snapshot_changes_nothing() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"a")
    core = script[2]
    last = core.log.last
    snapshot = script.nodes[1].disk.view.snap
    core.step(Message(MsgKind.SNAP, 1, 2, core.term, snapshot=snapshot))
    assert core.log.snapshot is None
    answer = core.ready().messages_after_persist[-1]
    assert (core.log.last, answer.index) == (last, last)


def test_a_duplicate_of_an_old_append_cuts_nothing() -> None:
    script = Script(3)
    core = script.elect(1)
    script.propose(1, b"a", b"b", b"c")
    follower = script[2]
    first = follower.log.slice(3, 4)
    follower.step(Message(MsgKind.APP, 1, 2, core.term, 2, core.term, first))
    assert follower.log.last == core.log.last


def test_entries_that_do_not_follow_are_dropped() -> None:
    core = Script(3)[2]
    core.step(Message(MsgKind.APP, 1, 2, 2, 1, 1, [Entry(2, 9)]))
    assert core.dropped["entries do not follow their index"] == 1


def test_an_unreachable_peer_is_probed() -> None:
    script = Script(3)
    script.elect(1)
    assert script[1].status().progress[2].state == "replicate"
    script[1].report_unreachable(2)
    assert script[1].status().progress[2].state == "probe"
    script.propose(1, b"x")
    assert script.nodes[2].data == [b"x"]


def test_all_lose_power_and_nothing_committed_is_lost() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"x")
    script.crash(1, 2, 3)
    script.restart(1, 2, 3)
    script.tick(60)
    script.propose(script.leaders()[0], b"y")
    assert script.nodes[2].data[-1] == b"y"
    assert [e.data for e in script[3].log.slice(2, script[3].log.last + 1) if e.data] == [
        b"x",
        b"y",
    ]


def lost_appends(script: Script, node: int) -> list[int]:
    """How many entries each append to `node` had that did not arrive."""
    return [len(m.entries) for m in script.lost if m.kind is MsgKind.APP and m.to == node]


def test_an_acknowledgement_is_not_answered_by_an_append_with_nothing_to_tell() -> None:
    script = Script(3)
    script.elect(1)
    script.propose(1, b"x")
    leader = script[1]
    script.cut_links = {(1, 3)}
    leader.report_unreachable(3)  # it asks before it sends more
    leader.step(Message(MsgKind.HEARTBEAT_RESP, 3, 1, leader.term))
    script.settle()
    assert lost_appends(script, 3) == [0]  # the question
    leader.step(Message(MsgKind.APP_RESP, 3, 1, leader.term, leader.log.last))
    script.settle()
    assert lost_appends(script, 3) == [0]


def test_a_snapshot_tells_that_what_it_holds_is_committed() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"a", b"b")
    script.compact(1)
    leader = script[1]
    leader.report_unreachable(3)
    leader.step(Message(MsgKind.HEARTBEAT_RESP, 3, 1, leader.term))
    script.settle()
    script.lost.clear()
    leader.step(Message(MsgKind.APP_RESP, 3, 1, leader.term, leader.log.last))
    script.settle()
    assert lost_appends(script, 3) == []
