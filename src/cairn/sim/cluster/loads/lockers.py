"""Sessions that take advisory locks at any instance, while instances die, stand still and are cut
off.

A client that was told it has a lock goes on to ask something by the same session. When that is
answered, it had the lock from when it was told until it asked: nobody else may have had it then.
A client that does not wait and is told that somebody else has the lock must be right, too.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec

from cairn.model.errors import CairnError
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import wait_settled
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import UNKNOWN, Faces, WireClient
from cairn.sim.linear import FOREVER

KEYS, CLIENTS = 2, 8
PATIENCE_S = 12.0
RELEASED_S = 30.0
#: What clients do to each other, also when nothing happens: a deadlock, a lock timeout.
RIVALS = frozenset({"40P01", "55P03"})
#: What else a client may be told: who leads is not known, the end.
TOLD = frozenset({UNKNOWN, "57014", "57P03", "PC001", "PC002", "PC003", "58000"})


class Held(msgspec.Struct):
    """What a client knows of its lock, by the clock of the world."""

    who: str
    key: int
    is_shared: bool
    asked: float
    told: float = 0.0  # that it has it
    sure: float = 0.0  # until when it surely had it
    may: float = float(FOREVER)  # until when it may have had it

    def excludes(self, other: Held) -> bool:
        return self.key == other.key and not (self.is_shared and other.is_shared)


class Books:
    """Every lock that anybody asked for."""

    def __init__(self) -> None:
        self.all: list[Held] = []

    def asked(self, who: str, key: int, is_shared: bool, now: float) -> Held:
        made = Held(who, key, is_shared, now)
        self.all.append(made)
        return made

    def had(self, held: Held, until: float) -> None:
        """A statement that was begun at `until` was answered."""
        held.sure = until
        for other in self.all:
            if other is held or not other.sure or not held.excludes(other):
                continue
            if held.told < other.sure and other.told < held.sure:
                raise Violation(
                    f"lock {held.key} was had by {held.who} ({held.told:.6f}–{held.sure:.6f}) "
                    f"and by {other.who} ({other.told:.6f}–{other.sure:.6f})"
                )

    def was_refused(self, held: Held, now: float) -> None:
        """It was told that somebody else has the lock, or waits for it."""
        held.may = held.asked
        for other in self.all:
            is_then = other.asked < now and other.may > held.asked
            if other is not held and is_then and held.excludes(other):
                return
        raise Violation(f"{held.who} was refused lock {held.key}, which nobody had")


class Lockers:
    """Clients; each has a session of its own for each lock that it takes."""

    groups = ()

    def __init__(self, load: Load, faces: Faces, chance: random.Random) -> None:
        self._world, self._faces, self._chance = load.world, faces, chance
        self.books = Books()
        self.done = self.unknown = self.refused = self.reads = 0
        self.ways: Counter[str] = Counter()
        self._number = 0
        self._has_forgotten = False  # somebody who was told an error left its locks behind

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    async def run(self, seconds: float) -> None:
        until = self._now + seconds
        await asyncio.gather(*(self._client(until) for _ in range(CLIENTS)))

    async def _client(self, until: float) -> None:
        while self._now < until:
            await asyncio.sleep(self._chance.uniform(0.01, 0.4))
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                await self._asked(self._chance.choice(nodes))

    async def _asked(self, node: SimNode) -> None:
        """One session: it is closed at its end, but for those that forget it."""
        self._number += 1
        who = f"{self._number}@{node.name}"
        client = WireClient(self._faces.of(node))
        forgets = self._chance.random() < 0.1

        async def work() -> None:
            await client.connect()
            await self._session(client, who)

        task = await heard(self._world, node, work, PATIENCE_S)
        if self._has_forgotten and task is None and node.is_running:
            self.ways["in vain"] += 1  # it had no more patience
        elif task is None or task.cancelled():
            self.unknown += 1
        elif (problem := task.exception()) is None:
            self.done += 1
        elif isinstance(problem, CairnError):
            self.ways[f"told {problem.sqlstate}"] += 1
            is_rival = problem.sqlstate in RIVALS
            self._has_forgotten |= forgets
            self.done, self.refused = self.done + is_rival, self.refused + (not is_rival)
            if not is_rival and problem.sqlstate not in TOLD:
                raise Violation(f"{who} was told {problem.sqlstate} {problem}")
        else:
            raise problem
        if node.is_running and task is not None and not forgets and not client.is_over:
            node_process = node.process
            assert node_process is not None
            self._world.loop.call_soon(client.close, context=node_process.context)

    async def _session(self, client: WireClient, who: str) -> None:
        chance = self._chance
        keys = chance.sample(range(KEYS), chance.choice((1, 1, 2)))
        in_block = chance.random() < 0.3
        if in_block:
            await client.ask("BEGIN")
        if chance.random() < 0.2:
            await client.ask("SET lock_timeout = '1500ms'")
        have = []
        for key in keys:
            held = await self._take(client, who, key, in_block=in_block)
            if held is not None:
                have.append(held)
        for _ in range(chance.randint(1, 3)):
            await asyncio.sleep(chance.choice((0.0, 0.05, 0.4, 1.0)))
            await self._go_on(client, have)
        await self._end(client, have, in_block=in_block)

    async def _take(self, client: WireClient, who: str, key: int, *, in_block: bool) -> Held | None:
        chance = self._chance
        is_shared, waits = chance.random() < 0.3, chance.random() < 0.6
        name = f"pg_{'' if waits else 'try_'}advisory{'_xact' if in_block else ''}_lock"
        name += "_shared" * is_shared
        held = self.books.asked(who, key, is_shared, self._now)
        [[answer]] = await client.ask(f"SELECT {name}({key})")
        held.told = self._now
        if answer is False or answer == "f":
            self.ways["refused"] += 1
            self.books.was_refused(held, held.told)
            return None
        self.ways[name] += 1
        return held

    async def _go_on(self, client: WireClient, have: list[Held]) -> None:
        """A statement that counts on the locks."""
        begun = self._now
        if self._chance.random() < 0.7:
            await client.ask("SELECT 1")
        else:
            await client.run("SELECT name FROM _pico_instance WHERE name = $1", ("n1",))
        self.reads += 1
        for held in have:
            self.books.had(held, begun)

    async def _end(self, client: WireClient, have: list[Held], *, in_block: bool) -> None:
        for held in [] if in_block else have:
            begun = self._now
            [[answer]] = await client.ask(
                f"SELECT pg_advisory_unlock{'_shared' * held.is_shared}({held.key})"
            )
            if answer is False or answer == "f":
                raise Violation(f"{held.who} had lock {held.key} and cannot give it up")
            self.books.had(held, begun)
            held.may = self._now
        if in_block:
            begun = self._now
            await client.ask(self._chance.choice(("COMMIT", "ROLLBACK")))
            for held in have:
                self.books.had(held, begun)
                held.may = self._now

    async def check(self) -> None:
        """After calm nobody has a lock but those who forgot to close their sessions."""
        await wait_settled(self._world)
        for node in self._world.running():
            for session in list(self._faces.of(node).sessions.values()):
                session.hang_up(CairnError("the end", sqlstate="57P01"))

        def is_free() -> bool:
            nodes = self._world.running()
            return all(node.instance and not node.instance.state.locks.count for node in nodes)

        await self._world.until(is_free, "all locks to be free", RELEASED_S)
        for node in self._world.running():
            client = WireClient(self._faces.of(node))

            async def work(client: WireClient = client) -> Any:
                await client.connect()
                return await client.ask("SELECT pg_try_advisory_lock(0), pg_advisory_unlock(0)")

            task = await heard(self._world, node, work, PATIENCE_S)
            if task is None or task.exception() is not None or task.result()[0][0] in ("f", False):
                how = "no answer" if task is None else task.exception() or task.result()
                raise Violation(f"{node} gives no lock in the end: {how}")
