"""The virtual clock and everything on it: one run of one seed, first unsafe, then calm.

In the first phase anything may fail and only safety is asked for; then faults end, except perhaps
for one member that stays lost, and the cluster must make progress.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cairn.raft.confchange import members
from cairn.raft.types import ConfState, HardState, Message, Snapshot, SnapshotMeta
from cairn.sim.clients import REGISTERS, Client, Replay, acting_leader
from cairn.sim.disk import Image, State
from cairn.sim.linear import Operation, Undecided, is_linearizable
from cairn.sim.nemesis import Nemesis
from cairn.sim.network import Network
from cairn.sim.node import SimNode
from cairn.sim.oracles import Oracles, Violation, quorums_overlap
from cairn.sim.profile import MS, SECOND, Profile, draw_profile
from cairn.sim.requests import Op

_MASK = (1 << 64) - 1
MAX_EVENTS = 500_000  # fifty times what a seed usually needs


@dataclass(slots=True)
class Result:
    """What one seed did."""

    seed: int
    profile: Profile
    failure: str | None = None
    oracle: str | None = None
    trace_hash: int = 0
    events: int = 0
    messages: int = 0
    commits: int = 0
    terms: int = 0
    operations: int = 0
    notes: list[str] = field(default_factory=list)


class World:
    def __init__(self, seed: int, *, nodes: int | None = None, keep_notes: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile = draw_profile(self.rng, nodes=nodes)
        self.now = 0
        self.calm = False
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.sequence = 0
        self.count = 0
        self.trace_hash = seed
        self.notes: list[str] | None = [] if keep_notes else None
        self.oracles = Oracles()
        self.replay = Replay()
        self.ops: list[Op] = [Op(0, 0, "w", 0, 0)]
        self.payloads: dict[bytes, State] = {}
        self.network = Network(self, self._child(), self.profile)
        self.nodes: dict[int, SimNode] = {}
        self.next_id = 1
        self.frozen: set[int] = set()
        self._bootstrap()
        self.clients = [Client(self, n, self._child()) for n in range(self.profile.clients)]
        self.nemesis = Nemesis(self, self._child())

    def _child(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # --- the clock

    def at(self, when: int, handler: Callable[..., None], *arguments: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (when, self.sequence, handler, arguments))

    def run_until(self, end: int) -> None:
        events, pop = self.events, heapq.heappop
        while events and events[0][0] <= end:
            when, sequence, handler, arguments = pop(events)
            self.now = when
            self.count += 1
            self.trace_hash = (self.trace_hash * 1_000_003 ^ when * 31 ^ sequence) & _MASK
            handler(*arguments)
            if self.count > MAX_EVENTS:
                raise Violation("liveness", f"{MAX_EVENTS} events: the cluster talks in circles")
        self.now = end

    def note(self, what: str, node: int, detail: int) -> None:
        """Something worth telling about a failing seed; part of the determinism check."""
        code = sum(what.encode())
        self.trace_hash = (self.trace_hash * 31 ^ code ^ node << 20 ^ detail << 32) & _MASK
        if self.notes is not None:
            self.notes.append(f"{self.now / SECOND:9.4f} {what} node={node} {detail}")

    # --- the cluster

    def _bootstrap(self) -> None:
        """The first members start from a snapshot at index 1; later ones from nothing."""
        count = self.profile.voters + self.profile.learners
        ids = tuple(range(1, count + 1))
        conf = ConfState(ids[: self.profile.voters], ids[self.profile.voters :])
        state = (0,) * REGISTERS
        self.payloads[b"first"] = state
        self.oracles.confs[1] = conf
        self.oracles.states[1] = state
        self.oracles.committed[1] = (1, 1)
        self.next_id = count + 1
        for node in ids:
            image = self._empty_image()
            image.install_snapshot(Snapshot(SnapshotMeta(1, 1, conf), b"first"))
            image.applied_index, image.snap_state = 1, state
            image.hard_state = HardState(1, 0, 1)
            self.nodes[node] = SimNode(self, node, image, self._child())

    def _empty_image(self) -> Image:
        image = Image()
        image.state = (0,) * REGISTERS
        return image

    def add_node(self) -> int:
        """A new instance under an id never used before; it knows nothing yet."""
        node, self.next_id = self.next_id, self.next_id + 1
        self.nodes[node] = SimNode(self, node, self._empty_image(), self._child())
        return node

    def transmit(self, node: SimNode, message: Message) -> None:
        self.oracles.sends(node, message, self.nodes)
        self.network.send(message)

    def snapshot_report(self, leader: int, peer: int, ok: bool) -> None:
        node = self.nodes.get(leader)
        if node is not None and node.alive:
            node.call(node.core.report_snapshot, peer, ok)

    def answer(self, node: SimNode, op: Op, outcome: str, result: int) -> None:
        self.clients[op.client].answered(node, op, outcome, result)

    # --- crashes

    def crash_at_point(self, node: SimNode, point: str) -> None:
        self.note(point, node.id, 0)
        node.crash()
        self.restart_later(node, self.rng.randint(20 * MS, 1500 * MS))
        if self.profile.power_loss and not self.calm and self.rng.random() < 0.3:
            self.power_loss()

    def power_loss(self) -> None:
        self.note("power loss", 0, 0)
        for node in self.nodes.values():
            if node.alive:
                node.crash()
                self.restart_later(node, self.rng.randint(20 * MS, 500 * MS))

    def restart_later(self, node: SimNode, delay: int) -> None:
        self.at(self.now + delay, self.restart, node)

    def restart(self, node: SimNode) -> None:
        if not node.alive and not node.retired and node.id not in self.frozen:
            node.start()
            self.note("start", node.id, node.core.term)

    def resume(self, node: SimNode, life: int) -> None:
        if node.life == life and node.paused:
            node.resume()

    def retire_removed(self) -> None:
        """Stop removed members, but only when all who stay have applied it: one that has not may
        still need their votes."""
        leader = acting_leader(self)
        if leader is None:
            return
        conf, tenure = leader.core.conf, leader.core.tenure
        stay = members(conf)
        agreed = all(node in self.nodes and self.nodes[node].core.conf == conf for node in stay)
        if not agreed or tenure is None or tenure.conf_change_pending():
            return
        for node in sorted(set(self.nodes) - stay):
            gone = self.nodes[node]
            if gone.core.conf.voters and self.rng.random() < 0.5:
                gone.crash()
                gone.retired = True
                del self.nodes[node]

    # --- the run

    def run(self) -> None:
        self.run_until(self.profile.fault_time_us)
        self.begin_calm()
        self.run_until(self.profile.fault_time_us + self.profile.calm_time_us)
        self.require_progress()
        for client in self.clients:
            client.stop()
        self.require_linearizable()

    def begin_calm(self) -> None:
        self.calm = True
        self.network.calm_down()
        self._choose_frozen()
        for client in self.clients:
            client.loyal = False
        for node in list(self.nodes.values()):
            node.disk_fails, node.disk_slow_until, node.disk_full_until = False, 0, 0
            if node.id in self.frozen:
                node.crash()
            elif not node.alive:
                self.restart(node)
            elif node.paused:
                node.resume()

    def _choose_frozen(self) -> None:
        """Perhaps one voter stays lost, if all agree on a configuration that can spare it."""
        confs = {node.core.conf for node in self.nodes.values()}
        if len(confs) != 1 or any(self._has_change(node) for node in self.nodes.values()):
            return
        conf = confs.pop()
        if not conf.voters_outgoing and len(conf.voters) >= 3 and self.rng.random() < 0.4:
            self.frozen.add(self.rng.choice(conf.voters))

    @staticmethod
    def _has_change(node: SimNode) -> bool:
        log = node.disk.view.log
        return any(entry.type for entry in log if entry.index > node.disk.view.applied_index)

    def require_progress(self) -> None:
        """Liveness: judged at the end, with some more time before it is called a failure."""
        problem: str | None = None
        for _ in range(10):
            problem = self._what_is_stuck()
            if problem is None:
                return
            self.run_until(self.now + SECOND)
        if (problem := self._what_is_stuck()) is not None:
            raise Violation("liveness", problem)

    def _what_is_stuck(self) -> str | None:
        leader = acting_leader(self)
        if leader is None:
            return "no leader"
        since = self.now - 3 * SECOND
        kinds = {k for c in self.clients for when, k in c.finished if when >= since}
        if "r" not in kinds or not kinds & {"w", "c", "p"}:
            return f"clients finished only {sorted(kinds)} in three seconds"
        if leader.core.conf.auto_leave:
            return "joint configuration is not left"
        target = leader.core.log.committed - 30
        for node in sorted(members(leader.core.conf) - self.frozen):
            if self.nodes[node].core.log.applied < target:
                applied = self.nodes[node].core.log.applied
                return f"{node} applied {applied}, the leader committed {target + 30}"
        return None

    def require_linearizable(self) -> None:
        for register in range(REGISTERS):
            history: list[Operation] = []
            for client in self.clients:
                history.extend(op for where, op in client.history if where == register)
            try:
                if not is_linearizable(history):
                    raise Violation("linearizability", f"register {register}")
            except Undecided as large:
                raise Violation("undecided history", str(large)) from None

    def result(self) -> Result:
        return Result(
            self.seed,
            self.profile,
            trace_hash=self.trace_hash,
            events=self.count,
            messages=self.network.sent,
            commits=self.oracles.last_committed,
            terms=len(self.oracles.leaders),
            operations=sum(len(client.finished) for client in self.clients),
            notes=self.notes or [],
        )


def run_seed(seed: int, *, nodes: int | None = None, keep_notes: bool = False) -> Result:
    """One seed, from start to verdict. Any exception of the core is a failure as well."""
    world = World(seed, nodes=nodes, keep_notes=keep_notes)
    failure = oracle = None
    try:
        world.run()
    except Violation as violation:
        failure, oracle = str(violation), violation.oracle
    except Exception as problem:
        failure, oracle = f"{type(problem).__name__}: {problem}", "exception"
        if keep_notes:
            raise
    result = world.result()
    result.failure, result.oracle = failure, oracle
    return result


__all__ = ["Result", "World", "quorums_overlap", "run_seed"]
