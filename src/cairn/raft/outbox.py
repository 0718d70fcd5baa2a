"""What the next Ready hands out, and what the Readies before it have promised.

The order is the point: what a member says must be true after a power cut. So most answers wait in
`after_persist` until the disk has what they speak of. See "Nothing is said before it is durable" in
docs/explanation-raft.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.raft.kinds import PROMISE_NOTHING
from cairn.raft.log import RaftLog
from cairn.raft.types import (
    NO_NODE,
    HardState,
    Message,
    ReadState,
    Ready,
    Role,
    SoftState,
)


@dataclass(slots=True)
class HandedOut:
    """What a Ready promised to make durable; remembered until `persisted`."""

    number: int
    term: int
    last_index: int  # end of the unstable log at that time; 0 if there was none
    last_term: int
    snapshot_index: int
    campaign: int  # whose own vote becomes countable; 0 if none


class Outbox:
    def __init__(self, hard: HardState) -> None:
        self.now: list[Message] = []
        self.after_persist: list[Message] = []
        self.read_states: list[ReadState] = []
        self.failed_reads: list[bytes] = []
        self.number = 0  # of the last Ready
        self.durable_term = hard.term  # the last one that our disk has confirmed
        self._handed_out: deque[HandedOut] = deque()
        self._hard = hard
        self._soft = SoftState(NO_NODE, Role.FOLLOWER)

    def put(self, message: Message, leads: bool, term: int) -> None:
        """A leader's words may leave at once: its term is durable, its own ack waits anyway."""
        if leads or self.may_leave_before_sync(message, term):
            self.now.append(message)
        else:
            self.after_persist.append(message)

    def may_leave_before_sync(self, message: Message, term: int) -> bool:
        """Answers that promise nothing but our term, if that is durable: a slow disk must not look
        like a lost member, or one long sync on a majority deposes a healthy leader."""
        return message.kind in PROMISE_NOTHING and term == self.durable_term

    def has_news(self, term: int, vote: int, commit: int, leader: int, role: Role) -> bool:
        last, soft = self._hard, self._soft
        return bool(
            self.now
            or self.after_persist
            or commit != last.commit
            or term != last.term
            or vote != last.vote
            or leader != soft.leader
            or role is not soft.role
            or self.read_states
            or self.failed_reads
        )

    def take(
        self,
        log: RaftLog,
        hard: HardState,
        *,
        leader: int,
        role: Role,
        campaign: int,
        max_apply_bytes: int,
    ) -> Ready:
        """The next Ready. `campaign` is the one whose own vote it makes durable, or 0."""
        self.number += 1
        ready = Ready(
            self.number,
            self._soft_news(leader, role),
            None,
            log.unwritten_snapshot(),
            log.unwritten(),
            messages=self.now,
            messages_after_persist=self.after_persist,
            committed=log.take_applicable(max_apply_bytes),
            read_states=self.read_states,
            failed_reads=self.failed_reads,
        )
        self.now, self.after_persist = [], []
        self.read_states, self.failed_reads = [], []
        last = self._hard
        # Who was removed may be gone as soon as all others have heard of it. Who forgets in a power
        # cut that it is committed would ask for a vote that nobody can give any more.
        changed = any(entry.type for entry in ready.committed)
        if hard != last or changed:
            ready.hard_state = self._hard = hard
        voted = hard.term != last.term or hard.vote != last.vote
        ready.must_sync = bool(ready.entries or voted or ready.snapshot or changed)
        self._remember(ready, log, hard.term, campaign)
        return ready

    def _soft_news(self, leader: int, role: Role) -> SoftState | None:
        if leader == self._soft.leader and role is self._soft.role:
            return None
        self._soft = SoftState(leader, role)
        return self._soft

    def _remember(self, ready: Ready, log: RaftLog, term: int, campaign: int) -> None:
        tail = bool(log.unstable)
        self._handed_out.append(
            HandedOut(
                ready.number,
                term,
                log.last if tail else 0,
                log.last_term() if tail else 0,
                ready.snapshot.meta.index if ready.snapshot else 0,
                campaign,
            )
        )
        log.hand_out()

    def persisted(self, number: int) -> Iterator[HandedOut]:
        """What became durable with Ready `number`, in the order in which it was handed out."""
        assert number <= self.number, "a Ready that was never handed out"
        while self._handed_out and self._handed_out[0].number <= number:
            done = self._handed_out.popleft()
            self.durable_term = done.term
            yield done
