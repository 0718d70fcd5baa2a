"""Whatever happens between a statement of a block and its COMMIT: changes that are put back are
those that running the statements again would make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.node.statements.blocks.open_block import OpenBlock
from cairn.node.statements.context import Context
from cairn.sim.cluster.loads.block_lists import _Statement
from cairn.sim.cluster.node import SimNode
from cairn.sql.api import prepare
from tests.sim_cluster.run_twice import RunTwice
from tests.sim_cluster.scenes import Triple, inside

TABLES = (
    "CREATE TABLE u (a INT, n INT, x INT, PRIMARY KEY (a, n)) DISTRIBUTED BY (a)",
    "CREATE TABLE w (a INT PRIMARY KEY, x INT)",
    "CREATE TABLE g (k INT PRIMARY KEY, x INT) DISTRIBUTED GLOBALLY",
    "CREATE VIEW v AS SELECT a, n, x FROM u WHERE x > 0",
)
ROWS = (
    "INSERT INTO u VALUES (1, 1, 5), (1, 2, 6), (2, 1, 7)",
    "INSERT INTO w VALUES (1, 1), (2, 2)",
    "INSERT INTO g VALUES (1, 1), (2, 2)",
)
EMPTY = ("DELETE FROM u", "DELETE FROM w", "DELETE FROM g")

#: What a block does, behind a write of its own.
STATEMENTS = (
    "UPDATE u SET x = x + 1 WHERE a = 1 AND n = 1",
    "UPDATE u SET x = x + 1 WHERE a = 1 RETURNING n, x",
    "UPDATE u SET x = 9 WHERE x = 6",
    "UPDATE u SET x = (SELECT max(x) FROM u AS o WHERE o.a = 1) WHERE a = 1 AND n = 2",
    "UPDATE u SET x = (SELECT max(x) FROM w) WHERE a = 1 AND n = 2",
    "UPDATE u SET x = (SELECT x FROM w WHERE a = 1) WHERE a = 1 AND n = 2",
    "UPDATE u SET x = (SELECT x FROM g WHERE k = 1) WHERE a = 1 AND n = 2",
    "UPDATE u SET x = 0 WHERE a = (SELECT min(a) FROM w WHERE x = 1)",
    "UPDATE u SET a = 2, n = 8 WHERE a = 1 AND n = 2",
    "UPDATE u SET x = 3 FROM w WHERE w.a = u.a AND w.x = 1",
    "INSERT INTO u VALUES (1, 3, 8)",
    "INSERT INTO u VALUES (1, 1, 8) ON CONFLICT DO NOTHING",
    "INSERT INTO u VALUES (1, 1, 8) ON CONFLICT (a, n) DO UPDATE SET x = u.x + excluded.x",
    "INSERT INTO u SELECT a, n + 10, x FROM u WHERE a = 1",
    "INSERT INTO u SELECT a, 20, x FROM w WHERE a = 1",
    "INSERT INTO u SELECT 1, 30, x FROM g WHERE k = 1",
    "INSERT INTO u SELECT 1, 40, x FROM v WHERE a = 1 AND n = 1",
    "DELETE FROM u WHERE a = 1 AND n = 2",
    "DELETE FROM u WHERE a = 1 AND NOT EXISTS (SELECT 1 FROM w WHERE w.a = u.a AND w.x > 3)",
    "SELECT count(*), sum(x) FROM u WHERE a = 1",
    "SELECT u.x, w.x FROM u JOIN w ON w.a = u.a WHERE u.a = 1",
    "SELECT * FROM u WHERE a = 1 AND x > 100",
    "SELECT x FROM v WHERE a = 1",
    "SELECT u.x, (SELECT max(x) FROM g) FROM u WHERE a = 1",
    "WITH gone AS (DELETE FROM u WHERE a = 1 RETURNING n) SELECT count(*) FROM gone",
    "DO $$ BEGIN UPDATE u SET x = x + 1 WHERE a = 1 AND n = 1; DELETE FROM w WHERE a = 1; END $$",
    "MERGE INTO u USING w ON u.a = w.a AND w.a = 1 WHEN MATCHED THEN UPDATE SET x = u.x + w.x",
)

Happens = Callable[["Scene"], Awaitable[None]]


def told(*texts: str) -> Happens:
    async def happens(scene: Scene) -> None:
        for text in texts:
            await scene.run(text)

    happens.__name__ = "; ".join(texts)
    return happens


async def masters_come_and_go(scene: Scene) -> None:
    """With a write of the other one's."""
    old = scene.node
    for node in (scene.other, old):
        await scene.named(node)
        await scene.run("UPDATE u SET x = x * 2 WHERE a = 1")


async def a_view_says_more(scene: Scene) -> None:
    scene.views += 1
    await scene.run(f"CREATE OR REPLACE VIEW v AS SELECT a, n, x + {scene.views} AS x FROM u")


