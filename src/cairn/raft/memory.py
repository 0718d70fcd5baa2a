"""A storage in memory, for tests, the simulator and benchmarks."""

from __future__ import annotations

from cairn.raft.types import (
    ConfState,
    Entry,
    HardState,
    LogCompacted,
    LogUnavailable,
    Snapshot,
    SnapshotMeta,
    SnapshotNotReady,
)


def limit_bytes(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """The longest prefix within `max_bytes` of data, but at least one entry."""
    if sum([len(entry.data) for entry in entries]) <= max_bytes:
        return entries
    total = 0
    for count, entry in enumerate(entries):
        total += len(entry.data)
        if total > max_bytes and count:
            return entries[:count]
    return entries


class MemoryStorage:
    """`raft.types.Storage` plus what a driver needs to write."""

    def __init__(self, conf: ConfState | None = None) -> None:
        self.hard_state = HardState()
        self.conf = conf or ConfState()  # as of the applied index
        self.snap = Snapshot(SnapshotMeta(0, 0, self.conf))
        self.compacted_index = 0
        self.compacted_term = 0
        self.log: list[Entry] = []  # entries after compacted_index

    # --- Storage

    def initial_state(self) -> tuple[HardState, ConfState]:
        return self.hard_state, self.conf

    def first_index(self) -> int:
        return self.compacted_index + 1

    def last_index(self) -> int:
        return self.compacted_index + len(self.log)

    def term(self, index: int) -> int:
        position = index - self.compacted_index
        if position == 0:
            return self.compacted_term
        if position < 0:
            raise LogCompacted(index)
        if position > len(self.log):
            raise LogUnavailable(index)
        return self.log[position - 1].term

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        start = low - self.compacted_index - 1
        if start < 0:
            raise LogCompacted(low)
        if high - 1 > self.last_index():
            raise LogUnavailable(high - 1)
        return limit_bytes(self.log[start : high - self.compacted_index - 1], max_bytes)

    def snapshot(self) -> Snapshot:
        if self.snap.meta.index == 0:
            raise SnapshotNotReady
        return self.snap

    # --- the driver's side

    def append(self, entries: list[Entry]) -> None:
        """Add `entries`, dropping whatever they replace."""
        if not entries:
            return
        start = entries[0].index - self.compacted_index - 1
        if start < 0:
            raise LogCompacted(entries[0].index)
        if start > len(self.log):
            raise LogUnavailable(entries[0].index)
        del self.log[start:]
        self.log.extend(entries)

    def install_snapshot(self, snapshot: Snapshot) -> None:
        """Replace log and configuration by `snapshot`."""
        self.snap = snapshot
        self.conf = snapshot.meta.conf
        self.compacted_index = snapshot.meta.index
        self.compacted_term = snapshot.meta.term
        self.log = []

    def compact(self, index: int) -> None:
        """Drop entries up to `index`, which a snapshot covers."""
        assert index <= self.snap.meta.index, "only what a snapshot covers may go"
        if index <= self.compacted_index:
            return
        term = self.term(index)
        del self.log[: index - self.compacted_index]
        self.compacted_index, self.compacted_term = index, term
