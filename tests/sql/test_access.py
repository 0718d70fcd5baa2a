"""How the one owner of all rows comes to them: by which index, and what is copied for a join."""

from __future__ import annotations

import pytest

from cairn.sql.api import prepare
from cairn.sql.plans import PointRead, PointWrite, ScatterRead

from .harness import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster()
    columns = "(id INT PRIMARY KEY, n INT, m INT, s TEXT)"
    made.run(f"CREATE TABLE near {columns} DISTRIBUTED BY ()")
    made.run(f"CREATE TABLE kin {columns} DISTRIBUTED BY ()")
    made.run(f"CREATE TABLE far {columns} DISTRIBUTED BY (id)")
    made.run(f"CREATE TABLE fixed {columns} DISTRIBUTED GLOBALLY")
    for table in ("near", "kin", "far"):
        made.run(f"CREATE INDEX ON {table} (n)")
    return made


def access(cluster: Cluster, text: str) -> list[str]:
    """What SQLite does at an owner that has everything, step by step."""
    plan = prepare(text, cluster.catalog, user_id=1).plan
    if isinstance(plan, ScatterRead):
        assert plan.alone is not None
        sql = plan.alone.fragments[0].with_ranges([(1, 30)])
    else:
        assert isinstance(plan, (PointRead, PointWrite))
        sql = plan.sql
    steps = cluster.nodes[0].execute(f"EXPLAIN QUERY PLAN {sql}", (1,) if "?1" in sql else ())
    return [step[3] for step in steps]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM near WHERE n = 5",
        "SELECT * FROM near WHERE n > 5 AND n < 7",
        "SELECT * FROM near WHERE n = 5 ORDER BY id LIMIT 3",
        "UPDATE near SET s = 'x' WHERE n = 5",
        "DELETE FROM near WHERE n IN (5, 6)",
        "SELECT * FROM kin k JOIN near t ON t.n = k.m WHERE k.id = 3",
        "SELECT count(*) FROM kin k, near t WHERE t.n = k.m AND t.m % 10 < 10",
    ],
)
def test_an_index_of_a_table_that_lies_together_is_used(cluster: Cluster, text: str) -> None:
    """Its one bucket was taken for few rows, so that every index was passed over."""
    assert any(" USING INDEX " in step and "(c1" in step for step in access(cluster, text))


def test_a_row_that_lies_together_is_found_by_its_key(cluster: Cluster) -> None:
    for text in ("SELECT * FROM near WHERE id = 5", "DELETE FROM near WHERE id = 5 AND n = 7"):
        [step] = access(cluster, text)
        assert step.endswith("USING PRIMARY KEY (bucket_id=? AND c0=?)"), text


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("SELECT count(*) FROM near a, kin b WHERE a.m = b.m", 1),
        ("SELECT count(*) FROM near a LEFT JOIN kin b ON a.m = b.m", 1),
        ("SELECT count(*) FROM near a LEFT JOIN kin b ON a.m = b.n", 0),  # it has an index
        ("SELECT count(*) FROM near a LEFT JOIN kin b ON a.n = b.m", 1),  # the wrong one has
        ("SELECT count(*) FROM near a JOIN kin b ON a.n = b.m", 0),
        ("SELECT count(*) FROM near a JOIN kin b ON a.id = b.m", 0),
        ("SELECT count(*) FROM near a JOIN kin b ON a.m = b.m WHERE a.id = 3", 0),  # few rows
        ("SELECT count(*) FROM near a, kin b, near c WHERE a.m = b.m AND b.s = c.s", 2),
        ("SELECT count(*) FROM near a, kin b, near c WHERE a.m = b.m AND b.m = c.m", 2),
        ("SELECT count(*) FROM near a, kin b WHERE a.m < b.m", 0),
        ("SELECT count(*) FROM near a JOIN fixed f ON a.m = f.m", 1),
        ("SELECT count(*) FROM near a JOIN fixed f ON a.m = f.id", 0),
        ("SELECT count(*) FROM far a JOIN fixed f ON a.m = f.m", 1),
        ("SELECT count(*) FROM far a JOIN far b ON a.m = b.m", 1),
        ("SELECT count(*) FROM far a JOIN far b ON a.id = b.id", 0),  # in the same bucket
        ("SELECT count(*) FROM far a JOIN far b ON a.m = b.n", 0),
        ("SELECT count(*) FROM near a LEFT JOIN (SELECT * FROM kin) b ON a.m = b.m", 1),
        (
            "SELECT count(*) FROM (SELECT b.id, coalesce(a.s, b.s) AS x FROM near a LEFT JOIN kin b"
            " ON a.id = b.id) AS two, kin c WHERE c.s = two.x",
            1,
        ),
        ("SELECT id FROM near a WHERE 1 = (SELECT count(*) FROM kin b, far c WHERE b.m = a.m)", 0),
    ],
)
def test_what_is_joined_without_an_index_is_copied_once(
    cluster: Cluster, text: str, copies: int
) -> None:
    """SQLite makes no index for a table without rowids: it looked at every pair."""
    steps = access(cluster, text)
    assert sum("AUTOMATIC" in step for step in steps) == copies, steps


def test_each_owner_copies_what_it_joins_without_an_index(cluster: Cluster) -> None:
    plan = prepare("SELECT count(*) FROM far a JOIN fixed f ON a.m = f.m", cluster.catalog).plan
    assert isinstance(plan, ScatterRead)
    [fragment] = plan.fragments
    sql = fragment.with_ranges([(1, 30)])
    steps = [row[3] for row in cluster.nodes[0].execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert sum("AUTOMATIC" in step for step in steps) == 1, steps
