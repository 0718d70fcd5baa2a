"""Three replicasets answer like one big database, and only those are asked that have to be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.sql import plans
from cairn.sql.api import prepare

from .corpus import ORDERED, PLAIN, ROWS, TABLES, lines
from .generate import Generator
from .harness import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    for ours, _ in TABLES:
        found.run(ours)
    for statement in ROWS:
        found.run(statement)
    found._mirror()
    return found


def _sorted(rows: list[Any]) -> list[str]:
    """Sums of DOUBLE depend on the order of adding in their last digit."""
    return sorted(
        repr(tuple(f"{v:.12g}" if isinstance(v, float) else v for v in row)) for row in rows
    )


def _answers(cluster: Cluster, text: str) -> tuple[Any, Any]:
    def attempt(call: Any) -> Any:
        try:
            return call(text)
        except CairnError as error:
            return error.sqlstate

    return attempt(cluster.run), attempt(cluster.oracle)


@pytest.mark.parametrize("text", lines(ORDERED))
def test_an_ordered_query_gives_the_rows_of_one_big_database(cluster: Cluster, text: str) -> None:
    ours, whole = _answers(cluster, text)
    assert ours == whole


@pytest.mark.parametrize("text", lines(PLAIN))
def test_a_query_gives_the_rows_of_one_big_database(cluster: Cluster, text: str) -> None:
    ours, whole = _answers(cluster, text)
    assert _sorted(ours) == _sorted(whole)


def test_generated_queries_give_the_rows_of_one_big_database(cluster: Cluster) -> None:
    generator = Generator(random.Random(7))
    for _ in range(600):
        text, ordered = generator.query()
        ours, whole = _answers(cluster, text)
        if not ordered and isinstance(ours, list):
            ours, whole = _sorted(ours), _sorted(whole)
        assert ours == whole, text


def test_thousands_of_buckets_are_asked_without_a_chain_of_ors() -> None:
    from cairn.sql.render.slots import with_ranges

    mark = "SELECT 1 FROM t1 AS r1 WHERE /*buckets:r1*/"
    neighbours = with_ranges(mark, [(at, at) for at in range(1, 1501)])
    assert neighbours == "SELECT 1 FROM t1 AS r1 WHERE (likely(r1.bucket_id BETWEEN 1 AND 1500))"
    scattered = with_ranges(mark, [(at, at) for at in range(1, 3000, 2)])
    assert " OR " not in scattered
    assert scattered.count(",") == 1499


ORDERED_BY_KEY = {
    # Equal keys have one owner: it numbers, groups and looks for them by itself.
    "SELECT row_number() OVER (PARTITION BY item_id ORDER BY no) FROM part": (
        "PARTITION BY r1.bucket_id, r1.c0 ORDER BY"
    ),
    "SELECT item_id, count(*) FROM part GROUP BY item_id": "GROUP BY r1.bucket_id, r1.c0",
    "SELECT tag, n FROM note GROUP BY n, tag": "GROUP BY r1.bucket_id, r1.c1, r1.c2",
    "SELECT a FROM pair GROUP BY a, v, b": "GROUP BY r1.bucket_id, r1.c1, r1.c0, r1.c2",
    "SELECT id FROM item WHERE id NOT IN (SELECT item_id FROM part)": (
        "(r1.bucket_id, r1.c0) IN (SELECT r2.bucket_id AS x0, r2.c0 AS x1 FROM"
    ),
    # Groups of other columns are of several owners.
    "SELECT no, count(*) FROM part GROUP BY no": "GROUP BY r1.c1",
    "SELECT n FROM note GROUP BY n, id": "GROUP BY r1.c2, r1.c0",
}


@pytest.mark.parametrize(("text", "told"), ORDERED_BY_KEY.items())
def test_owners_use_the_order_of_the_primary_key(cluster: Cluster, text: str, told: str) -> None:
    (fragment,) = prepare(text, cluster.catalog, user_id=1).plan.fragments
    assert told in fragment.sql


@pytest.mark.parametrize(
    "text",
    [
        "SELECT row_number() OVER (ORDER BY no) FROM part",
        "SELECT row_number() OVER (PARTITION BY no ORDER BY item_id) FROM part",
        "SELECT rank() OVER (PARTITION BY item_id), rank() OVER (ORDER BY no) FROM part",
        "SELECT sum(no) OVER (PARTITION BY item_id % 2) FROM part",
    ],
)
def test_a_window_over_rows_of_several_owners_is_not_theirs(cluster: Cluster, text: str) -> None:
    (fragment,) = prepare(text, cluster.catalog, user_id=1).plan.fragments
    assert "OVER" not in fragment.sql


def test_a_window_that_looks_like_an_aggregate_is_none(cluster: Cluster) -> None:
    text = "SELECT no, sum(no), sum(no) OVER (), count(*) OVER () FROM part GROUP BY no ORDER BY 1"
    ours, whole = _answers(cluster, text)
    assert ours == whole
    (fragment,) = prepare(text, cluster.catalog, user_id=1).plan.fragments
    assert "OVER" not in fragment.sql
    assert "GROUP BY" in fragment.sql


#: What an owner is asked, and the index that it finds the rows by.
BY_INDEX = {
    "SELECT id FROM item WHERE n < 5": "i1024_1",
    "SELECT id FROM item WHERE n > 5 ORDER BY n LIMIT 5": "i1024_1",
    "SELECT * FROM item ORDER BY n DESC LIMIT 5": "i1024_1",
    "SELECT min(n), max(id) FROM item WHERE n > 3": "i1024_1",
    "SELECT * FROM item WHERE id > 7 ORDER BY id LIMIT 5": "i1024_2",
    "SELECT count(*) FROM item WHERE n BETWEEN 2 AND 4": "i1024_1",
    "UPDATE item SET s = 'x' WHERE n < 5": "i1024_1",
    "DELETE FROM item WHERE n < 5": "i1024_1",
}


@pytest.mark.parametrize("ranges", [[(1, 3000)], [(1, 900), (1000, 1000), (1200, 2400)]], ids=str)
@pytest.mark.parametrize("text", BY_INDEX)
def test_an_owner_of_many_buckets_finds_rows_by_an_index(
    text: str, ranges: list[tuple[int, int]]
) -> None:
    """Its buckets are a range of the primary key, which must not seem to be the narrowest one."""
    cluster = Cluster()
    cluster.run("CREATE TABLE item (id INT PRIMARY KEY, n INT, s TEXT)")
    cluster.run("CREATE INDEX item_n ON item (n)")
    cluster.run("CREATE INDEX item_id ON item (id)")
    plan: Any = prepare(text, cluster.catalog, user_id=1).plan
    fragments = [plan.fragment] if hasattr(plan, "fragment") else plan.fragments
    if getattr(plan, "alone", None) is not None:
        fragments = [*fragments, *plan.alone.fragments]
    for fragment in fragments:
        asked = f"EXPLAIN QUERY PLAN {fragment.with_ranges(ranges)}"
        steps = [row[3] for row in cluster.nodes[0].execute(asked, fragment.bind(()))]
        assert any(f"INDEX {BY_INDEX[text]}" in step for step in steps), steps


LISTED = {
    "SELECT id, n FROM item WHERE id IN (1, 3, 3, 99, NULL)": [(1, 10), (3, 30)],
    "SELECT id, n FROM item WHERE id = ANY('{2,4}'::int[]) AND n > 20": [(4, 40)],
    "SELECT id, n FROM item WHERE id IN (1, 2) ORDER BY n DESC LIMIT 1": [(2, 20)],
    "SELECT sum(n) FROM item WHERE id IN (1, 2) HAVING count(*) = 2": [(30,)],
}


@pytest.mark.parametrize("text", LISTED)
def test_keys_that_are_listed_are_looked_for_in_their_own_buckets_only(text: str) -> None:
    """A list of buckets beside a list of keys would be all combinations of the two."""
    cluster = Cluster()
    cluster.run("CREATE TABLE item (id INT PRIMARY KEY, n INT)")
    cluster.run("INSERT INTO item VALUES (1, 10), (2, 20), (3, 30), (4, 40)")
    cluster._mirror()
    assert sorted(cluster.run(text)) == LISTED[text]
    cluster.way = 0
    assert sorted(cluster.run(text)) == LISTED[text]
    plan: Any = prepare(text, cluster.catalog, user_id=1).plan
    for fragment in (*plan.fragments, *plan.alone.fragments):
        sql, _ = fragment.asked((), [(1, 30)])
        assert "(r1.bucket_id, r1.c0) IN (VALUES (?1, ?2), (" in sql


def test_keys_of_buckets_that_somebody_else_has_are_not_asked_for() -> None:
    cluster = Cluster()
    cluster.run("CREATE TABLE item (id INT PRIMARY KEY)")
    plan: Any = prepare("SELECT id FROM item WHERE id IN (1, 2, 3, 4, 5)", cluster.catalog).plan
    [fragment] = plan.fragments
    listed = fragment.keys.rows(())
    here = [row for row in listed if 5 <= row[0] <= 9 or row[0] == 20]
    assert 0 < len(here) < 5, listed
    assert fragment.asked((), [(5, 9), (20, 20)])[1] == tuple(v for row in here for v in row)


def test_what_rows_are_filtered_by_at_their_owners_is_not_gathered_and_asked_again() -> None:
    """A long text that only the condition of an outer join looks at stays where it is."""
    cluster = Cluster()
    cluster.run("CREATE TABLE buyer (id INT PRIMARY KEY)")
    cluster.run("CREATE TABLE buy (id INT PRIMARY KEY, buyer INT, note TEXT)")
    cluster.run("INSERT INTO buyer VALUES (1), (2), (3)")
    cluster.run("INSERT INTO buy VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'b'), (4, NULL, 'a')")
    text = (
        "SELECT b.id, count(o.id) FROM buyer b LEFT JOIN buy o ON o.buyer = b.id "
        "AND o.note LIKE 'a%' GROUP BY b.id"
    )
    plan: Any = prepare(text, cluster.catalog, user_id=1).plan
    assert [len(fragment.types) for fragment in plan.fragments] == [1, 2]
    assert plan.sql.count("c_like") == 0
    assert sorted(cluster.run(text)) == [(1, 1), (2, 0), (3, 0)]
    again = text.replace("GROUP", "WHERE o.note LIKE 'a%' GROUP")  # that asks what is left
    assert sorted(cluster.run(again)) == [(1, 1)]


def test_a_condition_that_no_index_answers_is_asked_once_where_one_has_all_rows() -> None:
    """SQLite would read the whole other table for each row: 10,000 rows of each took 15 seconds."""
    alone = Cluster(replicasets=1)
    alone.run("CREATE TABLE a (id INT PRIMARY KEY, x INT) DISTRIBUTED BY (id)")
    alone.run("CREATE TABLE b (id INT PRIMARY KEY, x INT) DISTRIBUTED BY (id)")

    def sql(condition: str) -> str:
        text = f"SELECT id FROM a WHERE {condition} OR a.id < 0"
        plan = prepare(text, alone.catalog).plan
        assert isinstance(plan, plans.ScatterRead)
        assert plan.alone is not None
        return plan.alone.fragments[0].sql

    tied = "EXISTS (SELECT 1 FROM b WHERE b.x = a.x)"
    assert ["EXISTS" in sql(each) for each in (tied, f"NOT {tied}")] == [False, False]
    assert "EXISTS" not in sql("EXISTS (SELECT 1 FROM b WHERE b.id = a.x)")
    assert "EXISTS" in sql("EXISTS (SELECT 1 FROM b WHERE b.id = a.id)")
    alone.run("CREATE INDEX b_x ON b (x)")
    assert "EXISTS" in sql(tied)
