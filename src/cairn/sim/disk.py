"""A simulated disk: what is durable, what is only written, and what a crash leaves of it.

Writes are records of a log file: atomic, in order, durable with the next sync that started after
them. A crash keeps what was synced and perhaps a prefix of the rest; a torn record is no record.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

from cairn.raft.memory import MemoryStorage
from cairn.raft.types import ConfState, Entry, HardState, Message, Snapshot

State = tuple[int, ...]  # the state machine: the values of a few registers


@dataclass(slots=True)
class Record:
    """One atomic write. `number` names the Ready that it carries out, if any."""

    number: int = 0
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState | None = None
    installed: tuple[Snapshot, State] | None = None
    applied: tuple[int, State, ConfState] | None = None
    compacted: tuple[Snapshot, State, int] | None = None
    answers: list[Message] = field(default_factory=list)  # to be sent once durable
    needs_sync: bool = False
    acknowledged: bool = False  # the core was told; only possible early if no sync was needed


class Image(MemoryStorage):
    """Everything one instance keeps on disk: log, hard state and the state machine."""

    def __init__(self) -> None:
        super().__init__()
        self.applied_index = 0
        self.state: State = ()
        self.snap_state: State = ()

    def copy(self) -> Image:
        other = Image()
        other.hard_state, other.conf, other.snap = self.hard_state, self.conf, self.snap
        other.compacted_index, other.compacted_term = self.compacted_index, self.compacted_term
        other.log = list(self.log)
        other.applied_index, other.state = self.applied_index, self.state
        other.snap_state = self.snap_state
        return other

    def write(self, record: Record) -> None:
        """Snapshot, then entries, then hard state: the order that `Ready` asks for."""
        if record.installed is not None:
            snapshot, state = record.installed
            self.install_snapshot(snapshot)
            self.applied_index, self.state, self.snap_state = snapshot.meta.index, state, state
        if record.entries:
            self.append(record.entries)
        if record.hard_state is not None:
            self.hard_state = record.hard_state
        if record.applied is not None:
            self.applied_index, self.state, self.conf = record.applied
        if record.compacted is not None:
            self.snap, self.snap_state, upto = record.compacted
            self.compact(upto)


class Disk:
    """`view` is what the instance reads back, `durable` what it would find after a power cut."""

    def __init__(self, image: Image) -> None:
        self.view = image
        self.durable = image.copy()
        self.unsynced: deque[Record] = deque()
        self.syncing = 0  # how many of `unsynced` the running sync covers; 0 if none runs

    def write(self, record: Record) -> None:
        self.view.write(record)
        self.unsynced.append(record)

    def waits_for_sync(self) -> bool:
        return any(record.needs_sync for record in self.unsynced)

    def need_no_sync(self) -> list[Record]:
        """Written records before the first that needs a sync: they may be acknowledged."""
        return list(takewhile(lambda record: not record.needs_sync, self.unsynced))

    def start_sync(self) -> None:
        self.syncing = len(self.unsynced)

    def finish_sync(self) -> list[Record]:
        """The records that became durable now."""
        done = [self.unsynced.popleft() for _ in range(self.syncing)]
        self.syncing = 0
        for record in done:
            self.durable.write(record)
        return done

    def crash(self, rng: random.Random, *, keep_prefix: bool) -> int:
        """The power is gone. How many unsynced records survived; the next one is torn."""
        kept = rng.randint(0, len(self.unsynced)) if keep_prefix else 0
        for _ in range(kept):
            self.durable.write(self.unsynced.popleft())
        self.unsynced.clear()
        self.syncing = 0
        self.view = self.durable.copy()
        return kept
