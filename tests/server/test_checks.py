"""CHECK constraints: judged at the owner of the row, whichever way it comes."""

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
        connection.execute("DROP TABLE IF EXISTS goods")
        connection.execute(
            "CREATE TABLE goods (id INT PRIMARY KEY CHECK (id > 0), price NUMERIC(10, 2) NOT NULL "
            "CONSTRAINT fair CHECK (price >= 0 AND price < 1000.5), kind TEXT, old NUMERIC, "
            "CHECK (kind IN ('a', 'it''s') OR kind IS NULL), CONSTRAINT fell CHECK (price <= old))"
        )
        yield connection
        connection.execute("DROP TABLE goods")


def rows(connection: Connection, text: str) -> list[Any]:
    return connection.execute(text).fetchall()


GOOD = [(number, number, "a", 500) for number in range(1, 21)]


def test_good_rows_come_in_every_way(sql: Connection) -> None:
    for number, price, kind, old in GOOD[:10]:
        sql.execute("INSERT INTO goods VALUES (%s, %s, %s, %s)", (number, price, kind, old))
    with sql.cursor().copy("COPY goods FROM STDIN") as copy:
        for row in GOOD[10:]:
            copy.write_row(row)
    sql.execute("INSERT INTO goods VALUES (100, 0, 'it''s', NULL), (101, 1000.49, NULL, NULL)")
    assert rows(sql, "SELECT count(*) FROM goods") == [(22,)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("INSERT INTO goods VALUES (30, -0.01, 'a', 1)", "fair"),
        ("INSERT INTO goods VALUES (0, 1, 'a', 1)", "goods_id_check"),
        ("INSERT INTO goods VALUES (30, 1, 'b', 1)", "goods_kind_check"),
        ("INSERT INTO goods VALUES (30, 5, 'a', 4)", "fell"),
        ("INSERT INTO goods VALUES (30, 1, 'a', 4), (31, 9, 'a', 4), (32, 1, 'a', 4)", "fell"),
        ("UPDATE goods SET price = 1000.5 WHERE id = 7", "fair"),
        ("UPDATE goods SET kind = 'c'", "goods_kind_check"),
        ("UPDATE goods SET price = old + 1 WHERE id < 5", "fell"),
        (
            "INSERT INTO goods VALUES (7, 1, 'a', 4) ON CONFLICT (id) DO UPDATE SET price = -1",
            "fair",
        ),
        ("DO $$ BEGIN UPDATE goods SET price = -1 WHERE id = 7; END $$", "fair"),
        ("INSERT INTO goods SELECT id + 100, price - 10, kind, old FROM goods", "fair"),
    ],
)
def test_a_bad_row_is_refused_and_nothing_is_done(sql: Connection, text: str, name: str) -> None:
    for row in GOOD:
        sql.execute("INSERT INTO goods VALUES (%s, %s, %s, %s)", row)
    with pytest.raises(psycopg.errors.CheckViolation, match=f'check constraint "{name}"') as told:
        sql.execute(text)
    assert "CHECK (" in (told.value.diag.message_detail or "")
    assert rows(sql, "SELECT id, price::int, kind, old::int FROM goods ORDER BY id") == GOOD


def test_copy_and_blocks_are_judged_too(sql: Connection) -> None:
    refused = pytest.raises(psycopg.errors.CheckViolation, match="fair")
    with refused, sql.cursor().copy("COPY goods FROM STDIN") as copy:
        for row in [*GOOD, (50, -1, "a", 0)]:
            copy.write_row(row)
    with refused, sql.transaction():
        sql.execute("INSERT INTO goods VALUES (60, 1, 'a', 4)")
        sql.execute("UPDATE goods SET price = -1 WHERE id = 60")
    assert rows(sql, "SELECT count(*) FROM goods WHERE id >= 50") == [(0,)]


@pytest.mark.parametrize(
    ("check", "sqlstate"),
    [
        ("nothing > 1", "42703"),
        ("a + 1", "42804"),
        ("length(s) > 3", "0A000"),
        ("a > (SELECT 1)", "0A000"),
        ("a > $1", "0A000"),
        ("count(*) > 1", "42803"),
        ("", "42601"),
        ("a > 1, a > 2", "42601"),
    ],
)
def test_what_cannot_be_checked_is_refused(sql: Connection, check: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as told:
        sql.execute(f"CREATE TABLE never (a INT PRIMARY KEY, s TEXT, CHECK ({check}))")
    assert told.value.sqlstate == sqlstate, told.value


def test_tools_see_checks_and_renamed_columns_keep_them(sql: Connection) -> None:
    sql.execute("ALTER TABLE goods RENAME COLUMN price TO cost")
    with pytest.raises(psycopg.errors.CheckViolation, match="fair"):
        sql.execute("INSERT INTO goods VALUES (30, -1, 'a', 1)")
    sql.execute("TRUNCATE goods")
    sql.execute("ALTER TABLE goods ADD COLUMN more TEXT")
    with pytest.raises(psycopg.errors.CheckViolation, match="fair"):
        sql.execute("INSERT INTO goods VALUES (30, -1, 'a', 1)")
    found = rows(
        sql,
        "SELECT conname, pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_class r "
        "ON r.oid = conrelid WHERE relname = 'goods' AND contype = 'c' ORDER BY conname",
    )
    assert found[0] == ("fair", "CHECK (price >= 0 AND price < 1000.5)")
    assert [name for name, _ in found] == ["fair", "fell", "goods_id_check", "goods_kind_check"]


def test_a_global_table_is_judged_as_its_changes_are_applied(sql: Connection) -> None:
    sql.execute("DROP TABLE IF EXISTS rates")
    sql.execute(
        "CREATE TABLE rates (id INT PRIMARY KEY, rate NUMERIC NOT NULL CONSTRAINT fair CHECK "
        "(rate > 0)) DISTRIBUTED GLOBALLY"
    )
    sql.execute("INSERT INTO rates VALUES (1, 0.5), (2, 1)")
    for text in (
        "INSERT INTO rates VALUES (3, 1), (4, -1)",
        "UPDATE rates SET rate = rate - 0.5",
        "INSERT INTO rates VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET rate = -1",
        "INSERT INTO rates SELECT id + 10, rate - 1 FROM rates",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match='check constraint "fair"') as told:
            sql.execute(text)
        assert told.value.diag.message_detail == "CHECK (rate > 0)"
    refused = pytest.raises(psycopg.errors.CheckViolation, match="fair")
    with refused, sql.cursor().copy("COPY rates FROM STDIN") as copy:
        copy.write("5\t1\n6\t0\n")
    found = sql.execute("SELECT id, rate::text FROM rates ORDER BY id").fetchall()
    assert found == [(1, "0.5"), (2, "1")]
    sql.execute("DROP TABLE rates")
