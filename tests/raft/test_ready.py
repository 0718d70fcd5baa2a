"""The order of writing, sending and counting: nothing is said before it is durable."""

from __future__ import annotations

import pytest

from cairn.raft.types import Entry, Message, MsgKind, NotLeader, ProposalDropped, Role
from tests.raft.script import Script


def kinds(messages: list[Message]) -> list[MsgKind]:
    return [message.kind for message in messages]


def test_a_candidate_asks_for_votes_only_after_its_own_vote_is_durable() -> None:
    script = Script(3, pre_vote=False)
    core = script[1]
    core.campaign()
    ready = core.ready()
    assert ready.messages == []
    assert kinds(ready.messages_after_persist) == [MsgKind.VOTE, MsgKind.VOTE]
    assert ready.must_sync
    assert ready.hard_state is not None
    assert (ready.hard_state.term, ready.hard_state.vote) == (2, 1)


def test_an_own_vote_counts_only_once_durable() -> None:
    script = Script(1, pre_vote=False)
    core = script[1]
    core.campaign()
    ready = core.ready()
    assert core.role is Role.CANDIDATE
    core.persisted(ready.number)
    assert core.role is Role.LEADER


def test_a_lone_voter_commits_only_what_its_disk_has() -> None:
    script = Script(1)
    script.elect(1)
    script.nodes[1].hold_disk = True
    index, _ = script.propose(1, b"x")
    assert script[1].log.committed < index
    script.nodes[1].hold_disk = False
    script.settle()
    assert script[1].log.committed == index
    assert script.nodes[1].data == [b"x"]


def test_a_leader_sends_before_its_own_write_and_may_commit_on_others() -> None:
    script = Script(3)
    script.elect(1)
    script.nodes[1].hold_disk = True
    index, _ = script.propose(1, b"x")
    assert script[1].log.committed == index  # by 2 and 3
    assert script.nodes[1].data == []  # but applied only when durable here
    script.nodes[1].hold_disk = False
    script.settle()
    assert script.nodes[1].data == [b"x"]


def test_a_follower_acknowledges_only_after_its_write() -> None:
    script = Script(3)
    script.elect(1)
    script.nodes[2].hold_disk = script.nodes[3].hold_disk = True
    index, _ = script.propose(1, b"x")
    assert script[1].log.committed < index
    script.nodes[2].hold_disk = False
    script.settle()
    assert script[1].log.committed == index


def test_nothing_new_means_no_sync() -> None:
    script = Script(3)
    script.elect(1)
    script[1].tick()
    ready = script[1].ready()
    assert (ready.must_sync, ready.entries, ready.hard_state) == (False, [], None)
    assert set(kinds(ready.messages)) == {MsgKind.HEARTBEAT}


def test_a_ready_is_not_repeated() -> None:
    script = Script(3)
    script.elect(1)
    script[1].propose([b"x"])
    assert script[1].ready().entries
    assert not script[1].has_ready()


def test_an_old_write_does_not_vouch_for_an_entry_that_was_cut_and_came_back() -> None:
    """An entry goes and comes back: 2@2 is cut by 2@3, then comes back with a leader of term 4."""
    core = Script(5)[5]

    def append(leader: int, term: int, entry_term: int) -> int:
        entry = Entry(entry_term, 2, 0, b"%d" % entry_term)
        core.step(Message(MsgKind.APP, leader, 5, term, 1, 1, [entry]))
        return core.ready().number

    first = append(1, 2, 2)
    append(2, 3, 3)
    third = append(3, 4, 2)
    core.persisted(first)
    assert core.log.stable == 1
    core.persisted(third)
    assert core.log.stable == 2


def test_a_term_change_lets_the_next_write_vouch() -> None:
    core = Script(3)[3]
    core.step(Message(MsgKind.APP, 1, 3, 2, 1, 1, [Entry(2, 2, 0, b"x")]))
    first = core.ready()
    core.step(Message(MsgKind.HEARTBEAT, 2, 3, 3))
    second = core.ready()
    core.persisted(first.number)
    assert core.log.stable == 1
    core.persisted(second.number)
    assert core.log.stable == 2


def test_proposals_are_refused_with_a_reason() -> None:
    script = Script(3, max_uncommitted_bytes=10)
    with pytest.raises(NotLeader) as refusal:
        script[2].propose([b"x"])
    assert refusal.value.leader is None
    script.elect(1)
    with pytest.raises(NotLeader) as refusal:
        script[2].propose([b"x"])
    assert refusal.value.leader == 1
    script.cut(1)
    script.propose(1, b"x" * 8)
    with pytest.raises(ProposalDropped) as dropped:
        script.propose(1, b"y" * 8)
    assert dropped.value.reason == "backpressure"
    script.heal()
    script.tick(3)
    script.propose(1, b"y" * 8)
    assert script.nodes[3].data == [b"x" * 8, b"y" * 8]


def test_apply_is_bounded_and_waits_for_its_acknowledgement() -> None:
    script = Script(1, max_apply_bytes=10)
    script.elect(1)
    script.nodes[1].hold_apply = True
    script.propose(1, *[b"12345"] * 4)
    assert len([entry for entry in script.nodes[1].waiting if entry.data]) == 2
    script.nodes[1].hold_apply = False
    script.settle()
    assert len(script.nodes[1].data) == 4


def test_a_leader_whose_followers_wait_for_their_disks_stays_leader() -> None:
    script = Script(3)
    script.elect(1)
    script.nodes[2].hold_disk = script.nodes[3].hold_disk = True
    script.propose(1, b"x")
    script.tick(5 * script[1].config.election_tick)
    assert (script[1].role, script[1].term) == (Role.LEADER, script[2].term)


def test_a_heartbeat_of_a_term_that_is_not_durable_is_answered_after_the_write() -> None:
    core = Script(3)[2]
    core.step(Message(MsgKind.HEARTBEAT, 1, 2, 5))
    ready = core.ready()
    assert (kinds(ready.messages), ready.must_sync) == ([], True)
    assert kinds(ready.messages_after_persist) == [MsgKind.HEARTBEAT_RESP]
    core.persisted(ready.number)
    core.step(Message(MsgKind.HEARTBEAT, 1, 2, 5))
    assert kinds(core.ready().messages) == [MsgKind.HEARTBEAT_RESP]


def test_that_a_change_of_members_is_committed_is_synced_with_the_next_ready() -> None:
    """Who was removed may be gone for good: a power cut must not bring the old members back."""
    script = Script(3)
    script.elect(1)
    node, taken = script.nodes[1], []
    take = node.take_ready
    node.take_ready = lambda: taken.append(take())  # type: ignore[assignment, func-returns-value]
    script.change(1, remove=3)
    [told] = [ready for ready in taken if any(entry.type for entry in ready.committed)]
    assert told.must_sync
    assert told.hard_state is not None
    assert told.hard_state.commit == told.committed[-1].index
