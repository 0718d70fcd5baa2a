"""Linearizable reads: a leader proves by a round of heartbeats that it still leads.

`ReadRounds` belongs to a tenure, `ForwardedReads` to a member that asks its leader. Rounds are
numbered by a counter of the tenure, never by what callers send. Reads of one turn share a round,
and a later round confirms all earlier ones. See "Reads" in docs/explanation-raft.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from cairn.raft.log import RaftLog
from cairn.raft.outbox import Outbox
from cairn.raft.types import Message, MsgKind, ReadState

MAX_FORWARDED = 10_000


@dataclass(slots=True)
class PendingRead:
    """A read that waits for the leader to be confirmed. `origin` is who asked."""

    token: bytes
    origin: int
    origin_seq: int = 0
    seq: int = 0  # the round that confirms it
    index: int = 0


def asked_by(message: Message) -> PendingRead:
    return PendingRead(message.context, message.from_, message.read_seq)


def read_answer(own_id: int, read: PendingRead, *, reject: bool) -> Message:
    return Message(
        MsgKind.READ_INDEX_RESP,
        own_id,
        read.origin,
        index=read.index,
        reject=reject,
        read_seq=read.origin_seq,
        context=read.token,
    )


class ReadRounds:
    """The reads that one leader has taken in. Its answers leave at once, as all its words do."""

    def __init__(self, own_id: int, log: RaftLog, outbox: Outbox) -> None:
        self.id, self.log, self.outbox = own_id, log, outbox
        self.seq = 0  # the last round that was begun
        self.wanted = False  # some pending read waits for the next round
        self.pending: deque[PendingRead] = deque()
        self.early: list[PendingRead] = []  # came before the first commit of this tenure

    def wait(self, read: PendingRead) -> None:
        self.early.append(read)

    def start(self, read: PendingRead) -> None:
        read.seq = self.seq + 1
        read.index = self.log.committed
        self.pending.append(read)
        self.wanted = True

    def start_early(self) -> None:
        reads, self.early = self.early, []
        for read in reads:
            self.start(read)

    def begin_round(self) -> None:
        self.wanted = False
        self.seq += 1

    def confirmed(self, round_: int) -> None:
        """A quorum has answered `round_`: answer the reads that it confirms."""
        round_ = min(round_, self.seq)
        while self.pending and self.pending[0].seq <= round_:
            read = self.pending.popleft()
            if read.origin == self.id:
                self.outbox.read_states.append(ReadState(read.index, read.token))
            else:
                self.outbox.now.append(read_answer(self.id, read, reject=False))

    def fail(self, read: PendingRead) -> None:
        if read.origin == self.id:
            self.outbox.failed_reads.append(read.token)
        else:
            self.outbox.now.append(read_answer(self.id, read, reject=True))

    def fail_all(self) -> None:
        """The tenure ends: none of its reads may be answered by a later one."""
        for read in (*self.early, *self.pending):
            self.fail(read)


class ForwardedReads:
    """Reads that this member has sent to its leader, by a number of our own."""

    def __init__(self, own_id: int, outbox: Outbox, first_seq: int) -> None:
        self.id, self.outbox = own_id, outbox
        self.seq = first_seq  # drawn by chance: an answer to an earlier life never fits
        self.tokens: dict[int, bytes] = {}

    def forward(self, token: bytes, leader: int) -> Message:
        self.seq += 1
        self.tokens[self.seq] = token
        if len(self.tokens) > MAX_FORWARDED:  # answers got lost: the oldest go
            self.outbox.failed_reads.append(self.tokens.pop(next(iter(self.tokens))))
        return Message(MsgKind.READ_INDEX, self.id, leader, read_seq=self.seq, context=token)

    def answered(self, message: Message) -> bool:
        """False if nobody waits for this answer."""
        token = self.tokens.pop(message.read_seq, None)
        if token is None:
            return False
        if message.reject:
            self.outbox.failed_reads.append(token)
        else:
            self.outbox.read_states.append(ReadState(message.index, token))
        return True

    def fail_all(self) -> None:
        self.outbox.failed_reads.extend(self.tokens.values())
        self.tokens.clear()
