"""Mastership that goes back and forth under a load that does not commute, with schema changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from cairn.model import ops, rows
from cairn.model.errors import CairnError
from cairn.model.ranges import one_key
from cairn.model.schema import Column, Index, Table
from cairn.model.system_tables import PICO_REPLICASET
from cairn.model.topology import Tier
from cairn.model.values import ColumnType
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.history import BUCKETS, Result
from cairn.sim.cluster.load import _SCHEMA as SCHEMA
from cairn.sim.cluster.load import TABLE, Load
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.registers import Registers
from cairn.sim.cluster.world import World

GLOBAL = Table(
    id=TABLE.id + 1,
    name="g",
    columns=(
        Column("id", ColumnType.INTEGER, nullable=False),
        Column("word", ColumnType.STRING),
    ),
    primary_key=("id",),
    sharding=None,
)


class BackAndForth:
    """One seed: three instances, and blows that keep one of them away while masters change.

    Strict (nothing acknowledged is lost): in sync mode, and where masters change only as planned.
    """

    def __init__(self, seed: int, *, mode: str | None = None, planned: bool | None = None) -> None:
        chance = self.chance = random.Random(seed)
        self.mode = mode or chance.choice(("sync", "async"))
        self.planned = chance.random() < 0.4 if planned is None else planned
        self.rounds = chance.randint(3, 8)
        tier = Tier("default", 3, bucket_count=BUCKETS, is_default=True, replication_mode=self.mode)
        self.world = World(seed, (tier,))
        self.world.wire.delay_s = chance.choice((0.0005, 0.001, 0.005))
        self.load = Load(self.world)
        is_strict = self.mode == "sync" or self.planned
        self.registers = Registers(self.load, 4, chance, is_strict=is_strict)
        self.done: list[str] = []
        names = ("n1", "n2", "n3")
        for name in names:
            self.world.add(name, tuple(f"{each}:3301" for each in names))

    def run(self) -> Result:
        world, load = self.world, self.registers
        how = "planned" if self.planned else "unplanned"
        result = Result(world.seed, f"{self.mode}, {self.rounds} {how} rounds")
        try:
            world.run(self._live)
        except Violation as broken:
            result.failure = str(broken)
        result.virtual_s, result.messages = world.loop.time(), world.wire.messages
        result.entries, result.faults = world.checks.last_index, len(self.done)
        counted = f"{load.done} done, {load.unknown} unknown, {load.refused} refused"
        result.notes = [*self.done, f"{counted}, {load.reads} reads"]
        result.trace = f"{result.virtual_s:.6f} {result.messages} {counted}"
        return result

    async def _live(self) -> None:
        world = self.world
        for node in world.nodes.values():
            node.start()
        await world.settled(60.0)
        await self.load.create_table()
        await self._change(ops.CreateTable(GLOBAL))
        index = Index(GLOBAL.id, 1, "g_word", ("word",), unique=True)
        await self._change(ops.CreateIndex(index))
        work = asyncio.ensure_future(self.registers.run(4.0 + 4.0 * self.rounds))
        for _ in range(self.rounds):
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))
            await self._round()
        await work
        await self._mend()
        await world.settled()
        await self.registers.check()

    async def _round(self) -> None:
        """Somebody is away while masters change, schemas too, and logs are forgotten."""
        blows: list[Callable[[], Awaitable[None]]] = [self._switch, self._switch, self._alter]
        blows += [self._write_global, self._compact, self._away]
        if not self.planned:
            blows += [self._strike, self._strike]
        for blow in self.chance.sample(blows, self.chance.randint(2, 5)):
            await blow()
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 1.0)))
        if self.chance.random() < 0.6:
            await self._mend()

    async def _mend(self) -> None:
        self.world.wire.heal()
        for node in self.world.nodes.values():
            node.resume()
            if not node.is_running:
                node.start()

    def _note(self, what: str) -> None:
        self.done.append(f"{self.world.loop.time():8.3f} {what}")

    # --- blows ------------------------------------------------------------------------------------

    async def _propose(self, make: Callable[[Any], ops.Op], ranges: tuple[Any, ...] = ()) -> bool:
        """At the leader, as a client of it; whether it is known to have been accepted."""
        leader = self.world.leader()
        if leader is None or leader.instance is None or leader.process is None or leader.is_paused:
            return False
        instance, process = leader.instance, leader.process

        async def work() -> bool:
            try:
                op = make(instance)
                await instance.proposer.cas(op, instance.proposer.predicate(ranges), timeout_s=2.0)
            except CairnError:
                return False
            return True

        task = self.world.loop.create_task(work(), context=process.context)
        while not task.done() and leader.process is process and leader.is_running:
            await asyncio.sleep(0.01)
        return task.done() and not task.cancelled() and task.result()

    async def _switch(self, heir: SimNode | None = None) -> None:
        """A planned change, to a given member or to any that is there."""
        running = [node for node in self.world.running() if not node.is_paused]
        if not running:
            return
        to = heir or self.chance.choice(running)

        def make(instance: Any) -> ops.Op:
            [replicaset] = instance.state.cluster.replicasets.values()
            where = msgspec.structs.replace(replicaset, target_master_name=to.name)
            return ops.Batch((ops.Replace(PICO_REPLICASET.id, rows.replicaset_row(where)),))

        def ranges() -> tuple[Any, ...]:
            leader = self.world.leader()
            assert leader is not None and leader.instance is not None
            return tuple(
                one_key(PICO_REPLICASET.id, (name,))
                for name in leader.instance.state.cluster.replicasets
            )

        if self.world.leader() is not None and await self._propose(make, ranges()):
            self._note(f"switch to {to}")
            until = self.world.loop.time() + self.chance.uniform(0.0, 4.0)
            while self.load.masters() != [to] and self.world.loop.time() < until:
                await asyncio.sleep(0.05)

    async def _change(self, ddl: ops.Ddl) -> None:
        def make(instance: Any) -> ops.Op:
            return ops.DdlPrepare(
                int(instance.state.cluster.properties["next_schema_version"]), ddl
            )

        assert await self._propose(make, SCHEMA)
        await self.world.until(self._nothing_pending, "the schema change", 60.0)

    def _nothing_pending(self) -> bool:
        leader = self.world.leader()
        return (
            leader is not None
            and leader.instance is not None
            and leader.instance.state.pending_ddl() is None
        )

    async def _alter(self) -> None:
        """A column more, an index more or less; of the table that is written and of the other."""
        wanted = self.chance.choice((TABLE, GLOBAL))
        what = self.chance.choice(("column", "index", "no index"))

        def make(instance: Any) -> ops.Op:
            state = instance.state
            table = state.catalog.table_by_id(wanted.id)
            indexes = [index for index in state.catalog.indexes.get(table.id, ()) if index.id > 1]
            ddl: ops.Ddl
            if what == "no index" and indexes:
                ddl = ops.DropIndex(table.id, indexes[0].id, indexes[0].name)
            elif what == "index":
                number = max([1, *(index.id for index in indexes)]) + 1
                column = table.columns[1].name
                ddl = ops.CreateIndex(Index(table.id, number, f"{table.name}_{number}", (column,)))
            else:
                name = f"n{len(table.columns)}"
                added = (Column(name, ColumnType.INTEGER),)
                ddl = ops.AddColumns(table.id, table.name, added)
            return ops.DdlPrepare(int(state.cluster.properties["next_schema_version"]), ddl)

        if await self._propose(make, SCHEMA):
            self._note(f"{what} for {wanted.name}")

    async def _write_global(self) -> None:
        """Words meet: every instance has to refuse the same ones."""
        for _ in range(5):
            key, word = self.chance.randrange(20), f"w{self.chance.randrange(8)}"

            def make(instance: Any, key: int = key, word: str = word) -> ops.Op:
                table = instance.state.catalog.table_by_id(GLOBAL.id)
                return ops.Replace(GLOBAL.id, (key, word, *(None,) * (len(table.columns) - 2)))

            await self._propose(make)

    async def _compact(self) -> None:
        """Whoever is away needs a snapshot."""
        self._note("forget Raft's logs")
        for node in self.world.running():
            if node.instance is None or node.is_paused or node.process is None:
                continue
            runner = node.instance.runner
            if runner.applied_index >= runner.view.first_index():
                node.process.context.run(runner.compact, runner.applied_index)

    async def _away(self) -> None:
        """A replica is not there for a while; one at a time, so that Raft has its quorum."""
        masters = self.load.masters()
        others = [node for node in self.world.running() if node not in masters]
        if len(self.world.running()) < 3 or not others:
            return
        node = self.chance.choice(others)
        self._note(f"kill {node}, a replica")
        node.crash(power=self.chance.random() < 0.3)

    async def _strike(self) -> None:
        masters = self.load.masters()
        if not masters:
            return
        node = self.chance.choice(masters)
        blow = self.chance.choice((self._kill, self._pause, self._cut))
        blow(node)

    def _kill(self, node: SimNode) -> None:
        if len(self.world.running()) == 3:
            self._note(f"kill {node}, the master")
            node.crash(power=self.chance.random() < 0.5)

    def _pause(self, node: SimNode) -> None:
        self._note(f"pause {node}")
        node.pause()
        self.world.loop.call_later(self.chance.uniform(0.2, 4.0), node.resume)

    def _cut(self, node: SimNode) -> None:
        for other in self.world.nodes.values():
            if node is not other and self.chance.random() < 0.7:
                self._note(f"cut {node} and {other}")
                self.world.wire.cut(node.name, other.name)
                self.world.wire.cut(other.name, node.name)


def run_back_and_forth(seed: int) -> Result:
    return BackAndForth(seed).run()
