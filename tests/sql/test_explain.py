"""EXPLAIN is readable for people and for an unmodified picopyn."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.sql.api import prepare
from cairn.sql.explain.raw import show_ranges
from cairn.sql.explain.show import Shown
from cairn.sql.plans import ExplainPlan

from .harness import Cluster

picopyn = pytest.importorskip("picopyn.explain")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster(bucket_count=3000)
    found.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)")
    found.run("CREATE TABLE u (a INT PRIMARY KEY, c INT) DISTRIBUTED BY (a)")
    return found


def lines(cluster: Cluster, text: str, params: list[Any] | None = None) -> list[str]:
    prepared = prepare(text, cluster.catalog, user_id=1)
    assert [column.name for column in prepared.columns] == ["QUERY PLAN"]
    plan = prepared.plan
    assert isinstance(plan, ExplainPlan)

    def query_plan(sql: str, bindings: Any) -> list[Any]:
        node = cluster.nodes[0]
        try:
            return node.execute("EXPLAIN QUERY PLAN " + sql, bindings).fetchall()
        except Exception:
            return []  # the merge reads tables that exist only while it runs

    values = prepared.start(params or [])
    shown = Shown(plan.inner, values, query_plan=query_plan, catalog=cluster.catalog)
    return shown.lines(plan.options)


def test_a_point_read_shows_its_bucket(cluster: Cluster) -> None:
    assert lines(cluster, "EXPLAIN SELECT b FROM t WHERE a = $1", [1]) == [
        'projection ("t"."b"::text -> "b")',
        '    selection (("t"."a"::int = $1::int))',
        '        scan "t" by primary key (a=?)',
        "execution options:",
        "    sql_vdbe_opcode_max = 0",
        "    sql_motion_row_max = 0",
        "buckets = [1934]",
    ]


@pytest.mark.parametrize(
    ("text", "buckets"),
    [
        ("SELECT * FROM t", "[1-3000]"),
        ("SELECT * FROM t WHERE a = 1", "[1934]"),
        ("SELECT * FROM t WHERE a IN (1, 2)", "[1410,1934]"),
        ("SELECT * FROM t WHERE a = 1 AND a = 2", "[1934]"),
        ("SELECT * FROM t WHERE (a = 1 OR a = 2) AND a IN (2, 5)", "[1410]"),
        ("SELECT * FROM t WHERE bucket_id BETWEEN 5 AND 9", "[5-9]"),
        ("SELECT name FROM _pico_tier", "any"),
        ("SELECT 1", "any"),
        ("INSERT INTO t VALUES (1, 'x')", "[1934]"),
        ("INSERT INTO t VALUES (1, 'x'), (2, 'y')", "[1410,1934]"),
        ("UPDATE t SET b = 'z' WHERE a = 2", "[1410]"),
        ("DELETE FROM t", "[1-3000]"),
        ("SELECT t.a, u.c FROM t JOIN u ON t.a = u.a", "[1-3000]"),
        ("SELECT a FROM t WHERE a > (SELECT max(c) FROM u)", "[1-3000]"),
        ("SELECT count(*), b FROM t GROUP BY b ORDER BY b LIMIT 3", "[1-3000]"),
        ("SELECT a FROM t UNION SELECT c FROM u", "[1-3000]"),
        ("INSERT INTO t SELECT a, 'x' FROM u", "unknown"),
    ],
)
def test_picopyn_reads_the_plan_and_its_buckets(cluster: Cluster, text: str, buckets: str) -> None:
    plan = picopyn.parse_plain_explain_lines(lines(cluster, "EXPLAIN " + text))
    assert plan.buckets == buckets


@pytest.mark.parametrize(
    "text",
    ["SELECT b FROM t WHERE a = 1", "SELECT count(*) FROM t", "DELETE FROM t WHERE b = 'x'"],
)
def test_picopyn_reads_raw_plans(cluster: Cluster, text: str) -> None:
    plan = picopyn.parse_raw_explain_lines(lines(cluster, "EXPLAIN (RAW) " + text))
    assert plan.sections


def test_several_facets_have_headings(cluster: Cluster) -> None:
    found = lines(cluster, "EXPLAIN (BUCKETS, CONTEXT) SELECT * FROM t WHERE a = 1")
    assert found[:5] == ["─" * 70, " # Buckets".ljust(70), "─" * 70, "", "buckets = [1934]"]


def test_ranges_are_joined() -> None:
    assert show_ranges({1, 2, 3, 7, 9, 10}) == "[1-3,7,9-10]"
    assert show_ranges(set()) == "[]"


def tree(cluster: Cluster, text: str) -> list[str]:
    found = lines(cluster, "EXPLAIN " + text)
    return found[: found.index("execution options:")]


def test_a_join_on_the_distribution_key_stands_below_the_motion(cluster: Cluster) -> None:
    assert tree(cluster, "SELECT t.a, u.c FROM t LEFT JOIN u ON t.a = u.a") == [
        'projection ("a"::int -> "a", "c"::int -> "c")',
        "    motion [policy: full]",
        '        projection ("t"."a"::int -> "a", "u"."c"::int -> "c")',
        '            left join on (("t"."a"::int = "u"."a"::int))',
        '                scan "t"',
        '                scan "u" by primary key (a=?)',
    ]


def test_a_join_of_other_columns_stands_above_a_motion_of_each_side(cluster: Cluster) -> None:
    assert tree(cluster, "SELECT t.a FROM t JOIN u ON t.a = u.c WHERE u.a > 3") == [
        'projection ("a"::int -> "a")',
        '    join on (("a"::int = "c"::int))',
        "        motion [policy: full]",
        '            projection ("t"."a"::int -> "a")',
        '                scan "t"',
        "        motion [policy: full]",
        '            projection ("u"."c"::int -> "c")',
        '                selection (("u"."a"::int > 3::int))',
        '                    scan "u" by primary key in each bucket',
        '    or at the owners of "t": the rows of the other motions go there, if few',
        '    or at the owners of "u": the rows of the other motions go there, if few',
    ]


def test_each_owner_tells_its_first_rows(cluster: Cluster) -> None:
    assert tree(cluster, "SELECT a FROM t ORDER BY a LIMIT 3") == [
        "limit 3",
        '    order by ("a"::int)',
        '        projection ("a"::int -> "a")',
        "            motion [policy: full]",
        "                limit 3",
        '                    order by ("t"."a"::int)',
        '                        projection ("t"."a"::int -> "a")',
        '                            scan "t" by primary key in each bucket',
    ]


def test_an_index_of_the_owners_is_named(cluster: Cluster) -> None:
    cluster.run("CREATE INDEX u_c ON u (c)")
    assert tree(cluster, "SELECT a FROM u WHERE c = 7")[-1] == (
        '                scan "u" by index "u_c" (c=?)'
    )


def test_buckets_that_a_subquery_will_tell_are_not_guessed(cluster: Cluster) -> None:
    found = lines(cluster, "EXPLAIN SELECT b FROM t WHERE a = (SELECT max(c) FROM u)")
    assert found[-1] == "buckets = unknown"
    assert "    subquery first ($1):" in found


def test_a_sub_query_of_each_row_finds_its_partner_by_the_key(cluster: Cluster) -> None:
    for text in (
        "SELECT c, (SELECT b FROM t WHERE t.a = u.a) FROM u",
        "SELECT c FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = u.a)",
        "UPDATE u SET c = 1 WHERE EXISTS (SELECT 1 FROM t WHERE t.a = u.a)",
    ):
        [found] = [line.strip() for line in tree(cluster, text) if 'scan "t"' in line]
        assert found == 'scan "t" by primary key (a=?)'


def test_the_owners_count_distinct_keys(cluster: Cluster) -> None:
    assert tree(cluster, "SELECT count(DISTINCT a) FROM u") == [
        'projection (coalesce(sum("count_1"::int), 0::int) -> "count")',
        "    motion [policy: full]",
        '        projection (count(distinct "u"."a"::int) -> "count_1")',
        '            scan "u"',
    ]
    # Equal values of other columns may be at several owners: they are sent.
    assert '        projection (distinct "u"."c"::int -> "c")' in tree(
        cluster, "SELECT count(DISTINCT c) FROM u"
    )


def test_windows_and_cases_are_told_whole_and_where_they_are_done(cluster: Cluster) -> None:
    text = (
        "EXPLAIN SELECT sum(c) OVER (PARTITION BY a ORDER BY c DESC), "
        "CASE WHEN c > 1 THEN 'x' ELSE 'y' END FROM u"
    )
    assert lines(cluster, text)[:4] == [
        'projection ("col_1"::numeric -> "sum", "col_2"::text -> "case")',
        "    motion [policy: full]",
        '        projection (n_sum2(sum(("u"."c"::int >> 32::int)) over (partition by "u"."a"::int '
        'order by "u"."c"::int desc), sum(("u"."c"::int & 4294967295::int)) over (partition by '
        '"u"."a"::int order by "u"."c"::int desc)) -> "col_1", case when ("u"."c"::int > 1::int) '
        "then 'x'::text else 'y'::text end -> \"col_2\")",
        '            scan "u"',
    ]
