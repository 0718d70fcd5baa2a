"""A statement of many records in sync mode: it is waited for while its replicas take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cairn.model.errors import CairnError
from cairn.node.rows.acknowledgements import SYNC_S
from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.sessions import PASSWORD, UNKNOWN, Faces, WireClient
from cairn.sim.cluster.short_records import short_records
from cairn.sim.cluster.world import World
from tests.sim_cluster.scenes import founded, inside, world_of

ROWS = 200
ONE_WAY_S = 0.04  # so that all records take longer to be sent than a short statement is waited for
ALL = "UPDATE t SET n = n + 1"


class Slowly:
    """Three members of a sync replicaset, far from each other; a table with rows."""

    def __init__(self) -> None:
        self.world: World = world_of(factor=3, mode="sync")
        self.faces = Faces(self.world)
        for name in "abc":
            self.world.add(name, ("a:3301", "b:3301", "c:3301"), admin_password=PASSWORD)

    def run(self, live: Callable[[], Awaitable[None]]) -> None:
        async def script() -> None:
            await founded(self.world)
            [self.master] = [
                node for node in self.world.nodes.values() if inside(node).data.fence.is_master
            ]
            self.others = [node for node in self.world.nodes.values() if node is not self.master]
            assert self.master.process is not None
            work = self._filled(live)
            await self.world.loop.create_task(work, context=self.master.process.context)

        with short_records():
            self.world.run(script)

    async def _filled(self, live: Callable[[], Awaitable[None]]) -> None:
        first = await self.client(self.master)
        await first.ask("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        await first.ask(f"INSERT INTO t SELECT g, 0 FROM generate_series(1, {ROWS}) g")
        self.world.wire.delay_s = ONE_WAY_S
        await live()

    async def client(self, node: SimNode) -> WireClient:
        made = WireClient(self.faces.of(node))
        await made.connect()
        return made

    def now(self) -> float:
        return self.world.loop.time()


def test_it_is_acknowledged_however_long_its_records_take_and_so_is_who_comes_behind_it() -> None:
    scene = Slowly()

    async def live() -> None:
        long, short, reader = [await scene.client(scene.master) for _ in range(3)]
        begun = scene.now()
        working = asyncio.ensure_future(long.ask(ALL))
        await asyncio.sleep(1.0)
        await asyncio.gather(
            short.ask("UPDATE t SET n = 7 WHERE id = 1"), reader.ask("SELECT * FROM t")
        )
        await working
        assert scene.now() - begun > SYNC_S
        assert await reader.ask("SELECT n, count(*) FROM t GROUP BY n ORDER BY n") == [
            (1, ROWS - 1),
            (7, 1),
        ]

    scene.run(live)


def test_nobody_waits_for_replicas_that_died_with_a_part_of_it() -> None:
    scene = Slowly()

    async def live() -> None:
        long = await scene.client(scene.master)
        working = asyncio.ensure_future(long.ask(ALL))
        await asyncio.sleep(2.0)
        begun = scene.now()
        for node in scene.others:
            node.crash(power=False)
        with pytest.raises(CairnError) as told:
            await working
        assert told.value.sqlstate == UNKNOWN
        assert scene.now() - begun < SYNC_S + 1.0
        for node in scene.others:
            node.start()

    scene.run(live)
