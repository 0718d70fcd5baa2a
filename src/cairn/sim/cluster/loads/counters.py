"""Counters in a global table, raised over real sessions at any instance.

A write to a global table is planned against a local copy and proposed as one compare-and-swap. One
whose answer was lost may have been done: done again by itself, it would count twice.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.sessions import UNKNOWN, Connections, Faces

COUNTERS = Table(
    id=TABLE.id + 110,
    name="counter",
    columns=(
        Column("id", ColumnType.INTEGER, nullable=False),
        Column("n", ColumnType.INTEGER, nullable=False),
    ),
    primary_key=("id",),
    sharding=None,
)
KEYS = 2
PATIENCE_S = 8.0
_RAISE = f"UPDATE {COUNTERS.name} SET n = n + 1 WHERE id = $1"
_READ = f"SELECT n FROM {COUNTERS.name} WHERE id = $1"


class Counters:
    """`acked` is the least that each may be, `sent` the most."""

    def __init__(self, load: Load, faces: Faces, chance: random.Random) -> None:
        self._world, self._chance = load.world, chance
        self._connections = Connections(faces)
        self.acked, self.sent = [0] * KEYS, [0] * KEYS

    async def fill(self) -> None:
        leader = self._world.leader()
        for key in range(KEYS):
            if not await self._asked(leader, f"INSERT INTO {COUNTERS.name} VALUES ($1, 0)", key):
                raise Violation("a global row cannot be inserted before any blow")

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        await asyncio.gather(*(self._client(key % KEYS, until) for key in range(2 * KEYS)))

    async def _client(self, key: int, until: float) -> None:
        while self._world.loop.time() < until:
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))
            nodes = [node for node in self._world.running() if node.instance is not None]
            if not nodes:
                continue
            node = self._chance.choice(nodes)
            if self._chance.random() < 0.3:
                await self._read(node, key)
                continue
            self.sent[key] += 1
            answer = await self._asked(node, _RAISE, key)
            if answer == ():
                self.sent[key] -= 1  # it certainly did not happen
            elif answer is not None:
                self.acked[key] += 1
                if answer[1] != 1:
                    raise Violation(f"{node} raised {answer[1]} rows, and counter {key} is there")

    async def _read(self, node: Any, key: int, least: int = 0) -> bool:
        """A copy of a global table may be old, and tells nothing that was never so."""
        answer = await self._asked(node, _READ, key)
        if not answer:
            return False
        found = answer[0][0][0] if answer[0] else 0
        if not least <= found <= self.sent[key]:
            raise Violation(f"{node}: counter {key} is {found}, not {least}…{self.sent[key]}")
        return True

    async def _asked(self, node: Any, text: str, key: int) -> Any:
        """None: who knows; (): it was refused."""

        async def work() -> Any:
            client = await self._connections.free(key, node)
            return await client.run(text, (key,))

        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None or task.cancelled():
            return None
        try:
            return task.result()
        except CairnError as problem:
            return None if problem.sqlstate == UNKNOWN else ()

    async def check(self) -> None:
        """After calm everybody tells the same, and no less than was acknowledged."""
        for node in self._world.running():
            for key in range(KEYS):
                if not await self._read(node, key, self.acked[key]):
                    raise Violation(f"counter {key} cannot be read through {node} in the end")
