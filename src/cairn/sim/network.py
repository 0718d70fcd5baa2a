"""A simulated network: delays, losses, copies, partitions, resets. Dropping is always legal."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from cairn.raft.types import Message, MsgKind
from cairn.sim.profile import MS, SECOND, Profile

if TYPE_CHECKING:
    from cairn.sim.world import World


class Network:
    def __init__(self, world: World, rng: random.Random, profile: Profile) -> None:
        self.world, self.rng, self.profile = world, rng, profile
        self.blocked: set[tuple[int, int]] = set()  # (from, to)
        self.latency: dict[tuple[int, int], int] = {}
        self.arrival: dict[tuple[int, int], int] = {}  # links without jitter keep their order
        self.epoch: dict[tuple[int, int], int] = {}  # a reset link loses what is under way
        self.calm = False
        self.sent = 0

    def send(self, message: Message) -> None:
        self.sent += 1
        link = (message.from_, message.to)
        rng, profile = self.rng, self.profile
        lost = link in self.blocked or (not self.calm and rng.random() < profile.loss)
        if message.kind is MsgKind.SNAP:
            self._report_snapshot(message, ok=not lost)
        if lost:
            return
        self._deliver_at(link, message, self._arrival_of(link))
        if self.calm:
            return
        if profile.duplication and rng.random() < profile.duplication:
            self._deliver_at(link, message, self._arrival_of(link))
        if profile.zombies and rng.random() < profile.zombies:
            late = self.world.now + rng.randint(100 * MS, 5 * SECOND)
            self.world.at(late, self._arrive, message, -1)

    def _arrival_of(self, link: tuple[int, int]) -> int:
        base = self.latency.get(link)
        if base is None:
            slow = self.profile.slow_links and not self.calm and self.rng.random() < 0.2
            base = self.rng.randint(20 * MS, 150 * MS) if slow else self.rng.randint(300, 4 * MS)
            self.latency[link] = base
        if self.profile.jitter:
            return self.world.now + int(base * self.rng.uniform(0.5, 4))
        arrival = max(self.world.now + base, self.arrival.get(link, 0) + 1)
        self.arrival[link] = arrival
        return arrival

    def _deliver_at(self, link: tuple[int, int], message: Message, when: int) -> None:
        self.world.at(when, self._arrive, message, self.epoch.get(link, 0))

    def _arrive(self, message: Message, epoch: int) -> None:
        if epoch >= 0 and epoch != self.epoch.get((message.from_, message.to), 0):
            return
        node = self.world.nodes.get(message.to)
        if node is not None:
            node.receive(message)

    def _report_snapshot(self, message: Message, *, ok: bool) -> None:
        """The driver tells how the transfer of the payload went, good or bad."""
        delay = self.rng.randint(20 * MS, 200 * MS) if ok else 300 * MS
        self.world.at(
            self.world.now + delay, self.world.snapshot_report, message.from_, message.to, ok
        )

    # --- what the nemesis does

    def heal(self) -> None:
        self.blocked.clear()

    def calm_down(self) -> None:
        """From now on nothing is lost and all links are fast."""
        self.calm = True
        self.blocked.clear()
        self.latency.clear()

    def split(self, side: set[int], others: set[int]) -> None:
        for one in sorted(side):
            for other in sorted(others):
                self.blocked.add((one, other))
                self.blocked.add((other, one))

    def cut_one_way(self, source: int, targets: list[int]) -> None:
        self.blocked.update((source, target) for target in targets)

    def bridge(self, middle: int, nodes: list[int]) -> None:
        """Two halves that see each other only through `middle`."""
        rest = [node for node in nodes if node != middle]
        self.rng.shuffle(rest)
        half = len(rest) // 2
        self.split(set(rest[:half]), set(rest[half:]))

    def reset_link(self, one: int, other: int) -> None:
        self.epoch[one, other] = self.epoch.get((one, other), 0) + 1
