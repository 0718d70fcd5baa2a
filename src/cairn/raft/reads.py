"""Linearizable reads: the leader proves by a round of heartbeats that it still leads (brief 10).

Rounds are numbered by a counter of the leader's tenure, never by what callers send (P8). Many
reads of one turn share a round; a later round confirms all earlier ones.
"""

from __future__ import annotations

from cairn.raft import quorum
from cairn.raft.state import MemberState, PendingRead
from cairn.raft.types import NO_NODE, Message, MsgKind, ReadState, Role

MAX_FORWARDED = 10_000


class Reads(MemberState):
    def read_index(self, token: bytes) -> None:
        """Ask for a position to read at. The answer is a ReadState, or `token` in failed_reads."""
        read = PendingRead(0, 0, token, self.id, 0)
        if self.role is Role.LEADER:
            self.admit_read(read)
        elif self.leader == NO_NODE:
            self.failed_reads.append(token)
        else:
            self._forward_read(token)

    def _forward_read(self, token: bytes) -> None:
        self.forward_seq += 1
        self.forwarded_reads[self.forward_seq] = token
        if len(self.forwarded_reads) > MAX_FORWARDED:  # answers got lost: the oldest go
            self.failed_reads.append(self.forwarded_reads.pop(next(iter(self.forwarded_reads))))
        self.send(
            Message(
                MsgKind.READ_INDEX,
                self.id,
                self.leader,
                read_seq=self.forward_seq,
                context=token,
            )
        )

    def admit_read(self, read: PendingRead) -> None:
        if self.transferee != NO_NODE:
            self.fail_read(read)  # leadership is on its way out (P18)
        elif not self.may_serve_reads():
            self.early_reads.append(read)
        else:
            self.start_read(read)

    def may_serve_reads(self) -> bool:
        """Until it commits in its term, a leader may not know the latest commit (P8)."""
        return self.committed_in_term()

    def start_read(self, read: PendingRead) -> None:
        read.seq = self.read_seq + 1
        read.index = self.log.committed
        self.pending_reads.append(read)
        self.reads_to_confirm = True

    def release_early_reads(self) -> None:
        if self.early_reads and self.may_serve_reads():
            reads, self.early_reads = self.early_reads, []
            for read in reads:
                self.start_read(read)

    def begin_read_round(self) -> None:
        """Called once per Ready: all reads since the last round ride on the next one."""
        if not self.reads_to_confirm:
            return
        self.reads_to_confirm = False
        self.read_seq += 1
        self.broadcast_heartbeat()
        self.answer_confirmed_reads()  # alone in the quorum: confirmed already

    def confirmed_round(self) -> int:
        """The last round that a quorum, of both halves if joint, has answered."""
        acked = {node: progress.read_acked for node, progress in self.progress.items()}
        acked[self.id] = self.read_seq
        return quorum.joint_committed_index(self.voters, self.outgoing, acked)

    def answer_confirmed_reads(self) -> None:
        if not self.pending_reads:
            return
        confirmed = min(self.confirmed_round(), self.read_seq)
        while self.pending_reads and self.pending_reads[0].seq <= confirmed:
            read = self.pending_reads.popleft()
            if read.origin == self.id:
                self.read_states.append(ReadState(read.index, read.token))
            else:
                self.send(self.read_answer(read, reject=False))

    # --- heartbeats

    def broadcast_heartbeat(self) -> None:
        for node in self.peers():
            self.send_heartbeat(node)

    def send_heartbeat(self, to: int) -> None:
        self.send(
            Message(
                MsgKind.HEARTBEAT,
                self.id,
                to,
                self.term,
                commit=self.heartbeat_commit(to),
                read_seq=self.read_seq,
            )
        )

    def heartbeat_commit(self, to: int) -> int:
        """A heartbeat proves no log position: never past what the peer acknowledged (brief 3)."""
        return min(self.progress[to].match, self.log.committed)

    # --- reads of peers

    def handle_read_index(self, message: Message) -> None:
        read = PendingRead(0, 0, message.context, message.from_, message.read_seq)
        if message.from_ not in self.progress:
            self.drop("unknown peer")
        elif self.role is Role.LEADER:
            self.admit_read(read)
        else:
            self.fail_read(read)

    def handle_read_index_resp(self, message: Message) -> None:
        token = self.forwarded_reads.pop(message.read_seq, None)
        if token is None:
            self.drop("unknown read")
        elif message.reject:
            self.failed_reads.append(token)
        else:
            self.read_states.append(ReadState(message.index, token))
