"""A follower's side of the log: what a leader of our term sends is taken in and answered.

The answers say what is in the log. They leave after the disk has it: that is the outbox's part.
"""

from __future__ import annotations

from collections import Counter

from cairn.raft.log import RaftLog
from cairn.raft.quorum import Members
from cairn.raft.types import Message, MsgKind, Snapshot


class Follower:
    def __init__(self, own_id: int, log: RaftLog, members: Members, dropped: Counter[str]) -> None:
        self.id, self.log, self.members, self.dropped = own_id, log, members, dropped

    def hear(self, message: Message) -> Message | None:
        """The answer to an append, a heartbeat or a snapshot; None if there is none to give."""
        if message.kind is MsgKind.APP:
            return self.append(message)
        if message.kind is MsgKind.HEARTBEAT:
            return self.heartbeat(message)
        return self.snapshot(message)

    def append(self, message: Message) -> Message | None:
        log = self.log
        if message.entries and message.entries[0].index != message.index + 1:
            self.dropped["entries do not follow their index"] += 1
            return None
        if message.index < log.committed:
            log.check_same(message.index, message.log_term, message.entries)
            return self.has(message, log.committed)
        last_new = log.try_append(message.index, message.log_term, message.commit, message.entries)
        if last_new is not None:
            return self.has(message, last_new)
        hint, hint_term = log.agree_at_best(message.index, message.log_term)
        return Message(
            MsgKind.APP_RESP,
            self.id,
            message.from_,
            message.term,
            message.index,
            reject=True,
            reject_hint=hint,
            reject_term=hint_term,
        )

    def has(self, message: Message, index: int) -> Message:
        return Message(MsgKind.APP_RESP, self.id, message.from_, message.term, index)

    def heartbeat(self, message: Message) -> Message:
        """The leader counts on what we acknowledged. If our files are older, it must hear of it."""
        if message.commit > self.log.last:
            return self.forgot(message)
        self.log.commit_to(message.commit)
        return Message(
            MsgKind.HEARTBEAT_RESP,
            self.id,
            message.from_,
            message.term,
            read_seq=message.read_seq,
        )

    def forgot(self, message: Message) -> Message:
        self.dropped["acknowledged and forgotten"] += 1
        self.log.owe(message.term, message.commit)
        return Message(
            MsgKind.HEARTBEAT_RESP,
            self.id,
            message.from_,
            message.term,
            reject=True,
            reject_hint=self.log.last,
        )

    def snapshot(self, message: Message) -> Message | None:
        assert message.snapshot is not None
        if self.log.applying > self.log.applied:
            # Entries in flight would land on top of it. The leader will try again.
            self.dropped["snapshot while applying"] += 1
            return None
        if self.restore(message.snapshot):
            return self.has(message, self.log.last)
        return self.has(message, self.log.committed)

    def restore(self, snapshot: Snapshot) -> bool:
        """Replace log and configuration, unless we have what it holds."""
        meta = snapshot.meta
        if meta.index <= self.log.committed:
            return False
        if self.log.has(meta.index, meta.term):
            self.log.commit_to(meta.index)
            return False
        self.log.restore(snapshot)
        self.restore_conf(snapshot)
        return True

    def restore_conf(self, snapshot: Snapshot) -> None:
        """The whole configuration as of the snapshot, both halves if it is joint."""
        self.members.change(snapshot.meta.conf)
