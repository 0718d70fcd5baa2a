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
from cairn.raft.confchange import members
from cairn.raft.core import RaftCore
from cairn.raft.election import Elections
from cairn.raft.log import RaftLog
from cairn.raft.progress import Progress
from cairn.raft.quorum import VoteResult
from cairn.raft.reads import Reads
from cairn.raft.replication import Replication
from cairn.raft.state import MemberState
from cairn.raft.types import ConfState, Entry, HardState, Message, MsgKind, Role, Snapshot
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
    def may_leave(self: MemberState, message: Message) -> bool:
        return self.role is Role.LEADER or message.kind in kinds

    return (MemberState, "may_leave_before_sync", may_leave)


plant("ack before fsync", _early(MsgKind.APP_RESP))
plant("vote request before fsync", _early(MsgKind.VOTE), script=directed.vote_request_after_sync)
plant("pre-vote request before fsync", _early(MsgKind.PRE_VOTE))
plant("vote granted before fsync", _early(MsgKind.VOTE_RESP))
plant("heartbeat answered in a term that is not durable", _early(MsgKind.HEARTBEAT_RESP))


def _no_vote(self: MemberState) -> HardState:
    return HardState(self.term, 0, self.log.committed)


plant("vote not persisted", (MemberState, "hard_state", _no_vote))


def _count_own_at_once(self: Replication, payloads: list[bytes], kind: int) -> int:
    first = _append_own(self, payloads, kind)
    self.progress[self.id].acknowledged(self.log.last)
    self.advance_commit()
    return first


_append_own = Replication.append_own
plant("leader counts its entry before fsync", (Replication, "append_own", _count_own_at_once))


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
    (Reads, "heartbeat_commit", lambda self, to: self.log.committed),
)
plant(
    "old term committed by counting",
    (Replication, "may_commit_by_counting", lambda self, index: True),
)


# --- votes and acks that do not count -----------------------------------------------------------


def _tally_all(self: MemberState, votes: dict[int, bool]) -> VoteResult:
    needed = quorum.majority(len(self.voters))
    if sum(votes.values()) >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if len(votes) < 2 * len(self.voters) else VoteResult.LOST


def _record_each(self: Elections, node: int, granted: bool) -> None:
    self.votes[-len(self.votes) - 1] = granted


plant(
    "votes counted twice",
    (Elections, "record_vote", _record_each),
    (MemberState, "tally", _tally_all),
    script=directed.repeated_votes_count_once,
)


def _anyone(self: MemberState, node: int) -> bool:
    return node in self.progress


plant(
    "votes of learners counted",
    (MemberState, "is_voter", _anyone),
    (MemberState, "tally", _tally_all),
    script=directed.votes_of_learners_do_not_count,
)


def _count_learners(self: Replication) -> int:
    acked = {node: progress.match for node, progress in self.progress.items()}
    indexes = sorted(acked.values(), reverse=True)
    return indexes[quorum.majority(len(self.voters)) - 1]


plant("acks of learners counted", (Replication, "quorum_index", _count_learners))


def _any_term(self: RaftCore, message: Message) -> bool:
    answers = (MsgKind.APP_RESP, MsgKind.VOTE_RESP, MsgKind.HEARTBEAT_RESP)
    if message.kind in answers and message.term < self.term:
        return True
    return _fits_term(self, message)


_fits_term = RaftCore.fits_term
plant(
    "responses accepted across terms",
    (RaftCore, "fits_term", _any_term),
    (Elections, "answers_this_campaign", lambda self, message: True),
    script=directed.answers_of_older_terms_do_not_count,
)
plant(
    "vote without looking at the log",
    (Elections, "log_is_no_obstacle", lambda self, message: True),
)


def _vote_again(self: Elections, message: Message) -> bool:
    if message.kind is MsgKind.VOTE:
        self.vote = 0
    return True


plant("two votes in a term", (Elections, "may_vote_for", _vote_again))


# --- reads --------------------------------------------------------------------------------------

plant("read without a quorum", (Reads, "confirmed_round", lambda self: self.read_seq))
plant(
    "read before commit in term",
    (Reads, "may_serve_reads", lambda self: True),
    script=directed.new_leader_reads_after_its_first_commit,
)


def _reuse_round(self: Reads) -> None:
    if not self.reads_to_confirm:
        return
    self.reads_to_confirm = False
    for read in self.pending_reads:
        read.seq = self.read_seq
    self.broadcast_heartbeat()
    self.answer_confirmed_reads()


plant(
    "read token used again",
    (Reads, "begin_read_round", _reuse_round),
    script=directed.earlier_answer_confirms_nothing,
)


def _keep_reads(self: MemberState) -> None:
    self.fail_forwarded_reads()


plant(
    "reads survive a change of role",
    (MemberState, "forget_reads", _keep_reads),
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
    (RaftCore, "conf_change_pending", lambda self: False),
)


def _lose_joint(self: Replication, snapshot: Snapshot) -> None:
    conf = snapshot.meta.conf
    self.set_conf(ConfState(conf.voters, tuple(sorted({*conf.learners, *conf.learners_next}))))


plant("joint state lost in a snapshot", (Replication, "restore_conf", _lose_joint))
plant(
    "snapshot keeps the old configuration", (Replication, "restore_conf", lambda self, snap: None)
)
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
    (RaftCore, "must_step_down", lambda self: False),
    script=directed.removed_leader_steps_down,
)
plant("joint configuration never left", (RaftCore, "leave_joint_if_due", lambda self: None))


def _progress_lost(self: MemberState, conf: ConfState) -> None:
    _set_conf(self, conf)
    for node in members(conf):
        progress = self._new_progress()
        progress.match = self.log.last
        self.progress[node] = progress


_set_conf = MemberState.set_conf
plant("a conf change forges progress", (MemberState, "set_conf", _progress_lost))


# --- getting stuck ------------------------------------------------------------------------------

plant(
    "snapshot peer never un-paused",
    (Replication, "report_snapshot", lambda self, node, ok: None),
    script=directed.lost_snapshot_is_sent_again,
)


def _stay_paused(self: Replication, message: Message) -> None:
    paused = self.progress[message.from_].paused
    progress = self.progress[message.from_]
    progress.recent_active = True
    progress.paused = paused
    progress.read_acked = max(progress.read_acked, message.read_seq)
    self.answer_confirmed_reads()


plant("lost window stalls", (Replication, "handle_heartbeat_resp", _stay_paused))
plant("refused probe is not repeated lower", (Progress, "refused", lambda self, i, at: False))
plant(
    "leader never checks its quorum",
    (Elections, "check_quorum", lambda self: None),
    script=directed.leader_without_quorum_steps_down,
)
plant(
    "refused votes do not tell what is committed",
    (Elections, "commit_by_vote", lambda self, message: None),
    script=directed.refused_vote_tells_what_is_committed,
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
plant("CaS appends its own request again", (CasLog, "check", _forget_own))