HAPPENINGS = (
    told(),
    told("UPDATE u SET x = x * 2 WHERE a = 1 AND n = 1"),
    told("UPDATE u SET x = 6 WHERE a = 2"),
    told("INSERT INTO u VALUES (1, 9, 900)"),
    told("INSERT INTO u VALUES (1, 3, 900)"),
    told("DELETE FROM u WHERE a = 1 AND n = 1"),
    told("UPDATE w SET x = 4 WHERE a = 1"),
    told("UPDATE w SET x = 4 WHERE a = 2"),
    told("UPDATE g SET x = 4 WHERE k = 1"),
    told("DO $$ BEGIN UPDATE u SET x = 6 WHERE a = 1; DELETE FROM u WHERE a = 1 AND n = 1; END $$"),
    told("UPDATE u SET x = x + 1 WHERE a = 1", "UPDATE u SET x = x - 1 WHERE a = 1"),
)
RARE = (
    told("TRUNCATE u"),
    told("CREATE INDEX by_x ON u (x)", "DROP INDEX by_x"),
    a_view_says_more,
    told("ALTER TABLE u ADD CONSTRAINT small CHECK (x < 8)", "ALTER TABLE u DROP CONSTRAINT small"),
    masters_come_and_go,
)


OWN = "UPDATE u SET x = x + 100 WHERE a = 1"
LOOK = "SELECT x FROM u WHERE a = 1 ORDER BY n"
BY_GLOBAL = "UPDATE u SET x = (SELECT x FROM g WHERE k = 1) WHERE a = 1 AND n = 2"
#: One for each thing that a statement may depend on beside its own rows.
DIRECTED: tuple[tuple[str, Happens], ...] = (
    (BY_GLOBAL, told("UPDATE g SET x = 4 WHERE k = 1")),
    ("UPDATE u SET x = 9 WHERE x = 6", told("UPDATE u SET x = 6 WHERE a = 2")),
    (
        "UPDATE u SET x = (SELECT x FROM w WHERE a = 1) WHERE a = 1 AND n = 2",
        told("UPDATE w SET x = 4 WHERE a = 1"),
    ),
    ("INSERT INTO u SELECT 1, 40, x FROM v WHERE a = 1 AND n = 1", a_view_says_more),
    ("SELECT * FROM u WHERE a = 1 AND x > 800", told("INSERT INTO u VALUES (1, 9, 900)")),
    (OWN, told("UPDATE u SET x = x * 2 WHERE a = 1 AND n = 1")),
)


class Scene(Triple):
    """Three tables at one replicaset. Blocks come to the master, or to the one beside it."""

    async def begin(self) -> None:
        await self.ready()
        self.node, self.other, self.views = self.master, self.third, 0
        for text in TABLES:
            await self.run(text)

    async def named(self, node: SimNode) -> None:
        """Make it the master."""
        instance = inside(node)
        text = f"UPDATE _pico_replicaset SET target_master_name = '{instance.name}'"
        await self.run(text)
        await self.world.until(lambda: self.load.masters() == [node], f"{node} to be master", 60.0)

    async def inside(self, node: SimNode, work: Callable[[], Any]) -> Any:
        return await self.world.loop.create_task(work(), context=node.process.context)

    def statement(self, node: SimNode, text: str) -> _Statement:
        catalog = inside(node).state.catalog
        prepared = prepare(text, catalog)
        return _Statement(prepared, catalog.sharded(prepared.tables))

    async def run(self, text: str, node: SimNode | None = None) -> Any:
        node = node or self.node

        async def work() -> Any:
            return await inside(node).executor.run(self.statement(node, text), (), Context())

        return await self.inside(node, work)

    async def block(self, node: SimNode, texts: Sequence[str], happens: Happens) -> str:
        """What became of a block."""
        for change in (*EMPTY, *ROWS):
            await self.run(change)
        block = OpenBlock(inside(node).executor)
        for text in texts:
            work = partial(block.run, self.statement(node, text), (), Context())
            await self.inside(node, work)
        try:
            await happens(self)
            await self.inside(node, lambda: block.commit(Context()))
        except CairnError as problem:
            return problem.sqlstate
        return "committed"


@pytest.mark.parametrize("place", ["first", "last"])
def test_what_is_put_back_is_what_would_be_done_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice, scene = RunTwice(monkeypatch), Scene("async")

    async def live() -> None:
        await scene.begin()
        for text, happens in DIRECTED:
            texts = (text, OWN) if place == "first" else (OWN, text)
            for node in (scene.node, scene.other):
                await scene.block(node, texts, told())
                await scene.block(node, texts, happens)

    scene.world.run(live)
    assert twice.wrong == []
    assert twice.taken


@pytest.mark.slow
@pytest.mark.parametrize("happenings", [HAPPENINGS, RARE], ids=["rows", "tables and masters"])
def test_it_is_so_for_all_kinds_of_statements(
    happenings: Sequence[Happens], monkeypatch: pytest.MonkeyPatch
) -> None:
    twice, scene = RunTwice(monkeypatch), Scene("async")
    ends: set[str] = set()

    async def live() -> None:
        await scene.begin()
        for at, (text, happens) in enumerate(product(STATEMENTS, happenings)):
            node = (scene.node, scene.other)[at % 2]
            ends.add(await scene.block(node, (OWN, text, LOOK), happens))

    scene.world.run(live)
    assert twice.wrong == []
    assert ends >= {"committed", "40001"} and len(twice.taken) > 100
