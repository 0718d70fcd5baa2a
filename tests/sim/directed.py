"""Scripts in which one particular bug would show; each passes on the healthy core."""

from __future__ import annotations

from cairn.raft.cas import AlreadyAppended, CasLog, KeyRange, LogRecord, Predicate, Standing
from cairn.raft.types import (
    ConfChangeSingle,
    ConfChangeV2,
    ConfState,
    Entry,
    Message,
    MsgKind,
    ProposalDropped,
    Role,
)
from tests.raft.script import Script


def vote_request_after_sync() -> None:
    """Whoever asks for votes must still know it after a power cut."""
    script = Script(3, pre_vote=False)
    core = script[1]
    core.campaign()
    assert [m for m in core.ready().messages if m.kind is MsgKind.VOTE] == []


def old_write_vouches_for_nothing() -> None:
    core = Script(5)[5]
    numbers = []
    for leader, term, entry_term in ((1, 2, 2), (2, 3, 3), (3, 4, 2)):
        entry = Entry(entry_term, 2, 0, b"x")
        core.step(Message(MsgKind.APP, leader, 5, term, 1, 1, [entry]))
        numbers.append(core.ready().number)
    core.persisted(numbers[0])
    assert core.log.stable == 1


def shorter_append_cuts_nothing() -> None:
    script = Script(3)
    core = script.elect(1)
    script.cut(3)
    script[1].propose([b"a", b"b", b"c"])
    script.nodes[1].take_ready()
    script.nodes[1].outbox.clear()
    follower, term = script[2], core.term
    tail = core.log.slice(3, 6)
    follower.step(Message(MsgKind.APP, 1, 2, term, 2, term, tail))
    follower.step(Message(MsgKind.APP, 1, 2, term, 2, term, tail[:1]))
    assert follower.log.last == 5


def own_tail_is_not_committed() -> None:
    """The leader's word covers what its message proved to match, not our tail."""
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script.propose(1, b"stale", b"stale")
    core = script[1]
    core.step(Message(MsgKind.APP, 2, 1, core.term + 1, 2, core.log.term(2), [], 4))
    assert core.log.committed == 2


def new_leader_reads_after_its_first_commit() -> None:
    script = Script(3)
    core = script.elect(1)
    script.cut(1)
    core.become_follower(core.term, 0)
    core.become_candidate()
    core.become_leader()
    core.read_index(b"r")
    script.settle()
    assert core.tenure is not None
    for node in (2, 3):
        beat = Message(MsgKind.HEARTBEAT_RESP, node, 1, core.term, read_seq=core.tenure.reads.seq)
        core.step(beat)
    script.settle()
    assert script.nodes[1].reads == []


def reads_end_with_the_tenure() -> None:
    """A stale leader takes a read; when it leads again, that read must have failed."""
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script[1].read_index(b"old")
    script.settle()
    script[2].election_elapsed = script[3].election_elapsed = 100
    script.elect(2)
    script.propose(2, b"new")
    script.heal()
    script.tick(3)
    script[2].transfer_leader(1)
    script.settle()
    script.tick(3)
    assert script.leaders() == [1]
    assert script.nodes[1].reads == []
    assert script.nodes[1].failed_reads == [b"old"]


def repeated_votes_count_once() -> None:
    script = Script(5, pre_vote=False)
    core = script[1]
    core.campaign()
    core.persisted(core.ready().number)
    for _ in range(3):
        core.step(Message(MsgKind.VOTE_RESP, 2, 1, core.term))
    assert core.role is Role.CANDIDATE


def votes_of_learners_do_not_count() -> None:
    script = Script(3, learners=2, pre_vote=False)
    core = script[1]
    core.campaign()
    core.persisted(core.ready().number)
    for node in (4, 5):
        core.step(Message(MsgKind.VOTE_RESP, node, 1, core.term))
    assert core.role is Role.CANDIDATE


def answers_of_older_terms_do_not_count() -> None:
    script = Script(3, pre_vote=False)
    core = script[1]
    for _ in range(2):
        core.campaign()
        core.persisted(core.ready().number)
    core.step(Message(MsgKind.VOTE_RESP, 2, 1, core.term - 1))
    assert core.role is Role.CANDIDATE


def earlier_answer_confirms_nothing() -> None:
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


def no_campaign_with_an_unapplied_change() -> None:
    """2 and 3 were removed and do not know it; the old majority must not elect a leader beside
    the new one."""
    script = Script(3)
    script.elect(1)
    script.nodes[2].hold_apply = script.nodes[3].hold_apply = True
    script.change(1, remove=3)
    script.change(1, remove=2)
    script.propose(1, b"alone")
    script[2].election_elapsed = script[3].election_elapsed = 100
    script.cut(1)
    script[2].campaign()
    script.settle()
    assert script.leaders() == [1]


def _replace_two_of_three() -> Script:
    """Joint: incoming 1, 4, 5; outgoing 1, 2, 3."""
    script = Script(3)
    script.elect(1)
    for node in (4, 5):
        script.add(node)
        script.change(1, add_learner=node)
    changes = [ConfChangeSingle("add_voter", 4), ConfChangeSingle("add_voter", 5)]
    changes += [ConfChangeSingle("remove", 2), ConfChangeSingle("remove", 3)]
    script.proven(1, ConfChangeV2("explicit", tuple(changes)))
    script.settle()
    script.tick(3)
    assert script[4].conf == ConfState((1, 4, 5), (), (1, 2, 3))
    return script


def joint_commit_needs_both_halves() -> None:
    script = _replace_two_of_three()
    script.cut(2, 3)
    index, _ = script.propose(1, b"x")
    assert script[1].log.committed < index


