"""A load that does not commute: a few rows, changed over and over by one client for each group.

A client knows which contents of its rows are possible: what was acknowledged has happened, what was
refused has not, and of what has an unknown end both are possible. Order counts: a text says which
statements made it, so one that is lost, done twice or done out of order shows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import apsw

from cairn.model.errors import CairnError
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.load import TABLE, Load
from cairn.sim.cluster.node import SimNode

KEYS = 3  # of one client: some statements change all of them
Content = tuple[str | None, ...]
Change = Callable[[str | None], str | None]
_NAME = TABLE.physical_name
_WHERE = "WHERE bucket_id = ? AND c0 = ?"
_PUT = (
    f"INSERT INTO {_NAME}(bucket_id, c0, c1) VALUES (?, ?, ?) "
    "ON CONFLICT (bucket_id, c0) DO UPDATE SET c1 = excluded.c1"
)
_APPEND = f"UPDATE {_NAME} SET c1 = c1 || ? {_WHERE}"
_DELETE = f"DELETE FROM {_NAME} {_WHERE}"


class Group:
    """The rows of one client, and what they may contain."""

    def __init__(self, number: int, chance: random.Random, *, is_strict: bool) -> None:
        self.keys = tuple(range(number * KEYS, number * KEYS + KEYS))
        self._chance, self._is_strict = chance, is_strict
        self.possible: set[Content] = {(None,) * KEYS}
        self.tags: set[str] = set()  # of statements that may have happened
        self._next = number * 1_000_000

    def statement(self) -> tuple[str, list[tuple[Any, ...]], list[int], Change]:
        """SQL, parameters, the places of the keys it changes, and what it does to each."""
        chance = self._chance
        several = chance.random() < 0.3
        places = list(range(KEYS)) if several else [chance.randrange(KEYS)]
        keys = [(self.keys[at] % 30 + 1, self.keys[at]) for at in places]
        self._next += 1
        tag = f"{self._next}"
        kind = chance.random()
        if kind < 0.4:
            return _PUT, [(*key, tag) for key in keys], places, lambda _: tag
        if kind < 0.85:
            words = f"+{tag}"
            return (
                _APPEND,
                [(words, *key) for key in keys],
                places,
                lambda old: None if old is None else old + words,
            )
        return _DELETE, list(keys), places, lambda _: None

    def happened(self, places: list[int], change: Change, outcome: str) -> None:
        """The last statement ended: `done`, `refused`, or in a way that nobody knows."""
        if outcome == "refused":
            return
        self.tags.add(f"{self._next}")
        after = {
            tuple(change(old) if at in places else old for at, old in enumerate(content))
            for content in self.possible
        }
        if self._is_strict:
            self.possible = after if outcome == "done" else self.possible | after

    def told(self, content: Content, by: str) -> None:
        """A read as the master: only what is possible, and from now on only that."""
        if not self._is_strict:
            return
        if content not in self.possible:
            raise Violation(f"{by} told {content}, possible are {sorted(map(str, self.possible))}")
        self.possible = {content}

    def check(self, content: Content) -> None:
        """At the end. Where acknowledged rows may be lost, order and truth still hold."""
        if self._is_strict:
            self.told(content, "the end")
        for text in content:
            tags = [] if text is None else [int(tag) for tag in text.split("+")]
            if tags != sorted(set(tags)):
                raise Violation(f"statements out of order, or twice: {text}")
        if unknown := set(_tags(content)) - self.tags:
            raise Violation(f"{sorted(unknown)} were never written: {content}")


def _tags(content: Content) -> list[str]:
    return [tag for text in content if text is not None for tag in text.split("+")]


class Registers:
    """Clients that write and read their groups at whoever takes itself for the master."""

    def __init__(self, load: Load, clients: int, chance: random.Random, *, is_strict: bool) -> None:
        self._load, self._world, self._chance = load, load.world, chance
        self.groups = [Group(number, chance, is_strict=is_strict) for number in range(clients)]
        self.violation: Violation | None = None
        self.done = self.unknown = self.refused = self.reads = 0

    async def run(self, seconds: float) -> None:
        await asyncio.gather(*(self._client(group, seconds) for group in self.groups))
        if self.violation is not None:
            raise self.violation

    async def _client(self, group: Group, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        while self._world.loop.time() < until and self.violation is None:
            await asyncio.sleep(self._chance.uniform(0.005, 0.1))
            nodes = [node for node in self._load.masters() if not node.is_paused]
            if not nodes:
                continue
            node = self._chance.choice(nodes)
            try:
                if self._chance.random() < 0.3:
                    await self._read(node, group)
                else:
                    await self._write(node, group)
            except Violation as broken:
                self.violation = self.violation or broken

    def _version(self, node: SimNode) -> int:
        assert node.instance is not None
        return node.instance.state.catalog.tables[TABLE.name].schema_version

    async def _write(self, node: SimNode, group: Group) -> str:
        sql, rows, places, change = group.statement()
        buckets = tuple(group.keys[at] % 30 + 1 for at in places)
        request = WriteRequest(TABLE.id, self._version(node), sql, tuple(rows), buckets)
        execution = self._load.execution(node)
        outcome, _ = await self._heard(node, lambda: execution.write(request))
        setattr(self, outcome, getattr(self, outcome) + 1)
        group.happened(places, change, outcome)
        return outcome

    async def _read(self, node: SimNode, group: Group) -> None:
        marks = ", ".join("?" * KEYS)
        request = ReadRequest(
            f"SELECT c0, c1 FROM {_NAME} WHERE c0 IN ({marks})",
            group.keys,
            {TABLE.id: self._version(node)},
            ranges=((1, 30),),
        )
        execution = self._load.execution(node)
        outcome, rows = await self._heard(node, lambda: execution.read(request))
        if outcome == "done":
            self.reads += 1
            found = dict(rows)
            group.told(tuple(found.get(key) for key in group.keys), str(node))

    async def _heard(self, node: SimNode, work: Callable[[], Any]) -> tuple[str, Any]:
        """How it ended, and its answer. Of a process that died nothing is heard."""
        process = node.process
        assert process is not None

        async def run() -> Any:
            return await work()

        task = self._world.loop.create_task(run(), context=process.context)
        while not task.done():
            if node.process is not process or not node.is_running:
                task.cancel()
                return "unknown", None
            await asyncio.sleep(0.005)
        try:
            return "done", task.result()
        except asyncio.CancelledError:
            return "unknown", None
        except CairnError as problem:
            return ("unknown" if problem.sqlstate == "40003" else "refused"), None

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """After calm: all replicas have the same content and schema, and it is explained."""
        nodes = self._world.running()
        await self._world.until(
            lambda: all(standing(node) == standing(nodes[0]) for node in nodes),
            "replicas with equal rows, schemas and vclocks",
            30.0,
        )
        rows = self._load.rows_of(nodes[0])
        for group in self.groups:
            group.check(tuple(rows.get(key) for key in group.keys))
        [master] = self._load.masters()
        for group in self.groups:
            if await self._write(master, group) != "done":
                raise Violation("the table cannot be used in the end")
            await self._read(master, group)


def standing(node: SimNode) -> Any:
    """All that replicas have in common: rows, schema, vclock; and the texts of global tables."""
    data = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
    raft = apsw.Connection(str(node.dir / "raft.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        texts = raft.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
        names = [
            name
            for (name,) in data.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name[0] == "t" and name[1:].isdigit()
        ]
        tables = {name: _table(data, name) for name in sorted(names)}
        return texts, tables, dict(data.execute("SELECT origin, lsn FROM vclock"))
    finally:
        data.close()
        raft.close()


def _table(data: apsw.Connection, name: str) -> Any:
    """Columns, indexes and rows. The text of a table differs: a copy makes all columns at once."""
    columns = data.execute(f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{name}')")
    indexes = data.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? ORDER BY 1",
        (name,),
    )
    rows = data.execute(f"SELECT * FROM {name} ORDER BY 1, 2")
    return columns.fetchall(), indexes.fetchall(), rows.fetchall()
