"""The people: clients that read, write and compare-and-swap, and what they saw (the history)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from cairn.raft.cas import Predicate
from cairn.raft.types import Role
from cairn.sim.linear import FOREVER, Operation
from cairn.sim.node import SimNode
from cairn.sim.oracles import Violation
from cairn.sim.profile import MS
from cairn.sim.requests import Op

if TYPE_CHECKING:
    from cairn.sim.world import World

REGISTERS = 3


class Client:
    """One thing at a time: ask, wait for the answer or give up, think, ask again."""

    def __init__(self, world: World, number: int, rng: random.Random) -> None:
        self.world, self.number, self.rng = world, number, rng
        self.target = 0
        self.loyal = rng.random() < 0.3  # stays with its node, even if it does not lead
        self.waiting: Op | None = None
        self.retries = 0
        self.seen: dict[int, tuple[int, Predicate]] = {}  # register -> value, where it was read
        self.history: list[tuple[int, Operation]] = []
        self.finished: list[tuple[int, str]] = []  # (time, kind) of answered operations
        world.at(rng.randint(0, 200 * MS), self.begin)

    def begin(self) -> None:
        rng, world = self.rng, self.world
        register = rng.randrange(REGISTERS)
        kind = rng.choice("rrrwwcp")
        op = Op(len(world.ops), self.number, kind, register, world.now)
        op.value = op.id + 1  # every written value is unique
        if kind in "cp":
            if register not in self.seen:
                op.kind = "r"
            else:
                op.expected, op.predicate = self.seen.pop(register)
        world.ops.append(op)
        self.waiting, self.retries = op, 0
        self._send(op)

    def _send(self, op: Op) -> None:
        world, rng = self.world, self.rng
        if self.target not in world.nodes or (rng.random() < 0.2 and not self.loyal):
            self.target = rng.choice(sorted(world.nodes))
        world.at(world.now + rng.randint(200, 3 * MS), self._arrive, self.target, op)
        world.at(world.now + 1_000 * MS, self._give_up, op, self.retries)

    def _arrive(self, target: int, op: Op) -> None:
        node = self.world.nodes.get(target)
        if node is not None and node.alive and self.waiting is op:
            node.call(node.request, op)

    def answered(self, node: SimNode, op: Op, outcome: str, result: int) -> None:
        """An answer is on its way back; it may come when nobody waits any more."""
        lossy = self.world.profile.lost_answers and not self.world.calm
        if lossy and self.rng.random() < 0.05:
            return
        position = Predicate(node.core.log.applied, node.core.term, op.touched)
        hint = node.core.leader
        delay = self.rng.randint(200, 3 * MS)
        self.world.at(
            self.world.now + delay, self._hear, op, outcome, result, position, hint, self.retries
        )

    def _hear(
        self, op: Op, outcome: str, result: int, position: Predicate, hint: int, attempt: int
    ) -> None:
        if self.waiting is not op or attempt != self.retries:
            return
        if outcome == "ok":
            self._done(op, result)
            if op.kind == "r":
                self.seen[op.register] = (result, position)
        else:
            if not self.loyal:
                self.target = hint
            if self.retries:  # an earlier attempt may have made it
                self._unknown(op)
            self._next()

    def _done(self, op: Op, result: int) -> None:
        now = self.world.now
        self.finished.append((now, op.kind))
        self._record(op, now, result)
        self._next()

    def _give_up(self, op: Op, attempt: int) -> None:
        if self.waiting is not op or attempt != self.retries:
            return
        if not self.loyal or self.rng.random() < 0.3:
            self.target = 0
        if op.kind == "p" and self.retries < 2:  # the same request id: never applied twice
            self.retries += 1
            self._send(op)
            return
        self._unknown(op)
        self._next()

    def _unknown(self, op: Op) -> None:
        if op.kind != "r":
            self._record(op, FOREVER, 0)

    def _record(self, op: Op, end: int, result: int) -> None:
        if op.kind == "r":
            seen = Operation("read", op.start, end, result=result)
        elif op.kind == "w":
            seen = Operation("write", op.start, end, op.value)
        else:
            seen = Operation("cas", op.start, end, op.value, op.expected, result)
        self.history.append((op.register, seen))

    def _next(self) -> None:
        self.waiting = None
        think = int(self.rng.expovariate(1 / (50 * MS)))
        self.world.at(self.world.now + think + 1, self.begin)

    def stop(self) -> None:
        """The run is over: what is under way has an unknown outcome."""
        if self.waiting is not None:
            self._unknown(self.waiting)
            self.waiting = None


class Replay:
    """Predicates checked by replaying the committed log: exactly those that held may be there."""

    def __init__(self) -> None:
        self.touched = [0] * REGISTERS  # register -> index of the last entry that touched it
        self.where: dict[int, int] = {}  # operation -> index

    def applied(self, op: Op, index: int) -> None:
        """`op` is the committed log's entry `index`; called once per index, in order."""
        if op.id in self.where:
            raise Violation("applied once", f"op {op.id} at {self.where[op.id]} and {index}")
        self.where[op.id] = index
        since = op.predicate.index if op.predicate is not None and op.kind == "p" else index
        if self.touched[op.register] > since:
            raise Violation("CaS by replay", f"entry {index} read {since}, then it changed")
        self.touched[op.register] = index


def acting_leader(world: World) -> SimNode | None:
    """The leader of the highest term among those alive."""
    leaders = [n for n in world.nodes.values() if n.alive and n.core.role is Role.LEADER]
    return max(leaders, key=lambda node: node.core.term, default=None)
