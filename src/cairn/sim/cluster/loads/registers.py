"""A load that does not commute: a few rows, changed over and over by clients that share them.

Clients come to any instance, as drivers with an old map do, and go the way a session goes: a point
read or a point write here, else one hop to the owner, else the long way; some puts go in as COPY
does. They give up after a while, like people. What they did and were told is judged by
`register_history`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import apsw

from cairn.model.errors import CairnError, NoMaster, NotOwner, PartialWrite, TableUnderDdl
from cairn.model.rpc import ReadResponse, WriteResponse
from cairn.model.tables.schema import Table
from cairn.node.statements.context import Context
from cairn.node.statements.executor import Executor
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.quiet import Quiet
from cairn.sim.cluster.loads.register_history import ROWS, Content, History, Operation
from cairn.sim.cluster.loads.sync_times import SyncTimes
from cairn.sim.cluster.node import SimNode
from cairn.sim.linear import FOREVER
from cairn.sql import plans
from cairn.sql.functions.functions import register

BUCKETS = 30
PATIENCE_S = 8.0  # of a client
EQUAL_S = 60.0  # until replicas have to be equal, after the calm
_NAME = TABLE.physical_name
_WHERE = "WHERE bucket_id = ?1 AND c0 BETWEEN ?2 AND ?3"
_APPEND = f"UPDATE {_NAME} SET c1 = c1 || ?4 {_WHERE}"
_DELETE = f"DELETE FROM {_NAME} {_WHERE}"
_READ = f"SELECT c0, c1 FROM {_NAME} {_WHERE}"
_INSERT = f"INSERT INTO {_NAME}(bucket_id, c0, c1) VALUES "
_CONFLICT = " ON CONFLICT (bucket_id, c0) DO UPDATE SET c1 = excluded.c1"
_PUT = {
    count: _INSERT + ", ".join(f"(?1, ?2 + {n}, ?4)" for n in range(count)) + _CONFLICT
    for count in (1, ROWS)
}
_COPY = _INSERT + "(?, ?, ?)" + _CONFLICT
Kind = Literal["put", "append", "delete"]


class Group:
    """A few rows of one bucket, and the history of what clients did to them."""

    def __init__(self, number: int) -> None:
        self.first = number * ROWS
        self.bucket = number * 7 % BUCKETS + 1
        self.history = History()

    @property
    def last(self) -> int:
        return self.first + ROWS - 1

    def content(self, rows: dict[int, Any]) -> Content:
        return tuple(rows.get(key) for key in range(self.first, self.last + 1))


class Registers:
    """Clients that write and read groups of rows, and what has to be true of them in the end."""

    def __init__(
        self,
        load: Load,
        chance: random.Random,
        *,
        groups: int = 4,
        clients_each: int = 2,
        is_strict: bool = True,
        pause_s: float = 0.1,
    ) -> None:
        self._load, self._world, self._chance = load, load.world, chance
        self.groups = [Group(number) for number in range(groups)]
        self.clients_each, self.is_strict, self._pause_s = clients_each, is_strict, pause_s
        self.quiet = Quiet()
        self.sync_times = SyncTimes(self._world, "async")
        self.done = self.unknown = self.refused = self.reads = 0
        self.longest_s = 0.0  # that a client waited for a certain end
        self.problem = ""  # the last error that a client was told
        self.ways: dict[str, int] = {}  # how often each way was gone

    async def run(self, seconds: float) -> None:
        until = self._world.loop.time() + seconds
        work = [
            self._client(number, group, until)
            for number in range(self.clients_each)
            for group in self.groups
        ]
        await asyncio.gather(*work)

    async def _client(self, number: int, group: Group, until: float) -> None:
        chance, count = self._chance, 0
        while self._world.loop.time() < until:
            await asyncio.sleep(chance.uniform(0.05, 1.0) * self._pause_s)
            nodes = [node for node in self._world.running() if node.instance is not None]
            if not nodes:
                continue
            node, count = chance.choice(nodes), count + 1
            if chance.random() < 0.4 or not self.quiet.may_write(node):
                await self.read(node, group)
            else:
                with self.quiet.writing():
                    await self._write(node, group, f"{number}.{count}")

    # --- statements -------------------------------------------------------------------------------

    async def _write(self, node: SimNode, group: Group, tag: str) -> str:
        chance = self._chance
        places = tuple(range(ROWS)) if chance.random() < 0.3 else (chance.randrange(ROWS),)
        kind: Kind = chance.choices(("put", "append", "delete"), (8, 10, 2))[0]
        first, last = group.first + places[0], group.first + places[-1]
        ways, begun = self._load.ways(node), self._world.loop.time()
        table = table_at(node)
        if table is None:
            return "refused"
        if kind == "put" and chance.random() < 0.2:
            rows = [(group.bucket, key, tag) for key in range(first, last + 1)]
            way: Callable[[], Awaitable[Any]] = partial(
                ways.writes.insert_rows, table, "default", _COPY, {group.bucket: rows}, Context()
            )
        else:
            texts = {"put": _PUT[len(places)], "append": _APPEND, "delete": _DELETE}
            word = {"put": (tag,), "append": (f"+{tag}",), "delete": ()}
            params = (group.bucket, first, last, *word[kind])
            plan = plans.PointWrite(texts[kind], tuple, lambda row: row[0], "default", table)
            way = partial(self._as_a_session_writes, ways, plan, params)
        outcome, _ = await self._heard(node, way)
        self._noted(group, outcome, kind, begun, places, tag)
        return outcome

    def _noted(
        self,
        group: Group,
        outcome: str,
        kind: Kind,
        begun: float,
        places: tuple[int, ...],
        tag: str,
    ) -> None:
        """What became of a write: counted, and part of the history unless it was refused."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "refused":
            return
        end = self._world.loop.time() if outcome == "done" else float(FOREVER)
        if outcome == "done":
            self.longest_s = max(self.longest_s, end - begun)
        tag = "" if kind == "delete" else tag
        group.history.add(Operation(kind, begun, end, places, tag))

    async def read(self, node: SimNode, group: Group) -> bool:
        """Whether it was answered."""
        table = table_at(node)
        if table is None:
            return False
        ways, begun = self._load.ways(node), self._world.loop.time()
        plan = plans.PointRead(_READ, tuple, lambda row: row[0], "default")
        params, versions = (group.bucket, group.first, group.last), {table.id: table.schema_version}
        outcome, rows = await self._heard(
            node, lambda: self._as_a_session_reads(ways, plan, params, versions)
        )
        if outcome != "done":
            return False
        self.reads += 1
        now = self._world.loop.time()
        found = group.content(dict(rows))
        group.history.add(Operation("read", begun, now, found=found))
        return True

    # --- the ways of a session --------------------------------------------------------------------

    async def _as_a_session_writes(
        self, ways: Executor, plan: plans.PointWrite, params: tuple[Any, ...]
    ) -> Any:
        back: asyncio.Future[WriteResponse | CairnError]
        back = asyncio.get_running_loop().create_future()

        def done(result: WriteResponse | CairnError) -> None:
            if not back.done():
                back.set_result(result)

        if ways.writes.start_here(plan, params, done):
            self._went("write here")
        elif ways.writes.start_away(plan, params, done) is not None:
            self._went("write away")
        else:
            self._went("write the long way")
            return await ways.writes.run(plan, params, {}, Context())
        result = await back
        if isinstance(result, NotOwner | NoMaster | TableUnderDdl):  # it certainly did not happen
            self._went("write again")
            return await ways.writes.run(plan, params, {}, Context())
        if isinstance(result, CairnError):
            raise result
        return result

    async def _as_a_session_reads(
        self,
        ways: Executor,
        plan: plans.PointRead,
        params: tuple[Any, ...],
        versions: dict[int, int],
    ) -> Any:
        reads = ways.execution.reads
        rows = reads.quick_read(params[0], versions, reads.reader.quick, plan.sql, params)
        if rows is not None:
            self._went("read here")
            return rows
        back: asyncio.Future[ReadResponse | CairnError]
        back = asyncio.get_running_loop().create_future()

        def done(result: ReadResponse | CairnError) -> None:
            if not back.done():
                back.set_result(result)

        if ways.reads.start_away(plan, params, versions, done) is not None:
            self._went("read away")
            result = await back
            if isinstance(result, ReadResponse):
                return result.rows
        self._went("read the long way")
        return await ways.reads.read(plan, params, versions, Context())

    def _went(self, way: str) -> None:
        self.ways[way] = self.ways.get(way, 0) + 1

    async def _heard(self, node: SimNode, work: Callable[[], Any]) -> tuple[str, Any]:
        """How it ended, and its answer. Of a process that died nothing is heard."""
        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None:
            return "unknown", None
        try:
            return "done", task.result()
        except asyncio.CancelledError:
            return "unknown", None
        except PartialWrite:
            raise Violation("a statement of one bucket was carried out in part") from None
        except CairnError as problem:
            self.problem = f"{problem.sqlstate} {problem}"
            return ("unknown" if problem.sqlstate == "40003" else "refused"), None

    # --- the end ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """After calm: every group is where it belongs, can be used, and its history explained."""
        world = self._world
        await wait_settled(world)
        for group in self.groups:
            for node in world.running():
                if not await self.read(node, group):
                    raise Violation(f"cannot be read through {node} in the end: {self.problem}")
            if await self._write(world.running()[0], group, "9.1") != "done":
                raise Violation(f"cannot be written in the end: {self.problem}")
            await self.read(world.running()[-1], group)
        self.judge()

    def judge(self) -> None:
        namings = self._world.checks.namings
        epochs = None if self.is_strict else self.sync_times.losing(namings)
        for group in self.groups:
            if why := group.history.why_wrong(epochs):
                raise Violation(f"rows {group.first}…{group.last} of bucket {group.bucket}: {why}")


