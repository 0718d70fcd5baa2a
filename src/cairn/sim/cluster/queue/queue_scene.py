"""A batch of every kind of operation in the governor's queue, and what must be left in the end.

Two replicasets of three in sync mode: whoever leads may die for good, and nothing may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from cairn.governor.actions import Action, Idle
from cairn.governor.view import ClusterView, QueuedOperation
from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.applied import Applied, Change
from cairn.model.log.ranges import one_key
from cairn.model.members.topology import Tier
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.node.instance import Instance
from cairn.node.steering.queue_runner import settle
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World

QUEUE = system.PICO_GOVERNOR_QUEUE
FIRST_ID = 1000
NAMES = ("a", "b", "c", "d", "e", "f")
DONE_S = 400.0


class Step(msgspec.Struct, frozen=True):
    """One operation, and a part of the reason for which it must fail (None: it must be done)."""

    op: str
    why_failed: str | None = None


BATCH: tuple[Step, ...] = (
    Step("CREATE TABLE s (k INT PRIMARY KEY, n INT) DISTRIBUTED BY (k)"),
    Step("CREATE TABLE g (k INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY"),
    Step("INSERT INTO g VALUES (1, 0), (2, 5)"),
    Step("INSERT INTO s VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)"),
    Step("UPDATE g SET n = n + 1"),
    Step("UPDATE s SET n = n + 1"),
    *(Step(f"UPDATE s SET n = n + {10 * k} WHERE k = {k}") for k in (1, 2, 3, 4)),
    Step("CREATE TABLE d (k INT PRIMARY KEY, h INT NOT NULL) DISTRIBUTED BY (h)"),
    Step("INSERT INTO d VALUES (1, 7), (2, 7)"),
    Step("CREATE UNIQUE INDEX d_h ON d (h)", "could not create unique index"),
    Step("CREATE USER worker WITH PASSWORD 'Passw0rd1'"),
    Step("GRANT READ ON TABLE s TO worker"),
    Step("ALTER SYSTEM SET sql_motion_row_max = 7000"),
    Step("CREATE TABLE IF NOT EXISTS g (k INT PRIMARY KEY) DISTRIBUTED GLOBALLY"),
    Step("CREATE USER IF NOT EXISTS worker WITH PASSWORD 'Passw0rd1'"),
    Step("UPDATE g SET n = n + 1 WHERE k = 99"),
    Step("UPDATE g SET", "syntax error"),
    Step("SELECT n FROM g", "cannot be queued"),
    Step("INSERT INTO g VALUES (2, 2)", "uplicate"),
    Step("ALTER TABLE s ADD COLUMN note TEXT"),
    Step("ALTER TABLE g ADD COLUMN note TEXT"),
    Step("UPDATE g SET n = n * 2, note = 'twice'"),
    Step("INSERT INTO s (k, n) SELECT k + 100, n FROM g"),
    Step("DELETE FROM s WHERE k = 5"),
)
GLOBAL_ROWS = [(1, 2, "twice"), (2, 12, "twice")]
SHARDED_ROWS: dict[str, list[tuple[Any, ...]]] = {
    "s": [
        (1, 11, None),
        (2, 21, None),
        (3, 31, None),
        (4, 41, None),
        (101, 2, None),
        (102, 12, None),
    ],
    "d": [(1, 7), (2, 7)],
}

#: A settled row of the queue: its id, its new status, and the reason's expected part.
Settled = tuple[int, str, str | None]


def expected(batch: tuple[Step, ...]) -> list[Settled]:
    """Every change of a status, in the order in which they must happen."""
    found: list[Settled] = []
    for op_id, each in enumerate(batch, FIRST_ID):
        if each.why_failed is not None:
            found.append((op_id, "failed", each.why_failed))
        found.append((op_id, "done", None))  # an operator skips what has failed
    return found


class QueueScene:
    """The cluster, its queue and its operator. `on_step` hears of every moment to die at."""

    def __init__(self, seed: int = 1, *, leader_is_master: bool = True, mode: str = "sync") -> None:
        tier = Tier("default", 3, bucket_count=30, is_default=True, replication_mode=mode)
        world = self.world = World(seed, (tier,))
        self.leader_is_master = leader_is_master
        world.equip = self._equip
        for name in NAMES:
            world.add(name, tuple(f"{each}:3301" for each in NAMES))
        self.settled: dict[int, list[tuple[int, str, str | None]]] = {}  # by entry
        self.on_step: Callable[[SimNode, str], None] = lambda node, what: None
        self.is_running = False  # between the queueing and the end of the last operation

    def _equip(self, node: SimNode, instance: Instance) -> None:
        _tell_steps(instance, lambda what: self._step(node, what))
        instance.news.on_applied.append(self._note)
        self.world.on_step = self._step

    def _step(self, node: SimNode, what: str) -> None:
        if self.is_running:
            self.on_step(node, what)

    def _note(self, done: list[Applied]) -> None:
        """Status changes of our operations; whoever applies an entry first tells them."""
        for each in done:
            if each.index not in self.settled:
                found = [_told(change) for change in each.changes if _is_ours(change)]
                self.settled[each.index] = found

    def history(self) -> list[tuple[int, str, str | None]]:
        return [each for _, found in sorted(self.settled.items()) for each in found]

    # --- the play ---------------------------------------------------------------------------------

    async def play(self) -> None:
        """Found, queue, wait for the end of every operation, and look at what is there."""
        await self.ready()
        await self.enqueue()
        self.is_running = True
        operator = asyncio.ensure_future(self._operate())
        try:
            await self.world.until(self._is_through, "the end of the queue", DONE_S)
        finally:
            self.is_running = False
            operator.cancel()
        self.check_history()
        await self.world.settled()
        await self.check_rows()

    async def ready(self) -> None:
        world = self.world
        for node in world.nodes.values():
            node.start()
        await world.settled(60.0)
        wanted = self._choose_leader()

        def leads() -> bool:
            now = world.leader()
            if now is wanted:
                return True
            if now is not None and now.instance is not None and wanted.instance is not None:
                now.instance.runner.transfer_leader(wanted.instance.raft_id)
            return False

        await world.until(leads, f"{wanted} to lead", 20.0)
        await world.settled(60.0)

    def _choose_leader(self) -> SimNode:
        """A voter that is the master of a replicaset, or of none."""
        some = self.world.leader()
        assert some is not None and some.instance is not None
        cluster, voters = some.instance.state.cluster, some.instance.runner.conf.voters
        masters = {each.current_master_name for each in cluster.replicasets.values()}
        for name, row in sorted(cluster.instances.items()):
            if row.raft_id in voters and (name in masters) == self.leader_is_master:
                return self.world.nodes[name]
        raise Violation("nobody can lead as the scene needs it")

    async def enqueue(self) -> None:
        """The whole batch in one entry."""
        leader = self.world.leader()
        assert leader is not None and leader.instance is not None and leader.process is not None
        queued = [
            QueuedOperation(op_id, "scene", each.op, description=each.op)
            for op_id, each in enumerate(BATCH, FIRST_ID)
        ]
        batch = ops.Batch(tuple(ops.Insert(QUEUE.id, rows.queue_row(each)) for each in queued))
        proposer = leader.instance.proposer
        work = proposer.cas(batch, proposer.predicate(()))
        await self.world.loop.create_task(work, context=leader.process.context)

    def _is_through(self) -> bool:
        return len(self.history()) >= len(expected(BATCH)) or self._is_astray()

    def _is_astray(self) -> bool:
        """More will not come right: do not wait for it."""
        told = self.history()
        return any(not _matches(*pair) for pair in zip(told, expected(BATCH), strict=False))

    async def _operate(self) -> None:
        """An operator who skips what has failed, as often as it takes."""
        while True:
            await asyncio.sleep(0.05)
            node = next((each for each in self.world.running() if each.instance is not None), None)
            told = self.history()
            if node is None or not told or told[-1][1] != "failed":
                continue
            assert node.process is not None
            skipping = self.world.loop.create_task(
                self._skip(node, told[-1][0]), context=node.process.context
            )
            await asyncio.wait({skipping}, timeout=5.0)

    async def _skip(self, node: SimNode, op_id: int) -> None:
        assert node.instance is not None
        proposer, state = node.instance.proposer, node.instance.state
        predicate = proposer.predicate((one_key(QUEUE.id, (op_id,)),))
        if not any(each.id == op_id and each.status == "failed" for each in state.queue()):
            return
        try:
            await proposer.cas(settle(op_id, "done"), predicate)
        except CairnError:
            return  # looked at again

    # --- the end ----------------------------------------------------------------------------------

    def check_history(self) -> None:
        told, wanted = self.history(), expected(BATCH)
        for at, (found, want) in enumerate(zip(told, wanted, strict=False)):
            if not _matches(found, want):
                raise Violation(f"status change {at} is {found}, should be {want}")
        if len(told) != len(wanted):
            raise Violation(f"{len(told)} status changes instead of {len(wanted)}: {told}")

    async def check_rows(self) -> None:
        """Every running instance has the same global state, every replicaset the same rows."""
        world = self.world
        nodes = world.running()
        for node in nodes:
            found = self._global_rows(node)
            if found != GLOBAL_ROWS:
                raise Violation(f"{node} has {found} in g")
            self._check_catalog(node)

        def equal() -> bool:
            return self._why_unequal(nodes) is None

        await world.until(equal, "equal replicas", 30.0)
        by_replicaset = {_replicaset(node): self.sharded_rows(node) for node in nodes}
        union = {
            name: sorted(row for part in by_replicaset.values() for row in part[name])
            for name in SHARDED_ROWS
        }
        if union != SHARDED_ROWS:
            raise Violation(f"the sharded rows are {union}")

    def _why_unequal(self, nodes: list[SimNode]) -> str | None:
        first: dict[str, tuple[str, Any]] = {}
        for node in nodes:
            told = self.sharded_rows(node)
            name, known = first.setdefault(_replicaset(node), (node.name, told))
            if known != told:
                return f"{name} and {node.name} have {known} and {told}"
        return None

    def _check_catalog(self, node: SimNode) -> None:
        assert node.instance is not None
        catalog = node.instance.state.catalog
        worker = catalog.users.get("worker")
        table = catalog.tables["s"]
        facts = {
            "tables": sorted(name for name in catalog.tables if not name.startswith("_")),
            "columns of s": tuple(column.name for column in table.columns),
            "columns of g": tuple(column.name for column in catalog.tables["g"].columns),
            "operable": table.operable and catalog.tables["g"].operable,
            "indexes of d": [each.name for each in catalog.indexes.get(catalog.tables["d"].id, ())],
            "granted": [
                (each.privilege, each.object_id)
                for each in catalog.privileges
                if worker is not None
                and each.grantee_id == worker.id
                and each.object_id == table.id
            ],
            "setting": catalog.setting("sql_motion_row_max"),
        }
        wanted = {
            **facts,
            "columns of s": ("k", "n", "note"),
            "columns of g": ("k", "n", "note"),
            "operable": True,
            "indexes of d": [],
            "granted": [("read", table.id)],
            "setting": 7000,
        }
        if facts != wanted:
            raise Violation(f"{node} says {facts}")

    def _global_rows(self, node: SimNode) -> list[tuple[Any, ...]]:
        assert node.instance is not None
        table = node.instance.state.catalog.tables.get("g")
        return [] if table is None else sorted(node.instance.state.rows(table))

    def sharded_rows(self, node: SimNode) -> dict[str, list[tuple[Any, ...]]]:
        """As they are in the node's own file."""
        assert node.instance is not None
        tables = node.instance.state.catalog.tables
        connection = apsw.Connection(str(node.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
        found: dict[str, list[tuple[Any, ...]]] = {}
        try:
            for name in SHARDED_ROWS:
                columns = ", ".join(f"c{at}" for at in range(len(tables[name].columns)))
                query = f"SELECT {columns} FROM {tables[name].physical_name}"
                found[name] = sorted(connection.execute(query).fetchall())
        except apsw.SQLError as problem:
            found[str(problem)] = []  # a replica that has not been reshaped yet
        finally:
            connection.close()
        return found


def _replicaset(node: SimNode) -> str:
    assert node.instance is not None and node.instance.row is not None
    return node.instance.row.replicaset_name


def _is_ours(change: Change) -> bool:
    row = change.new
    return change.table == QUEUE.id and row is not None and row[0] >= FIRST_ID and bool(change.old)


def _told(change: Change) -> tuple[int, str, str | None]:
    assert change.new is not None
    row = rows.queue_row(QueuedOperation(*change.new[: len(QUEUE.columns)]))
    return row[0], row[QUEUE.position("status")], row[QUEUE.position("status_description")]


def _matches(told: tuple[int, str, str | None], want: Settled) -> bool:
    return told[:2] == want[:2] and (want[2] is None or want[2] in str(told[2]))


def _tell_steps(instance: Instance, step: Callable[[str], None]) -> None:
    """Tell where each action of the governor and each of its questions begins and ends."""
    governor, peers = instance.governor, instance.peers
    carry_out, call = governor._carry_out, peers.call

    async def told_action(action: Action, view: ClusterView) -> None:
        if isinstance(action, Idle):
            await carry_out(action, view)
            return
        what = f"{action.step} ({action.subject})"
        step(f"begins: {what}")
        await carry_out(action, view)
        step(f"ends: {what}")

    async def told_call(to: Any, method: str, *question: Any, **options: Any) -> Any:
        if method not in ("write_rows", "read_rows", "apply_schema_change", "wait_index"):
            return await call(to, method, *question, **options)
        step(f"asks {method}")
        found = await call(to, method, *question, **options)
        step(f"is answered {method}")
        return found

    governor._carry_out = told_action  # type: ignore[method-assign]
    peers.call = told_call  # type: ignore[method-assign]
