"""What only the catalogue knows of a table: comments, and the DEFAULT of rows to come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE said (id INT PRIMARY KEY, n INT, s TEXT) {request.param}")
        yield connection
        connection.execute("DROP TABLE said")


def rows(connection: Connection, text: str) -> list[Any]:
    return connection.execute(text).fetchall()


def test_comments_are_kept_and_found_by_tools(cluster: Cluster, sql: Connection) -> None:
    sql.execute("COMMENT ON TABLE said IS 'what people said'")
    sql.execute("COMMENT ON COLUMN public.said.n IS 'how often: it''s a count'")
    for name in ("i1", "i2"):
        told = cluster[name].sql("SELECT obj_description('said'::regclass, 'pg_class')")
        assert told == [("what people said",)]
    column = "SELECT col_description('said'::regclass, 2), col_description('said'::regclass, 3)"
    assert rows(sql, column) == [("how often: it's a count", None)]
    listed = (
        "SELECT a.attname, d.description FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_description d ON d.objoid = c.oid AND d.objsubid = a.attnum "
        "WHERE c.relname = 'said'"
    )
    assert rows(sql, listed) == [("n", "how often: it's a count")]
    sql.execute("ALTER TABLE said RENAME COLUMN n TO m")
    sql.execute("COMMENT ON TABLE said IS NULL")
    assert "global" in (found := rows(sql, "SELECT obj_description('said'::regclass)")[0][0]) or (
        "sharded" in found
    )
    assert rows(sql, column)[0][0] == "how often: it's a count"
    sql.execute("COMMENT ON COLUMN said.m IS NULL")
    assert rows(sql, column) == [(None, None)]


def test_comments_of_dumps_on_other_things_are_taken_and_say_that_they_are_not_kept(
    sql: Connection,
) -> None:
    notices: list[str] = []
    sql.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    for what in ("EXTENSION plpgsql", "SCHEMA public", "INDEX i", "CONSTRAINT c ON t"):
        assert sql.execute(f"COMMENT ON {what} IS 'from a dump'").statusmessage == "COMMENT"
    assert ["is not kept" in notice for notice in notices] == [True] * 4


def test_a_default_that_is_set_is_for_rows_to_come(sql: Connection) -> None:
    sql.execute("INSERT INTO said (id) VALUES (1)")
    sql.execute("ALTER TABLE said ALTER COLUMN n SET DEFAULT 7 * 6, ALTER s SET DEFAULT 'a, b'")
    sql.execute("INSERT INTO said (id) VALUES (2)")
    sql.execute("ALTER TABLE said ALTER n DROP DEFAULT")
    sql.execute("INSERT INTO said (id) VALUES (3)")
    assert rows(sql, "SELECT * FROM said ORDER BY id") == [
        (1, None, None),
        (2, 42, "a, b"),
        (3, None, "a, b"),
    ]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("COMMENT ON TABLE nobody IS 'x'", "42P01"),
        ("COMMENT ON COLUMN said.nothing IS 'x'", "42703"),
        ("COMMENT ON TABLE _pico_table IS 'x'", "42501"),
        ("COMMENT ON TRIGGER x IS 'x'", "0A000"),
        ("COMMENT ON COLUMN n IS 'x'", "42601"),
        (f"COMMENT ON TABLE said IS '{'x' * 5000}'", "54000"),
        ("ALTER TABLE said ALTER COLUMN n SET DEFAULT 'x'", "22P02"),
        ("ALTER TABLE said ALTER COLUMN n SET DEFAULT (SELECT 1)", "0A000"),
        ("ALTER TABLE said ALTER COLUMN nothing DROP DEFAULT", "42703"),
        ("ALTER TABLE said ALTER COLUMN n TYPE TEXT", "0A000"),
    ],
)
def test_what_cannot_be_said_is_refused(sql: Connection, text: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as found:
        sql.execute(text)
    assert found.value.sqlstate == sqlstate
