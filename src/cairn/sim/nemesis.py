"""What goes wrong and who meddles: faults, membership changes, transfers, compaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cairn.raft.confchange import members
from cairn.raft.tenure import UNPROVEN
from cairn.raft.types import ConfChangeSingle, ConfChangeV2, ProposalDropped, Role
from cairn.sim.clients import acting_leader
from cairn.sim.node import SimNode
from cairn.sim.profile import MS, SECOND

if TYPE_CHECKING:
    from cairn.sim.world import World


ASK_FOR = SECOND  # how long an administrator asks for one change of members


@dataclass(frozen=True)
class Asked:
    """A change of members that somebody wants, and since when."""

    change: ConfChangeV2
    at: int
    term: int

    def repeats(self, other: Asked) -> bool:
        is_soon = self.at < other.at + 2 * ASK_FOR
        return is_soon and (self.change, self.term) == (other.change, other.term)


class Nemesis:
    """Chooses the next fault from the classes that this seed has switched on."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng, self.profile = world, rng, world.profile
        profile = self.profile
        choices: list[tuple[bool, Callable[[], None]]] = [
            (profile.crashes, self.crash_one),
            (profile.crashes, self.crash_one),
            (profile.partitions, self.partition),
            (profile.partitions, self.heal),
            (profile.one_way, self.one_way),
            (profile.bridges, self.bridge),
            (profile.swizzle, self.swizzle),
            (profile.resets, self.reset),
            (profile.pauses, self.pause),
            (profile.slow_disks, self.slow_disk),
            (profile.disk_errors, self.break_sync),
            (profile.disk_full, self.fill_disk),
            (profile.power_loss, self.power_loss),
        ]
        self.actions = [action for enabled, action in choices if enabled] + [self.campaign]
        self.asked = Asked(ConfChangeV2(), 0, 0)
        self._again(self.act, profile.nemesis_every_us)
        if profile.membership or profile.transfers:
            self._again(self.administer, 700 * MS)
        if profile.compaction:
            self._again(self.compact, 400 * MS)

    def _again(self, action: Callable[[], None], mean_us: int) -> None:
        delay = self.rng.randint(mean_us // 2, 2 * mean_us)
        self.world.at(self.world.now + delay, self._run, action, mean_us)

    def _run(self, action: Callable[[], None], mean_us: int) -> None:
        if self.world.calm:
            return
        action()
        self._again(action, mean_us)

    def act(self) -> None:
        self.rng.choice(self.actions)()

    # --- nodes

    def _some(self) -> SimNode:
        return self.world.nodes[self.rng.choice(sorted(self.world.nodes))]

    def crash_one(self) -> None:
        node = self._some()
        leader = acting_leader(self.world)
        if leader is not None and self.rng.random() < 0.4:
            node = leader
        node.crash()
        self.world.restart_later(node, self.rng.randint(50 * MS, 2 * SECOND))

    def power_loss(self) -> None:
        if self.rng.random() < 0.5:
            self.world.power_loss()

    def pause(self) -> None:
        node = self._some()
        if node.alive and not node.paused:
            node.pause()
            delay = self.rng.randint(100 * MS, 3 * SECOND)
            self.world.at(self.world.now + delay, self.world.resume, node, node.life)

    def campaign(self) -> None:
        node = self._some()
        if node.alive:
            node.call(node.core.campaign)

    # --- disks

    def slow_disk(self) -> None:
        self._some().disk_slow_until = self.world.now + self.rng.randint(300 * MS, 3 * SECOND)

    def break_sync(self) -> None:
        self._some().disk_fails = True

    def fill_disk(self) -> None:
        self._some().disk_full_until = self.world.now + self.rng.randint(300 * MS, 2 * SECOND)

    # --- network

    def heal(self) -> None:
        self.world.network.heal()

    def partition(self) -> None:
        nodes = sorted(self.world.nodes)
        self.rng.shuffle(nodes)
        cut = self.rng.randint(1, max(1, len(nodes) // 2))
        leader = acting_leader(self.world)
        if leader is not None and self.rng.random() < 0.5:  # with a minority it goes stale
            nodes.remove(leader.id)
            nodes.insert(0, leader.id)
        self.world.network.split(set(nodes[:cut]), set(nodes[cut:]))
        self._heal_later()

    def one_way(self) -> None:
        nodes = sorted(self.world.nodes)
        source = self.rng.choice(nodes)
        others = [node for node in nodes if node != source]
        self.world.network.cut_one_way(source, others)
        self._heal_later()

    def bridge(self) -> None:
        nodes = sorted(self.world.nodes)
        self.world.network.bridge(self.rng.choice(nodes), nodes)
        self._heal_later()

    def swizzle(self) -> None:
        """Links stop one by one and heal in another order."""
        nodes = sorted(self.world.nodes)
        links = [(one, other) for one in nodes for other in nodes if one != other]
        chosen = self.rng.sample(links, min(len(links), self.rng.randint(1, 6)))
        blocked = self.world.network.blocked
        for link in chosen:
            start = self.world.now + self.rng.randint(0, SECOND)
            self.world.at(start, blocked.add, link)
            self.world.at(start + self.rng.randint(100 * MS, 2 * SECOND), blocked.discard, link)

    def reset(self) -> None:
        one, other = self._some(), self._some()
        self.world.network.reset_link(one.id, other.id)
        if one.alive:
            one.call(one.core.report_unreachable, other.id)

    def _heal_later(self) -> None:
        delay = self.rng.randint(300 * MS, 3 * SECOND)
        self.world.at(self.world.now + delay, self.world.network.heal)

    # --- administration

    def compact(self) -> None:
        node = self._some()
        if node.alive:
            node.call(node.compact, self.rng.choice((0, 0, 1, 3, 10)))

    def administer(self) -> None:
        self.world.retire_removed()
        leader = acting_leader(self.world)
        if leader is None or leader.paused:
            return
        if self.profile.transfers and self.rng.random() < 0.4:
            leader.call(leader.core.transfer_leader, self._some().id)
        elif self.profile.membership:
            change = self.draw_change(leader)
            if change is not None:
                asked = Asked(change, self.world.now, leader.core.term)
                if asked.repeats(self.asked):
                    asked = self.asked  # somebody who repeats himself asks since he began
                self.asked = asked
                leader.call(self._propose, leader, asked)

    def _propose(self, leader: SimNode, asked: Asked) -> None:
        if leader.core.role is not Role.LEADER or leader.core.term != asked.term:
            return
        try:
            leader.core.propose_conf_change(asked.change)
        except ProposalDropped as refusal:
            if refusal.reason == UNPROVEN and self.world.now < asked.at + ASK_FOR:
                again = self.world.now + self.rng.randint(1 * MS, 40 * MS)
                self.world.at(again, leader.call, self._propose, leader, asked)
            return
        self.world.oracles.one_pending_change(leader)
        self.world.oracles.voters_are_there(leader, asked.change, asked.at, self.world.nodes)

    def draw_change(self, leader: SimNode) -> ConfChangeV2 | None:
        conf, rng = leader.core.conf, self.rng
        if conf.voters_outgoing:
            return ConfChangeV2() if not conf.auto_leave and rng.random() < 0.7 else None
        transition: Literal["auto", "implicit", "explicit"] = rng.choice(
            ("auto", "auto", "implicit", "explicit")
        )
        changes = [self._draw_single(leader) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        chosen = {change.id: change for change in changes if change is not None}
        if not chosen:
            return None
        return ConfChangeV2(transition, tuple(chosen.values()))

    def _draw_single(self, leader: SimNode) -> ConfChangeSingle | None:
        conf, rng = leader.core.conf, self.rng
        roll = rng.random()
        size = len(members(conf))
        if roll < 0.35 and size < 7:
            return ConfChangeSingle("add_learner", self.world.add_node())
        if roll < 0.6 and conf.learners:
            return ConfChangeSingle("add_voter", rng.choice(conf.learners))
        if roll < 0.7 and size < 7:
            return ConfChangeSingle("add_voter", self.world.add_node())
        if roll < 0.8 and len(conf.voters) > 1:
            return ConfChangeSingle("add_learner", rng.choice(conf.voters))
        if size > 2 and len(conf.voters) > 1:
            return ConfChangeSingle("remove", rng.choice(sorted(members(conf))))
        return None
