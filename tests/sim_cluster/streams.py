"""Streams of changes under blows: the product's own planner and reader, in a simulated cluster.

`RowStream` and `RowAsker` are what Spark runs. They are plain functions that wait for answers, so
they run in a thread which goes on only while the virtual loop stands still: a seed still says it
all. Of the driver only the picture of the cluster and the connection are replaced: the picture is
that of any instance, so it may be old.

Judge: every change of a key begins with what the one before it left, in the order in which the
stream tells it, whatever died or moved; in the end what the stream told is what the table has; a
batch that is read again is the same; no key is in two partitions of one batch.

`python -m tests.sim_cluster.streams --kind moves-strikes --seeds 1-20` runs many.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from cairn.model.errors import CairnError, Unreachable
from cairn.sim.cluster.checks import Violation
from cairn.sim.cluster.history import Result
from cairn.sim.cluster.loads.heard import heard
from cairn.sim.cluster.loads.load import TABLE
from cairn.sim.cluster.main import quiet
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import PASSWORD, Connections, Faces
from cairn.sim.cluster.short_records import in_parts
from cairn.sim.cluster.trial import KINDS, Trial
from cairn.sim.cluster.world import World
from cairn.sim.main import parse_seeds
from cairn.spark.cluster import MOVED, Owner
from cairn.spark.options import Options
from cairn.spark.streams import row_asking, row_stream, stream
from cairn.spark.streams.row_stream import RowStream

PATIENCE_S = 10.0  # of a connection
CAUGHT_UP_S = 60.0  # after the calm


class Aside:
    """Work that waits for answers, in a thread; one of the two runs at a time."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def run(self, work: Callable[[], Any]) -> Any:
        threading.Thread(target=self._work, args=(work,), daemon=True).start()
        while True:
            kind, value = self._asked.get()
            if kind == "done":
                return value
            if kind == "raised":
                raise value
            try:
                self._answers.put(await value())
            except CairnError as problem:
                self._answers.put(problem)

    def _work(self, work: Callable[[], Any]) -> None:
        try:
            self._asked.put(("done", work()))
        except BaseException as problem:
            self._asked.put(("raised", problem))

    def ask(self, question: Callable[[], Awaitable[Any]]) -> Any:
        """From inside the work: the answer that the loop finds."""
        self._asked.put(("ask", question))
        answer = self._answers.get()
        if isinstance(answer, CairnError):
            raise answer
        return answer


class SimCluster:
    """`cairn.spark.cluster` as streams use it, over simulated instances and sessions."""

    def __init__(self, world: World, faces: Faces, chance: random.Random) -> None:
        self._world, self._chance, self._connections = world, chance, Connections(faces)
        self.aside = Aside()

    def _picture(self) -> Any:
        """The cluster as any instance has it: it may be old."""
        known = [each.instance for each in self._world.running() if each.instance is not None]
        known = [each for each in known if each.state.cluster.replicasets]
        if not known:
            raise Unreachable("nobody can be asked")
        return self._chance.choice(known).state.cluster

    def pool(self, dsn: str) -> Any:
        cluster = self._picture()
        replicasets = {each.uuid: each for each in cluster.replicasets.values()}

        def master(uuid: str) -> Any:
            found = replicasets.get(uuid)
            name = "" if found is None else found.current_master_name
            return SimpleNamespace(address=name) if name else None

        view = SimpleNamespace(replicasets=replicasets)
        topology = SimpleNamespace(cluster_uuid=cluster.cluster_uuid, view=view, master=master)
        return SimpleNamespace(topology=topology)

    def owners(self, dsn: str, tier: str) -> list[Owner]:
        cluster = self._picture()
        found = {each.uuid: cluster.owned(each.name) for each in cluster.replicasets.values()}
        return [
            Owner(uuid, tuple((each.start, each.end) for each in ranges), ())
            for uuid, ranges in sorted(found.items())
            if ranges
        ]

    def call(self, dsn: str, text: str, address: str) -> Any:
        return self.aside.ask(lambda: self._call(text, address))

    async def _call(self, text: str, name: str) -> Any:
        node = self._named(name)
        if node is None:
            raise Unreachable(f"{name} is not there")

        async def work() -> Any:
            client = await self._connections.free(-7, node)
            return await client.ask(text)

        task = await heard(self._world, node, work, PATIENCE_S)
        if task is None:
            raise Unreachable(f"{name} does not answer")
        try:
            return task.result()[0][0]
        except CairnError as problem:
            if problem.sqlstate == "40003":
                raise Unreachable(f"{name}: {problem}") from None
            raise

    def _named(self, name: str) -> SimNode | None:
        for node in self._world.running():
            row = node.instance.row if node.instance is not None else None
            if row is not None and row.name == name:
                return node
        return None

    def wait_for_news(self, dsn: str, seconds: float) -> None:
        self.aside.ask(lambda: asyncio.sleep(seconds))


class PlainStream(RowStream):
    """Batches are lists of rows: Arrow has tests of its own."""

    def batch(self, rows: list[tuple[Any, ...]]) -> Any:
        return rows


