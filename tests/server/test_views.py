"""Views: queries with names, the same at every instance, read with the rights of the reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster, eventually

Connection = psycopg.Connection[tuple[Any, ...]]
NAMES = ("loop_b", "loop_a", "wide", "small", "big")  # users first


def connect(cluster: Cluster, name: str, user: str = "admin") -> Connection:
    dsn = f"postgresql://{user}:{PASSWORD}@127.0.0.1:{cluster[name].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with connect(cluster, "i1") as connection:
        for name in NAMES:
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute("DROP TABLE IF EXISTS item")
        connection.execute(
            "CREATE TABLE item (id INT PRIMARY KEY, price NUMERIC(10, 2), kind TEXT)"
        )
        connection.execute(
            "INSERT INTO item SELECT k, k * 1.5, CASE WHEN k < 11 THEN 'a' ELSE 'b' END "
            "FROM generate_series(1, 30) k"
        )
        yield connection
        for name in NAMES:
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute("DROP TABLE item")


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def test_a_view_is_read_like_a_table_at_every_instance(cluster: Cluster, sql: Connection) -> None:
    made = sql.execute("CREATE VIEW big (no, cost) AS SELECT id, price FROM item WHERE id > 25")
    assert made.statusmessage == "CREATE VIEW"
    sql.execute("CREATE VIEW small AS SELECT kind, count(*) AS n, sum(price) FROM item GROUP BY 1")
    for name in ("i1", "i2"):
        with connect(cluster, name) as other:
            assert [str(x) for (x,) in rows(other, "SELECT cost FROM big ORDER BY no LIMIT 2")] == [
                "39.00",
                "40.50",
            ]
            assert rows(other, "SELECT kind, n FROM small ORDER BY kind") == [("a", 10), ("b", 20)]
            joined = (
                "SELECT b.no, s.n FROM big b JOIN item i ON i.id = b.no JOIN small s USING (kind)"
            )
            assert sorted(rows(other, joined)) == [(n, 20) for n in range(26, 31)]
            assert rows(other, "SELECT count(*) FROM (SELECT * FROM big WHERE no = %s) x", 30) == [
                (1,)
            ]


def test_a_row_of_a_view_by_its_key_is_a_point_read(sql: Connection) -> None:
    sql.execute("CREATE VIEW big AS SELECT id, price FROM item")
    plan = "\n".join(line for (line,) in rows(sql, "EXPLAIN SELECT price FROM big WHERE id = 7"))
    direct = "\n".join(line for (line,) in rows(sql, "EXPLAIN SELECT price FROM item WHERE id = 7"))
    assert plan.splitlines()[-1] == direct.splitlines()[-1]


def test_views_change_and_plans_with_them(cluster: Cluster, sql: Connection) -> None:
    sql.execute("CREATE VIEW big AS SELECT id FROM item WHERE id > 28")
    with connect(cluster, "i2") as other:
        for _ in range(7):  # psycopg prepares it
            assert rows(other, "SELECT id FROM big ORDER BY id") == [(29,), (30,)]
        sql.execute("CREATE OR REPLACE VIEW big AS SELECT id FROM item WHERE id > 29")
        assert rows(other, "SELECT id FROM big ORDER BY id") == [(30,)]
        sql.execute("ALTER VIEW big RENAME TO small")
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT id FROM big ORDER BY id")
        assert rows(other, "SELECT id FROM small") == [(30,)]
        sql.execute("DROP VIEW small")
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT id FROM small")


def test_a_star_is_what_it_was_when_the_view_was_made(sql: Connection) -> None:
    sql.execute("CREATE VIEW wide AS SELECT * FROM item")
    assert len(rows(sql, "SELECT * FROM wide WHERE id = 1")[0]) == 3
    sql.execute("ALTER TABLE item ADD COLUMN more TEXT")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="other columns now"):
        sql.execute("SELECT * FROM wide WHERE id = 1")


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("CREATE VIEW item AS SELECT 1", "42P07"),
        ("CREATE VIEW big AS SELECT nothing FROM item", "42703"),
        ("CREATE VIEW big AS SELECT id FROM nowhere", "42P01"),
        ("CREATE VIEW big AS DELETE FROM item", "42601"),
        ("CREATE VIEW big AS SELECT $1::int", "42P02"),
        ("CREATE VIEW big (a, b) AS SELECT id FROM item", "42601"),
        ("CREATE VIEW big AS SELECT id, id FROM item", "42701"),
        ("CREATE VIEW pg_mine AS SELECT 1 AS a", "0A000"),
        ("DROP VIEW item", "42P01"),
        ("CREATE MATERIALIZED VIEW big AS SELECT 1", "0A000"),
    ],
)
def test_what_cannot_be_a_view_is_refused(sql: Connection, text: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as told:
        sql.execute(text)
    assert told.value.sqlstate == sqlstate, told.value


def test_a_view_is_not_changed_and_not_part_of_itself(sql: Connection) -> None:
    sql.execute("CREATE VIEW loop_a AS SELECT id FROM item")
    sql.execute("CREATE VIEW loop_b AS SELECT id FROM loop_a")
    for text, sqlstate in (
        ("INSERT INTO loop_a VALUES (1)", "42809"),
        ("UPDATE loop_a SET id = 1", "42809"),
        ("DELETE FROM loop_a", "42809"),
        ("CREATE TABLE loop_a (a INT PRIMARY KEY)", "42P07"),
        ("CREATE OR REPLACE VIEW loop_a AS SELECT id FROM loop_b", "42P17"),
        ("CREATE OR REPLACE VIEW loop_a AS SELECT id AS other FROM item", "42P16"),
    ):
        with pytest.raises(psycopg.Error) as told:
            sql.execute(text)
        assert told.value.sqlstate == sqlstate, (text, told.value)
    assert rows(sql, "SELECT count(*) FROM loop_b") == [(30,)]


def test_a_view_is_read_with_the_rights_of_the_reader(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS looker")
    sql.execute(f"CREATE USER looker WITH PASSWORD '{PASSWORD}'")
    sql.execute("CREATE VIEW big AS SELECT id FROM item WHERE id > 29")
    try:
        with connect(cluster, "i2", "looker") as looker:
            refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
            with refused:
                looker.execute("SELECT id FROM big")
            seen = "SELECT viewname, definition FROM pg_views"
            eventually(lambda: rows(looker, seen), "the view is known there")
            assert rows(looker, seen) == [("big", "<insufficient privilege>")]
            sql.execute("GRANT SELECT ON TABLE item TO looker")
            assert rows(looker, "SELECT id FROM big") == [(30,)]
            for text in ("DROP VIEW big", "CREATE VIEW small AS SELECT id FROM item"):
                with refused:
                    looker.execute(text)
    finally:
        sql.execute("DROP USER looker")


def test_tools_see_views(sql: Connection) -> None:
    sql.execute("CREATE VIEW big (no, cost) AS SELECT id, price FROM item")
    assert rows(sql, "SELECT viewname, definition FROM pg_views") == [
        ("big", "SELECT id, price FROM item")
    ]
    listed = "SELECT table_name, table_type FROM information_schema.tables WHERE table_name = 'big'"
    assert rows(sql, listed) == [("big", "VIEW")]
    columns = (
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
        "JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname = 'big' AND c.relkind = 'v' "
        "ORDER BY a.attnum"
    )
    assert rows(sql, columns) == [("no", "bigint"), ("cost", "numeric")]


def test_a_block_reads_a_view(sql: Connection) -> None:
    sql.execute("CREATE VIEW big AS SELECT id, kind FROM item")
    with pytest.raises(ValueError), sql.transaction():
        sql.execute("UPDATE item SET kind = 'mine' WHERE id = 3")
        assert rows(sql, "SELECT kind FROM big WHERE id = 3") == [("mine",)]
        assert rows(sql, "SELECT count(*) FROM big WHERE kind = 'mine'") == [(1,)]
        raise ValueError
    assert rows(sql, "SELECT kind FROM big WHERE id = 3") == [("a",)]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("DROP TABLE item", "drop table item"),
        ("DROP TABLE IF EXISTS nothing, item CASCADE", "drop table item"),
        ("ALTER TABLE item RENAME TO thing", "rename table item"),
        ("ALTER TABLE item RENAME COLUMN price TO cost", "rename column price of table item"),
        ("DROP VIEW big", "drop view big"),
        ("ALTER VIEW big RENAME TO large", "rename view big"),
    ],
)
def test_what_a_view_names_stays_as_long_as_the_view(
    sql: Connection, text: str, whole: str
) -> None:
    sql.execute("CREATE VIEW big AS SELECT id, price FROM item WHERE id > 25")
    sql.execute("CREATE VIEW wide AS WITH x AS (SELECT * FROM big) SELECT count(*) AS n FROM x")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=f"cannot {whole} because"):
        sql.execute(text)  # type: ignore[call-overload]
    assert rows(sql, "SELECT n FROM wide") == [(5,)]
    sql.execute("ALTER TABLE item RENAME COLUMN kind TO sort")  # which no view names
    sql.execute("DROP VIEW wide")
    sql.execute("DROP VIEW big")
    sql.execute("ALTER TABLE item RENAME COLUMN price TO cost")
    assert rows(sql, "SELECT count(sort), count(cost) FROM item") == [(30, 30)]
