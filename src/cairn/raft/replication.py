"""Copying the leader's log: sending, acknowledging, committing, snapshots (brief 6 and 7)."""

from __future__ import annotations

from cairn.raft import quorum
from cairn.raft.progress import Flow, Progress
from cairn.raft.reads import Reads
from cairn.raft.types import (
    NO_NODE,
    Entry,
    LogCompacted,
    Message,
    MsgKind,
    Role,
    Snapshot,
    SnapshotNotReady,
)


class Replication(Reads):
    # --- the leader appends

    def append_own(self, payloads: list[bytes], kind: int) -> int:
        """New entries of this term; their first index. A leader never cuts its own log."""
        assert self.role is Role.LEADER
        term, first = self.term, self.log.last + 1
        entries = [Entry(term, first + place, kind, data) for place, data in enumerate(payloads)]
        self.log.append(entries)
        size = sum([len(data) for data in payloads])
        if size:
            self.uncommitted.append((self.log.last, size))
            self.uncommitted_bytes += size
        self.broadcast_pending = True
        return first

    def free_uncommitted(self) -> None:
        committed, queue = self.log.committed, self.uncommitted
        while queue and queue[0][0] <= committed:
            self.uncommitted_bytes -= queue.popleft()[1]

    def recount_uncommitted(self) -> None:
        """A new leader inherits a tail, which counts too (T#398)."""
        self.uncommitted.clear()
        for entry in self.log.slice(self.log.committed + 1, self.log.last + 1):
            if entry.data:
                self.uncommitted.append((entry.index, len(entry.data)))
        self.uncommitted_bytes = sum(size for _, size in self.uncommitted)

    # --- the leader sends

    def broadcast_append(self) -> None:
        self.broadcast_pending = False
        for node in self.peers():
            self.send_append(node, only_if_news=True)
            self.fill_window(node)

    def fill_window(self, to: int) -> None:
        """Send ahead without waiting for answers, as far as the window allows."""
        progress, last = self.progress[to], self.log.last
        while progress.flow is Flow.REPLICATE and progress.next <= last:
            if not self.send_append(to, only_if_news=True):
                break

    def send_append(self, to: int, *, only_if_news: bool = False) -> bool:
        """One message with what `to` lacks, within its window. True if something was sent."""
        progress = self.progress[to]
        if progress.is_paused():
            return False
        previous = progress.next - 1
        try:
            previous_term = self.log.term(previous)
            entries = self._entries_for(progress)
        except LogCompacted:
            return self.send_snapshot(to)
        if only_if_news and not entries and not self._commit_is_news(progress):
            return False
        committed = self.log.committed
        message = Message(
            MsgKind.APP, self.id, to, self.term, previous, previous_term, entries, committed
        )
        progress.sent(len(entries))
        progress.sent_commit = min(committed, previous + len(entries))
        self.send(message)
        return True

    def _entries_for(self, progress: Progress) -> list[Entry]:
        if progress.flow is Flow.REPLICATE and progress.window_full:
            return []  # an empty message may still go, or a lost window stalls for ever (E#14633)
        return self.log.slice(progress.next, self.log.last + 1, self.config.max_msg_bytes)

    def _commit_is_news(self, progress: Progress) -> bool:
        if progress.flow is Flow.PROBE:
            return True
        return progress.sent_commit < min(self.log.committed, progress.next - 1)

    def send_snapshot(self, to: int) -> bool:
        """`to` needs entries that are compacted: tell it where to fetch a snapshot."""
        progress = self.progress[to]
        if not progress.recent_active:
            return False
        try:
            snapshot = self.log.storage.snapshot()
        except SnapshotNotReady:
            return False  # tried again when a heartbeat is answered
        progress.become_snapshot(snapshot.meta.index)
        self.send(Message(MsgKind.SNAP, self.id, to, self.term, snapshot=snapshot))
        return True

    # --- the leader hears

    def handle_append_resp(self, message: Message) -> None:
        progress = self.progress[message.from_]
        progress.recent_active = True
        if message.reject:
            self._handle_refusal(message, progress)
        elif message.index > self.log.last:
            self.drop("acknowledges more than was sent")  # e.g. a reused raft id (P16)
        else:
            self._handle_ack(message, progress)

    def _handle_refusal(self, message: Message, progress: Progress) -> None:
        agree_at = message.reject_hint
        if message.reject_term > 0:  # skip whole terms that cannot agree (brief 6)
            agree_at = self.log.agree_at_best(agree_at, message.reject_term)[0]
        if progress.refused(message.index, agree_at):
            if progress.flow is Flow.REPLICATE:
                progress.become_probe()
            self.send_append(message.from_)
        else:
            self.drop("stale refusal")

    def _handle_ack(self, message: Message, progress: Progress) -> None:
        node, index = message.from_, message.index
        was_paused = progress.is_paused()
        news = progress.acknowledged(index)
        if not news and not (progress.flow is Flow.PROBE and progress.match == index):
            return
        if progress.flow is Flow.REPLICATE:
            progress.free_inflight(index)
        elif progress.flow is Flow.PROBE or progress.match + 1 >= self.log.first_index():
            progress.become_replicate()  # also ends the wait for a snapshot (P9)
        if self.advance_commit():
            self.broadcast_pending = True
        elif was_paused:
            self.send_append(node, only_if_news=True)
        self.fill_window(node)
        self.hand_over_if_caught_up(node)

    def handle_heartbeat_resp(self, message: Message) -> None:
        progress = self.progress[message.from_]
        progress.recent_active = True
        progress.paused = False
        if progress.match < self.log.last or progress.flow is Flow.PROBE:
            self.send_append(message.from_)
        if message.read_seq > self.read_seq:
            self.drop("answers a round that was never asked")
            return
        progress.read_acked = max(progress.read_acked, message.read_seq)
        self.answer_confirmed_reads()

    # --- committing

    def quorum_index(self) -> int:
        """What a quorum has durably; our own share counts when our disk said so (P2)."""
        acked = {node: progress.match for node, progress in self.progress.items()}
        return quorum.joint_committed_index(self.voters, self.outgoing, acked)

    def may_commit_by_counting(self, index: int) -> bool:
        """Entries of older terms are committed only along with one of ours (paper 5.4.2, P12)."""
        return self.log.has(index, self.term)

    def advance_commit(self) -> bool:
        index = self.quorum_index()
        if index <= self.log.committed or not self.may_commit_by_counting(index):
            return False
        self.log.commit_to(index)
        self.free_uncommitted()
        self.release_early_reads()
        return True

    def acknowledge_own(self) -> None:
        """Our disk has the log up to `stable`: count it as one acknowledgement (brief 4)."""
        own = self.progress.get(self.id)
        if own is not None and own.acknowledged(self.log.stable) and self.advance_commit():
            self.broadcast_pending = True

    # --- leadership transfer, as far as it waits for replication (brief 9)

    def hand_over_if_caught_up(self, node: int) -> None:
        if node != self.transferee or self.timeout_now_sent:
            return
        if self.progress[node].match == self.log.last:
            self.timeout_now_sent = True
            self.send(Message(MsgKind.TIMEOUT_NOW, self.id, node, self.term))

    # --- the follower hears

    def handle_append(self, message: Message) -> None:
        if message.entries and message.entries[0].index != message.index + 1:
            self.drop("entries do not follow their index")
            return
        if message.index < self.log.committed:
            self.answer_append(message.from_, self.log.committed)
            return
        last_new = self.log.try_append(
            message.index, message.log_term, message.commit, message.entries
        )
        if last_new is not None:
            self.answer_append(message.from_, last_new)
            return
        hint, hint_term = self.log.agree_at_best(message.index, message.log_term)
        self.send(
            Message(
                MsgKind.APP_RESP,
                self.id,
                message.from_,
                self.term,
                message.index,
                reject=True,
                reject_hint=hint,
                reject_term=hint_term,
            )
        )

    def answer_append(self, to: int, index: int) -> None:
        self.send(Message(MsgKind.APP_RESP, self.id, to, self.term, index))

    def handle_heartbeat(self, message: Message) -> None:
        self.log.commit_to(message.commit)  # raises if we lack what we acknowledged (brief 13)
        self.send(
            Message(
                MsgKind.HEARTBEAT_RESP,
                self.id,
                message.from_,
                self.term,
                read_seq=message.read_seq,
            )
        )

    def handle_snapshot(self, message: Message) -> None:
        assert message.snapshot is not None
        if self.log.applying > self.log.applied:
            # Applies in flight must not land on top of it (E#11510); the leader will ask again.
            self.drop("snapshot while applying")
        elif self.restore(message.snapshot):
            self.answer_append(message.from_, self.log.last)
        else:
            self.answer_append(message.from_, self.log.committed)

    def restore(self, snapshot: Snapshot) -> bool:
        """Replace log and configuration, unless we have what it holds (brief 7)."""
        meta = snapshot.meta
        if meta.index <= self.log.committed:
            return False
        if self.log.has(meta.index, meta.term):
            self.log.commit_to(meta.index)
            return False
        self.log.restore(snapshot)
        self.restore_conf(snapshot)
        self.trace(f"{self.id} restores a snapshot at {meta.index}")
        return True

    def restore_conf(self, snapshot: Snapshot) -> None:
        """The whole configuration as of the snapshot, joint halves included (P10)."""
        self.set_conf(snapshot.meta.conf)

    # --- what the driver learns about peers

    def report_unreachable(self, node: int) -> None:
        """Messages to `node` may be lost: go back to asking before sending more."""
        progress = self.progress.get(node)
        if self.role is Role.LEADER and progress is not None and progress.flow is Flow.REPLICATE:
            progress.become_probe()

    def report_snapshot(self, node: int, ok: bool) -> None:
        """The transfer of a snapshot to `node` ended; must be told in every case (P9)."""
        progress = self.progress.get(node)
        if self.role is Role.LEADER and progress is not None and progress.flow is Flow.SNAPSHOT:
            progress.snapshot_ended(ok)

    def abort_transfer(self) -> None:
        self.transferee, self.timeout_now_sent = NO_NODE, False
