"""Indexes of expressions on replicas, after a failover, on who comes back: they fit the rows."""

from __future__ import annotations

from typing import Any

from cairn.sim.cluster.node import SimNode
from tests.sim_cluster.scenes import Triple, inside, played
from tests.sim_cluster.test_global_writes import running


def judged(node: SimNode) -> Any:
    """SQLite computes every expression of every row anew, and looks for it in the index."""
    return list(inside(node).data.store.connection.execute("PRAGMA integrity_check"))


def test_they_fit_the_rows_wherever_these_came_from() -> None:
    async def script(scene: Triple) -> None:
        for text in (
            "CREATE TABLE named (id INT PRIMARY KEY, s TEXT, n INT)",
            "CREATE INDEX ON named (lower(s), (n % 7))",
            "INSERT INTO named SELECT k, 'Name' || k, k FROM generate_series(1, 50) k",
        ):
            assert isinstance(await running(scene.leader, text), str)
        await scene.world.settled()
        scene.master.crash()
        await scene.renamed()
        answers = [
            await running(scene.leader, "UPDATE named SET s = 'Other' WHERE lower(s) = 'name7'"),
            await running(scene.leader, "DELETE FROM named WHERE lower(s) = 'other'"),
            await running(scene.leader, "ALTER TABLE named ADD COLUMN more INT DEFAULT 3"),
            await running(scene.leader, "INSERT INTO named VALUES (60, 'LATE', 60, 1)"),
        ]
        assert answers == ["UPDATE 1", "DELETE 1", "ALTER TABLE", "INSERT 0 1"]
        await scene.calm(may_lose=True)
        assert [judged(node) for node in scene.world.nodes.values()] == [[("ok",)]] * 3

    played("async", script)
