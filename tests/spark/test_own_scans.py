"""Filters of data frames reach the servers, and a frame that is used again still has all rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.reads import own_scans

ROWS = [(i, None if i % 7 == 0 else f"s{i % 50:02d}", i / 4) for i in range(1000)]


@pytest.fixture
def numbers(spark: Any, pool: SyncPool, table: Callable[[str], str]) -> str:
    """A table, and the same rows in Spark's own view `truth`, which nothing is pushed into."""
    name = table("id INTEGER PRIMARY KEY, s TEXT, d DOUBLE")
    pool.executemany(f"INSERT INTO {name} VALUES ($1, $2, $3)", ROWS)
    spark.createDataFrame(ROWS, "id bigint, s string, d double").createOrReplaceTempView("truth")
    return name


def content(frame: Any) -> list[Any]:
    return sorted(map(tuple, frame.collect()), key=str)


def scans(frame: Any) -> list[tuple[int, list[str]]]:
    """Rows and columns that each scan of a frame brought when it is collected now."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    found = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        names = [leaf.output().apply(n).name() for n in range(leaf.output().size())]
        found.append((leaf.metrics().apply("numOutputRows").value(), names))
    return found


def test_a_filter_is_worked_out_by_the_servers_and_unused_columns_stay_there(
    numbers: str, reading: Callable[..., Any]
) -> None:
    frame = reading(numbers).load()
    assert scans(frame) == [(1000, ["id", "s", "d"])]
    assert scans(frame.where("id >= 990").select("s")) == [(10, ["id", "s"])]
    assert scans(frame.filter(frame.s == "s01").select("s")) == [(18, ["s"])]
    assert frame.where("id = 5").rdd.getNumPartitions() == 1  # one bucket, one owner
    assert scans(frame.select("d")) == [(1000, ["d"])]
    assert scans(reading(numbers, pushdown="off").load().where("id = 5"))[0][0] == 1000


SHAPES = (
    "SELECT * FROM t WHERE id < 10 UNION ALL SELECT * FROM t WHERE id >= 5 AND s > 's1'",
    "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.id < 50 AND b.s <> 's03'",
    "SELECT a.id, b.d FROM t a LEFT JOIN (SELECT * FROM t WHERE s = 's05') b ON a.id = b.id",
    "SELECT s, count(*) FROM t WHERE id IN (SELECT id FROM t WHERE d < 20) GROUP BY s",
    "SELECT id FROM t WHERE d > (SELECT avg(d) FROM t WHERE id < 999) AND id % 100 = 0",
    "WITH c AS (SELECT * FROM t WHERE id > 3) SELECT x.id FROM c x, c y WHERE x.id = y.id - 990",
    "SELECT count(*), count(s) FROM t",
    "SELECT id FROM t WHERE id < 5 EXCEPT SELECT id FROM t WHERE id = 2 OR s IS NULL",
)


def test_a_frame_may_be_used_again_and_with_itself(
    spark: Any, numbers: str, reading: Callable[..., Any]
) -> None:
    """One frame for all of them: had Spark its way, each would see the filters of another."""
    frame = reading(numbers).load()
    frame.createOrReplaceTempView("t")
    for shape in SHAPES:
        wanted = content(spark.sql(shape.replace(" t", " truth")))
        assert content(spark.sql(shape)) == wanted, shape
    assert frame.count() == 1000
    few = frame.where("id < 3").cache()
    assert (few.count(), frame.count(), few.where("id = 1").count()) == (3, 1000, 1)
    few.unpersist()


def test_a_frame_may_be_used_by_several_threads_at_once(
    numbers: str, reading: Callable[..., Any]
) -> None:
    frame = reading(numbers).load()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: frame.where(f"id < {n}").count(), range(8)))
    assert found == list(range(8))


def test_a_session_that_forbids_pushdown_reads_all_the_same(
    spark: Any, numbers: str, reading: Callable[..., Any]
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        assert scans(reading(numbers).load().where("id = 5").select("id")) == [(1000, ["id"])]
    finally:
        spark.conf.set(name, "true")


def test_where_the_rule_cannot_be_had_it_is_said_and_nothing_is_pushed() -> None:
    class Foreign:
        class conf:
            @staticmethod
            def get(_name: str, default: str) -> str:
                return default

    with pytest.warns(UserWarning, match="filters stay with it"):
        assert not own_scans.install(Foreign())
