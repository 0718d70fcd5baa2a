"""What one member holds in memory, how it sends, and how it changes role (brief 2, 3 and 5).

The core is one object in five layers, each in a file of its own and each using only what is below:
`MemberState` -> `Reads` -> `Replication` -> `Elections` -> `RaftCore`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from cairn.raft import quorum
from cairn.raft.confchange import members
from cairn.raft.log import RaftLog
from cairn.raft.progress import Progress
from cairn.raft.types import (
    NO_NODE,
    Config,
    ConfState,
    HardState,
    Message,
    MsgKind,
    ReadState,
    Role,
    SoftState,
    Storage,
)

_PROMISE_NOTHING = frozenset({MsgKind.HEARTBEAT_RESP, MsgKind.PRE_VOTE_RESP})


@dataclass(slots=True)
class PendingRead:
    """A read that waits for the leader to be confirmed. `origin` is who asked."""

    seq: int  # heartbeat round of this tenure that confirms it
    index: int
    token: bytes
    origin: int
    origin_seq: int


@dataclass(slots=True)
class HandedOut:
    """What a Ready promised to make durable; remembered until `persisted` (brief 4)."""

    number: int
    term: int
    last_index: int  # end of the unstable log at that time; 0 if there was none
    last_term: int
    snapshot_index: int
    campaign: int  # whose own vote becomes countable; 0 if none


class MemberState:
    def __init__(self, config: Config, storage: Storage, *, applied: int) -> None:
        hard, conf = storage.initial_state()
        self.config = config
        self.id = config.id
        self.term, self.vote = hard.term, hard.vote
        self.log = RaftLog(storage, commit=hard.commit, applied=applied)
        self.role = Role.FOLLOWER
        self.leader = NO_NODE
        self.dropped: Counter[str] = Counter()

        self.conf = ConfState()
        self.voters: frozenset[int] = frozenset()
        self.outgoing: frozenset[int] = frozenset()
        self.progress: dict[int, Progress] = {}  # the leader's view of all members, itself too
        self.votes: dict[int, bool] = {}
        self.campaign_number = 0
        self.self_vote_pending = False

        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.election_timeout = 0
        self.pending_conf_index = 0
        self.transferee = NO_NODE
        self.timeout_now_sent = False
        self.uncommitted: deque[tuple[int, int]] = deque()  # (last index, bytes) of each proposal
        self.uncommitted_bytes = 0

        self.read_seq = 0
        self.reads_to_confirm = False  # some pending read waits for the next heartbeat round
        self.pending_reads: deque[PendingRead] = deque()
        self.early_reads: list[PendingRead] = []  # came before the first commit of this tenure
        self.forward_seq = config.rng.getrandbits(48)  # an answer to an earlier life never fits
        self.forwarded_reads: dict[int, bytes] = {}

        self.out: list[Message] = []
        self.out_after_persist: list[Message] = []
        self.read_states: list[ReadState] = []
        self.failed_reads: list[bytes] = []
        self.broadcast_pending = False
        self.handed_out: deque[HandedOut] = deque()
        self.ready_number = 0
        self.last_hard = hard
        self.durable_term = hard.term  # the last one that our disk has confirmed
        self.last_soft = SoftState(NO_NODE, Role.FOLLOWER)

        self.set_conf(conf)
        self.redraw_timeout()

    # --- small questions

    def is_voter(self, node: int) -> bool:
        return node in self.voters or node in self.outgoing

    def peers(self) -> list[int]:
        return [node for node in self.progress if node != self.id]

    def committed_in_term(self) -> bool:
        """Only then does a new leader know what is committed (paper 8, P8)."""
        return self.log.has(self.log.committed, self.term)

    def tally(self, votes: dict[int, bool]) -> quorum.VoteResult:
        return quorum.joint_vote_result(self.voters, self.outgoing, votes)

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote, self.log.committed)

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def trace(self, text: str) -> None:
        if self.config.trace is not None:
            self.config.trace(text)

    # --- sending

    def may_leave_before_sync(self, message: Message) -> bool:
        """A leader's words: its term is durable, and its own ack waits anyway. And answers that
        promise nothing but our term: a slow disk must not look like a lost member, or one long
        sync on a majority deposes a healthy leader."""
        if self.role is Role.LEADER:
            return True
        return message.kind in _PROMISE_NOTHING and self.term == self.durable_term

    def send(self, message: Message) -> None:
        if self.may_leave_before_sync(message):
            self.out.append(message)
        else:
            self.out_after_persist.append(message)

    # --- configuration

    def set_conf(self, conf: ConfState) -> None:
        """`conf` is in force. Progress of members that stay is kept (brief 8)."""
        self.conf = conf
        self.voters = frozenset(conf.voters)
        self.outgoing = frozenset(conf.voters_outgoing)
        known = self.progress
        self.progress = {}
        for node in sorted(members(conf)):
            progress = known.get(node) or self._new_progress()
            progress.is_learner = not self.is_voter(node)
            self.progress[node] = progress

    def _new_progress(self, old: Progress | None = None) -> Progress:
        """Of a new member, or of an old one under a new leader, who has heard nothing of it yet."""
        progress = Progress(self.log.last + 1, self.config.max_inflight, is_learner=False)
        if old is None:
            progress.recent_active = True  # just added: not the time to count it as lost
        else:
            progress.is_learner = old.is_learner
        return progress

    # --- roles

    def redraw_timeout(self) -> None:
        ticks = self.config.election_tick
        self.election_timeout = self.config.rng.randint(ticks, 2 * ticks - 1)

    def reset(self, term: int) -> None:
        """Begin anew as `term` demands: nothing of the former role may be carried over."""
        assert term >= self.term, "terms never go back"
        if term != self.term:
            self.term, self.vote = term, NO_NODE
        self.leader = NO_NODE
        self.votes = {}
        self.self_vote_pending = False
        self.election_elapsed = self.heartbeat_elapsed = 0
        self.redraw_timeout()
        self.pending_conf_index = 0
        self.transferee, self.timeout_now_sent = NO_NODE, False
        self.uncommitted.clear()
        self.uncommitted_bytes = 0
        self.broadcast_pending = False
        self.forget_reads()

    def become_follower(self, term: int, leader: int) -> None:
        handed_over = self.role is Role.LEADER and self.timeout_now_sent
        self.reset(term)
        self.role, self.leader = Role.FOLLOWER, leader
        if handed_over:  # let the successor settle, or two voters play ping-pong (brief 9)
            self.election_timeout += self.config.rng.randint(1, self.config.election_tick)
        self.trace(f"{self.id} follows {leader} in term {self.term}")

    def become_pre_candidate(self) -> None:
        """Neither term nor vote change; the old leader is forgotten (T#83, T#84)."""
        assert self.role is not Role.LEADER
        self.role = Role.PRE_CANDIDATE
        self.votes = {}
        self.leader = NO_NODE
        self.fail_forwarded_reads()
        self.trace(f"{self.id} asks whether to campaign after term {self.term}")

    def become_candidate(self) -> None:
        assert self.role is not Role.LEADER
        self.reset(self.term + 1)
        self.role = Role.CANDIDATE
        self.vote = self.id
        self.trace(f"{self.id} campaigns in term {self.term}")

    # --- reads that will get no answer (brief 10)

    def forget_reads(self) -> None:
        """Role or term changed: counters and tokens of the former tenure mean nothing now."""
        for read in (*self.early_reads, *self.pending_reads):
            self.fail_read(read)
        self.early_reads.clear()
        self.pending_reads.clear()
        self.read_seq = 0
        self.reads_to_confirm = False
        self.fail_forwarded_reads()

    def fail_read(self, read: PendingRead) -> None:
        if read.origin == self.id:
            self.failed_reads.append(read.token)
        else:
            self.send(self.read_answer(read, reject=True))

    def fail_forwarded_reads(self) -> None:
        self.failed_reads.extend(self.forwarded_reads.values())
        self.forwarded_reads.clear()

    def read_answer(self, read: PendingRead, *, reject: bool) -> Message:
        return Message(
            MsgKind.READ_INDEX_RESP,
            self.id,
            read.origin,
            index=read.index,
            reject=reject,
            read_seq=read.origin_seq,
            context=read.token,
        )
