"""Statements of sessions whose table changes at the worst moment: found by the bank."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.model.errors import CairnError, PlanOutdated
from cairn.node.statements.executor import Executor
from cairn.server.chunk_size import ChunkSize
from cairn.server.session.copy.copying import CopyIn
from cairn.sim.cluster.sessions import PASSWORD, Faces, WireClient
from tests.sim_cluster.scenes import Triple, founded, world_of

Patch = pytest.MonkeyPatch


class One:
    """An instance with a table, and two clients of it; `live` is run inside of its process."""

    def __init__(self) -> None:
        self.world = world_of()
        self.faces = Faces(self.world)
        self.node = self.world.add("a", ("a:3301",), admin_password=PASSWORD)

    async def client(self) -> WireClient:
        made = WireClient(self.faces.of(self.node))
        await made.connect()
        return made

    def run(self, live: Any) -> None:
        async def inside() -> None:
            self.first, self.second = await self.client(), await self.client()
            await self.first.ask("CREATE TABLE t (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
            await self.first.ask("INSERT INTO t VALUES (1, 10)")
            await live()

        async def script() -> None:
            await founded(self.world)
            assert self.node.process is not None
            await self.world.loop.create_task(inside(), context=self.node.process.context)

        self.world.run(script)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("is_in_block", [False, pytest.param(True, marks=SLOW)])
def test_a_simple_query_tells_the_columns_of_the_moment_in_which_it_runs(
    is_in_block: bool, monkeypatch: Patch
) -> None:
    """PostgreSQL would have waited for the change; nobody has seen a plan that was cached."""
    one, run, changes = One(), Executor._run, ["ALTER TABLE t ADD COLUMN c INT DEFAULT 7"]

    async def late(self: Executor, statement: Any, *arguments: Any) -> Any:
        if changes and b"*" in statement.text:
            await one.second.ask(changes.pop())
        return await run(self, statement, *arguments)

    async def live() -> None:
        monkeypatch.setattr(Executor, "_run", late)
        if is_in_block:
            await one.first.ask("BEGIN")
        # With an option it is not answered in the turn in which it comes.
        text = "SELECT * FROM t WHERE n > 0 OPTION (sql_motion_row_max = 9)"
        assert await one.first.ask(text) == [(1, 10, 7)]
        assert not changes

    one.run(live)


@pytest.mark.parametrize(
    ("columns", "change"),
    [
        ("(id, n)", "ALTER TABLE t ADD COLUMN c INT DEFAULT 7"),
        pytest.param("(id, n)", "TRUNCATE TABLE t", marks=SLOW),
        pytest.param("", "TRUNCATE TABLE t", marks=SLOW),
        # The lines have too few fields for the table as it is now.
        pytest.param("", "ALTER TABLE t ADD COLUMN c INT DEFAULT 7", marks=SLOW),
    ],
)
def test_copy_begins_again_if_nothing_of_it_is_stored(
    columns: str, change: str, monkeypatch: Patch
) -> None:
    """The instance has not heard that the table is changed, and so the change did not wait."""
    one, store, changes = One(), CopyIn._store_packed, [change]

    async def late(self: CopyIn, batch: Any) -> int:
        if changes:
            await one.second.ask(changes.pop())
            raise PlanOutdated("planned for the table as it was")
        return await store(self, batch)

    async def live() -> None:
        monkeypatch.setattr(CopyIn, "_store_packed", late)
        copying = one.first.copy_in(f"COPY t {columns} FROM STDIN", b"2\t20\n3\t30\n")
        if not columns and "ADD" in change:
            with pytest.raises(CairnError) as told:
                await copying
            assert told.value.sqlstate == "PC004"
            return
        await copying
        rows = await one.first.ask("SELECT id, n FROM t WHERE id > 1 ORDER BY id")
        assert rows == [(2, 20), (3, 30)]

    one.run(live)


@SLOW
def test_copy_that_has_stored_rows_does_not_begin_again(monkeypatch: Patch) -> None:
    one, store, parts = One(), CopyIn._store_packed, []

    async def second_part_fails(self: CopyIn, batch: Any) -> int:
        parts.append(1)
        if len(parts) == 2:
            raise PlanOutdated("planned for the table as it was")
        return await store(self, batch)

    async def live() -> None:
        monkeypatch.setattr(CopyIn, "_store_packed", second_part_fails)
        monkeypatch.setattr(ChunkSize, "is_enough", lambda self, rows, size: rows > 0)
        lines = b"".join(b"%d\t1\n" % each for each in range(2, 10_000))
        with pytest.raises(CairnError) as told:
            await one.first.copy_in("COPY t (id, n) FROM STDIN", lines)
        assert told.value.sqlstate == "PC004" and "are stored" in (told.value.hint or "")

    one.run(live)


@SLOW
def test_numbers_without_a_leader_say_that_there_is_none() -> None:
    """They said that the change met others again and again."""
    scene = Triple("async")

    async def live() -> None:
        await scene.ready()
        instance = scene.third.instance
        assert instance is not None and scene.third.process is not None
        scene.leader.crash()
        scene.master.crash()

        async def take() -> None:
            await instance.executor.numbers._taken(1234, 1, 10)

        for _ in range(2):  # the first may have been sent
            with pytest.raises(CairnError) as told:
                await scene.world.loop.create_task(take(), context=scene.third.process.context)
        assert told.value.sqlstate == "PC002"

    scene.world.run(live)
