"""INDEXED BY: the index that a statement names is the one that its owners use, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE shelf (a INT PRIMARY KEY, b INT, c TEXT)")
        connection.execute("CREATE INDEX shelf_b ON shelf (b)")
        connection.execute(
            "INSERT INTO shelf SELECT k, k % 3, 'x' || k::text FROM generate_series(1, 20) k"
        )
        yield connection
        connection.execute("DROP TABLE shelf")


def plan(connection: Connection, text: str) -> str:
    return "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}".encode()))


def code(connection: Connection, text: str, *values: Any) -> str | None:
    try:
        connection.execute(text, values)  # type: ignore[arg-type]
    except psycopg.Error as problem:
        return problem.sqlstate
    return None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM shelf INDEXED BY shelf_b WHERE c = 'x1'",
        "SELECT x.a FROM shelf AS x INDEXED BY shelf_b WHERE x.c = E'x1'",
        "UPDATE shelf INDEXED BY shelf_b SET c = 'y' WHERE c = 'x1'",
        "DELETE FROM shelf INDEXED BY shelf_b WHERE c = 'x1'",
    ],
)
def test_the_named_index_is_used_where_another_way_would_be_chosen(
    sql: Connection, text: str
) -> None:
    assert 'by index "shelf_b"' in plan(sql, text)
    assert 'by index "shelf_b"' not in plan(sql, text.replace(" INDEXED BY shelf_b", ""))
    assert sql.execute(text.encode()).rowcount == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT c FROM shelf WHERE b < 1",
        "SELECT * FROM shelf WHERE b > 0 ORDER BY b LIMIT 5",
        "SELECT * FROM shelf ORDER BY b DESC LIMIT 5",
    ],
)
def test_ranges_and_the_first_rows_in_its_order_are_found_by_an_index(
    sql: Connection, text: str
) -> None:
    assert 'by index "shelf_b"' in plan(sql, text)


def test_the_primary_key_has_a_name_too(sql: Connection) -> None:
    text = "SELECT a FROM shelf INDEXED BY shelf_pkey WHERE a > 2 AND b = 1"
    assert 'by index "shelf_b"' in plan(sql, text.replace(" INDEXED BY shelf_pkey", ""))
    assert 'by index "shelf_b"' not in plan(sql, text)
    assert len(sql.execute(text.encode()).fetchall()) == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a FROM shelf INDEXED BY nothing", "42704"),
        ("SELECT a FROM (SELECT 1 AS a) s INDEXED BY shelf_b", "42601"),
        ("SELECT a FROM shelf INDEXED BY", "42601"),
        ("SELECT a FROM shelf NOT INDEXED WHERE b = 1", "0A000"),
        ("UPDATE shelf INDEXED BY nothing SET b = 1", "42704"),
    ],
)
def test_what_cannot_be_done_is_refused(sql: Connection, text: str, expected: str) -> None:
    assert code(sql, text) == expected


def test_an_index_that_is_dropped_is_missed_by_statements_that_were_understood_before(
    sql: Connection,
) -> None:
    read = "SELECT a FROM shelf INDEXED BY shelf_b WHERE b = %s"
    write = "UPDATE shelf INDEXED BY shelf_b SET c = 'z' WHERE b = %s"
    for _ in range(7):  # the driver prepares it after five
        assert code(sql, read, 1) is None
        assert code(sql, write, 1) is None
    sql.execute("DROP INDEX shelf_b")
    assert code(sql, read, 1) == "42704"
    assert code(sql, write, 1) == "42704"
