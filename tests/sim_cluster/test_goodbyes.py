"""An instance that ends says goodbye to each client where the client knows what was done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cairn.model.errors import CairnError
from cairn.server.session import leaving
from cairn.sim.cluster.sessions import PASSWORD, Faces, WireClient
from tests.sim_cluster.scenes import founded, world_of

ROWS = 20


class LikeLibpq(WireClient):
    """What comes while nothing was asked is a notice: `swallowed`."""

    swallowed = b""
    is_asking = False

    def told(self, data: bytes) -> None:
        if not self.is_asking and b"57P0" in data:
            self.swallowed += data
        super().told(data)

    async def ask(self, text: str) -> list[tuple[object, ...]]:
        self.is_asking = True
        try:
            return await super().ask(text)
        finally:
            self.is_asking = False

    def _wake(self) -> None:
        if self._pg.is_idle:
            self.is_asking = False  # the answer was read; what comes behind it was not asked for
        super()._wake()


class Leavers:
    """Two replicasets of one, rows at both, and clients of the instance that will leave."""

    def __init__(self) -> None:
        self.world = world_of()
        self.faces = Faces(self.world)
        for name in "ab":
            self.world.add(name, ("a:3301", "b:3301"), admin_password=PASSWORD)
        self.node = self.world.nodes["a"]
        self.done = 0  # statements that were answered

    def run(self, live: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            client = await self.client()
            await client.ask("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
            for key in range(ROWS):
                await client.ask(f"INSERT INTO t VALUES ({key}, 0)")
            client.close()
            await live()

        async def script() -> None:
            await founded(self.world)
            assert self.node.process is not None
            await self.world.loop.create_task(work(), context=self.node.process.context)

        self.world.run(script)

    async def client(self) -> LikeLibpq:
        made = LikeLibpq(self.faces.of(self.node))
        await made.connect()
        return made

    async def ask_for_ever(self, client: LikeLibpq) -> None:
        while True:
            await client.ask(f"UPDATE t SET n = n + 1 WHERE id = {self.done % ROWS}")
            self.done += 1

    def counted(self) -> int:
        """As the rows say it."""
        found = 0
        for node in self.world.nodes.values():
            assert node.instance is not None
            store = node.instance.data.store
            [table] = store.tables.values()
            query = f"SELECT coalesce(sum(c1), 0) FROM {table.physical_name}"
            found += store.connection.execute(query).fetchone()[0]
        return found


@pytest.mark.parametrize("after_s", [0.0, 0.0004, 0.001, 0.0017, 0.0031])
def test_who_asks_all_the_time_is_told_instead_of_an_answer_and_nothing_was_done(
    after_s: float,
) -> None:
    scene = Leavers()

    async def live() -> None:
        busy, idle = await scene.client(), await scene.client()
        asking = asyncio.ensure_future(scene.ask_for_ever(busy))
        await asyncio.sleep(after_s)
        await scene.faces.of(scene.node).say_goodbye()
        with pytest.raises(CairnError, match="57P03"):
            await asking
        assert busy.swallowed == b""
        assert scene.counted() == scene.done
        assert idle.is_over
        assert not scene.faces.of(scene.node).sessions

    scene.run(live)


def test_who_asks_nothing_is_told_at_once_also_in_a_block() -> None:
    scene = Leavers()

    async def live() -> None:
        idle, in_block = await scene.client(), await scene.client()
        await in_block.ask("BEGIN")
        await in_block.ask("UPDATE t SET n = 7 WHERE id = 1")
        begun = scene.world.loop.time()
        await scene.faces.of(scene.node).say_goodbye()
        assert scene.world.loop.time() - begun < 2 * leaving.QUIET_S
        assert idle.is_over
        assert in_block.is_over
        assert scene.counted() == 0

    scene.run(live)