class Told:
    """What the stream has told of each key, and whether that can be."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}
        self.changes = self.batches = self.again = 0

    def take(self, partitions: list[list[tuple[Any, ...]]]) -> None:
        where: dict[str, int] = {}
        for number, changes in enumerate(partitions):
            for change in changes:
                op, key, _, old, new = change[:5]
                if op not in ("insert", "update", "delete"):
                    raise Violation(f"the stream tells {change}")
                if where.setdefault(key, number) != number:
                    raise Violation(f"{key} is in two partitions of one batch")
                before, after = _row(old), _row(new)
                if before != self.now.get(key):
                    raise Violation(
                        f"the stream tells a change of {key} from {before}, which was "
                        f"{self.now.get(key)}: {change}"
                    )
                self.now[key] = after
                self.changes += 1
        self.batches += 1

    def rows(self) -> dict[int, Any]:
        return {row["a"]: row["b"] for row in self.now.values() if row is not None}


def _row(text: str | None) -> Any:
    """Columns that come and go are not judged."""
    return None if text is None else {name: json.loads(text)[name] for name in ("a", "b")}


class StreamTrial(Trial):
    """Beside the load of every trial one stream reads the table, from its beginning."""

    options = {"admin_password": PASSWORD}

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, name, None if KINDS[name].is_planned else "sync")
        self.told = Told()
        self._lot = random.Random(seed)
        self._cluster = SimCluster(self.world, Faces(self.world), self._lot)
        self._stream: Any = None
        self._offset: dict[str, Any] = {}
        self._reading: asyncio.Task[None] | None = None
        self._is_over = False
        self._pause_s = self._lot.choice((0.02, 0.1, 0.8))

    def run(self) -> Result:
        with self._replaced():
            result = super().run()
        told = self.told
        result.notes.append(f"{told.changes} changes, {told.batches} batches, {told.again} again")
        return result

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        clock = SimpleNamespace(monotonic=self.world.loop.time)
        table = SimpleNamespace(tier="default")
        new = [
            (row_asking, "cluster", self._cluster),
            (row_asking, "time", clock),
            (stream, "cluster", self._cluster),
            (row_stream, "describe", lambda dsn, name: table),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in new]
        try:
            for module, name, value in new:
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)

    async def _begin(self) -> None:
        aside = self._cluster.aside
        self._stream = PlainStream(Options(dsn="sim"), TABLE.name, None)
        self._offset = await aside.run(self._stream._initial)
        self._reading = asyncio.ensure_future(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._lot.uniform(0.2, 1.0) * self._pause_s)
            with suppress(Unreachable):
                await self._step()

    async def _step(self) -> bool:
        """One micro-batch; whether there was one. Who is not answered tries again, from the same
        position as Spark does."""
        limit = ReadMaxRows(self._lot.choice((1, 3, 20))) if self._lot.random() < 0.5 else None
        start = self._offset
        try:
            end = await self._cluster.aside.run(lambda: self._stream._latest(start, limit))
            end = json.loads(json.dumps(end))  # as a checkpoint keeps it
            if end == start:
                return False
            found = await self._batch(start, end)
            if self._lot.random() < 0.3:
                self.told.again += 1
                if await self._batch(start, end) != found:
                    raise Violation(f"a batch that is read again is another one: {start} {end}")
        except CairnError as problem:
            if problem.sqlstate in MOVED:
                raise Unreachable(str(problem)) from None
            raise Violation(f"the stream ended: {problem.sqlstate} {problem}") from None
        self.told.take(found)
        self._offset = end
        return True

    async def _batch(self, start: Any, end: Any) -> list[list[tuple[Any, ...]]]:
        def read() -> list[list[tuple[Any, ...]]]:
            parts = self._stream._partitions(start, end)
            return [[row for rows in self._stream._read(each) for row in rows] for each in parts]

        return await self._cluster.aside.run(read)

    async def _answered(self) -> None:
        """After the calm the stream comes to its end, and has told the table."""
        assert self._reading is not None
        self._is_over = True  # what it has begun it ends: its thread waits for an answer
        await self._reading
        until = self.world.loop.time() + CAUGHT_UP_S
        while await self._goes_on() or self.told.rows() != self._table():
            if self.world.loop.time() > until:
                raise Violation(self._difference())
            await asyncio.sleep(0.1)

    async def _goes_on(self) -> bool:
        """Whether there was more to tell, or nobody could be asked."""
        try:
            return await self._step()
        except Unreachable:
            return True

    def _table(self) -> dict[int, Any]:
        """What the masters have."""
        found: dict[int, Any] = {}
        for node in self.load.masters():
            assert node.instance is not None and node.instance.row is not None
            store = node.instance.data.store
            found |= dict(store.connection.execute(f"SELECT c0, c1 FROM {TABLE.physical_name}"))
        return found

    def _difference(self) -> str:
        told, there = self.told.rows(), self._table()
        only = sorted(told.items() - there.items()), sorted(there.items() - told.items())
        return f"the stream does not come to the table: only told {only[0]}, only there {only[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="moves-strikes", choices=sorted(STREAM_KINDS))
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--parts", action="store_true", help="of several records for a statement")
    asked = parser.parse_args()
    quiet()
    failed = 0
    first, count = parse_seeds(asked.seeds)

    def trial(seed: int) -> Result:
        return StreamTrial(seed, asked.kind).run()

    for seed in range(first, first + count):
        result = (in_parts(trial) if asked.parts else trial)(seed)
        failed += result.failure is not None
        print(asked.kind, seed, result.notes[-1], result.failure or "ok", flush=True)
    return int(failed > 0)


#: Blows that neither empty the table nor take its log away.
STREAM_KINDS = (
    "columns",
    "moves-strikes",
    "members",
    "cuts",
    "pauses",
    "clocks",
    "slow-disks",
    "readers",
    "old-files",
)

if __name__ == "__main__":
    raise SystemExit(main())
