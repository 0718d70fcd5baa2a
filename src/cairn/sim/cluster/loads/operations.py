"""Writes that are asked for again until they are done, and must be done only once.

A client puts a word into a few rows of several buckets under an operation's id, as Spark's staged
writes do, and asks again, at other instances, until it is told that it was done. Then it adds to
these rows. An attempt that comes late, after buckets have moved or a master was killed, must find
that it was done: else it would take away what was added since.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from cairn.model.errors import CairnError
from cairn.node.statements.context import Context
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.registers import BUCKETS, table_at, wait_settled
from cairn.sim.cluster.node import SimNode
from cairn.sql import plans

ROWS = 5  # of one client, each in another bucket
CLIENTS = 6
PATIENCE_S = (0.02, 0.5, 6.0)  # the first attempts are given up soon, and come late
TRIES = 40
_NAME = TABLE.physical_name
_PUT = (
    f"INSERT INTO {_NAME}(bucket_id, c0, c1) VALUES (?, ?, ?) "
    "ON CONFLICT (bucket_id, c0) DO UPDATE SET c1 = excluded.c1"
)
_ADD = f"UPDATE {_NAME} SET c1 = c1 || ?3 WHERE bucket_id = ?1 AND c0 = ?2"
_READ = f"SELECT c1 FROM {_NAME} WHERE bucket_id = ?1 AND c0 = ?2"


class Row:
    """One row, and what it must and may be."""

    def __init__(self, key: int, bucket: int) -> None:
        self.key, self.bucket = key, bucket
        self.base = ""  # the word of the last operation that was done
        self.added: list[str] = []  # acknowledged since
        self.unknown: set[str] = set()  # may be there or not, also of earlier words

    def why_wrong(self, text: str | None) -> str | None:
        if not self.base:
            return None
        if text is None:
            return f"it is gone, and was {self.base}"
        base, *added = text.split("+")
        certain = [tag for tag in added if tag not in self.unknown]
        if base != self.base or certain != self.added or len(set(added)) != len(added):
            return f"it is {text}, and not {'+'.join((self.base, *self.added))} ({self.unknown})"
        return None


class Operations:
    def __init__(self, load: Load, chance: random.Random) -> None:
        self._load, self._world, self._chance = load, load.world, chance
        self.rows = [
            [
                Row(9_000 + client * ROWS + n, (client * 3 + n * 7) % BUCKETS + 1)
                for n in range(ROWS)
            ]
            for client in range(CLIENTS)
        ]
        self.groups: list[Any] = []
        self.done = self.unknown = self.refused = self.reads = 0
        self.problem = ""
        self.ways: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        await asyncio.gather(*(self._client(client, until) for client in range(CLIENTS)))

    async def _client(self, client: int, until: float) -> None:
        count = 0
        while self._world.loop.time() < until:
            count += 1
            word = f"w{client}.{count}"
            if not await self._put(self.rows[client], word):
                for row in self.rows[client]:
                    row.base = ""  # nobody knows any more; the client gives up
                return
            for _ in range(self._chance.randint(1, 6)):
                row = self._chance.choice(self.rows[client])
                await self._add(row, f"{word}.{self._chance.randrange(1 << 40):x}")
                if self._chance.random() < 0.3:  # somebody has not heard that it was done
                    await self._attempt(self.rows[client], word, PATIENCE_S[-1])
                await self._look(row)
            await asyncio.sleep(self._chance.choice((0.0, 0.3, 2.0)))
            await self._attempt(self.rows[client], word, PATIENCE_S[-1])

    async def _put(self, rows: list[Row], word: str) -> bool:
        """Whether it is known to have been done."""
        for number in range(TRIES):
            patience_s = PATIENCE_S[min(number, len(PATIENCE_S) - 1)]
            if self._chance.random() < 0.5:
                patience_s = PATIENCE_S[-1]
            if await self._attempt(rows, word, patience_s) == "done":
                self.done += 1
                for row in rows:
                    row.base, row.added = word, []
                return True
            await asyncio.sleep(self._chance.uniform(0.0, 0.3))
        return False

    async def _attempt(self, rows: list[Row], word: str, patience_s: float) -> str:
        by_bucket: dict[int, list[Any]] = {}
        for row in rows:
            by_bucket.setdefault(row.bucket, []).append((row.bucket, row.key, word))
        node = await self._some()
        table = table_at(node)
        if table is None:
            return "refused"
        writes, context = self._load.ways(node).writes, Context(operation=f"once:{word}")
        work = partial(writes.insert_rows, table, "default", _PUT, by_bucket, context)
        outcome, _ = await self._heard(node, work, patience_s, is_left=True)
        self.ways[f"put {outcome}"] = self.ways.get(f"put {outcome}", 0) + 1
        return outcome

    async def _add(self, row: Row, tag: str) -> None:
        node = await self._some()
        table = table_at(node)
        if table is None:
            return
        plan = plans.PointWrite(_ADD, tuple, lambda values: values[0], "default", table)
        writes, params = self._load.ways(node).writes, (row.bucket, row.key, f"+{tag}")
        outcome, _ = await self._heard(
            node, lambda: writes.run(plan, params, {}, Context()), PATIENCE_S[-1]
        )
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "done":
            row.added.append(tag)
        elif outcome == "unknown":
            row.unknown.add(tag)

    async def _look(self, row: Row) -> bool:
        node = await self._some()
        table = table_at(node)
        if table is None:
            return False
        plan = plans.PointRead(_READ, tuple, lambda values: values[0], "default")
        params, versions = (row.bucket, row.key), {table.id: table.schema_version}
        reads = self._load.ways(node).reads
        outcome, answer = await self._heard(
            node, lambda: reads.read(plan, params, versions, Context()), PATIENCE_S[-1]
        )
        if outcome != "done":
            return False
        self.reads += 1
        if why := row.why_wrong(answer[0][0] if answer else None):
            raise Violation(f"row {row.key} of bucket {row.bucket}, told by {node}: {why}")
        return True

    async def _some(self) -> SimNode:
        while True:
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                return self._chance.choice(nodes)
            await asyncio.sleep(0.05)

    async def _heard(
        self, node: SimNode, work: Callable[[], Any], patience_s: float, *, is_left: bool = False
    ) -> tuple[str, Any]:
        """`is_left`: whoever gives up leaves it under way, as one does whose connection is gone."""
        task = await heard(self._world, node, work, patience_s, is_left=is_left)
        if task is None or task.cancelled():
            return "unknown", None
        try:
            return "done", task.result()
        except CairnError as problem:
            self.problem = f"{problem.sqlstate} {problem}"
            is_known = problem.sqlstate not in ("40003", "PC006")
            return ("refused" if is_known else "unknown"), None

    async def check(self) -> None:
        """After calm, and after whatever was still under way."""
        await wait_settled(self._world)
        for row in (row for rows in self.rows for row in rows):
            if not await self._look(row):
                raise Violation(f"row {row.key} cannot be read in the end: {self.problem}")
