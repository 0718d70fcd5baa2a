"""Tables without a primary key: rows may be equal, and nobody sees what tells them apart."""

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
        connection.execute("DROP TABLE IF EXISTS loose, firm")
        connection.execute("CREATE TABLE loose (a INT, b TEXT)")
        connection.execute("CREATE TABLE firm (b TEXT, a INT NOT NULL)")
        yield connection
        connection.execute("DROP TABLE loose, firm")


def rows(connection: Connection, text: str) -> list[Any]:
    return sorted(connection.execute(text).fetchall())


def test_rows_may_be_equal_and_come_in_every_way(sql: Connection) -> None:
    sql.execute("INSERT INTO loose VALUES (1, 'x'), (1, 'x')")
    sql.execute("INSERT INTO loose SELECT a, b FROM loose")
    sql.execute("INSERT INTO loose (b) VALUES ('y')")
    with sql.cursor().copy("COPY loose FROM STDIN") as copy:
        copy.write("1\tx\n\\N\ty\n")
    assert rows(sql, "SELECT * FROM loose WHERE b = 'x'") == [(1, "x")] * 5
    assert rows(sql, "SELECT l.* FROM loose l WHERE b = 'y'") == [(None, "y")] * 2
    with sql.cursor().copy("COPY loose TO STDOUT") as copy:
        assert sorted(bytes(line) for line in copy) == [b"1\tx\n"] * 5 + [b"\\N\ty\n"] * 2
    assert sql.execute("UPDATE loose SET a = 2 WHERE b = 'x'").rowcount == 5
    assert rows(sql, "DELETE FROM loose WHERE b = 'y' RETURNING *") == [(None, "y")] * 2


def test_the_hidden_number_is_nobody_s_column(sql: Connection) -> None:
    sql.execute("INSERT INTO loose VALUES (1, 'x'), (2, 'y')")
    sql.execute("INSERT INTO firm VALUES ('x', 1), ('y', 3)")
    assert rows(sql, "SELECT * FROM loose NATURAL JOIN firm") == [(1, "x")]
    assert rows(sql, "SELECT q FROM loose AS t (p, q)") == [("x",), ("y",)]
    assert rows(sql, "SELECT * FROM (SELECT * FROM firm) f ORDER BY 1") == [("x", 1), ("y", 3)]
    named = "SELECT column_name FROM information_schema.columns WHERE table_name = 'loose'"
    assert rows(sql, named) == [("a",), ("b",)]
    with pytest.raises(psycopg.errors.SyntaxError, match="more expressions"):
        sql.execute("INSERT INTO loose VALUES (1, 'x', 5)")
    with pytest.raises(psycopg.errors.GeneratedAlways):
        sql.execute("INSERT INTO loose (a, _cairn_row) VALUES (1, 5)")
    with pytest.raises(psycopg.errors.GeneratedAlways):
        sql.execute("UPDATE loose SET _cairn_row = 5")
    sql.execute("ALTER TABLE loose ADD COLUMN c INT")
    sql.execute("INSERT INTO loose VALUES (5, 'z', 6)")
    assert rows(sql, "SELECT * FROM loose WHERE a = 5") == [(5, "z", 6)]


def test_a_primary_key_is_added_when_the_rows_are_there(sql: Connection) -> None:
    sql.execute("INSERT INTO firm SELECT 'x', g FROM generate_series(1, 200) g")
    sql.execute("INSERT INTO firm VALUES ('again', 7)")
    with pytest.raises(psycopg.errors.UniqueViolation, match="the same key"):
        sql.execute("ALTER TABLE firm ADD PRIMARY KEY (a)")
    assert sql.execute("DELETE FROM firm WHERE b = 'again'").rowcount == 1
    sql.execute("ALTER TABLE firm ADD PRIMARY KEY (a)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO firm VALUES ('again', 7)")
    put = "INSERT INTO firm VALUES ('new', 7) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b"
    sql.execute(put)
    assert rows(sql, "SELECT * FROM firm WHERE a = 7") == [("new", 7)]
    sql.execute("INSERT INTO firm VALUES ('x', 7) ON CONFLICT ON CONSTRAINT firm_pkey DO NOTHING")
    assert rows(sql, "SELECT * FROM firm WHERE a = 7") == [("new", 7)]
    keys = (
        "SELECT conname FROM pg_catalog.pg_constraint WHERE contype = 'p' "
        "AND conrelid = 'firm'::regclass"
    )
    assert rows(sql, keys) == [("firm_pkey",)]
    with pytest.raises(psycopg.errors.InvalidTableDefinition, match="multiple primary keys"):
        sql.execute("ALTER TABLE firm ADD CONSTRAINT k PRIMARY KEY (a)")


def test_a_primary_key_that_could_not_be_kept_is_refused(sql: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidTableDefinition, match="sharding key"):
        sql.execute("ALTER TABLE firm ADD PRIMARY KEY (b)")
    sql.execute("DROP TABLE loose")
    sql.execute("CREATE TABLE loose (a INT, b TEXT) DISTRIBUTED BY (a)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOT NULL"):
        sql.execute("ALTER TABLE loose ADD PRIMARY KEY (a)")
