"""Where statements run: who is asked, what is pushed down, what is gathered."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.sql.api import prepare
from cairn.sql.plans import (
    InsertSelect,
    KeyedWrite,
    PointRead,
    PointWrite,
    ScatterRead,
    ScatterWrite,
    ShardedInsert,
)

from .harness import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster(bucket_count=3000)
    found.run("CREATE TABLE a (id INT PRIMARY KEY, n INT, s TEXT) DISTRIBUTED BY (id)")
    found.run("CREATE TABLE b (id INT, k INT, d DECIMAL, PRIMARY KEY (id, k)) DISTRIBUTED BY (id)")
    found.run("CREATE TABLE c (id INT PRIMARY KEY, tag TEXT) DISTRIBUTED BY (tag)")
    found.run("CREATE TABLE g (id INT PRIMARY KEY, s TEXT) DISTRIBUTED GLOBALLY")
    found.run("CREATE TABLE far (id INT PRIMARY KEY) DISTRIBUTED BY (id) IN TIER cold")
    return found


def plan(cluster: Cluster, text: str) -> Any:
    return prepare(text, cluster.catalog, user_id=1).plan


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * FROM a WHERE id = $1", PointRead),
        ("SELECT * FROM a WHERE id = 5 AND n > 2", PointRead),
        ("SELECT * FROM g", PointRead),
        ("SELECT * FROM a JOIN b ON a.id = b.id WHERE a.id = $1", PointRead),
        ("SELECT * FROM a LEFT JOIN b ON a.id = b.id WHERE a.id = $1", PointRead),
        ("SELECT * FROM a JOIN g ON g.id = a.n WHERE a.id = $1", PointRead),
        ("SELECT (SELECT max(k) FROM b WHERE b.id = a.id) FROM a WHERE id = $1", PointRead),
        ("SELECT * FROM a", ScatterRead),
        ("SELECT * FROM a JOIN b ON a.id = b.k WHERE a.id = $1", ScatterRead),
        ("INSERT INTO a VALUES ($1, $2, $3)", PointWrite),
        ("INSERT INTO a VALUES (1, 2, lower('X'))", PointWrite),
        ("INSERT INTO a VALUES (1, 2, 'x'), (2, 3, 'y')", ShardedInsert),
        ("INSERT INTO a (id) SELECT id FROM g", InsertSelect),
        ("INSERT INTO a (id) VALUES ((SELECT max(id) FROM g))", InsertSelect),
        ("UPDATE a SET n = n + 1 WHERE id = $1", PointWrite),
        ("UPDATE a SET n = n + 1", ScatterWrite),
        ("UPDATE a SET n = b.k FROM b WHERE b.id = a.id", ScatterWrite),
        ("UPDATE a SET n = g.id FROM g WHERE g.s = a.s", ScatterWrite),
        ("UPDATE a SET n = b.k FROM b WHERE b.k = a.id", KeyedWrite),
        ("UPDATE a SET n = (SELECT max(k) FROM b)", ScatterWrite),
        ("UPDATE c SET tag = 'x' WHERE tag = 'y'", KeyedWrite),
        ("DELETE FROM a WHERE id = $1 AND n = 3", PointWrite),
        ("DELETE FROM a WHERE n IN (SELECT k FROM b)", KeyedWrite),
        ("DELETE FROM a WHERE id IN (SELECT id FROM b)", ScatterWrite),
    ],
)
def test_each_statement_gets_the_cheapest_plan_that_is_right(
    cluster: Cluster, text: str, kind: type
) -> None:
    assert type(plan(cluster, text)) is kind


@pytest.mark.parametrize(
    ("text", "fragments", "pushed"),
    [
        ("SELECT n FROM a WHERE s = 'x'", 1, "(r1.c2 = 'x')"),
        ("SELECT n FROM a ORDER BY n LIMIT 3 OFFSET 2", 1, "LIMIT c_limit(i_add(3, 2))"),
        ("SELECT DISTINCT n FROM a", 1, "SELECT DISTINCT"),
        ("SELECT n, count(*) FROM a GROUP BY n", 1, "GROUP BY r1.c1"),
        ("SELECT count(DISTINCT n) FROM a", 1, "SELECT DISTINCT r1.c1"),
        ("SELECT id, count(*) FROM b GROUP BY id ORDER BY 2 LIMIT 1", 1, "LIMIT 1"),
        ("SELECT * FROM a JOIN b ON a.id = b.id", 1, "JOIN"),
        ("SELECT * FROM a LEFT JOIN b ON a.id = b.id", 1, "LEFT JOIN"),
        ("SELECT * FROM a JOIN g ON a.n = g.id", 1, "t1027 AS r2"),
        ("SELECT a.id FROM a JOIN b ON a.n = b.k WHERE a.s = 'x'", 2, "(r1.c2 = 'x')"),
        ("SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id)", 1, "EXISTS"),
        ("SELECT id FROM a WHERE id IN (SELECT id FROM b)", 1, " IN (SELECT"),
        ("SELECT id FROM a WHERE n IN (SELECT k FROM b)", 2, "FROM"),
        ("SELECT x.c FROM (SELECT id, count(*) AS c FROM b GROUP BY id) x", 1, "GROUP BY"),
    ],
)
def test_work_is_pushed_to_where_the_rows_are(
    cluster: Cluster, text: str, fragments: int, pushed: str
) -> None:
    found = plan(cluster, text)
    assert isinstance(found, ScatterRead)
    assert len(found.fragments) == fragments
    assert any(pushed in fragment.sql for fragment in found.fragments), found.fragments[0].sql


def test_only_owners_of_the_needed_buckets_are_asked(cluster: Cluster) -> None:
    cluster.run("SELECT * FROM a WHERE id = 1")
    assert cluster.asked == [1]  # bucket 1934
    cluster.run("SELECT * FROM a WHERE id IN (1, 2)")
    assert cluster.asked == [1]  # buckets 1934 and 1410
    cluster.run("SELECT * FROM a WHERE bucket_id <= 1000")
    assert cluster.asked == [0]
    cluster.run("SELECT * FROM a WHERE id = 1 AND n = 2 OR id = 5")
    assert cluster.asked == [0, 1]


def test_a_subquery_that_is_a_value_runs_first(cluster: Cluster) -> None:
    found = plan(cluster, "SELECT id FROM a WHERE n > (SELECT max(k) FROM b) AND id < $1")
    assert [step.number for step in found.steps] == [2]
    assert "?1" in found.fragments[0].sql and "?2" in found.fragments[0].sql


def test_ranges_stand_where_the_mark_was(cluster: Cluster) -> None:
    fragment = plan(cluster, "SELECT id FROM a").fragments[0]
    assert fragment.with_ranges([(1, 10), (12, 12)]) == (
        "SELECT r1.c0 AS x0 FROM t1024 AS r1 "
        "WHERE (r1.bucket_id BETWEEN 1 AND 10 OR r1.bucket_id = 12)"
    )
    assert fragment.with_ranges(None).endswith("WHERE 1")
    assert fragment.with_ranges([]).endswith("WHERE 0")


def test_the_first_binding_of_a_point_statement_is_its_bucket(cluster: Cluster) -> None:
    for text in ("SELECT n FROM a WHERE id = $1", "DELETE FROM a WHERE id = $1"):
        found = plan(cluster, text)
        assert found.bind([1])[0] == found.bucket([1]) == 1934


def test_tables_of_two_tiers_do_not_meet(cluster: Cluster) -> None:
    with pytest.raises(CairnError, match="Query cannot use tables from different tiers"):
        plan(cluster, "SELECT * FROM a JOIN far ON a.id = far.id")


def test_bucket_id_is_hidden_but_can_be_named(cluster: Cluster) -> None:
    cluster.run("INSERT INTO a VALUES (1, 1, 'x')")
    assert cluster.run("SELECT * FROM a WHERE id = 1") == [(1, 1, "x")]
    assert cluster.run("SELECT bucket_id, id FROM a WHERE id = 1") == [(1934, 1)]
    cluster.run("DELETE FROM a")
    for text, sqlstate in (
        ("UPDATE a SET bucket_id = 1", "428C9"),
        ("INSERT INTO a (bucket_id, id) VALUES (1, 1)", "42703"),
        ("SELECT bucket_id FROM g", "42703"),
        ("UPDATE g SET id = 2", "0A000"),
    ):
        with pytest.raises(CairnError) as error:
            cluster.run(text)
        assert error.value.sqlstate == sqlstate


def test_importing_the_way_in_does_not_import_sqlglot() -> None:
    import subprocess
    import sys

    code = "import sys, cairn.sql.api; sys.exit('sqlglot' in sys.modules or 'apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("SELECT n, count(*), sum(n), min(s) FROM a GROUP BY n", "kaiil"),
        ("SELECT count(*) FROM a GROUP BY n, s HAVING max(id) > 3", "kkag"),
        ("SELECT n, count(*) FILTER (WHERE s > $1) FROM a GROUP BY n", "kc"),
        ("SELECT lower(s), avg(d) FROM b JOIN a USING (id) GROUP BY 1", "kzc"),
        ("SELECT DISTINCT n, s FROM a", "kk"),
        ("SELECT count(DISTINCT s) FROM a", "k"),
        ("SELECT id, count(*) FROM b GROUP BY id", ""),  # whole at each owner, and in order
        ("SELECT k, count(*) FROM b GROUP BY id, k", ""),
        ("SELECT n::double, count(*) FROM a GROUP BY 1", ""),
        ("SELECT d, count(*) FROM b GROUP BY d", ""),  # 1.0 and 1.00 are one group
        ("SELECT n, string_agg(s, ',') FROM a GROUP BY n", ""),
        ("SELECT DISTINCT n FROM a ORDER BY n LIMIT 3", ""),
        ("SELECT count(*) FROM a", ""),
    ],
)
def test_groups_that_are_merged_are_made_by_a_hash(cluster: Cluster, text: str, kinds: str) -> None:
    (fragment,) = plan(cluster, text).fragments
    assert fragment.grouped.partition("packed_groups('")[2].partition("'")[0] == kinds


@pytest.mark.parametrize(
    ("join", "is_one_statement"),
    [
        ("(SELECT id AS k FROM t) a JOIN (SELECT v AS k FROM t) b ON a.k = b.k", True),
        ("(SELECT id + 0 AS k, v FROM t) a JOIN t b ON a.v = b.v", True),
        ("(SELECT id + 0 AS k FROM t) a JOIN (SELECT id + 0 AS k FROM t) b ON a.k = b.k", False),
        ("(SELECT id + 0 AS k FROM t) a, t b WHERE a.k = b.v", False),
    ],
)
def test_what_sub_queries_compute_is_joined_where_it_has_an_index(
    join: str, *, is_one_statement: bool
) -> None:
    """As one statement SQLite would look at every pair of rows."""
    cluster = Cluster()
    cluster.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    plan = prepare(f"SELECT count(*) FROM {join}", cluster.catalog, user_id=1).plan
    assert isinstance(plan, ScatterRead)
    assert (plan.alone is not None) is is_one_statement
