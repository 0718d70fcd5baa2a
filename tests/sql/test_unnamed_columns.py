"""Columns that nobody named, under the names that Picodata gives them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import Cluster, sqlstate_of


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.run("CREATE TABLE t (a INT PRIMARY KEY, b INT)")
    made.run("INSERT INTO t VALUES (1, 10), (2, 20)")
    return made


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('SELECT "COL_1" FROM (SELECT 1 + 1)', (2,)),
        ("SELECT col_1 FROM (SELECT 1 + 1) s", (2,)),
        ('SELECT s."COL_1", s."COL_2" FROM (SELECT a + 1, b * 2 FROM t WHERE a = 1) s', (2, 20)),
        ('SELECT "COL_1" FROM (SELECT a, b * 2 FROM t WHERE a = 1) s', (20,)),
        ("SELECT col_1 FROM (SELECT count(*) FROM t) s", (2,)),
        ("SELECT count, col_1 FROM (SELECT count(*) FROM t) s", (2, 2)),
        ("WITH s AS (SELECT sum(b) + 0 FROM t) SELECT col_1 FROM s", (30,)),
        ("SELECT col_2 FROM (SELECT 1, 2 UNION ALL SELECT 3, 4.5) s ORDER BY 1 LIMIT 1", (2,)),
        ("SELECT (SELECT col_1 + x.a FROM t x WHERE x.a = 2) FROM (SELECT 5 + 5) s", (12,)),
        ("SELECT max(col_1) FROM (SELECT a * b FROM t) s WHERE col_1 > 3", (40,)),
        ("SELECT col_1 FROM (SELECT a + 1, 7 AS col_1 FROM t WHERE a = 1) s", (7,)),
    ],
)
def test_an_unnamed_column_is_found_by_its_number(
    cluster: Cluster, text: str, row: tuple[int, ...]
) -> None:
    assert cluster.run(text) == [row]


def test_the_name_that_is_told_is_still_that_of_postgresql(cluster: Cluster) -> None:
    from cairn.sql.api import prepare

    told = prepare("SELECT * FROM (SELECT a + 1, count(*) FROM t GROUP BY 1) s", cluster.catalog)
    assert [column.name for column in told.columns] == ["?column?", "count"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT col_2 FROM (SELECT a + 1 FROM t) s", "42703"),
        ("SELECT col_1 FROM (SELECT a FROM t) s", "42703"),
        ("SELECT col_1 FROM (SELECT a + 1 FROM t) s (x)", "42703"),
        ("SELECT col_1 FROM (SELECT 1 + 1) s, (SELECT 2 + 2) r", "42702"),
    ],
)
def test_what_has_a_name_has_no_number(cluster: Cluster, text: str, code: str) -> None:
    assert sqlstate_of(lambda: cluster.run(text)) == code
