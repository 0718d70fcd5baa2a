"""Copying a leader's log: who has what, what is sent next, and what a quorum has.

One object per tenure, so `term` never changes. A leader's words may leave before the sync: its term
is durable, and its own acknowledgement waits for its disk. See "Replication" in
docs/explanation-raft.md.
"""

from __future__ import annotations

from collections import Counter

from cairn.raft.log import RaftLog
from cairn.raft.outbox import Outbox
from cairn.raft.progress import Flow, Progress
from cairn.raft.quorum import Members, VoteResult
from cairn.raft.types import Config, Entry, LogCompacted, Message, MsgKind, SnapshotNotReady


class LogReplication:
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
        self.progress: dict[int, Progress] = {}  # of all members, ourselves included
        self.broadcast_pending = False
        self.follow_members()
        for progress in self.progress.values():
            progress.recent_active = False  # a new leader has heard nothing of the others yet
        own = self.progress[self.id]
        own.recent_active = True
        own.match = log.stable

    def follow_members(self) -> None:
        """The configuration changed. Progress of members that stay is kept."""
        known, self.progress = self.progress, {}
        for node in sorted(self.members.all):
            progress = known.get(node) or self.new_progress()
            progress.is_learner = not self.members.is_voter(node)
            self.progress[node] = progress

    def new_progress(self) -> Progress:
        progress = Progress(self.log.last + 1, self.config.max_inflight, is_learner=False)
        progress.recent_active = True  # just added: not the time to count it as lost
        return progress

    def peers(self) -> list[int]:
        return [node for node in self.progress if node != self.id]

    # --- sending

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
        self.outbox.now.append(message)
        return True

    def _entries_for(self, progress: Progress) -> list[Entry]:
        if progress.flow is Flow.REPLICATE and progress.window_full:
            return []  # an empty message may still go, or a lost window stalls for ever
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
        self.outbox.now.append(Message(MsgKind.SNAP, self.id, to, self.term, snapshot=snapshot))
        return True

    def broadcast_heartbeat(self, read_seq: int) -> None:
        for node in self.peers():
            commit = self.heartbeat_commit(node)
            self.outbox.now.append(
                Message(
                    MsgKind.HEARTBEAT, self.id, node, self.term, commit=commit, read_seq=read_seq
                )
            )

    def heartbeat_commit(self, to: int) -> int:
        """A heartbeat proves no log position: never past what the peer acknowledged."""
        return min(self.progress[to].match, self.log.committed)

    # --- hearing

    def acknowledged(self, message: Message) -> bool:
        """`message` tells what a follower has. True if that was news."""
        progress = self.progress[message.from_]
        progress.recent_active = True
        if message.reject:
            self._refused(message, progress)
            return False
        if message.index > self.log.last:
            # We never sent it: an instance under a raft id that was in use before.
            self.dropped["acknowledges more than was sent"] += 1
            return False
        return self._has(message, progress)

    def _refused(self, message: Message, progress: Progress) -> None:
        agree_at = message.reject_hint
        if message.reject_term > 0:  # skip whole terms that cannot agree
            agree_at = self.log.agree_at_best(agree_at, message.reject_term)[0]
        if progress.refused(message.index, agree_at):
            if progress.flow is Flow.REPLICATE:
                progress.become_probe()
            self.send_append(message.from_)
        else:
            self.dropped["stale refusal"] += 1

    def _has(self, message: Message, progress: Progress) -> bool:
        node, index = message.from_, message.index
        was_paused = progress.is_paused()
        news = progress.acknowledged(index)
        if not news and not (progress.flow is Flow.PROBE and progress.match == index):
            return False
        if progress.flow is Flow.REPLICATE:
            progress.free_inflight(index)
        elif progress.flow is Flow.PROBE or progress.match + 1 >= self.log.first_index():
            progress.become_replicate()  # also ends the wait for a snapshot
        elif progress.match >= progress.pending_snapshot:
            # The snapshot has arrived, but the log was cut past it meanwhile: it needs a newer one.
            progress.become_probe()
        # Only what is past the commit can move it: most answers come when a quorum has answered.
        if index > self.log.committed and self.advance_commit():
            self.broadcast_pending = True
        elif was_paused:
            self.send_append(node, only_if_news=True)
        self.fill_window(node)
        return True

    def heard(self, node: int) -> None:
        """`node` answered a heartbeat: it lives, so try again whatever it still lacks."""
        progress = self.progress[node]
        progress.recent_active = True
        progress.paused = False
        if progress.match < self.log.last or progress.flow is Flow.PROBE:
            self.send_append(node)

    def forgotten(self, message: Message) -> None:
        """A follower lacks what it acknowledged: its files are old ones. It begins anew.

        What was committed by its word stays so; who has it beside us decides whether it is safe.
        """
        self.dropped["acknowledged and forgotten"] += 1
        progress = self.progress[message.from_]
        progress.recent_active = True
        progress.begin_anew(min(message.reject_hint, self.log.last))
        self.send_append(message.from_)

    def report_unreachable(self, node: int) -> None:
        progress = self.progress.get(node)
        if progress is not None and progress.flow is Flow.REPLICATE:
            progress.become_probe()

    def report_snapshot(self, node: int, ok: bool) -> None:
        progress = self.progress.get(node)
        if progress is not None and progress.flow is Flow.SNAPSHOT:
            progress.snapshot_ended(ok)

    # --- counting

    def quorum_index(self) -> int:
        """What a quorum has durably; our own share counts when our disk said so."""
        acked = {node: progress.match for node, progress in self.progress.items()}
        return self.members.agreed(acked)

    def may_commit_by_counting(self, index: int) -> bool:
        """Entries of older terms are committed only along with one of ours. See "An old entry is
        not committed by counting" in docs/explanation-raft.md."""
        return self.log.has(index, self.term)

    def advance_commit(self) -> bool:
        index = self.quorum_index()
        if index <= self.log.committed or not self.may_commit_by_counting(index):
            return False
        self.log.commit_to(index)
        return True

    def acknowledge_own(self) -> None:
        """Our disk has the log up to `stable`: that is one acknowledgement."""
        own = self.progress.get(self.id)
        if own is not None and own.acknowledged(self.log.stable) and self.advance_commit():
            self.broadcast_pending = True

    def has_caught_up(self, node: int) -> bool:
        return self.progress[node].match == self.log.last

    def heard_a_quorum(self) -> bool:
        """Has a quorum spoken since this was asked last?"""
        active = {
            node: node == self.id or progress.recent_active
            for node, progress in self.progress.items()
        }
        if self.members.tally(active) is not VoteResult.WON:
            return False
        for node, progress in self.progress.items():
            progress.recent_active = node == self.id
        return True
