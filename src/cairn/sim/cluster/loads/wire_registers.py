"""Registers that are read and written by SQL over real sessions: one row each, by its key.

From the second read on a session has a shorter way for it, in C
(`server/session/shortcuts/lanes.py`). In async mode these answer in the same turn, and nobody is
asked but the guard of reads.
"""

from __future__ import annotations

import random
from typing import Any

from cairn.model.errors import CairnError, PartialWrite
from cairn.model.sharding.buckets import bucket_function
from cairn.model.tables.schema import Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import Load
from cairn.sim.cluster.loads.register_history import ROWS, Content, Operation
from cairn.sim.cluster.loads.registers import BUCKETS, Group, Kind, Registers, table_at
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import Connections, Faces

_bucket_of = bucket_function((ColumnType.INTEGER,), BUCKETS)
FIRST_KEY = 1_000  # behind those of other loads
PILED = 0.08  # of writes come together with those of other registers
RETURNED = 0.3  # of writes tell the rows that they changed
LISTED = 0.3  # of reads ask for another row, too, which may be anywhere
PAGES = 0.2  # of reads ask for all rows in their order, of all owners
TRUNCATE_S = 30.0  # the patience of one who empties a table


class Register(Group):
    """One row, where its key says."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.first = FIRST_KEY + number
        self.bucket = _bucket_of((self.first,))

    @property
    def last(self) -> int:
        return self.first

    def content(self, rows: dict[int, Any]) -> Content:
        return (rows.get(self.first), *(None,) * (ROWS - 1))


class WireRegisters(Registers):
    def __init__(
        self,
        load: Load,
        faces: Faces,
        chance: random.Random,
        *,
        count: int,
        is_strict: bool,
        pause_s: float,
    ) -> None:
        super().__init__(
            load, chance, groups=0, clients_each=3, is_strict=is_strict, pause_s=pause_s
        )
        self.groups = [Register(number) for number in range(count)]
        self._faces, self._connections = faces, Connections(faces)

    # --- statements -------------------------------------------------------------------------------

    async def _write(self, node: SimNode, group: Group, tag: str) -> str:
        kind: Kind = self._chance.choices(("put", "append", "delete"), (8, 10, 2))[0]
        begun, table = self._world.loop.time(), table_at(node)
        if table is None:
            return "refused"
        text = _text(kind, table)
        if self._chance.random() < PILED:
            return await self._pile(node, group, kind, tag)
        if self._chance.random() < RETURNED:
            text += f" RETURNING {table.columns[0].name}"
        word = {"put": (tag,), "append": (f"+{tag}",), "delete": ()}[kind]
        outcome, _ = await self._asked(node, group, text, (group.first, *word))
        self._noted(group, outcome, kind, begun, (0,), tag)
        return outcome

    async def _pile(self, node: SimNode, group: Group, kind: Kind, tag: str) -> str:
        """As `executemany` sends them: one statement for some registers, told of each by itself.
        What is not told of was not executed, unless nobody knows how the one before it ended."""
        table, begun = table_at(node), self._world.loop.time()
        assert table is not None
        number, count = tag.split(".")  # clients of the other registers have the same numbers
        tag = f"{group.first}{number}.{count}"
        others = [each for each in self.groups if each is not group]
        piled = [group, *self._chance.sample(others, min(len(others), 2))]
        self._chance.shuffle(piled)
        word = {"put": (tag,), "append": (f"+{tag}",), "delete": ()}[kind]
        text, rows = _text(kind, table), [(each.first, *word) for each in piled]

        async def work() -> Any:
            client = await self._connections.free(group.first, node)
            return await client.run_many(text, rows)

        outcome, answer = await self._heard(node, work)
        done, problem = (0, None) if answer is None else answer
        if problem is not None:
            self.problem = f"{problem.sqlstate} {problem}"
            outcome = (
                "unknown" if problem.sqlstate in ("40003", PartialWrite.sqlstate) else "refused"
            )
        outcomes = ["done"] * done + [outcome] * (len(piled) - done)
        for each, its in zip(piled, outcomes, strict=True):
            self._noted(each, its, kind, begun, (0,), tag)
        if not done:
            self._went("written together in vain")
        else:
            self._went("written together" if done == len(piled) else "written together in part")
        return outcomes[piled.index(group)]

    async def read(self, node: SimNode, group: Group) -> bool:
        table, begun = table_at(node), self._world.loop.time()
        if table is None:
            return False
        reads = self._load.ways(node).reads
        before, begun_wide = reads.owners.compiled, reads.short.begun
        kind, seen, params = self._question(group)
        outcome, answer = await self._asked(node, group, _text(kind, table), params)
        if outcome != "done":
            return False
        self.reads += 1
        if reads.short.begun > begun_wide:
            self._went("read of several owners without a task")
        else:
            self._went("read by a lane" if reads.owners.compiled > before else "read otherwise")
        rows, now = _by_key(answer[0]), self._world.loop.time()
        for each in seen:
            each.history.add(Operation("read", begun, now, found=each.content(rows)))
        return True

    def _question(self, group: Group) -> tuple[str, list[Group], tuple[int, ...]]:
        """Its kind, the registers that it tells of, and its parameters."""
        dice = self._chance.random()
        if dice >= LISTED + PAGES:
            return "read", [group], (group.first,)
        other = self._chance.choice(self.groups)
        seen = [group] if other is group else [group, other]  # all of them are too much to judge
        if dice < LISTED:
            return "read two", seen, (group.first, other.first)
        every = [each.first for each in self.groups]
        return "read all", seen, (min(every), max(every))

    async def truncate(self) -> str:
        """All rows go, by a session at any instance; how that ended."""
        nodes = [node for node in self._world.running() if node.instance is not None]
        node = self._chance.choice(nodes) if nodes else None
        table = None if node is None else table_at(node)
        if node is None or table is None:
            return "refused"
        name = table.name

        async def work() -> Any:
            client = await self._connections.free(-1, node)
            return await client.run(f"TRUNCATE TABLE {name}", ())

        task = await heard(self._world, node, work, TRUNCATE_S)
        try:
            _ = None if task is None else task.result()
        except CairnError as problem:
            is_unknown = problem.sqlstate in ("40003", "57014")  # "may yet be made"
            return "unknown" if is_unknown else "refused"
        return "unknown" if task is None else "done"

    async def _asked(
        self, node: SimNode, group: Group, text: str, params: tuple[Any, ...]
    ) -> tuple[str, Any]:
        async def work() -> Any:
            # Each register has a connection of its own, that its clients take in turn.
            client = await self._connections.free(group.first, node)
            return await client.run(text, params)

        return await self._heard(node, work)


def _text(kind: str, table: Table) -> str:
    key, value = (column.name for column in table.columns[:2])
    return {
        "read": f"SELECT {key}, {value} FROM {table.name} WHERE {key} = $1",
        "read two": f"SELECT {key}, {value} FROM {table.name} WHERE {key} IN ($1, $2)",
        "read all": f"SELECT {key}, {value} FROM {table.name} WHERE {key} BETWEEN $1 AND $2 "
        f"ORDER BY {key} LIMIT 100",
        "put": f"INSERT INTO {table.name} ({key}, {value}) VALUES ($1, $2) "
        f"ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}",
        "append": f"UPDATE {table.name} SET {value} = {value} || $2 WHERE {key} = $1",
        "delete": f"DELETE FROM {table.name} WHERE {key} = $1",
    }[kind]


def _by_key(rows: Any) -> dict[int, Any]:
    """A row that came twice has a content that nobody wrote."""
    found: dict[int, Any] = {}
    for key, value in rows:
        found[key] = f"{found[key]} and {value}" if key in found else value
    return found


def check_ways(load: Any, *, replicasets: int) -> None:
    """A trial of ways that nobody took proves nothing."""
    ways = ("read by a lane", "read of several owners without a task")
    for way in ways if replicasets > 1 else ways[:1]:
        if not load.ways.get(way):
            raise Violation(f"nothing was {way}: {load.ways}")
