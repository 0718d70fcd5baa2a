"""PREPARE, EXECUTE and DEALLOCATE as statements of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("DROP TABLE IF EXISTS item")
        connection.execute("CREATE TABLE item (id INT PRIMARY KEY, price NUMERIC, word TEXT)")
        connection.execute("INSERT INTO item VALUES (1, 1.50, 'a'), (2, 2.5, 'b'), (3, 3, NULL)")
        yield connection
        connection.execute("DROP TABLE IF EXISTS item")


def refused(connection: Connection, text: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text)
    return caught.value.sqlstate


@pytest.mark.parametrize("is_extended", [False, True])
def test_a_statement_is_prepared_once_and_executed_with_other_values(
    sql: Connection, is_extended: bool
) -> None:
    def run(text: str) -> psycopg.Cursor[tuple[Any, ...]]:
        return sql.execute(text, prepare=is_extended or None)

    run("PREPARE cheap (NUMERIC) AS SELECT id, price FROM item WHERE price <= $1 ORDER BY id")
    assert run("EXECUTE cheap (2)").fetchall() == [(1, Decimal("1.50"))]
    found = run("EXECUTE cheap (1.5 + 1)")
    assert (found.fetchall(), found.statusmessage) == (
        [(1, Decimal("1.50")), (2, Decimal("2.5"))],
        "SELECT 2",
    )
    run("PREPARE put AS INSERT INTO item VALUES ($1, $2, $3)")
    assert run("EXECUTE put (4, 4.00, upper('it''s, (x)'))").statusmessage == "INSERT 0 1"
    assert run("EXECUTE put (5, NULL, NULL)").rowcount == 1
    rows = run("SELECT * FROM item WHERE id > 3 ORDER BY id").fetchall()
    assert [tuple(map(str, row)) for row in rows] == [
        ("4", "4.00", "IT'S, (X)"),
        ("5", "None", "None"),
    ]
    run("PREPARE told AS UPDATE item SET price = price * 2 WHERE id = $1 RETURNING price")
    assert run("EXECUTE told (2)").fetchall() == [(Decimal("5.0"),)]
    run("DEALLOCATE cheap")
    assert refused(sql, "EXECUTE cheap (2)") == "26000"
    run("DEALLOCATE ALL")
    assert refused(sql, "EXECUTE put (6, 1, 'x')") == "26000"


def test_what_is_wrong_with_a_prepared_statement_is_told(sql: Connection) -> None:
    sql.execute("PREPARE one (INT) AS SELECT word FROM item WHERE id = $1")
    for text, sqlstate in (
        ("PREPARE one AS SELECT 1", "42P05"),
        ("EXECUTE one", "42601"),
        ("EXECUTE one (1, 2)", "42601"),
        ("EXECUTE one ('x')", "22P02"),
        ("EXECUTE one ()", "42601"),
        ("EXECUTE one (id)", "42703"),
        ("EXECUTE nothing (1)", "26000"),
        ("PREPARE two AS SELECT nothing FROM item", "42703"),
        ("PREPARE two AS CREATE TABLE x (id INT PRIMARY KEY)", "42601"),
        ("PREPARE two (nonsense) AS SELECT 1", "42704"),
        ("PREPARE TRANSACTION 'x'", "0A000"),
        ("DEALLOCATE nothing", "26000"),
    ):
        assert (refused(sql, text), text) == (sqlstate, text)
    assert sql.execute("EXECUTE one (2)").fetchall() == [("b",)]


def test_it_follows_the_schema_and_is_of_its_session(sql: Connection, cluster: Cluster) -> None:
    sql.execute("PREPARE put AS INSERT INTO item (id, word) VALUES ($1, $2)")
    sql.execute("PREPARE all_of AS SELECT * FROM item WHERE id = $1")
    sql.execute("ALTER TABLE item ADD COLUMN more INT DEFAULT 7")
    sql.execute("EXECUTE put (9, 'new')")
    assert sql.execute("SELECT word, more FROM item WHERE id = 9").fetchall() == [("new", 7)]
    assert refused(sql, "EXECUTE all_of (9)") == "0A000"  # its result has changed, as PostgreSQL
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as other:
        assert refused(other, "EXECUTE put (10, 'x')") == "26000"


def test_it_runs_inside_a_block_as_what_it_is(sql: Connection) -> None:
    sql.execute("PREPARE put AS INSERT INTO item (id) VALUES ($1)")
    sql.execute("BEGIN")
    sql.execute("EXECUTE put (20)")
    assert sql.execute("SELECT count(*) FROM item").fetchall() == [(4,)]
    sql.execute("ROLLBACK")
    assert sql.execute("SELECT count(*) FROM item").fetchall() == [(3,)]
    sql.execute("BEGIN READ ONLY")
    assert refused(sql, "EXECUTE put (20)") == "25006"
    sql.execute("ROLLBACK")


def test_what_an_argument_reads_needs_its_rights(cluster: Cluster) -> None:
    one = cluster["i1"]
    one.sql("CREATE TABLE kept_secret (id INT PRIMARY KEY, word TEXT) DISTRIBUTED BY (id)")
    one.sql("INSERT INTO kept_secret VALUES (1, 'sesame')")
    one.sql(f"CREATE USER nosy WITH PASSWORD '{PASSWORD}'")
    try:
        with one.connect(user="nosy") as connection:
            connection.execute("PREPARE told (TEXT) AS SELECT $1")
            for text in (
                "EXECUTE told((SELECT word FROM kept_secret WHERE id = 1))",
                "EXECUTE told((SELECT max(word) FROM kept_secret))",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(text)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("PREPARE more AS SELECT word FROM kept_secret")
    finally:
        one.sql("DROP USER nosy")
        one.sql("DROP TABLE kept_secret")