def table_at(node: SimNode) -> Table | None:
    """As the instance knows it now: it may have been renamed or changed."""
    assert node.instance is not None
    return node.instance.state.catalog.table_by_id(TABLE.id)


# --- what replicas have ---------------------------------------------------------------------------


async def wait_settled(world: Any) -> None:
    """After calm: replicas become equal, and rows are with their owners."""
    until = world.loop.time() + EQUAL_S
    while why := why_unequal(world):
        if world.loop.time() > until:
            raise Violation(f"replicas do not become equal: {why}")
        await asyncio.sleep(0.5)
    if why := why_not_whole(world) or why_misplaced(world):
        raise Violation(why)


def why_unequal(world: Any) -> str | None:
    """Replicas have the same rows, schema and vclock; and all instances the same global tables."""
    by_replicaset: dict[str, tuple[SimNode, Any]] = {}
    texts: tuple[SimNode, Any] | None = None
    for node in world.running():
        row = node.instance.row if node.instance is not None else None
        if row is None:
            return f"{node} is not there"
        raft, tables, vclock = standing(node)
        texts = texts or (node, raft)
        if raft != texts[1]:
            return f"{texts[0]} and {node} have other global tables: {texts[1]} {raft}"
        known = by_replicaset.setdefault(row.replicaset_name, (node, (tables, vclock)))
        if (tables, vclock) != known[1]:
            return f"{known[0]} and {node} differ: {known[1]} {(tables, vclock)}"
    return None


def why_misplaced(world: Any) -> str | None:
    """Nobody has rows of a bucket that its replicaset does not own."""
    leader = world.leader()
    assert leader is not None and leader.instance is not None
    cluster = leader.instance.state.cluster
    for node in world.running():
        owned = cluster.owned(node.instance.row.replicaset_name)
        for name, (_, _, rows) in standing(node)[1].items():
            for row in rows:
                if not any(each.start <= row[0] <= each.end for each in owned):
                    return f"{node} has a row of {name} in bucket {row[0]}, which it does not own"
    return None


def why_not_whole(world: Any) -> str | None:
    """Every index has an entry for each row, and none for anything else; one that is on its way
    (`storage/data_db/hidden/indexes.py`) has not."""
    for node in world.running():
        data = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            register(data)
            data.execute("PRAGMA ignore_check_constraints = ON")
            found: list[Any] = data.execute("PRAGMA integrity_check").fetchall()
        finally:
            data.close()
        problems = [text for (text,) in found if text != "ok" and " index x" not in text]
        if problems:
            return f"data.db of {node} is not whole: {problems[:3]}"
    return None


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
