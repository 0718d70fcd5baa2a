"""Rows land in their buckets, move when their key does, and conflicts are answered as asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.sql import plans
from cairn.sql.api import prepare

from .harness import NOW, Cluster, sqlstate_of


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT, c INT)")
    found.run("CREATE UNIQUE INDEX t_ac ON t (a, c)")
    found.run("CREATE TABLE k (d DECIMAL, f DOUBLE, at DATETIME, v INT, PRIMARY KEY (d, f, at))")
    found.run("CREATE TABLE m (id INT PRIMARY KEY, tag TEXT, n UNSIGNED) DISTRIBUTED BY (tag)")
    found.run("INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)")
    return found


def test_equal_keys_share_a_bucket_however_they_are_spelled(cluster: Cluster) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    same = noon.astimezone(timezone(timedelta(hours=5)))
    cluster.run("INSERT INTO k VALUES ($1, $2, $3, 1)", [Decimal("1.50"), -0.0, noon])
    select = "SELECT v FROM k WHERE d = $1 AND f = $2 AND at = $3"
    assert cluster.run(select, [Decimal("1.5"), 0.0, same]) == [(1,)]
    assert cluster.run(select, [Decimal("1.500"), -0.0, noon]) == [(1,)]
    duplicate = "INSERT INTO k VALUES (1.5, 0, '2024-01-01 17:00:00+05', 2)"
    assert sqlstate_of(lambda: cluster.run(duplicate)) == "23505"


def test_a_row_moves_when_its_distribution_key_changes(cluster: Cluster) -> None:
    cluster.run("INSERT INTO m VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3)")
    assert cluster.run("UPDATE m SET tag = tag || '!' WHERE id <= 2") == 2
    for tag in ("a!", "b!"):
        assert len(cluster.run("SELECT id FROM m WHERE tag = $1", [tag])) == 1
    assert cluster.run("SELECT count(*) FROM m") == [(3,)]


@pytest.mark.parametrize(
    ("action", "count", "rows"),
    [
        ("DO NOTHING", 1, [(1, "x", 10), (2, "y", 20), (3, "z", 30)]),
        ("DO REPLACE", 2, [(1, "new", 11), (2, "y", 20), (3, "z", 30)]),
    ],
)
def test_conflicts_are_answered_as_asked(
    cluster: Cluster, action: str, count: int, rows: list[Any]
) -> None:
    text = f"INSERT INTO t VALUES (1, 'new', 11), (3, 'z', 30) ON CONFLICT {action}"
    assert cluster.run(text) == count
    assert cluster.run("SELECT * FROM t ORDER BY a") == rows


def test_fail_is_the_default_and_says_which_index(cluster: Cluster) -> None:
    insert = "INSERT INTO t VALUES (1, 'n', 0)"
    for text in (insert, f"{insert} ON CONFLICT DO FAIL"):
        with pytest.raises(
            CairnError, match='Duplicate key exists in unique index "t_pkey" in space "t"'
        ):
            cluster.run(text)


def test_nothing_but_unique_values_is_forgiven_by_do_nothing(cluster: Cluster) -> None:
    text = "INSERT INTO t VALUES (NULL, 'n', 0) ON CONFLICT DO NOTHING"
    assert sqlstate_of(lambda: cluster.run(text)) == "23502"


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("INSERT INTO m VALUES (1, 'x', -1)", "22003"),
        ("UPDATE m SET n = n - 100", "22003"),
        ("INSERT INTO k VALUES (1e0, 1, '2024-01-01', 99999999999999999999)", "22003"),
        (f"INSERT INTO k VALUES ({'9' * 39}, 1, '2024-01-01', 1)", "22003"),
        ("INSERT INTO k VALUES (1, 'NaN', '2024-01-01', 1)", "22003"),
        ("INSERT INTO k VALUES (1, 1, 'noon', 1)", "22007"),
        ("INSERT INTO t VALUES (1, 'a\0b', 1)", "22021"),
    ],
)
def test_values_that_do_not_fit_are_refused(cluster: Cluster, text: str, sqlstate: str) -> None:
    cluster.run("INSERT INTO m VALUES (9, 'q', 5)")
    assert sqlstate_of(lambda: cluster.run(text)) == sqlstate


def test_a_keyed_write_changes_only_rows_that_are_still_there(cluster: Cluster) -> None:
    prepared = prepare(
        "UPDATE t SET b = 'z' WHERE c IN (SELECT id FROM m)", cluster.catalog, user_id=1
    )
    plan: Any = prepared.plan
    assert (
        plan.update_sql == "UPDATE t1024 SET c1 = ?3 WHERE bucket_id = ?1 AND c0 = ?2 AND c2 IS ?4"
    )
    cluster.run("INSERT INTO m VALUES (10, 'x', 1)")
    assert cluster.execute(prepared) == 1
    assert cluster.run("SELECT b FROM t WHERE a = 1") == [("z",)]


def test_the_time_of_a_statement_is_one_for_all_rows(cluster: Cluster) -> None:
    cluster.run("UPDATE t SET b = current_timestamp::text")
    assert cluster.run("SELECT DISTINCT b FROM t") == [("2026-01-02 03:04:05+00",)]


def test_a_row_gets_another_key_only_if_it_is_still_what_was_read() -> None:
    """It is put in with the values that were read: else a change in between would be undone."""
    cluster = Cluster()
    cluster.run("CREATE TABLE t (a INT PRIMARY KEY, n INT, s TEXT)")
    cluster.run("INSERT INTO t VALUES (1, 1, NULL), (2, 2, 'x')")
    prepared = prepare("UPDATE t SET a = 7 WHERE a = 1", cluster.catalog, user_id=1)
    plan = prepared.plan
    assert isinstance(plan, plans.KeyedWrite)
    (change,) = plan.changes(cluster.read(plan.read, prepared.start((), NOW)))
    owner = cluster.nodes[cluster.owner(change.old_bucket)]
    cluster.run("UPDATE t SET n = n + 1 WHERE a = 1")
    owner.execute(plan.delete_sql, (change.old_bucket, *change.key))
    assert owner.changes() == 0
    cluster.execute(prepared)
    assert cluster.run("SELECT * FROM t ORDER BY a") == [(2, 2, "x"), (7, 2, None)]
