"""One seed of rows under fire: a load that does not commute, blows of some kinds, then the calm.

`KINDS` names the blows of each kind; `mix` draws some of all. After the calm everything has to be
there again: topology, rows, schema, vclocks, buckets, and an explanation of every answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import msgspec

from cairn.model.log import ops
from cairn.model.members.topology import Tier
from cairn.model.tables.schema import missing_value
from cairn.node.lifetime import AGAIN
from cairn.sim.cluster.blows.damaged_starts import damaged_start
from cairn.sim.cluster.blows.exact import (
    exact_moment,
    hung_disk,
    mode_and_strike,
    release,
    switch_and_expel,
)
from cairn.sim.cluster.blows.nemesis import Nemesis
from cairn.sim.cluster.blows.old_files import old_files
from cairn.sim.cluster.blows.schema_blows import GLOBAL, GLOBAL_INDEX, SCHEMA, prepared
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.history import BUCKETS, Result
from cairn.sim.cluster.loads.block_lists import Lists
from cairn.sim.cluster.loads.load import TABLE, Load
from cairn.sim.cluster.loads.marks import Marks
from cairn.sim.cluster.loads.register_history import ROWS, Operation
from cairn.sim.cluster.loads.registers import Group, Registers
from cairn.sim.cluster.loads.sync_times import SyncTimes
from cairn.sim.cluster.world import World
from cairn.sim.linear import FOREVER

Blow = Callable[[Nemesis], Awaitable[None]]
N = Nemesis
SCRUB_S = 2.0
TRUNCATED_S = 20.0  # until nobody waits for it any more


class Kind(msgspec.Struct, frozen=True):
    """Its own blows, beside those that every trial has; how many replicasets."""

    blows: tuple[Blow, ...]
    replicasets: int = 1
    loses: bool = False  # disks that lie take acknowledged rows along, also in sync mode
    is_planned: bool = False  # nothing acknowledged is lost, also in async mode
    leaves: bool = False  # masters to readers, which only the load of registers knows
    scrubs: bool = False  # files are read all the time, and damage is mended by itself
    truncates: bool = False  # the table under load is emptied now and then
    modes: bool = False  # sync mode comes and goes: what it acknowledges is judged by itself
    copies: int = 0  # of each replicaset; 0: three of one, or two of two
    is_calm: bool = False  # nothing happens to it: whatever is asked is answered


_GENTLE: tuple[Blow, ...] = (N.switch, N.switch, N.alter, N.forget_logs, N.kill_replica)
KINDS: dict[str, Kind] = {
    "masters": Kind(_GENTLE, is_planned=True),
    "strikes": Kind((*_GENTLE, N.kill, N.pause, N.cut)),
    "pauses": Kind((N.pause, N.pause, N.switch)),
    "clocks": Kind((N.clock, N.clock, N.pause, N.switch, N.cut)),
    "cuts": Kind((N.cut, N.cut, N.heal, N.switch)),
    "graphs": Kind((N.graph, N.graph, N.graph, N.switch, N.kill, N.pause, N.forget_row_logs)),
    "readers": Kind((N.leave, N.leave, N.switch), leaves=True),
    "slow-disks": Kind((N.slow_disk, N.slow_disk, N.switch)),
    "full-disks": Kind((N.full_disk, N.switch, N.alter)),
    "hung-disks": Kind((hung_disk, hung_disk, N.switch, N.alter)),
    "restarts": Kind((N.kill, N.kill, N.stop, N.power, N.switch, N.alter)),
    "alone": Kind((N.weigh, N.weigh, N.alter_columns, N.kill, N.stop, N.pause), 2, copies=1),
    "calm": Kind((N.heal,), is_calm=True),
    "calm-alone": Kind((N.heal,), 2, copies=1, is_calm=True),
    "blackouts": Kind((N.blackout, N.switch, N.alter)),
    "lost-tails": Kind((N.lose_tail, N.switch), loses=True),
    "old-files": Kind((old_files, old_files, N.switch, N.alter_columns)),
    "old-files-moves": Kind(
        (old_files, old_files, N.weigh, N.weigh, N.forget_row_logs, N.alter), 2
    ),
    "rot": Kind((N.rot, N.rot, N.switch, N.forget_logs), scrubs=True),
    "rot-moves": Kind((N.rot, N.rot, N.weigh, N.weigh, N.switch), 2, scrubs=True),
    "rot-starts": Kind((damaged_start, damaged_start, N.switch, N.forget_logs), scrubs=True),
    "snapshots": Kind((N.short_logs, N.forget_logs, N.kill_replica, N.alter), is_planned=True),
    "copies": Kind((N.forget_row_logs, N.forget_row_logs, N.kill_replica, N.switch, N.kill, N.cut)),
    "copies-moves": Kind(
        (N.forget_row_logs, N.forget_row_logs, N.weigh, N.weigh, N.alter, N.switch, N.kill),
        replicasets=2,
    ),
    "schema": Kind((N.alter, N.alter, N.other_table, N.switch, N.kill)),
    "columns": Kind(
        (N.alter_columns, N.alter_columns, N.alter_while_moving, N.switch, N.kill_replica),
        replicasets=2,
        is_planned=True,
    ),
    "truncates": Kind(
        (N.weigh, N.switch, N.alter, N.kill, N.kill_replica, N.forget_row_logs), 2, truncates=True
    ),
    "moments": Kind((exact_moment, exact_moment, exact_moment, N.switch, N.weigh), 2),
    "moments-three": Kind((exact_moment, exact_moment, exact_moment, N.switch, N.lag)),
    "modes": Kind((N.mode, N.switch, N.kill, N.pause, N.cut, N.weigh), 2, loses=True, modes=True),
    "modes-three": Kind((N.mode, N.switch, N.kill, N.pause, N.cut), loses=True, modes=True),
    "modes-strikes": Kind((mode_and_strike, N.switch), loses=True, modes=True),
    "members": Kind((N.replace, N.switch, N.kill), replicasets=2),
    "members-columns": Kind((N.replace, N.alter_while_moving, N.switch, N.weigh), 2),
    "members-switches": Kind((switch_and_expel, switch_and_expel, N.switch), replicasets=2),
    "releases": Kind((release, release, N.switch)),
    "moves": Kind((N.weigh, N.weigh, N.switch, N.alter), replicasets=2, is_planned=True),
    "moves-strikes": Kind((N.weigh, N.weigh, N.switch, N.kill, N.pause, N.cut), replicasets=2),
}
_ALL = tuple(
    dict.fromkeys(
        blow
        for kind in KINDS.values()
        if not kind.loses and not kind.scrubs
        for blow in kind.blows
        if blow not in (N.blackout, old_files)  # with other blows there may be no majority
    )
)


def kind_of(name: str, chance: random.Random) -> Kind:
    if name != "mix":
        return KINDS[name]
    blows = tuple(chance.sample(_ALL, chance.randint(3, len(_ALL))))
    return Kind(blows, replicasets=chance.choice((1, 2)))


class Trial:
    """Nodes n1, n2 …; `run` says what came of it."""

    options: dict[str, Any] = {}  # of every instance
    schema: tuple[ops.Ddl, ...] = ()  # beside the tables that every trial has
    is_in_nobodys_way = True  # clients of this load refuse each other nothing

    def __init__(self, seed: int, name: str, mode: str | None = None) -> None:
        chance = self.chance = random.Random(seed)
        self.name, self.kind = name, kind_of(name, chance)
        self.mode = mode or chance.choice(("sync", "async"))
        self.rounds = chance.randint(2, 6)
        size = self.kind.copies or (3 if self.kind.replicasets == 1 else 2)
        tier = Tier(
            "default", size, bucket_count=BUCKETS, is_default=True, replication_mode=self.mode
        )
        self.world = World(seed, (tier,))
        self.world.wire.delay_s = chance.choice((0.0005, 0.001, 0.005))
        self.load = Load(self.world)
        self.is_strict = not self.kind.loses and (self.mode == "sync" or self.kind.is_planned)
        groups = 4 * self.kind.replicasets
        registers = Registers(self.load, chance, groups=groups, is_strict=self.is_strict)
        self.registers: Any = registers
        may_write = registers.quiet.may_write
        self.marks = Marks(self.load, random.Random(seed), registers.groups, may_write)
        self.marks.is_strict = self.is_strict
        self.nemesis = Nemesis(self.world, chance, registers.quiet)
        names = [f"n{number}" for number in range(1, size * self.kind.replicasets + 1)]
        for each in names:
            self.world.add(each, tuple(f"{other}:3301" for other in names), **self.options)

    def run(self) -> Result:
        world, load = self.world, self.registers
        result = Result(world.seed, f"{self.name}, {self.mode}, {self.rounds} rounds")
        try:
            with self.nemesis.moments.told():
                world.run(self._live)
        except Violation as broken:
            result.failure = str(broken)
        result.virtual_s, result.messages = world.loop.time(), world.wire.messages
        result.entries, result.faults = world.checks.last_index, len(self.nemesis.done)
        counted = f"{load.done} done, {load.unknown} unknown, {load.refused} refused"
        result.notes = [*self.nemesis.done, f"{counted}, {load.reads} reads", f"{load.ways}"]
        result.trace = f"{result.virtual_s:.6f} {result.messages} {counted}"
        return result

    async def _live(self) -> None:
        world, nemesis = self.world, self.nemesis
        for node in world.nodes.values():
            node.start()
        await world.settled(60.0)
        await self.load.create_table()
        for change in (ops.CreateTable(GLOBAL), ops.CreateIndex(GLOBAL_INDEX), *self.schema):
            await self._change(change)
        await self._begin()
        keepers = [asyncio.ensure_future(each) for each in self._beside()]
        seconds = 3.0 + 3.0 * self.rounds
        work = asyncio.gather(self.registers.run(seconds), self.marks.run(seconds))
        for _ in range(self.rounds):
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))
            await self._round()
        await work
        await nemesis.mend()
        await world.settled()
        await world.until(self._is_calm, "moves and schema changes to end", 120.0)
        await self._answered()
        if self.kind.scrubs:
            await self._scrubbed()
        for keeper in keepers:
            keeper.cancel()
        await world.settled()
        await self.registers.check()
        self.marks.check()
        self._check_tables()
        self._check_answered()

    async def _begin(self) -> None:
        """What has to be there before the first blow."""

    async def _answered(self) -> None:
        """Whoever asked for something beside the load has its answer."""

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on beside clients and blows."""
        if self.kind.scrubs:
            yield self._supervise()
        if self.kind.modes:
            self.registers.sync_times = SyncTimes(self.world, self.mode)
            yield self.registers.sync_times.watch()

    async def _supervise(self) -> None:
        """As the parent of every instance does: one that wants to begin anew is started again."""
        await self.nemesis.set("scrub_interval", SCRUB_S)
        await self.nemesis.set("scrub_rows_per_s", 0)
        while True:
            await asyncio.sleep(0.5)
            for node in self.world.nodes.values():
                if not node.is_running and node.exit_code == AGAIN:
                    self.nemesis.note(f"{node} begins anew")
                    node.start()

    async def _scrubbed(self) -> None:
        """Everybody has read its files once more, and nobody has damage left."""

        def is_whole() -> bool:
            for node in self.world.nodes.values():
                if node.instance is None or node.instance.health.problems():
                    return False
                if node.instance.health.scrubs <= before.get(id(node.instance.health), 0):
                    return False
            return True

        for node in self.world.running():
            if (
                node.instance is not None
            ):  # what rotted behind a page of the log is seen from now on
                connection = node.instance.data.store.connection
                connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()
        before = {
            id(node.instance.health): node.instance.health.scrubs
            for node in self.world.running()
            if node.instance is not None
        }
        await self.world.until(is_whole, "files without damage", 120.0)

    async def _round(self) -> None:
        blows, chance = self.kind.blows, self.chance
        for _ in range(chance.randint(1, 4)):
            await chance.choice(blows)(self.nemesis)
            await self._write_global()
            if self.kind.truncates and chance.random() < 0.5:
                await self._truncate()
            await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))
        if chance.random() < 0.5:
            await self.nemesis.mend()

    async def _change(self, ddl: ops.Ddl) -> None:
        assert await self.nemesis.propose(lambda instance: prepared(instance, ddl), SCHEMA)
        await self.world.until(self._is_calm, "the schema change", 60.0)

    async def _write_global(self) -> None:
        """Words meet: every instance has to refuse the same ones."""
        key, word = self.chance.randrange(20), f"w{self.chance.randrange(8)}"

        def make(instance: Any) -> ops.Op:
            table = instance.state.catalog.table_by_id(GLOBAL.id)
            more = (None if each.is_dropped else missing_value(each) for each in table.columns[2:])
            return ops.Replace(GLOBAL.id, (key, word, *more))

        await self.nemesis.propose(make)

    async def _truncate(self) -> None:
        """All rows are deleted, wherever they are: in one moment for each group of them."""
        begun, versions = self.world.loop.time(), [-1]

        def make(instance: Any) -> ops.Op:
            table = instance.state.catalog.table_by_id(TABLE.id)
            op = prepared(instance, ops.TruncateTable(table.id, table.name))
            assert isinstance(op, ops.DdlPrepare)
            versions[0] = op.schema_version
            return op

        def is_done() -> bool:
            """At every master: others hear of it a moment later."""
            for node in self.world.nodes.values():
                if node.instance is None:
                    return False
                table = node.instance.state.catalog.table_by_id(TABLE.id)
                if table is None or table.truncated_at != versions[0]:
                    return False
                have = node.instance.data.versions.get(TABLE.id)
                if node.instance.data.fence.is_master and have != table.schema_version:
                    return False
            return True

        is_accepted = await self.nemesis.propose(make, SCHEMA)
        until = begun + TRUNCATED_S
        while is_accepted and not is_done() and self.world.loop.time() < until:
            await asyncio.sleep(0.05)
        end = self.world.loop.time() if is_done() else float(FOREVER)
        self._emptied(begun, end, "by a proposal")

    def _emptied(self, begun: float, end: float, how: str) -> None:
        self.nemesis.note(f"truncate {how}: {'who knows' if end >= FOREVER else 'done'}")
        for group in self.registers.groups:
            if isinstance(group, Group):
                group.history.add(Operation("delete", begun, end, tuple(range(ROWS))))

    def _is_calm(self) -> bool:
        leader = self.world.leader()
        if leader is None or leader.instance is None:
            return False
        state = leader.instance.state
        moves = state.cluster.moves.values()
        return state.pending_ddl() is None and not any(move.is_open for move in moves)

    def _check_answered(self) -> None:
        load = self.registers
        refused = load.refused if self.is_in_nobodys_way else 0
        if self.kind.is_calm and (load.unknown or refused):
            raise Violation(
                f"nothing happened, and {load.unknown} writes have no known end, "
                f"{refused} were refused"
            )

    def _check_tables(self) -> None:
        for node in self.world.running():
            assert node.instance is not None
            for table in node.instance.state.catalog.tables.values():
                if not table.operable:
                    raise Violation(f"table {table.name} stays unusable at {node}")


class BlockTrial(Trial):
    """The same blows against clients that use blocks, where nothing acknowledged may be lost."""

    is_in_nobodys_way = False

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, name, None if KINDS[name].is_planned else "sync")
        self.registers = Lists(self.load, self.chance, groups=2 * self.kind.replicasets)


#: Kinds of blows that are tried on blocks as well.
BLOCK_KINDS = tuple(
    name
    for name, kind in KINDS.items()
    if not kind.loses and not kind.leaves and not kind.truncates
)


def run_block_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: BlockTrial(seed, name).run()


def run_trial(name: str) -> Callable[[int], Result]:
    return lambda seed: Trial(seed, name).run()
