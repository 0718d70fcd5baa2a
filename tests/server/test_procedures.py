"""Procedures: texts that the cluster keeps, run like DO blocks at the one owner of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
PAY = (
    "CREATE PROCEDURE pay(INT, INT, TEXT) LANGUAGE SQL AS $$ BEGIN "
    "LET had = (SELECT n FROM purse WHERE id = $1); "
    "UPDATE purse SET n = n - $2, what = $3 WHERE id = $1; "
    "RETURN QUERY SELECT had, n FROM purse WHERE id = $1; END $$"
)


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    first = cluster["i1"]
    for text in (
        "DROP PROCEDURE IF EXISTS pay",
        "DROP PROCEDURE IF EXISTS put",
        "DROP TABLE IF EXISTS purse",
        "CREATE TABLE purse (id INT PRIMARY KEY, n INT, what TEXT)",
    ):
        first.sql(text)
    with connect(cluster, "i1") as connection:
        connection.execute("INSERT INTO purse SELECT k, 100 FROM generate_series(1, 20) k")
        yield connection
    for text in (
        "DROP PROCEDURE IF EXISTS pay",
        "DROP PROCEDURE IF EXISTS put",
        "DROP TABLE purse",
    ):
        first.sql(text)


def connect(cluster: Cluster, name: str, user: str = "admin") -> Connection:
    dsn = f"postgresql://{user}:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def test_a_procedure_is_called_at_every_instance(cluster: Cluster, sql: Connection) -> None:
    assert sql.execute(PAY).statusmessage == "CREATE PROCEDURE"
    for name in ("i1", "i2"):
        with connect(cluster, name) as other:
            for number in range(1, 11):
                called = other.execute("CALL pay(%s, 1, 'it''s ')", [number])
                assert called.statusmessage == "CALL"
                before, after = called.fetchall()[0]
                assert before - after == 1
    assert rows(sql, "SELECT DISTINCT n, what FROM purse WHERE id <= 10") == [(98, "it's ")]


def test_a_procedure_of_one_statement(sql: Connection) -> None:
    sql.execute("CREATE PROCEDURE put(INT, TEXT) AS $$INSERT INTO purse VALUES($1, 0, $2)$$")
    assert sql.execute("CALL put(1000, 'new')").statusmessage == "CALL"
    sql.execute("CALL put(%s, %s)", [1001, None])
    assert rows(sql, "SELECT * FROM purse WHERE id >= 1000 ORDER BY id") == [
        (1000, 0, "new"),
        (1001, 0, None),
    ]
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("CALL put(1000, 'again')")


def test_a_call_is_part_of_a_block(sql: Connection) -> None:
    sql.execute(PAY)
    with pytest.raises(ValueError), sql.transaction():
        assert rows(sql, "CALL pay(1, 10, 'a')") == [(100, 90)]
        assert rows(sql, "CALL pay(1, 10, 'b')") == [(90, 80)]
        raise ValueError
    assert rows(sql, "SELECT n FROM purse WHERE id = 1") == [(100,)]


def test_names_and_texts_change_and_plans_with_them(cluster: Cluster, sql: Connection) -> None:
    sql.execute("CREATE PROCEDURE put(INT) AS 'UPDATE purse SET n = 1 WHERE id = $1'")
    with connect(cluster, "i2") as other:
        other.execute("CALL put(1)")
        for problem, text in (
            ("42723", "CREATE PROCEDURE put(INT) AS 'DELETE FROM purse WHERE id = $1'"),
            ("42883", "DROP PROCEDURE put(TEXT)"),
            ("42883", "CALL put(1, 2)"),
            ("42883", "CALL nothing(1)"),
        ):
            with pytest.raises(psycopg.Error) as told:
                sql.execute(text)
            assert told.value.sqlstate == problem
        sql.execute(
            "CREATE OR REPLACE PROCEDURE put(INT) AS 'UPDATE purse SET n = 2 WHERE id = $1'"
        )
        other.execute("CALL put(2)")
        assert rows(other, "SELECT id, n FROM purse WHERE n < 100 ORDER BY id") == [(1, 1), (2, 2)]
        sql.execute("ALTER PROCEDURE put RENAME TO pay")
        other.execute("CALL pay(3)")
        assert rows(other, "SELECT name, kind FROM _pico_routine") == [("pay", "procedure")]
        sql.execute("DROP PROCEDURE pay(INT)")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            other.execute("CALL pay(3)")
    sql.execute("DROP PROCEDURE IF EXISTS pay")


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("CREATE PROCEDURE put(INT) AS 'UPDATE nowhere SET n = 1'", "42P01"),
        ("CREATE PROCEDURE put(INT) AS 'UPDATE purse SET n = $2 WHERE id = 1'", "42P02"),
        ("CREATE PROCEDURE put(INT) AS 'SELECT 1'", "42601"),
        ("CREATE PROCEDURE put(INT) AS 'CREATE TABLE x (a INT PRIMARY KEY)'", "0A000"),
        ("CREATE PROCEDURE put(INT) LANGUAGE plpgsql AS 'DELETE FROM purse'", "0A000"),
        ("CREATE PROCEDURE put(INT)", "42601"),
        ("CREATE PROCEDURE cairn_mine() AS 'DELETE FROM purse WHERE id = 1'", "0A000"),
    ],
)
def test_what_cannot_be_a_procedure_is_refused(sql: Connection, text: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as told:
        sql.execute(text)
    assert told.value.sqlstate == sqlstate, told.value
    assert rows(sql, "SELECT count(*) FROM _pico_routine") == [(0,)]


def test_a_caller_needs_the_procedure_and_its_tables(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS clerk")
    sql.execute(f"CREATE USER clerk WITH PASSWORD '{PASSWORD}'")
    sql.execute(PAY)
    try:
        with connect(cluster, "i2", "clerk") as clerk:
            refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
            with refused:
                clerk.execute(PAY.replace("pay", "put"))
            with refused:
                clerk.execute("CALL pay(1, 1, 'a')")
            sql.execute("GRANT EXECUTE ON PROCEDURE pay TO clerk")
            with refused:
                clerk.execute("CALL pay(1, 1, 'a')")
            sql.execute("GRANT SELECT, UPDATE ON TABLE purse TO clerk")
            assert rows(clerk, "CALL pay(1, 1, 'a')") == [(100, 99)]
            with refused:
                clerk.execute("DROP PROCEDURE pay")
            sql.execute("REVOKE EXECUTE ON PROCEDURE pay(INT, INT, TEXT) FROM clerk")
            with refused:
                clerk.execute("CALL pay(1, 1, 'a')")
            sql.execute("GRANT CREATE PROCEDURE TO clerk")
            clerk.execute("CREATE PROCEDURE put(INT) AS 'UPDATE purse SET n = 5 WHERE id = $1'")
            clerk.execute("CALL put(2)")
            with pytest.raises(psycopg.Error, match="owner of procedure put"):
                sql.execute("DROP USER clerk")
            clerk.execute("DROP PROCEDURE put")
    finally:
        sql.execute("DROP USER clerk")


def test_nobody_puts_a_procedure_in_the_place_of_a_call_of_ours(sql: Connection) -> None:
    """It would be run with the rights of whoever calls it: of the admin who asks for the status."""
    sql.execute("CREATE PROCEDURE put() AS 'DELETE FROM purse WHERE id = 1'")
    for name in ("cairn_status", "pico_x", "_x"):
        with pytest.raises(psycopg.Error) as told:
            sql.execute(f"ALTER PROCEDURE put RENAME TO {name}")  # type: ignore[arg-type]
        assert told.value.sqlstate == "0A000"
    assert rows(sql, "SELECT name FROM _pico_routine") == [("put",)]


def test_a_procedure_is_found_though_it_was_called_before_it_was_made(sql: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedFunction):
        sql.execute("CALL put(1)")
    sql.execute("CREATE PROCEDURE put(INT) LANGUAGE SQL AS $$ DELETE FROM purse WHERE id = $1 $$")
    assert sql.execute("CALL put(1)").statusmessage == "CALL"
    assert rows(sql, "SELECT count(*) FROM purse") == [(19,)]
    sql.execute("DROP PROCEDURE put")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        sql.execute("CALL put(1)")
