"""The log as the core sees it: what is durable, what is handed to the disk, what is newer.

`storage` holds the stable part; `unstable` the tail from `offset` on, of which entries below
`in_progress` have been handed out in a Ready. Always applied <= applying <= committed <= last, and
nothing is handed out for apply before it is durable here.
"""

from __future__ import annotations

from cairn.raft.memory import limit_bytes
from cairn.raft.types import (
    NO_LIMIT,
    Entry,
    EntryType,
    LogCompacted,
    LogUnavailable,
    RaftCorruption,
    Snapshot,
    Storage,
)


class RaftLog:
    def __init__(self, storage: Storage, *, commit: int, applied: int) -> None:
        first, last = storage.first_index(), storage.last_index()
        if applied < first - 1:
            raise RaftCorruption(f"applied {applied} is older than the log's first entry {first}")
        if max(commit, applied) > last:
            raise RaftCorruption(
                f"commit {commit} or applied {applied} is past the log's last entry {last}"
            )
        self.storage = storage
        self.unstable: list[Entry] = []
        self.offset = last + 1
        self.in_progress = last + 1
        self.snapshot: Snapshot | None = None  # received, not yet durable
        self.snapshot_in_progress = False
        self.last = last
        # The stored commit may lag: it is not synced by itself.
        self.committed = max(commit, first - 1, applied)
        self.applied = self.applying = applied
        self.applying_bytes = 0
        self.owed = (0, 0)  # (term, index) that we acknowledged and do not have; see `owe`

    # --- reading

    def first_index(self) -> int:
        return self.snapshot.meta.index + 1 if self.snapshot else self.storage.first_index()

    @property
    def stable(self) -> int:
        """The last entry known to be durable here, unless a snapshot is on its way to the disk."""
        return self.offset - 1

    def term(self, index: int) -> int:
        if index >= self.offset:
            if index > self.last:
                raise LogUnavailable(index)
            return self.unstable[index - self.offset].term
        if self.snapshot is not None:
            if index == self.snapshot.meta.index:
                return self.snapshot.meta.term
            raise LogCompacted(index)
        return self.storage.term(index)

    def last_term(self) -> int:
        return self.term(self.last)

    def has(self, index: int, term: int) -> bool:
        """Is the entry `index` here, and of `term`?"""
        try:
            return self.term(index) == term
        except (LogCompacted, LogUnavailable):
            return False

    def slice(self, low: int, high: int, max_bytes: int = NO_LIMIT) -> list[Entry]:
        """Entries of [low, high), cut after `max_bytes` but never empty unless the range is."""
        if low >= high:
            return []
        if low >= self.offset:
            return limit_bytes(self.unstable[low - self.offset : high - self.offset], max_bytes)
        if self.snapshot is not None:
            raise LogCompacted(low)
        stable_high = min(high, self.offset)
        entries = self.storage.entries(low, stable_high, max_bytes)
        if high > self.offset and len(entries) == stable_high - low:
            entries = limit_bytes(entries + self.unstable[: high - self.offset], max_bytes)
        return entries

    def is_up_to_date(self, index: int, term: int) -> bool:
        """Is a log that ends with (index, term) at least as new as ours?"""
        return (term, index) >= max((self.last_term(), self.last), self.owed)

    def owe(self, term: int, index: int) -> None:
        """A leader of `term` has our word for `index`, which is not in this log: our files are
        older than that word. Until we have it again nobody may win by our forgetting."""
        self.owed = max(self.owed, (term, index))

    def is_short(self) -> bool:
        return self.owed > (self.last_term(), self.last)

    def has_unapplied_conf_change(self) -> bool:
        low = max(self.applied + 1, self.first_index())
        entries = self.slice(low, self.committed + 1)
        return any(entry.type == EntryType.CONF_CHANGE for entry in entries)

    def agree_at_best(self, index: int, term: int) -> tuple[int, int]:
        """The largest (i, t) here with i <= index and t <= term: where logs may agree."""
        index = min(index, self.last)
        while index > 0:
            try:
                ours = self.term(index)
            except LogCompacted:
                return index, 0
            if ours <= term:
                return index, ours
            index -= 1
        return 0, 0

    # --- appending

    def append(self, entries: list[Entry]) -> None:
        """Add `entries` at the end, or in place of an uncommitted suffix."""
        if not entries:
            return
        start = entries[0].index
        if start <= self.committed:
            raise RaftCorruption(f"entry {start} would replace a committed one ({self.committed})")
        if start <= self.last:
            self._truncate(start)
        self.unstable.extend(entries)
        self.last = entries[-1].index

    def _truncate(self, start: int) -> None:
        """Forget [start, last]. The disk forgets it with the record that replaces it."""
        if start <= self.offset:
            self.unstable = []
            self.offset = start
        else:
            del self.unstable[start - self.offset :]
        self.in_progress = min(self.in_progress, start)
        self.last = start - 1

    def first_conflict(self, entries: list[Entry]) -> int:
        """Position in `entries` of the first that we lack or have otherwise; its length if none.

        A shorter message is no conflict: an older one may come late, and what follows it
        may be acknowledged already.
        """
        if entries and entries[0].index > self.last:
            return 0
        for position, entry in enumerate(entries):
            if not self.has(entry.index, entry.term):
                return position
        return len(entries)

    def try_append(self, index: int, term: int, commit: int, entries: list[Entry]) -> int | None:
        """The leader's entries after (index, term); the last of them, or None if we lack that."""
        if not self.has(index, term):
            return None
        last_new = index + len(entries)
        self.append(entries[self.first_conflict(entries) :])
        self.commit_to(self.commit_limit(commit, last_new))
        return last_new

    def commit_limit(self, commit: int, last_new: int) -> int:
        """Only what this message proved to match is committed, not our own tail."""
        return min(commit, last_new)

    def check_same(self, index: int, term: int, entries: list[Entry]) -> None:
        """Raises RaftCorruption if something that is committed here is another one at a leader.

        It was committed without the leader's voters: by files that were put back to a time when
        fewer had a vote. To say that we have it would make two histories of one.
        """
        low = self.first_index() - 1
        for at, told in ((index, term), *((entry.index, entry.term) for entry in entries)):
            if low <= at <= self.committed and self.term(at) != told:
                raise RaftCorruption(
                    f"entry {at} was committed here in term {self.term(at)} and by the cluster in "
                    f"term {told}: this instance was started with old files and went on alone; "
                    "expel it and start it with an empty directory"
                )

    def commit_to(self, index: int) -> None:
        if index <= self.committed:
            return
        if index > self.last:
            raise RaftCorruption(f"commit {index} is past the last entry {self.last}: lost writes?")
        self.committed = index

    def restore(self, snapshot: Snapshot) -> None:
        """`snapshot` replaces the whole log."""
        assert snapshot.meta.index > self.committed
        self.snapshot, self.snapshot_in_progress = snapshot, False
        self.unstable = []
        self.last = self.committed = snapshot.meta.index
        self.offset = self.in_progress = self.last + 1

    # --- handing to the disk

    def has_work(self, max_apply_bytes: int) -> bool:
        """Is there anything to hand to the disk or to the state machine?"""
        return (
            self.in_progress <= self.last
            or self.has_applicable(max_apply_bytes)
            or (self.snapshot is not None and not self.snapshot_in_progress)
        )

    def unwritten(self) -> list[Entry]:
        return self.unstable[self.in_progress - self.offset :]

    def unwritten_snapshot(self) -> Snapshot | None:
        return None if self.snapshot_in_progress else self.snapshot

    def hand_out(self) -> None:
        self.in_progress = self.last + 1
        self.snapshot_in_progress = self.snapshot is not None

    def stabilised(self, index: int, term: int) -> None:
        """The disk has everything up to (index, term), if that is still our tail."""
        if index < self.offset or index > self.last or self.term(index) != term:
            return  # cut meanwhile; the record that replaced it will be told by itself
        del self.unstable[: index + 1 - self.offset]
        self.offset = index + 1
        self.in_progress = max(self.in_progress, self.offset)

    def snapshot_stabilised(self, index: int) -> None:
        if self.snapshot is not None and self.snapshot.meta.index == index:
            self.snapshot, self.snapshot_in_progress = None, False
            self.applied = self.applying = max(self.applied, index)
            self.applying_bytes = 0

    # --- handing to the state machine

    def applicable_to(self) -> int:
        """The last entry that may be applied now: committed, and durable here."""
        if self.snapshot is not None:
            return self.applying
        return self.committed if self.committed < self.offset else self.offset - 1

    def has_applicable(self, max_bytes: int) -> bool:
        return self.applying < self.applicable_to() and self.applying_bytes < max_bytes

    def take_applicable(self, max_bytes: int) -> list[Entry]:
        if not self.has_applicable(max_bytes):
            return []
        low = self.applying + 1
        entries = self.slice(low, self.applicable_to() + 1, max_bytes - self.applying_bytes)
        self.applying = entries[-1].index
        self.applying_bytes += sum([len(entry.data) for entry in entries])
        return entries

    def applied_to(self, index: int) -> None:
        assert index <= self.applying, f"applied {index}, but only {self.applying} was handed out"
        if index > self.applied:
            self.applied = index
            if index == self.applying:
                self.applying_bytes = 0
