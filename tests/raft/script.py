"""A small cluster driven by hand: for tests that tell one story step by step.

Everything happens when `settle` or a single step says so; disks, applies and links can be held.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from cairn.raft.core import RaftCore
from cairn.raft.tenure import UNPROVEN
from cairn.raft.types import (
    ConfChangeSingle,
    ConfChangeV2,
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    ProposalDropped,
    ReadState,
    Ready,
    Role,
    Snapshot,
    SnapshotMeta,
)
from cairn.sim.disk import Disk, Image, Record

FIRST_INDEX = 1  # members start from a snapshot there


class ScriptNode:
    """One member. `hold_disk` keeps Readies unsynced, `hold_apply` keeps entries unapplied."""

    def __init__(self, number: int, image: Image, options: dict[str, Any]) -> None:
        self.id, self.options = number, options
        self.disk = Disk(image)
        self.hold_disk = self.hold_apply = False
        self.start()

    def start(self) -> None:
        config = Config(self.id, rng=random.Random(self.id), **self.options)
        view = self.disk.view
        self.core = RaftCore(config, view, applied=view.applied_index)
        self.applied: list[Entry] = []
        self.waiting: deque[Entry] = deque()
        self.reads: list[ReadState] = []
        self.failed_reads: list[bytes] = []
        self.outbox: list[Message] = []

    @property
    def durable(self) -> Image:
        return self.disk.durable

    @property
    def data(self) -> list[bytes]:
        """What the state machine has seen."""
        return [entry.data for entry in self.applied if entry.type == 0 and entry.data]

    def take_ready(self) -> Ready:
        ready = self.core.ready()
        self.outbox += ready.messages
        self._write(ready)
        self.reads += ready.read_states
        self.failed_reads += ready.failed_reads
        self.waiting.extend(ready.committed)
        return ready

    def _write(self, ready: Ready) -> None:
        installed = (ready.snapshot, ()) if ready.snapshot is not None else None
        self.disk.write(
            Record(
                ready.number,
                ready.entries,
                ready.hard_state,
                installed,
                answers=ready.messages_after_persist,
            )
        )

    def sync(self) -> None:
        """Everything written so far is durable; say so."""
        self.disk.start_sync()
        for record in self.disk.finish_sync():
            if record.number:
                self.outbox += record.answers
                self.core.persisted(record.number)

    def apply(self) -> None:
        while self.waiting:
            entry = self.waiting.popleft()
            if entry.type == EntryType.CONF_CHANGE:
                self.core.apply_conf_change(ConfChangeV2.decode(entry.data))
            self.applied.append(entry)
            self.disk.write(Record(applied=(entry.index, (), self.core.conf)))
            self.core.applied(entry.index)

    def work(self) -> bool:
        """One round of driving; False if there was nothing to do."""
        busy = False
        while self.core.has_ready():
            busy = True
            self.take_ready()
        if self.disk.unsynced and not self.hold_disk:
            busy = True
            self.sync()
        if self.waiting and not self.hold_apply:
            busy = True
            self.apply()
        return busy


class Script:
    """`Script(3)` is three voters without a leader; call `elect(1)` to have one."""

    def __init__(self, voters: int = 3, learners: int = 0, **options: Any) -> None:
        self.options = options
        ids = tuple(range(1, voters + learners + 1))
        self.conf = ConfState(ids[:voters], ids[voters:])
        self.nodes: dict[int, ScriptNode] = {}
        self.down: set[int] = set()
        self.cut_links: set[tuple[int, int]] = set()
        self.wire: deque[Message] = deque()
        self.lost: list[Message] = []
        for node in ids:
            self.nodes[node] = ScriptNode(node, self._first_image(), options)

    def _first_image(self) -> Image:
        image = Image()
        image.install_snapshot(Snapshot(SnapshotMeta(FIRST_INDEX, 1, self.conf), b"first"))
        image.applied_index = FIRST_INDEX
        image.hard_state = HardState(1, 0, FIRST_INDEX)
        return image

    def __getitem__(self, node: int) -> RaftCore:
        return self.nodes[node].core

    def add(self, node: int) -> None:
        """A new instance that knows nothing."""
        self.nodes[node] = ScriptNode(node, Image(), self.options)

    # --- links and power

    def cut(self, *nodes: int) -> None:
        """`nodes` see each other, and nobody else sees them."""
        for one in nodes:
            for other in self.nodes:
                if other not in nodes:
                    self.cut_links |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cut_links.clear()

    def crash(self, *nodes: int) -> None:
        for node in nodes:
            self.nodes[node].disk.crash(random.Random(0), keep_prefix=False)
            self.nodes[node].outbox.clear()
            self.down.add(node)

    def restart(self, *nodes: int) -> None:
        for node in nodes:
            self.down.discard(node)
            self.nodes[node].start()

    def put_back(self, node: int, image: Image) -> None:
        """Its disk is what it was when `image` was taken, and it starts from there."""
        self.nodes[node].disk = Disk(image.copy())
        self.restart(node)

    # --- time

    def collect(self) -> bool:
        """Drive every node once and put what it sends on the wire."""
        busy = False
        for number, node in self.nodes.items():
            if number in self.down:
                continue
            busy |= node.work()
            self.wire.extend(node.outbox)
            node.outbox.clear()
        return busy

    def deliver(self, message: Message) -> None:
        cut = (message.from_, message.to) in self.cut_links
        if cut or message.to in self.down or message.to not in self.nodes:
            self.lost.append(message)
        else:
            self.nodes[message.to].core.step(message)

    def settle(self, limit: int = 1000) -> None:
        """Drive and deliver until nothing moves."""
        for _ in range(limit):
            busy = self.collect()
            if not busy and not self.wire:
                return
            for _ in range(len(self.wire)):
                self.deliver(self.wire.popleft())
        raise AssertionError("the cluster does not come to rest")

    def tick(self, count: int = 1, *nodes: int) -> None:
        """Time passes for `nodes`, or for all."""
        for _ in range(count):
            for number in nodes or tuple(self.nodes):
                if number not in self.down:
                    self.nodes[number].core.tick()
            self.settle()

    def elect(self, node: int) -> RaftCore:
        self[node].campaign()
        self.settle()
        assert self[node].role is Role.LEADER, "could not win"
        return self[node]

    def leaders(self) -> list[int]:
        return [n for n in self.nodes if n not in self.down and self[n].role is Role.LEADER]

    # --- shorthands

    def propose(self, node: int, *data: bytes) -> tuple[int, int]:
        where = self[node].propose(list(data))
        self.settle()
        return where

    def change(self, node: int, transition: Any = "auto", **changes: int) -> tuple[int, int]:
        """`change(1, add_voter=4)`."""
        singles = tuple(ConfChangeSingle(kind, id_) for kind, id_ in changes.items())  # type: ignore[arg-type]
        where = self.proven(node, ConfChangeV2(transition, singles))
        self.settle()
        return where

    def proven(self, node: int, change: ConfChangeV2) -> tuple[int, int]:
        """Propose `change`, asking first whether those who shall vote are there."""
        try:
            return self[node].propose_conf_change(change)
        except ProposalDropped as refusal:
            if refusal.reason != UNPROVEN:
                raise
        self.settle()
        return self[node].propose_conf_change(change)

    def compact(self, node: int) -> None:
        """`node` drops everything it has applied from its log."""
        owner = self.nodes[node]
        view, index = owner.disk.view, owner.core.log.applied
        snapshot = Snapshot(SnapshotMeta(index, view.term(index), owner.core.conf), b"later")
        owner.disk.write(Record(compacted=(snapshot, (), index)))
