"""Rows under simulation: a sharded table, clients that write and read it, and what they were told.

Clients speak to the instance's own executor, inside its process: when it dies they hear nothing,
when it stands still so do they.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import apsw

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.ranges import whole_table
from cairn.model.rpc import ReadRequest, WriteRequest
from cairn.model.sharding.buckets import bucket_of
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.node.statements.executor import Executor
from cairn.node.statements.owner.execution import Execution
from cairn.node.statements.owner.writes import NotPlain
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.loads.asked_rows import has_lane, insert_asked
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

TABLE = Table(
    id=FIRST_USER_TABLE_ID,
    name="t",
    columns=(
        Column("a", ColumnType.INTEGER, nullable=False),
        Column("b", ColumnType.STRING),
    ),
    primary_key=("a",),
    sharding=Sharded(("a",), "default"),
    schema_version=1,
)
INSERT = f"INSERT INTO {TABLE.physical_name} VALUES (?, ?, ?)"
BUCKETS = 30
COUNT = f"SELECT count(*) FROM {TABLE.physical_name}"
_SCHEMA = (ops.SCHEMA_RANGE, whole_table(system.PICO_TABLE.id), whole_table(system.PICO_INDEX.id))


class Load:
    """Writes with unique keys. `acked` are promises, `unknown` may be there or not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: set[int] = set()
        self.acked: dict[int, float] = {}
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self.stale: str | None = None
        self.reads = 0
        self.told = 0  # the most rows that a read was told of: none of them may go again

    # --- the table --------------------------------------------------------------------------------

    async def create_table(self) -> None:
        world = self.world
        leader = world.leader()
        assert leader is not None and leader.instance is not None and leader.process is not None
        instance = leader.instance

        async def prepare() -> None:
            version = int(instance.state.cluster.properties.get("next_schema_version", 1))
            assert version == TABLE.schema_version
            prepared = ops.DdlPrepare(version, ops.CreateTable(TABLE))
            await instance.proposer.cas(prepared, instance.proposer.predicate(_SCHEMA))

        await world.loop.create_task(prepare(), context=leader.process.context)
        await world.until(lambda: all(map(self._has_table, world.running())), "the table", 30.0)

    @staticmethod
    def _has_table(node: SimNode) -> bool:
        if node.instance is None:
            return False
        known = node.instance.state.catalog.tables.get(TABLE.name)
        return known is not None and known.operable and TABLE.id in node.instance.data.store.tables

    # --- clients ----------------------------------------------------------------------------------

    def masters(self) -> list[SimNode]:
        """Whoever takes itself for a master, old ones too: clients may know no better."""
        return [
            node
            for node in self.world.nodes.values()
            if node.is_running and node.instance is not None and node.instance.data.fence.is_master
        ]

    def ways(self, node: SimNode) -> Executor:
        """How statements reach rows from this instance."""
        assert node.instance is not None
        return node.instance.executor

    def execution(self, node: SimNode) -> Execution:
        return self.ways(node).execution

    def write(self, node: SimNode, key: int) -> asyncio.Task[None]:
        """Begin a write at `node`; the task ends when its client has heard of it."""
        assert node.process is not None
        execution = self.execution(node)
        self.sent.add(key)
        bucket = bucket_of([ColumnType.INTEGER], [key], BUCKETS) if has_lane(key) else key % 30 + 1
        text = f"row {key} of {node.process}"
        request = WriteRequest(TABLE.id, 1, INSERT, ((bucket, key, text),), (bucket,))
        writes = execution.writes

        async def work() -> None:
            try:
                if has_lane(key):
                    with suppress(NotPlain):
                        await insert_asked(writes, TABLE, INSERT, BUCKETS, key, text)
                        self.acked[key] = self.world.loop.time()
                        return
                await writes.write(request)
            except CairnError as problem:
                is_unknown = problem.sqlstate == "40003"
                (self.unknown if is_unknown else self.refused).add(key)
                return
            self.acked[key] = self.world.loop.time()

        return self.world.loop.create_task(work(), context=node.process.context)

    def read(self, node: SimNode) -> asyncio.Task[None]:
        """A read told as fresh must see every row that was acknowledged before it began."""
        assert node.process is not None
        execution, before, told = self.execution(node), len(self.acked), self.told

        async def work() -> None:
            request = ReadRequest(COUNT, (), {TABLE.id: 1}, ranges=((1, 30),))
            try:
                [(count,)] = await execution.reads.read(request)
            except CairnError:
                return
            self.reads += 1
            self.told = max(self.told, count)
            if count < told:
                self.stale = f"{node.name} told {count} rows, {told} had been told before"
            if count < before:
                self.stale = f"{node.name} told {count} rows as fresh, {before} were acknowledged"

        return self.world.loop.create_task(work(), context=node.process.context)

    async def run(self, seconds: float, pause_s: float = 0.02, *, first: int = 0) -> None:
        """Keep writing and reading at whoever claims to be the master."""
        key, end = first, self.world.loop.time() + seconds
        while self.world.loop.time() < end:
            await asyncio.sleep(pause_s)
            for node in self.masters():
                if node.is_paused:
                    continue
                self.write(node, key)
                key += 1
                self.read(node)

    # --- the end ----------------------------------------------------------------------------------

    def rows_of(self, node: SimNode) -> dict[int, Any]:
        connection = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found: list[Any] = connection.execute(
                f"SELECT c0, c1 FROM {TABLE.physical_name}"
            ).fetchall()
        finally:
            connection.close()
        return dict(found)

    async def check(self, *, may_lose: bool = False) -> None:
        """After calm: replicas are equal, nothing was invented, no promise was broken."""
        nodes = self.world.running()
        first = nodes[0]

        def equal() -> bool:
            return all(self.rows_of(node) == self.rows_of(first) for node in nodes)

        await self.world.until(equal, "equal replicas", 30.0)
        have = set(self.rows_of(first))
        invented = have - self.sent
        lost = set(self.acked) - have
        if invented:
            raise Violation(f"rows {sorted(invented)} were never written")
        if have & self.refused:
            raise Violation(f"refused rows {sorted(have & self.refused)} are there")
        if lost and not may_lose:
            raise Violation(f"acknowledged rows {sorted(lost)} are lost")
        if len(have) < self.told and not may_lose:
            raise Violation(f"{self.told} rows were told, {len(have)} are there")
        if self.stale is not None and not may_lose:
            raise Violation(self.stale)
