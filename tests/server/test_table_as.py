"""CREATE TABLE … AS query: the table and its rows, or neither."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster, eventually

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i2'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE source (id INT PRIMARY KEY, d NUMERIC, s TEXT, a INT[])")
        connection.execute(
            "INSERT INTO source SELECT k, k * 1.50, 'x' || k::text, ARRAY[k] "
            "FROM generate_series(1, 50) k"
        )
        yield connection
        connection.execute("DROP TABLE IF EXISTS source, copied")


def rows(connection: Connection, text: str) -> list[Any]:
    return connection.execute(text).fetchall()


def test_the_rows_of_a_query_become_a_table(sql: Connection) -> None:
    told = sql.execute(
        "CREATE TABLE copied AS SELECT id % 5 AS rest, sum(d) AS total, json_agg(id ORDER BY id), "
        "max(s) FROM source GROUP BY 1 ORDER BY 1"
    )
    assert told.statusmessage == "SELECT 5"
    assert rows(sql, "SELECT rest, total, json_agg, max FROM copied WHERE rest = 3") == [
        (3, rows(sql, "SELECT sum(d) FROM source WHERE id % 5 = 3")[0][0],
         [3, 8, 13, 18, 23, 28, 33, 38, 43, 48], "x8"),
    ]  # fmt: skip


def test_names_keys_and_places_may_be_said(sql: Connection) -> None:
    sql.execute("CREATE TABLE copied (k, v) DISTRIBUTED BY (k) AS (SELECT id, a FROM source)")
    assert rows(sql, "SELECT k, v FROM copied WHERE k = 7") == [(7, [7])]
    assert rows(sql, "SELECT count(*) FROM copied") == [(50,)]
    again = sql.execute("CREATE TABLE IF NOT EXISTS copied AS SELECT 1 AS k")
    assert again.statusmessage is not None and rows(sql, "SELECT count(*) FROM copied") == [(50,)]
    sql.execute("DROP TABLE copied")
    empty = sql.execute("CREATE TABLE copied AS SELECT * FROM source WITH NO DATA")
    assert empty.statusmessage == "CREATE TABLE AS"
    assert rows(sql, "SELECT count(*) FROM copied") == [(0,)]


def test_select_into_makes_a_table_too(sql: Connection) -> None:
    told = sql.execute("SELECT id, s AS word INTO copied FROM source WHERE id <= 5")
    assert told.statusmessage == "SELECT 5"
    assert rows(sql, "SELECT word FROM copied WHERE id = 3") == [("x3",)]
    sql.execute("DROP TABLE copied")
    sql.execute(
        "WITH few AS (SELECT id FROM source WHERE id < 4) "
        "SELECT count(*) INTO TABLE copied FROM few"
    )
    assert rows(sql, "SELECT * FROM copied") == [(3,)]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("CREATE TABLE copied AS SELECT id, 1 / (id - 40) AS x FROM source", "22012"),
        ("CREATE TABLE copied AS SELECT nothing FROM source", "42703"),
        ("CREATE TABLE copied AS SELECT id, id FROM source", "42701"),
        ("CREATE TABLE copied (a, b) AS SELECT 1 AS a", "42601"),
        ("CREATE TABLE copied AS DELETE FROM source", "42601"),
        ("CREATE TABLE source AS SELECT 1 AS x", "42P07"),
        ("SELECT id INTO source FROM source", "42P07"),
        ("SELECT id, nothing INTO copied FROM source", "42703"),
        ("SELECT id INTO UNLOGGED copied FROM source", "0A000"),
        ("SELECT id FROM (SELECT 1 AS id INTO copied) x", "0A000"),
    ],
)
def test_what_fails_leaves_no_table(sql: Connection, text: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as found:
        sql.execute(text)
    assert found.value.sqlstate == sqlstate
    assert rows(sql, "SELECT name FROM _pico_table WHERE name = 'copied'") == []
    assert rows(sql, "SELECT count(*) FROM source") == [(50,)]


@pytest.mark.parametrize("limit_ms", [1, 5, 20, 60, 150])
def test_a_statement_that_runs_out_of_time_leaves_no_table(sql: Connection, limit_ms: int) -> None:
    """Before the table is made, while it is, and while its rows are read."""
    sql.execute(f"SET statement_timeout = {limit_ms}")
    with pytest.raises(psycopg.errors.QueryCanceled):
        sql.execute(
            "CREATE TABLE copied AS SELECT count(*) AS n FROM source a, source b, source c, "
            "source d, source e WHERE a.s || b.s || c.s || d.s || e.s LIKE '%nothing%'"
        )
    sql.execute("SET statement_timeout = 0")
    assert rows(sql, "SELECT name FROM _pico_table WHERE name = 'copied'") == []
    sql.execute("CREATE TABLE copied AS SELECT id FROM source")
    assert rows(sql, "SELECT count(*) FROM copied") == [(50,)]


def test_a_client_that_goes_leaves_no_table(sql: Connection, cluster: Cluster) -> None:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i2'].pg_port}/cairn"
    other = psycopg.connect(dsn, autocommit=True)
    begun = threading.Event()

    def make() -> None:
        begun.set()
        with suppress(psycopg.Error):
            other.execute(
                "CREATE TABLE copied AS SELECT count(*) AS n FROM source a, source b, source c, "
                "source d, source e WHERE a.s || b.s || c.s || d.s || e.s LIKE '%nothing%'"
            )

    thread = threading.Thread(target=make)
    thread.start()
    begun.wait()
    made = "SELECT count(*) FROM _pico_table WHERE name = 'copied'"
    eventually(lambda: rows(sql, made) == [(1,)], "the table")
    with socket.socket(fileno=os.dup(other.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)  # as a process that was killed: nothing is said any more
    eventually(lambda: rows(sql, made) == [(0,)], "the table to go again")
    thread.join()
