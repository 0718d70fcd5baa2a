"""Deliberate bugs: each replaces one named rule of `cairn.raft` here, and must be caught.

The product has no switch for them. A bug that random faults seldom show has a directed script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cairn.raft import quorum
from cairn.raft.cas import CasLog, ConflictFound, Predicate
from cairn.raft.core import RaftCore
from cairn.raft.elections import Elections
from cairn.raft.follower import Follower
from cairn.raft.log import RaftLog
from cairn.raft.outbox import Outbox
from cairn.raft.progress import Progress
from cairn.raft.quorum import Members, VoteResult
from cairn.raft.reads import ReadRounds
from cairn.raft.replication import LogReplication
from cairn.raft.tenure import Proof, Tenure
from cairn.raft.types import ConfState, Entry, HardState, Message, MsgKind, Snapshot
from cairn.sim.world import run_seed

from . import directed

MAX_SEEDS = 200
MAX_SECONDS = 60.0

Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Mutant:
    name: str
    patches: tuple[Patch, ...]
    script: Callable[[], None] | None = None  # tells the story in which the bug shows


@dataclass(frozen=True)
class Catch:
    """How a mutant was found; `by` is empty if it was not."""

    by: str
    seeds: int
    seconds: float


MUTANTS: list[Mutant] = []


def plant(name: str, *patches: Patch, script: Callable[[], None] | None = None) -> None:
    MUTANTS.append(Mutant(name, patches, script))


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in mutant.patches]
    try:
        for owner, name, bug in mutant.patches:
            setattr(owner, name, bug)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def hunt(
    mutant: Mutant, *, first_seed: int = 1, max_seeds: int = MAX_SEEDS, scripts: bool = True
) -> Catch:
    """Look for `mutant` with its script, then with seeds, until found or out of budget."""
    started = time.monotonic()
    with planted(mutant):
        if scripts and mutant.script is not None:
            try:
                mutant.script()
            except Exception as problem:
                return Catch(f"script ({type(problem).__name__})", 0, time.monotonic() - started)
        for count in range(1, max_seeds + 1):
            result = run_seed(first_seed + count - 1)
            if result.failure is not None:
                return Catch(str(result.oracle), count, time.monotonic() - started)
            if time.monotonic() - started > MAX_SECONDS:
                return Catch("", count, time.monotonic() - started)
    return Catch("", max_seeds, time.monotonic() - started)


# --- saying things before they are durable ------------------------------------------------------


def _early(*kinds: MsgKind) -> Patch:
    def may_leave(self: Outbox, message: Message, term: int) -> bool:
        return message.kind in kinds

    return (Outbox, "may_leave_before_sync", may_leave)


plant("ack before fsync", _early(MsgKind.APP_RESP))
plant("vote request before fsync", _early(MsgKind.VOTE), script=directed.vote_request_after_sync)
plant("pre-vote request before fsync", _early(MsgKind.PRE_VOTE))
plant("vote granted before fsync", _early(MsgKind.VOTE_RESP))
plant("heartbeat answered in a term that is not durable", _early(MsgKind.HEARTBEAT_RESP))


def _no_vote(self: RaftCore) -> HardState:
    return HardState(self.term, 0, self.log.committed)


plant("vote not persisted", (RaftCore, "hard_state", _no_vote))


def _count_own_at_once(self: Tenure, payloads: list[bytes], kind: int) -> int:
    first = _append_own(self, payloads, kind)
    self.replication.progress[self.id].acknowledged(self.log.last)
    self.replication.advance_commit()
    return first


_append_own = Tenure.append_own
plant("leader counts its entry before fsync", (Tenure, "append_own", _count_own_at_once))


def _apply_early(self: RaftLog) -> int:
    return self.applying if self.snapshot else self.committed


plant("applied before durable", (RaftLog, "applicable_to", _apply_early))
plant(
    "old write vouches for a changed tail",
    (RaftCore, "attests_tail", lambda self, done: True),
    script=directed.old_write_vouches_for_nothing,
)


# --- the log ------------------------------------------------------------------------------------


def _cut_always(self: RaftLog, index: int, term: int, commit: int, new: list[Entry]) -> int | None:
    last_new = _try_append(self, index, term, commit, new)
    if last_new is not None and self.last > max(last_new, self.committed):
        self._truncate(max(last_new, self.committed) + 1)
    return last_new


_try_append = RaftLog.try_append
plant(
    "truncation because a message is shorter",
    (RaftLog, "try_append", _cut_always),
    script=directed.shorter_append_cuts_nothing,
)
plant(
    "append without looking at the previous term",
    (RaftLog, "has", lambda self, index, term: self.first_index() - 1 <= index <= self.last),
)
plant(
    "follower commits its own tail",
    (RaftLog, "commit_limit", lambda self, commit, last_new: min(commit, self.last)),
    script=directed.own_tail_is_not_committed,
)
plant(
    "heartbeat commits past the acknowledged",
    (LogReplication, "heartbeat_commit", lambda self, to: self.log.committed),
)
plant(
    "old term committed by counting",
    (LogReplication, "may_commit_by_counting", lambda self, index: True),
)


# --- votes and acks that do not count -----------------------------------------------------------


def _tally_all(self: Members, votes: dict[int, bool]) -> VoteResult:
    needed = quorum.majority(len(self.voters))
    if sum(votes.values()) >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if len(votes) < 2 * len(self.voters) else VoteResult.LOST


def _record_each(self: Elections, node: int, granted: bool) -> None:
    self.votes[-len(self.votes) - 1] = granted


plant(
    "votes counted twice",
    (Elections, "record_vote", _record_each),
    (Members, "tally", _tally_all),
    script=directed.repeated_votes_count_once,
)


def _anyone(self: Members, node: int) -> bool:
    return node in self.all


plant(
    "votes of learners counted",
    (Members, "is_voter", _anyone),
    (Members, "tally", _tally_all),
    script=directed.votes_of_learners_do_not_count,
)


def _count_learners(self: LogReplication) -> int:
    acked = {node: progress.match for node, progress in self.progress.items()}
    indexes = sorted(acked.values(), reverse=True)
    return indexes[quorum.majority(len(self.members.voters)) - 1]


plant("acks of learners counted", (LogReplication, "quorum_index", _count_learners))


def _any_term(self: RaftCore, message: Message) -> bool:
    answers = (MsgKind.APP_RESP, MsgKind.VOTE_RESP, MsgKind.HEARTBEAT_RESP)
    if message.kind in answers and message.term < self.term:
        return True
    return _fits_term(self, message)


_fits_term = RaftCore.fits_term
plant(
    "responses accepted across terms",
    (RaftCore, "fits_term", _any_term),
    (Elections, "answers_this_campaign", lambda self, message, term: True),
    script=directed.answers_of_older_terms_do_not_count,
)
plant(
    "vote without looking at the log",
    (Elections, "log_is_no_obstacle", lambda self, message: True),
)


def _vote_again(self: RaftCore, node: int) -> None:
    self.vote = node
    self.election_elapsed = 0


plant(
    "two votes in a term",
    (Elections, "may_vote_for", lambda self, message, term, vote, leader: True),
    (RaftCore, "grant_vote", _vote_again),
)


# --- reads --------------------------------------------------------------------------------------

plant("read without a quorum", (Tenure, "confirmed_round", lambda self: self.reads.seq))
plant(
    "read before commit in term",
    (Tenure, "may_serve_reads", lambda self: True),
    script=directed.new_leader_reads_after_its_first_commit,
)


def _reuse_round(self: ReadRounds) -> None:
    self.wanted = False
    for read in self.pending:
        read.seq = self.seq


plant(
    "read token used again",
    (ReadRounds, "begin_round", _reuse_round),
    script=directed.earlier_answer_confirms_nothing,
)


def _keep_reads(self: RaftCore, term: int) -> None:
    if self.tenure is not None:
        vars(self)["kept"] = self.tenure.reads
        self.tenure = None
    _reset(self, term)


def _lead_with_old_reads(self: RaftCore) -> None:
    _become_leader(self)
    assert self.tenure is not None
    self.tenure.reads = vars(self).pop("kept", self.tenure.reads)


_reset, _become_leader = RaftCore.reset, RaftCore.become_leader
plant(
    "reads survive a change of role",
    (RaftCore, "reset", _keep_reads),
    (RaftCore, "become_leader", _lead_with_old_reads),
    script=directed.reads_end_with_the_tenure,
)


# --- configuration ------------------------------------------------------------------------------

plant(
    "campaign with an unapplied conf change",
    (Elections, "conf_change_blocks_campaign", lambda self: False),
    script=directed.no_campaign_with_an_unapplied_change,
)
plant(
    "two conf changes at once",
    (Tenure, "conf_change_pending", lambda self: False),
)
plant(
    "a vote is taken away although those who stay are silent",
    (Tenure, "is_proven", lambda self, conf, answered: True),
)
plant(
    "answers to another change prove this one",
    (Proof, "may_serve", lambda self, change, oldest: self.tick >= oldest),
    script=directed.each_change_is_proven_by_itself,
)
plant(
    "an old answer proves that a voter lives",
    (Proof, "may_serve", lambda self, change, oldest: self.change == change),
    script=directed.a_proof_is_soon_over,
)


def _lose_joint(self: Follower, snapshot: Snapshot) -> None:
    conf = snapshot.meta.conf
    self.members.change(
        ConfState(conf.voters, tuple(sorted({*conf.learners, *conf.learners_next})))
    )


plant("joint state lost in a snapshot", (Follower, "restore_conf", _lose_joint))
plant("snapshot keeps the old configuration", (Follower, "restore_conf", lambda self, snap: None))
plant(
    "joint commit with the new half only",
    (
        quorum,
        "joint_committed_index",
        lambda incoming, outgoing, acked: quorum.committed_index(incoming, acked),
    ),
    script=directed.joint_commit_needs_both_halves,
)
plant(
    "joint election with the new half only",
    (
        quorum,
        "joint_vote_result",
        lambda incoming, outgoing, votes: quorum.vote_result(incoming, votes),
    ),
    script=directed.joint_election_needs_both_halves,
)
plant(
    "removed leader goes on",
    (Tenure, "must_step_down", lambda self: False),
    script=directed.removed_leader_steps_down,
)
plant("joint configuration never left", (Tenure, "leave_joint_if_due", lambda self: None))


def _progress_forged(self: LogReplication) -> None:
    changed = bool(self.progress)
    _follow_members(self)
    for node in self.members.all if changed else ():
        progress = self.new_progress()
        progress.match = self.log.last
        self.progress[node] = progress


_follow_members = LogReplication.follow_members
plant("a conf change forges progress", (LogReplication, "follow_members", _progress_forged))


# --- getting stuck ------------------------------------------------------------------------------

plant(
    "snapshot peer never un-paused",
    (LogReplication, "report_snapshot", lambda self, node, ok: None),
    script=directed.lost_snapshot_is_sent_again,
)


def _stay_paused(self: LogReplication, node: int) -> None:
    self.progress[node].recent_active = True


plant("lost window stalls", (LogReplication, "heard", _stay_paused))
plant("refused probe is not repeated lower", (Progress, "refused", lambda self, i, at: False))
plant(
    "leader never checks its quorum",
    (LogReplication, "heard_a_quorum", lambda self: True),
    script=directed.leader_without_quorum_steps_down,
)
plant(
    "refused votes do not tell what is committed",
    (Elections, "learn_commit", lambda self, message: False),
    script=directed.refused_vote_tells_what_is_committed,
)


# --- disks that went back ------------------------------------------------------------------------


def _believe(self: LogReplication, message: Message) -> None:
    self.heard(message.from_)


plant(
    "what was forgotten still counts",
    (LogReplication, "forgotten", _believe),
    script=directed.who_forgot_gets_it_again,
)


def _shameless(self: RaftLog, index: int, term: int) -> bool:
    return (term, index) >= (self.last_term(), self.last)


plant(
    "who forgot votes by what is left",
    (RaftLog, "is_up_to_date", _shameless),
    script=directed.who_forgot_elects_nobody_who_lacks_it,
)


def _whole(self: RaftLog) -> bool:
    return False


plant(
    "who forgot campaigns",
    (RaftLog, "is_short", _whole),
    script=directed.who_forgot_elects_nobody_who_lacks_it,
)


# --- compare-and-swap ---------------------------------------------------------------------------


def _skip_newest(self: CasLog, predicate: Predicate, ranges: Any) -> ConflictFound | None:
    newest = self._records.pop() if self._records else None
    found = _first_conflict(self, predicate, ranges)
    if newest is not None:
        self._records.append(newest)
    return found


_first_conflict = CasLog.first_conflict
plant("CaS ignores the uncommitted tail", (CasLog, "first_conflict", _skip_newest))


def _forget_own(self: CasLog, predicate: Predicate, request: bytes, ranges: Any, by: Any) -> Any:
    outcome = _check(self, predicate, b"", ranges, by)
    own = self._by_request.get(request)
    if own is not None and isinstance(outcome, ConflictFound) and outcome.index == own.index:
        return _check(self, Predicate(own.index, by.term), b"", (), by)
    return outcome


_check = CasLog.check
plant(
    "CaS appends its own request again",
    (CasLog, "check", _forget_own),
    script=directed.request_is_appended_once,
)
