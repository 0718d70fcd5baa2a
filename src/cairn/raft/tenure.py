"""What a member has and does while it leads: proposals, changes of members, hand-over, reads.

Made when an election is won and thrown away when leadership ends, so nothing of one tenure can be
carried into the next: no counter, no read, no progress. It decides; roles change in the core.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import msgspec

from cairn.raft import confchange
from cairn.raft.log import RaftLog
from cairn.raft.outbox import Outbox
from cairn.raft.quorum import Members, VoteResult, vote_result
from cairn.raft.reads import PendingRead, ReadRounds
from cairn.raft.replication import LogReplication
from cairn.raft.types import (
    NO_NODE,
    ConfChangeV2,
    Config,
    ConfState,
    Entry,
    EntryType,
    Message,
    MsgKind,
    ProposalDropped,
    Status,
)

UNPROVEN = "unproven"  # the reason of a refusal that may be over with the next answer


@dataclass(frozen=True, slots=True)
class Proof:
    """A round of heartbeats that was begun for one change of voters."""

    change: ConfChangeV2
    round: int
    tick: int  # of the tenure, when it began

    def may_serve(self, change: ConfChangeV2, oldest: int) -> bool:
        return self.change == change and self.tick >= oldest


class Tenure:
    def __init__(
        self,
        config: Config,
        term: int,
        log: RaftLog,
        members: Members,
        outbox: Outbox,
        dropped: Counter[str],
    ) -> None:
        self.config, self.id, self.term = config, config.id, term
        self.log, self.members, self.outbox, self.dropped = log, members, outbox, dropped
        self.replication = LogReplication(config, term, log, members, outbox, dropped)
        self.reads = ReadRounds(self.id, log, outbox)
        self.heartbeat_elapsed = 0
        self.ticks = 0
        self.proof: Proof | None = None  # that those who shall vote are there
        self.transferee = NO_NODE  # who is to lead next
        self.timeout_now_sent = False
        # Any conf change in the inherited tail may be unapplied: be careful up to its end.
        self.pending_conf_index = log.last
        self.uncommitted: deque[tuple[int, int]] = deque()  # (last index, bytes) of each proposal
        self.uncommitted_bytes = 0
        self._count_inherited()
        self.append_own([b""], EntryType.NORMAL)

    def tick(self) -> None:
        self.ticks += 1
        self.heartbeat_elapsed += 1
        if self.heartbeat_elapsed >= self.config.heartbeat_tick:
            self.heartbeat_elapsed = 0
            self.replication.broadcast_heartbeat(self.reads.seq)
            self.leave_joint_if_due()

    def has_news(self) -> bool:
        return self.replication.broadcast_pending or self.reads.wanted

    def before_ready(self) -> None:
        """Everything that was gathered since the last Ready goes out in as few messages as can."""
        if self.replication.broadcast_pending:
            self.replication.broadcast_append()
        if self.reads.wanted:
            self.begin_read_round()

    # --- proposals

    def propose(self, payloads: list[bytes]) -> int:
        self._check_may_propose()
        if self.exceeds_uncommitted(sum([len(data) for data in payloads])):
            raise ProposalDropped("backpressure", f"{self.uncommitted_bytes} bytes uncommitted")
        return self.append_own(payloads, EntryType.NORMAL)

    def _check_may_propose(self) -> None:
        if self.id not in self.members.all:
            raise ProposalDropped("removed")
        if self.transferee != NO_NODE:
            raise ProposalDropped("transfer", f"leadership is going to {self.transferee}")

    def append_own(self, payloads: list[bytes], kind: int) -> int:
        """New entries of this term; their first index. A leader never cuts its own log."""
        term, first = self.term, self.log.last + 1
        entries = [Entry(term, first + place, kind, data) for place, data in enumerate(payloads)]
        self.log.append(entries)
        size = sum([len(data) for data in payloads])
        if size:
            self.uncommitted.append((self.log.last, size))
            self.uncommitted_bytes += size
        self.replication.broadcast_pending = True
        return first

    def exceeds_uncommitted(self, size: int) -> bool:
        """A lost quorum must not fill memory; one large proposal is still admitted."""
        held = self.uncommitted_bytes
        return size > 0 and held > 0 and held + size > self.config.max_uncommitted_bytes

    def _count_inherited(self) -> None:
        """A new leader inherits a tail, which fills memory too."""
        for entry in self.log.slice(self.log.committed + 1, self.log.last + 1):
            if entry.data:
                self.uncommitted.append((entry.index, len(entry.data)))
        self.uncommitted_bytes = sum(size for _, size in self.uncommitted)

    # --- answers of followers, and of our own disk

    def hear(self, message: Message) -> None:
        if message.kind is MsgKind.HEARTBEAT_RESP:
            self._hear_heartbeat_resp(message)
        elif self.replication.acknowledged(message):
            self._commit_may_have_moved()
            self.hand_over_if_caught_up(message.from_)

    def _hear_heartbeat_resp(self, message: Message) -> None:
        if message.reject:
            self.replication.forgotten(message)
            return
        self.replication.heard(message.from_)
        if message.read_seq > self.reads.seq:
            self.dropped["answers a round that was never asked"] += 1
            return
        progress = self.replication.progress[message.from_]
        progress.read_acked = max(progress.read_acked, message.read_seq)
        self.answer_confirmed_reads()

    def acknowledge_own(self) -> None:
        self.replication.acknowledge_own()
        self._commit_may_have_moved()

    def _commit_may_have_moved(self) -> None:
        committed, queue = self.log.committed, self.uncommitted
        while queue and queue[0][0] <= committed:
            self.uncommitted_bytes -= queue.popleft()[1]
        if self.reads.early and self.may_serve_reads():
            self.reads.start_early()

    # --- configuration

    def propose_conf_change(self, change: ConfChangeV2) -> int:
        self._check_may_propose()
        if self.conf_change_pending():
            raise ProposalDropped("conf change pending", f"entry {self.pending_conf_index}")
        if confchange.is_joint(self.members.conf) and not confchange.wants_leave(change):
            raise ProposalDropped("joint", "only leaving the joint configuration is possible")
        try:
            conf = confchange.change_conf(self.members.conf, change)
        except confchange.ConfChangeRefused as refusal:
            raise ProposalDropped("conf change refused", refusal.reason) from None
        if frozenset(conf.voters) != self.members.voters:
            self._check_proven(change, conf)
        self.proof = None
        self.pending_conf_index = self.append_own([change.encode()], EntryType.CONF_CHANGE)
        return self.pending_conf_index

    def _check_proven(self, change: ConfChangeV2, conf: ConfState) -> None:
        """Those who shall vote answered a round that began after the change was asked for.

        Else a voter that died a moment ago is counted on, and nobody can decide anything any more.
        Whoever is refused asks again: the first time only begins the round.
        """
        if self.proof is None or not self.proof.may_serve(change, self.ticks - self._proof_ticks()):
            self.proof = Proof(change, self.reads.seq + 1, self.ticks)
        answered = {
            node: node == self.id or progress.read_acked >= self.proof.round
            for node, progress in self.replication.progress.items()
        }
        if not self.is_proven(conf, answered):
            self.reads.wanted |= self.reads.seq < self.proof.round
            missing = ", ".join(str(node) for node in conf.voters if not answered.get(node))
            raise ProposalDropped(UNPROVEN, f"no answer yet from {missing}")

    def is_proven(self, conf: ConfState, answered: dict[int, bool]) -> bool:
        return vote_result(conf.voters, answered) is VoteResult.WON

    def _proof_ticks(self) -> int:
        """How long a round speaks for its members: who takes longer to answer cannot follow."""
        return self.config.election_tick

    def unanswered(self) -> frozenset[int]:
        """Members that let two heartbeats pass since a change of voters asked for their answer."""
        proof = self.proof
        if proof is None or self.ticks < proof.tick + 2 * self.config.heartbeat_tick:
            return frozenset()
        return frozenset(
            node
            for node, progress in self.replication.progress.items()
            if node != self.id and progress.read_acked < proof.round
        )

    def conf_change_pending(self) -> bool:
        """One change at a time: is one in the log that is not applied yet?"""
        return self.pending_conf_index > self.log.applied

    def change_conf(self, conf: ConfState) -> bool:
        """`conf` is in force now. False if leadership ends with it."""
        self.members.change(conf)
        self.replication.follow_members()
        if not self.members.is_voter(self.transferee):
            self.abort_transfer()
        self.replication.advance_commit()  # a smaller quorum may agree already
        self._commit_may_have_moved()
        if self.must_step_down():
            self.replication.broadcast_append()  # the last thing it says: what is committed
            return False
        self.replication.broadcast_pending = True
        self.answer_confirmed_reads()
        return True

    def must_step_down(self) -> bool:
        """Removed or demoted leaders go, or the group waits for one that may not count itself."""
        return not self.members.is_voter(self.id)

    def leave_joint_if_due(self) -> None:
        """The entering change is applied: propose to leave. A new leader does it as well."""
        if not self.members.conf.auto_leave or self.conf_change_pending():
            return
        if self.transferee == NO_NODE:  # else tried again with the next heartbeat
            self.propose_conf_change(ConfChangeV2())

    # --- leadership transfer

    def transfer_to(self, to: int) -> bool:
        """Hand leadership to the voter `to`. False if nothing new begins."""
        if to == self.id or not self.may_receive_leadership(to):
            self.dropped["transfer to a non-voter"] += 1
            return False
        if to == self.transferee:
            return False
        self.abort_transfer()
        self.transferee = to
        self.hand_over_if_caught_up(to)
        if not self.timeout_now_sent:
            self.replication.broadcast_pending = True
        return True

    def may_receive_leadership(self, node: int) -> bool:
        return node in self.members.voters

    def hand_over_if_caught_up(self, node: int) -> None:
        if node != self.transferee or self.timeout_now_sent:
            return
        if self.replication.has_caught_up(node):
            self.timeout_now_sent = True
            self.outbox.now.append(Message(MsgKind.TIMEOUT_NOW, self.id, node, self.term))

    def abort_transfer(self) -> None:
        self.transferee, self.timeout_now_sent = NO_NODE, False

    # --- reads

    def admit_read(self, read: PendingRead) -> None:
        if self.transferee != NO_NODE:
            self.reads.fail(read)  # another leader may commit before this read is answered
        elif not self.may_serve_reads():
            self.reads.wait(read)
        else:
            self.reads.start(read)

    def may_serve_reads(self) -> bool:
        """Until it commits in its term, a leader may not know the latest commit."""
        return self.log.has(self.log.committed, self.term)

    def begin_read_round(self) -> None:
        """Once per Ready: all reads since the last round ride on this one."""
        self.reads.begin_round()
        self.replication.broadcast_heartbeat(self.reads.seq)
        self.answer_confirmed_reads()  # alone in the quorum: confirmed already

    def confirmed_round(self) -> int:
        """The last round that a quorum, of both halves if joint, has answered."""
        acked = {node: known.read_acked for node, known in self.replication.progress.items()}
        acked[self.id] = self.reads.seq
        return self.members.agreed(acked)

    def answer_confirmed_reads(self) -> None:
        if self.reads.pending:
            self.reads.confirmed(self.confirmed_round())

    def tell(self, status: Status) -> Status:
        """`status` with what only a leader knows."""
        return msgspec.structs.replace(
            status,
            pending_conf_index=self.pending_conf_index,
            transferee=self.transferee,
            uncommitted_bytes=self.uncommitted_bytes,
            progress={n: known.status() for n, known in self.replication.progress.items()},
        )
