"""DECLARE and FETCH, as drivers use them for answers that are read in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
COUNT = 30_000  # more than one piece of an answer


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    first = cluster["i1"]
    first.sql("CREATE TABLE many (id INT PRIMARY KEY, price NUMERIC(8, 2), at TIMESTAMP)")
    first.sql(
        "INSERT INTO many SELECT k, k / 4.0, '2026-01-01'::timestamp "
        f"FROM generate_series(1, {COUNT}) k"
    )
    yield f"postgresql://admin:{PASSWORD}@127.0.0.1:{first.pg_port}/cairn"
    first.sql("DROP TABLE many")


@pytest.fixture
def sql(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn) as connection:
        yield connection
        connection.rollback()


def ids(connection: Connection, text: str) -> list[int]:
    return [row[0] for row in connection.execute(text).fetchall()]


def test_a_named_cursor_of_psycopg_reads_all_rows_in_parts(sql: Connection) -> None:
    with sql.cursor("parts") as cursor:
        cursor.execute("SELECT id, price FROM many WHERE id > %s ORDER BY id", (COUNT - 5,))
        assert [column.name for column in cursor.description or ()] == ["id", "price"]
        assert [row[0] for row in cursor.fetchmany(2)] == [COUNT - 4, COUNT - 3]
        assert [str(row[1]) for row in cursor] == ["7499.50", "7499.75", "7500.00"]
    with sql.cursor("whole") as cursor:
        cursor.itersize = 7_000
        cursor.execute("SELECT id FROM many")
        assert sorted(row[0] for row in cursor) == list(range(1, COUNT + 1))


def test_fetch_goes_on_where_the_last_one_stopped_and_move_skips(sql: Connection) -> None:
    sql.execute("DECLARE c NO SCROLL CURSOR FOR SELECT id FROM many ORDER BY id")
    assert ids(sql, "FETCH c") == [1]
    assert ids(sql, "FETCH NEXT FROM c") == [2]
    assert ids(sql, "FETCH FORWARD 2 FROM c") == [3, 4]
    assert ids(sql, "FETCH 3 IN c") == [5, 6, 7]
    assert sql.execute("MOVE 20000 IN c").statusmessage == "MOVE 20000"
    assert ids(sql, "FETCH RELATIVE 1 FROM c") == [20_008]
    rest = sql.execute("FETCH ALL FROM c")
    assert (rest.statusmessage, len(rest.fetchall())) == (f"FETCH {COUNT - 20_008}", COUNT - 20_008)
    assert ids(sql, "FETCH FORWARD ALL FROM c") == []
    assert sql.execute("MOVE ALL IN c").statusmessage == "MOVE 0"
    assert sql.execute("CLOSE c").statusmessage == "CLOSE CURSOR"


def test_a_cursor_has_the_rows_of_the_moment_when_it_was_declared(
    sql: Connection, dsn: str
) -> None:
    sql.execute("DECLARE c CURSOR FOR SELECT id FROM many WHERE id <= 4 ORDER BY id")
    assert ids(sql, "FETCH 2 FROM c") == [1, 2]
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("DELETE FROM many WHERE id = 4")
        try:
            assert ids(sql, "FETCH ALL FROM c") == [3, 4]
        finally:
            other.execute("INSERT INTO many VALUES (4, 1, '2026-01-01')")


def test_a_cursor_sees_what_its_block_has_written(sql: Connection) -> None:
    sql.execute("UPDATE many SET price = 0.5 WHERE id = 7")
    sql.execute("DECLARE c CURSOR FOR SELECT price FROM many WHERE id = 7")
    assert [str(price) for price in ids(sql, "FETCH c")] == ["0.50"]


def test_a_cursor_ends_with_its_block_unless_it_is_held(sql: Connection) -> None:
    sql.execute("DECLARE short CURSOR FOR SELECT id FROM many")
    sql.execute("DECLARE long CURSOR WITH HOLD FOR SELECT id FROM many ORDER BY id")
    sql.commit()
    assert ids(sql, "FETCH 2 FROM long") == [1, 2]
    with pytest.raises(errors.InvalidCursorName, match='cursor "short" does not exist'):
        sql.execute("FETCH short")
    sql.rollback()
    assert len(ids(sql, "FETCH ALL FROM long")) == COUNT - 2
    sql.execute("DECLARE undone CURSOR WITH HOLD FOR SELECT id FROM many")
    sql.rollback()
    with pytest.raises(errors.InvalidCursorName):
        sql.execute("FETCH undone")


def test_a_held_cursor_needs_no_block_and_another_one_does(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as sql:
        sql.execute("DECLARE c CURSOR WITH HOLD FOR SELECT id FROM many ORDER BY id")
        assert ids(sql, "FETCH 3 FROM c") == [1, 2, 3]
        assert sql.execute("CLOSE ALL").statusmessage == "CLOSE CURSOR ALL"
        with pytest.raises(errors.InvalidCursorName):
            sql.execute("FETCH c")
        with pytest.raises(errors.NoActiveSqlTransaction):
            sql.execute("DECLARE c CURSOR FOR SELECT id FROM many")


def test_two_sessions_have_cursors_of_one_name_with_other_columns(
    sql: Connection, dsn: str
) -> None:
    with psycopg.connect(dsn) as other:
        sql.execute("DECLARE c CURSOR FOR SELECT id FROM many WHERE id = 1")
        other.execute("DECLARE c CURSOR FOR SELECT 'x' AS a, true AS b")
        assert sql.execute("FETCH ALL FROM c").fetchall() == [(1,)]
        assert other.execute("FETCH ALL FROM c").fetchall() == [("x", True)]
        sql.execute("CLOSE c")
        sql.execute("DECLARE c CURSOR FOR SELECT at FROM many WHERE id = 1")
        found = sql.execute("FETCH ALL FROM c", prepare=True).fetchall()
        assert [str(row[0]) for row in found] == ["2026-01-01 00:00:00"]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("FETCH PRIOR FROM c", "55000"),
        ("FETCH BACKWARD 2 FROM c", "55000"),
        ("FETCH -1 FROM c", "55000"),
        ("FETCH ABSOLUTE 2 FROM c", "55000"),
        ("FETCH 1.5 FROM c", "22023"),
        ("FETCH 0 FROM c", "0A000"),
        ("FETCH nothing", "34000"),
        ("MOVE nothing", "34000"),
        ("CLOSE nothing", "34000"),
        ("FETCH 1 FROM", "42601"),
        ("DECLARE c CURSOR FOR SELECT 1", "42P03"),
        ("DECLARE d SCROLL CURSOR FOR SELECT 1", "0A000"),
        ("DECLARE d CURSOR FOR DELETE FROM many", "42P11"),
        ("DECLARE d CURSOR FOR SELECT * FROM nowhere", "42P01"),
        ("DECLARE d CURSOR SELECT 1", "42601"),
    ],
)
def test_what_cannot_be_is_refused_and_the_session_goes_on(
    sql: Connection, text: str, sqlstate: str
) -> None:
    sql.execute("DECLARE c CURSOR FOR SELECT id FROM many")
    with pytest.raises(psycopg.Error) as caught:
        sql.execute(text)  # type: ignore[call-overload]
    assert caught.value.sqlstate == sqlstate
    sql.rollback()
    assert ids(sql, "SELECT count(*) FROM many") == [COUNT]
