"""Joins under fire: two tables whose keys never change, so that every answer is known.

Readers join them over real sessions in parts, gathered or at replicas, while a number in each row
grows. Each row is told exactly once, with all that it meets; its number is at least what was
acknowledged, or told to anybody, before the question, and at most what was sent before the answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cairn.model.errors import CairnError
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.registers import EQUAL_S, wait_settled, why_unequal
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import UNKNOWN, Connections, Faces

KEYS, PARTNERS, GROUPS = 12, 20, 4  # rows of each, and what they are joined by
PATIENCE_S = 12.0  # of a client: a join begins anew while buckets move


def _table(number: int, name: str, *columns: str) -> Table:
    return Table(
        id=TABLE.id + 100 + number,
        name=name,
        columns=tuple(Column(each, ColumnType.INTEGER, nullable=False) for each in columns),
        primary_key=(columns[0],),
        sharding=Sharded((columns[0],), "default"),
    )


LEFT = _table(0, "l", "k", "g", "n")  # n grows
RIGHT = _table(1, "r", "id", "h", "lk")  # h is a group, lk a key of the other table
TABLES = (LEFT, RIGHT)


def group_of(key: int) -> int:
    return key % (GROUPS + 1)  # one more than partners have: these rows meet nobody


_PARTNERS = Counter(number % GROUPS for number in range(PARTNERS))
_POINTERS = Counter(number % KEYS for number in range(PARTNERS))


class Join(NamedTuple):
    """Rows are (key, its number or None, what it met); which keys are told, and what each meets."""

    text: str
    met: dict[int, int]


JOINS = (
    Join(  # neither side is where its partners are
        "SELECT l.k, l.n, count(*) FROM l JOIN r ON l.g = r.h GROUP BY l.k, l.n",
        {key: _PARTNERS[group_of(key)] for key in range(KEYS) if _PARTNERS[group_of(key)]},
    ),
    Join(  # who meets nobody is told as well
        "SELECT l.k, l.n, count(r.id) FROM l LEFT JOIN r ON l.g = r.h GROUP BY l.k, l.n",
        {key: _PARTNERS[group_of(key)] for key in range(KEYS)},
    ),
    Join(  # one side stays where it is
        "SELECT l.k, l.n, count(*) FROM r JOIN l ON r.lk = l.k GROUP BY l.k, l.n",
        {key: _POINTERS[key] for key in range(KEYS)},
    ),
    Join(  # a table with itself
        "SELECT x.k, NULL, count(DISTINCT y.k) * 100 + count(*) FROM l x JOIN l y ON x.g = y.g "
        "GROUP BY x.k",
        {
            key: 101 * sum(group_of(other) == group_of(key) for other in range(KEYS))
            for key in range(KEYS)
        },
    ),
)
HOWS = (
    *("sql_repartition = on",) * 6,
    *("sql_repartition = off",) * 2,
    "sql_repartition = on, read_preference = any",
)


class Joins:
    """Clients, what they did, and what has to be true of every answer."""

    groups = ()  # of the table that other loads change: nobody joins it

    def __init__(self, load: Load, faces: Faces, chance: random.Random, *, is_strict: bool) -> None:
        self._world, self._chance, self.is_strict = load.world, chance, is_strict
        self._connections = Connections(faces)
        self.sent, self.acked = [0] * KEYS, [0] * KEYS
        self.told = [0] * KEYS  # the most that a reader of masters was told
        self.done = self.unknown = self.refused = self.reads = 0
        self.problem = ""
        self.ways: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        readers = [self._client(until, self._join) for _ in range(4)]
        writers = [
            self._client(until, lambda node, key=key: self._raise(node, key))  # type: ignore[misc]
            for key in range(KEYS)
        ]
        await asyncio.gather(*readers, *writers)

    async def _client(self, until: float, work: Callable[[SimNode], Any]) -> None:
        while self._world.loop.time() < until:
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                await work(self._chance.choice(nodes))

    async def fill(self) -> None:
        """All rows are there, at every replica, before anything happens to them."""
        node = self._world.running()[0]
        for key in range(KEYS):
            text = f"INSERT INTO {LEFT.name} VALUES ($1, $2, 0)"
            await self._surely(node, text, (key, group_of(key)))
        for number in range(PARTNERS):
            text = f"INSERT INTO {RIGHT.name} VALUES ($1, $2, $3)"
            await self._surely(node, text, (number, number % GROUPS, number % KEYS))
        await self._world.until(lambda: why_unequal(self._world) is None, "equal", EQUAL_S)

    async def _surely(self, node: SimNode, text: str, params: Sequence[Any]) -> None:
        outcome, _ = await self._asked(node, -1, text, params)
        if outcome != "done":
            raise Violation(f"{text} before any blow: {outcome} {self.problem}")

    # --- clients ----------------------------------------------------------------------------------

    async def _raise(self, node: SimNode, key: int) -> None:
        """Only this client writes this row."""
        self.sent[key] += 1
        text = f"UPDATE {LEFT.name} SET n = n + 1 WHERE k = $1"
        outcome, answer = await self._asked(node, key, text, (key,))
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "done":
            self.acked[key] += 1
            if answer[1] != 1:
                raise Violation(f"row {key} is gone: {node} changed {answer[1]} rows")

    async def _join(self, node: SimNode) -> bool:
        join, how = self._chance.choice(JOINS), self._chance.choice(HOWS)
        return await self._joined(node, join, how)

    async def _joined(self, node: SimNode, join: Join, how: str) -> bool:
        is_fresh = self.is_strict and "any" not in how
        before = list(map(max, self.acked, self.told)) if is_fresh else [0] * KEYS
        outcome, answer = await self._asked(node, -1, f"{join.text} OPTION ({how})", ())
        if outcome != "done":
            return False
        self.reads += 1
        self.ways[how] = self.ways.get(how, 0) + 1
        if why := why_wrong(answer[0], join.met, before, self.sent):
            raise Violation(f"{node} told of {join.text} ({how}): {why}")
        for key, number, _ in answer[0] if is_fresh else ():
            self.told[key] = max(self.told[key], number or 0)
        return True

    async def _asked(
        self, node: SimNode, whose: int, text: str, params: Sequence[Any]
    ) -> tuple[str, Any]:
        async def work() -> Any:
            client = await self._connections.free(whose, node)
            return await client.run(text, params)

        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None or task.cancelled():
            return "unknown", None
        try:
            return "done", task.result()
        except CairnError as problem:
            self.problem = f"{problem.sqlstate} {problem}"
            return ("unknown" if problem.sqlstate == UNKNOWN else "refused"), None

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """After calm every join is answered, whoever is asked."""
        await wait_settled(self._world)
        for node in self._world.running():
            for join in JOINS:
                if not await self._joined(node, join, "sql_repartition = on"):
                    raise Violation(f"cannot be joined through {node} in the end: {self.problem}")


def why_wrong(
    rows: Sequence[Any], met: dict[int, int], least: Sequence[int], most: Sequence[int]
) -> str | None:
    told = Counter(row[0] for row in rows)
    if doubled := sorted(key for key, count in told.items() if count > 1):
        return f"rows {doubled} were told more than once: {sorted(rows)}"
    if told.keys() != met.keys():
        return f"rows {sorted(told.keys() ^ met.keys())} are missing or were invented"
    for key, number, count in rows:
        if count != met[key]:
            return f"row {key} met {count}, and there are {met[key]}"
        if number is not None and not least[key] <= number <= most[key]:
            return f"row {key} is {number}, it was between {least[key]} and {most[key]}"
    return None
