"""Families and tallies over real sessions: what SQL does in one statement is whole, or not there.

A tally is raised by INSERT … ON CONFLICT or by MERGE, and notes who raised it. A family is a parent
with children whose rows follow it (ON DELETE CASCADE), one of which is `open`: an index of the open
ones alone keeps them to one. Each family has one client, which knows whether it is there.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Literal

from cairn.model.errors import CairnError, TableUnderDdl
from cairn.node.statements.asker.owners import SCHEMA_S
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.index_makers import MADE, MAKERS, IndexMakers
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.registers import wait_settled
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import UNKNOWN, Connections, Faces

Outcome = Literal["done", "unknown", "undone"]
CLIENTS, TALLIES, CHILDREN = 8, 3, 3
PATIENCE_S = 40.0
SOON_S = (0.0, 0.0, 0.001, 0.003, 0.01, 0.1)  # until a client that does not want it says so
#: What a client may be told.
TOLD = frozenset({"40001", UNKNOWN, "57P01", "57P03", "PC002", "PC003", "58000", "53100"})
#: All families together: rows that name each other lie in one bucket.
SCHEMA = (
    "CREATE TABLE tally (id INT PRIMARY KEY, n INT, who TEXT) DISTRIBUTED BY (id)",
    "CREATE TABLE merged (id INT PRIMARY KEY, n INT, who TEXT) DISTRIBUTED BY ()",
    "CREATE TABLE parent (id INT PRIMARY KEY) DISTRIBUTED BY ()",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT REFERENCES parent ON DELETE CASCADE, "
    "open BOOLEAN) DISTRIBUTED BY ()",
    "CREATE INDEX child_p ON child (p)",
    "CREATE UNIQUE INDEX one_open ON child (p) WHERE open",
)
TABLES = ("tally", "merged")
#: By the index of a few rows, by that of all, and by none.
FAMILIES = (
    "SELECT p.id, (SELECT count(*) FROM child c WHERE c.p = p.id), "
    "(SELECT count(*) FROM child c WHERE c.p = p.id AND open), "
    "(SELECT count(*) FROM child c WHERE c.p + 0 = p.id AND NOT (NOT open)) FROM parent p"
)
ORPHANS = "SELECT id, p FROM child WHERE p NOT IN (SELECT id FROM parent)"


class Kin:
    """Clients, and what has to be true of every answer."""

    groups = ()  # of the table that other loads change

    def __init__(self, load: Load, faces: Faces, chance: random.Random, *, is_strict: bool) -> None:
        self._world, self._chance, self._is_strict = load.world, chance, is_strict
        self._connections = Connections(faces)
        self.done = self.unknown = self.refused = self.reads = 0
        self.ways: Counter[str] = Counter()
        self._raised: dict[str, dict[str, Outcome]] = {table: {} for table in TABLES}
        self._is_there: dict[int, bool | None] = {}  # None: nobody knows
        self._problem = ""
        self.makers: IndexMakers | None = None

    def make_indexes(self, chance: random.Random) -> None:
        """Of the tables, while clients use them."""
        self.makers = IndexMakers(self._asked, chance)

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    async def fill(self) -> None:
        node = self._world.running()[0]
        for text in (*SCHEMA, MADE) if self.makers is not None else SCHEMA:
            outcome, _ = await self._asked(-1, node, text)
            if outcome != "done":
                raise Violation(f"{text} before any blow: {outcome} {self._problem}")

    async def run(self, seconds: float) -> None:
        until = self._now + seconds
        count = CLIENTS if self.makers is None else CLIENTS // 2
        clients = [self._client(each, until) for each in range(count)]
        if self.makers is not None:
            clients += [self._maker(self.makers, CLIENTS + each, until) for each in range(MAKERS)]
        await asyncio.gather(*clients)

    async def _maker(self, makers: IndexMakers, whose: int, until: float) -> None:
        while self._now < until:
            await asyncio.sleep(self._chance.uniform(0.0, 0.1))
            nodes = [node for node in self._world.running() if node.instance is not None]
            if nodes:
                self._counted(*await makers.step(whose, self._chance.choice(nodes)))

    async def _client(self, whose: int, until: float) -> None:
        self._is_there[whose] = False
        number = 0
        while self._now < until:
            await asyncio.sleep(self._chance.uniform(0.02, 0.3))
            nodes = [node for node in self._world.running() if node.instance is not None]
            if not nodes:
                continue
            number += 1
            work = self._chance.choice((self._raise, self._live, self._live, self._look))
            await work(whose, self._chance.choice(nodes), number)

    # --- tallies ----------------------------------------------------------------------------------

    async def _raise(self, whose: int, node: SimNode, number: int) -> None:
        chance = self._chance
        table, key, who = chance.choice(TABLES), chance.randrange(TALLIES), f" {whose}.{number}"
        if table == "tally":
            text = (
                f"INSERT INTO tally VALUES ({key}, 1, '{who}') ON CONFLICT (id) "
                "DO UPDATE SET n = tally.n + 1, who = tally.who || excluded.who"
            )
        else:
            text = (
                f"MERGE INTO merged m USING (VALUES ({key}, '{who}')) s(id, who) ON m.id = s.id "
                "WHEN MATCHED THEN UPDATE SET n = m.n + 1, who = m.who || s.who "
                "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, s.who)"
            )
        outcome, _ = await self._asked(whose, node, text)
        self._raised[table][who.strip()] = outcome
        self._counted(outcome, table)

    def _why_wrong(self, table: str, rows: list[Any], *, at_the_end: bool) -> str:
        seen: Counter[str] = Counter()
        for key, n, who in rows:
            names = who.split()
            if len(names) != n:
                return f"{table} {key} is {n}, and was raised by {names}"
            seen.update(names)
        known = self._raised[table]
        for name, times in seen.items():
            if times > 1:
                return f"{name} raised {table} {times} times"
            if known.get(name, "unknown") == "undone":
                return f"{name} was refused, and raised {table}"
        if at_the_end and self._is_strict:
            for name, outcome in known.items():
                if outcome == "done" and name not in seen:
                    return f"{name} raised {table}, and that is lost"
        return ""

    # --- families ---------------------------------------------------------------------------------

    async def _live(self, whose: int, node: SimNode, number: int) -> None:
        is_there = self._is_there[whose]
        self._is_there[whose] = None
        if is_there and self._chance.random() < 0.4:
            await self._intrude(whose, node)
            self._is_there[whose] = is_there
            return
        ends = self._chance.random() < 0.5 if is_there is None else is_there
        rows = ", ".join(
            f"({whose * 100 + at}, {whose}, {'true' if at == 0 else 'false'})"
            for at in range(CHILDREN)
        )
        begun = f"INSERT INTO parent VALUES ({whose}); INSERT INTO child VALUES {rows};"
        text = f"DELETE FROM parent WHERE id = {whose}"
        if not ends:
            text = self._chance.choice((f"DO $$ BEGIN {begun} END $$", f"BEGIN; {begun} COMMIT"))
        outcome, _ = await self._asked(whose, node, text, also={"23505"} if not ends else set())
        if outcome == "done":
            self._is_there[whose] = not ends
        elif outcome == "undone":
            self._is_there[whose] = is_there
        if outcome == "undone" and self._problem.startswith("23505") and is_there is False:
            if self._is_strict:
                raise Violation(f"family {whose} is there, and was ended: {self._problem}")
            self._is_there[whose] = None
        self._counted(outcome, "end" if ends else "begin")

    async def _intrude(self, whose: int, node: SimNode) -> None:
        """A second one that is open is refused; where rows may be lost, its parent may be gone."""
        text = f"INSERT INTO child VALUES ({whose * 100 + 50}, {whose}, true)"
        refusals = {"23505"} if self._is_strict else {"23505", "23503"}
        outcome, _ = await self._asked(whose, node, text, also=refusals)
        self.ways["intrude"] += 1
        if outcome == "done":
            raise Violation(f"family {whose} has two that are open")

    async def _look(self, whose: int, node: SimNode, number: int) -> None:
        before = dict(self._is_there)
        if self._chance.random() < 0.5:
            table = self._chance.choice(TABLES)
            outcome, rows = await self._asked(whose, node, f"SELECT id, n, who FROM {table}")
            why = "" if outcome != "done" else self._why_wrong(table, rows, at_the_end=False)
        else:
            outcome, rows = await self._asked(whose, node, FAMILIES)
            same = {each for each in before if before[each] is self._is_there[each]}
            why = "" if outcome != "done" else self._why_not_whole(rows, before, same & {whose})
        if why:
            raise Violation(f"{node} tells: {why}")
        self.reads += outcome == "done"

    def _why_not_whole(self, rows: list[Any], known: dict[int, bool | None], sure: set[int]) -> str:
        for key, *counts in rows:
            if counts != [CHILDREN, 1, 1]:
                return f"family {key} has {counts} children, open ones, open ones by no index"
        there = {row[0] for row in rows}
        for key in sure if self._is_strict else ():
            if known[key] is not None and known[key] != (key in there):
                return f"family {key} is {'there' if key in there else 'not there'}"
        return ""

    # --- asking -----------------------------------------------------------------------------------

    def _counted(self, outcome: str, way: str) -> None:
        self.done += outcome == "done"
        self.unknown += outcome == "unknown"
        self.refused += outcome == "undone"
        self.ways[f"{way} {outcome}"] += 1

    async def _asked(
        self, whose: int, node: SimNode, text: str, also: set[str] | frozenset[str] = frozenset()
    ) -> tuple[Outcome, Any]:
        async def work() -> Any:
            client = await self._connections.free(whose, node)
            cancel: asyncio.TimerHandle | None = None
            if is_cancelled:
                cancel = self._world.loop.call_later(self._chance.choice(SOON_S), client.cancel)
            try:
                return await client.ask(text)
            except CairnError:
                if text.startswith("BEGIN") and not client.is_over:
                    await client.ask("ROLLBACK")
                raise
            finally:  # it would meet the next statement of this connection
                if cancel is not None:
                    cancel.cancel()

        is_cancelled = whose >= 0 and self._chance.random() < 0.15
        begun = self._now
        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None or task.cancelled():
            return "unknown", None
        problem = task.exception()
        if problem is None:
            return "done", task.result()
        if not isinstance(problem, CairnError):
            raise problem
        code = problem.sqlstate
        self._problem = f"{code} {problem}"
        self.ways[f"told {code}"] += 1
        if code == TableUnderDdl.sqlstate and self._now - begun > SCHEMA_S - 1:
            return "undone", None  # its owner was cut off while somebody changed the table
        if code not in TOLD | also | ({"57014"} if is_cancelled else set()):
            raise Violation(f"{node} told a client: {code} {problem} ({text})")
        return ("unknown" if code in (UNKNOWN, "58000") else "undone"), None

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        await wait_settled(self._world)
        for node in self._world.running():
            for text in (*(f"SELECT id, n, who FROM {each}" for each in TABLES), FAMILIES, ORPHANS):
                outcome, rows = await self._asked(-1, node, text)
                if outcome != "done":
                    raise Violation(f"{node} does not answer in the end: {self._problem}")
                if text is ORPHANS:
                    why = f"{rows} have no parent" if rows else ""
                elif text is FAMILIES:
                    why = self._why_not_whole(rows, self._is_there, {*self._is_there})
                else:
                    why = self._why_wrong(text.split()[-1], rows, at_the_end=True)
                if why:
                    raise Violation(f"in the end {node} tells: {why}")