def joint_election_needs_both_halves() -> None:
    script = _replace_two_of_three()
    script.cut(4, 5)
    script[4].election_elapsed = script[5].election_elapsed = 100
    script[4].campaign()
    script.settle()
    assert script[4].role is not Role.LEADER


def _asked(script: Script, *changes: ConfChangeSingle) -> bool:
    """Ask member 1 for a change; whether it was appended."""
    try:
        script[1].propose_conf_change(ConfChangeV2("auto", changes))
    except ProposalDropped:
        return False
    return True


def each_change_is_proven_by_itself() -> None:
    """Somebody asks for one change, everybody answers, one dies, another change is asked for."""
    script = Script(3)
    script.elect(1)
    assert not _asked(script, ConfChangeSingle("remove", 3))
    script.settle()
    script.crash(3)
    assert not _asked(script, ConfChangeSingle("remove", 2))


def a_proof_is_soon_over() -> None:
    script = Script(3)
    script.elect(1)
    assert not _asked(script, ConfChangeSingle("remove", 2))
    script.settle()
    script.crash(3)
    script.tick(11)
    assert not _asked(script, ConfChangeSingle("remove", 2))


def removed_leader_steps_down() -> None:
    script = Script(3)
    script.elect(1)
    script.change(1, remove=1)
    assert script[1].role is Role.FOLLOWER


def lost_snapshot_is_sent_again() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(3)
    script.propose(1, b"a")
    script.compact(1)
    script[1].report_unreachable(3)
    script[1].step(Message(MsgKind.HEARTBEAT_RESP, 3, 1, script[1].term))
    script.settle()
    script.heal()
    script[1].report_snapshot(3, False)
    script.tick(5)
    assert script[3].log.applied == script[1].log.applied


def leader_without_quorum_steps_down() -> None:
    script = Script(3)
    script.elect(1)
    script.cut(1)
    script.tick(21, 1)
    assert script[1].role is Role.FOLLOWER


def refused_vote_tells_what_is_committed() -> None:
    """A demoted leader with a longer log, and the only voter left, which does not know it is."""
    script = Script(2)
    script.elect(1)
    script.nodes[1].hold_apply = True
    script.proven(1, ConfChangeV2("auto", (ConfChangeSingle("add_learner", 1),)))
    script[1].propose([b"tail"])
    script.collect()
    for message in list(script.wire):
        if message.kind is MsgKind.APP:
            message.entries = message.entries[:1]  # the tail is lost on its way
            script.deliver(message)
    script.wire.clear()
    script.nodes[2].work()
    for message in script.nodes[2].outbox:
        script.deliver(message)
    script.nodes[2].outbox.clear()
    script.cut(1)
    script.nodes[1].hold_apply = False
    script.settle()
    assert script[1].role is Role.FOLLOWER
    script.heal()
    script.tick(80)
    assert script.leaders() == [2]


def request_is_appended_once() -> None:
    """A client that asks again is told where its entry is."""
    log, key = CasLog(), KeyRange.point("t", b"a")
    log.append(LogRecord(2, 1, b"request", (key,)))
    leads = Standing(is_leader=True, leader=1, term=1, committed_in_term=True)
    again = log.check(Predicate(1, 1), b"request", (key,), leads)
    assert again == AlreadyAppended(2, 1)


def _put_back(*, lagging: bool = False) -> Script:
    """The disk of 2 goes back to before the last entries; with `lagging` 3 never had them."""
    script = Script(3)
    script.elect(1)
    old = script.nodes[2].durable.copy()
    if lagging:
        script.cut(3)
    script.propose(1, b"a", b"b")
    script.crash(2)
    script.put_back(2, old)
    return script


def who_forgot_gets_it_again() -> None:
    """The leader believed what the old disk had acknowledged, and sent no entry for ever."""
    script = _put_back()
    script.tick(5)
    assert script.nodes[2].data[-2:] == [b"a", b"b"]
    assert not script[2].log.is_short()
    script.cut(3)
    script.propose(1, b"c")
    assert script[1].log.committed == script[1].log.last


def who_forgot_elects_nobody_who_lacks_it() -> None:
    """2 and 3 are a majority, and neither has what 1 and 2 have committed."""
    script = _put_back(lagging=True)
    script[1].tick()  # its heartbeat reaches 2, and nothing that it would send after that
    [beat] = [m for m in script[1].ready().messages if m.kind is MsgKind.HEARTBEAT and m.to == 2]
    script.deliver(beat)
    script.crash(1)
    script.heal()
    script.tick(80)
    assert script.leaders() == []
    script.restart(1)
    script.tick(80)
    assert script.leaders() == [1]
    assert script.nodes[2].data[-2:] == script.nodes[3].data[-2:] == [b"a", b"b"]


SCRIPTS = [
    who_forgot_gets_it_again,
    who_forgot_elects_nobody_who_lacks_it,
    request_is_appended_once,
    vote_request_after_sync,
    old_write_vouches_for_nothing,
    shorter_append_cuts_nothing,
    repeated_votes_count_once,
    own_tail_is_not_committed,
    new_leader_reads_after_its_first_commit,
    reads_end_with_the_tenure,
    votes_of_learners_do_not_count,
    answers_of_older_terms_do_not_count,
    earlier_answer_confirms_nothing,
    no_campaign_with_an_unapplied_change,
    joint_commit_needs_both_halves,
    joint_election_needs_both_halves,
    removed_leader_steps_down,
    lost_snapshot_is_sent_again,
    leader_without_quorum_steps_down,
    refused_vote_tells_what_is_committed,
]
