"""Answers of any size over two instances: streamed, as quickly as the client takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster

pytestmark = pytest.mark.cluster

ROWS = 100_000


@pytest.fixture(scope="module")
def big(cluster: Cluster) -> Iterator[str]:
    """A table of which each of the two instances has about half."""
    with cluster["i1"].connect() as sql:
        sql.execute("CREATE TABLE big (id INT PRIMARY KEY, n INT, s TEXT) DISTRIBUTED BY (id)")
        with sql.cursor().copy("COPY big FROM STDIN") as copy:
            for at in range(ROWS):
                copy.write_row((at, at % 7, f"row {at} of the big table"))
    yield "big"
    cluster["i1"].sql("DROP TABLE big")


@pytest.fixture
def sql(cluster: Cluster, big: str) -> Iterator[psycopg.Connection[Any]]:
    with cluster["i1"].connect() as made:
        yield made
        if not made.closed:
            assert made.execute("SELECT 1").fetchall() == [(1,)]  # the session has gone on


def row(at: int) -> tuple[int, int, str]:
    return at, at % 7, f"row {at} of the big table"


def test_a_whole_table_is_an_answer(sql: psycopg.Connection[Any]) -> None:
    found = sql.execute("SELECT * FROM big").fetchall()
    assert sorted(found) == [row(at) for at in range(ROWS)]


def test_a_whole_table_is_an_answer_in_the_simple_protocol(sql: psycopg.Connection[Any]) -> None:
    result = sql.pgconn.exec_(b"SELECT * FROM big")
    assert (result.command_status, result.ntuples) == (b"SELECT 100000", ROWS)
    assert {int(result.get_value(at, 0) or b"") for at in range(ROWS)} == set(range(ROWS))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id FROM big WHERE n < 3", [(at,) for at in range(ROWS) if at % 7 < 3]),
        ("SELECT id + 1 FROM big WHERE id >= 50000", [(at + 1,) for at in range(50_000, ROWS)]),
        ("SELECT id FROM big ORDER BY id DESC", [(at,) for at in range(ROWS)]),
        ("SELECT DISTINCT s FROM big", sorted((row(at)[2],) for at in range(ROWS))),
        ("SELECT s, count(*) FROM big GROUP BY s", sorted((row(at)[2], 1) for at in range(ROWS))),
        (
            "SELECT id FROM big EXCEPT SELECT id FROM big WHERE n = 1",
            [(at,) for at in range(ROWS) if at % 7 != 1],
        ),
        (
            "SELECT a.id, b.id FROM big a JOIN big b ON a.id = b.id + 1",
            [(at, at - 1) for at in range(1, ROWS)],
        ),
        ("SELECT g FROM generate_series(1, 300000) AS g", [(at,) for at in range(1, 300_001)]),
        (
            "SELECT count(DISTINCT id), sum(n), count(DISTINCT s) FROM big",
            [(ROWS, sum(at % 7 for at in range(ROWS)), ROWS)],
        ),
    ],
)
def test_whatever_is_asked_of_many_rows_is_answered(
    sql: psycopg.Connection[Any], text: str, expected: list[Any]
) -> None:
    assert sorted(sql.execute(text).fetchall()) == expected


@pytest.mark.parametrize("limit", [1, 40_000, 99_999, 100_000, 200_000])
def test_as_many_rows_as_are_asked_for(sql: psycopg.Connection[Any], limit: int) -> None:
    found = [at for (at,) in sql.execute(f"SELECT id FROM big LIMIT {limit}").fetchall()]
    assert len(found) == len(set(found)) == min(limit, ROWS)
    found = [at for (at,) in sql.execute("SELECT id FROM big LIMIT %s", (limit,)).fetchall()]
    assert len(found) == len(set(found)) == min(limit, ROWS)


def test_a_sorted_answer_comes_sorted(sql: psycopg.Connection[Any]) -> None:
    found = sql.execute("SELECT id, n, s FROM big ORDER BY n, id DESC").fetchall()
    assert found == sorted(map(row, range(ROWS)), key=lambda each: (each[1], -each[0]))


def test_who_sets_a_limit_is_refused_past_it(sql: psycopg.Connection[Any]) -> None:
    sql.execute("SET sql_motion_row_max = 5000")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="number of rows"):
        sql.execute("SELECT * FROM big")
    assert len(sql.execute("SELECT id FROM big WHERE id < 5000").fetchall()) == 5000
    sql.execute("RESET sql_motion_row_max")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="number of rows"):
        sql.execute("SELECT * FROM big OPTION (sql_motion_row_max = 90000)")


def test_a_client_that_reads_row_by_row_gets_them_all(sql: psycopg.Connection[Any]) -> None:
    cursor = sql.cursor()
    assert sorted(cursor.stream("SELECT id, n, s FROM big")) == [row(at) for at in range(ROWS)]


def test_a_cancel_in_the_middle_ends_the_answer(sql: psycopg.Connection[Any]) -> None:
    seen = 0
    with pytest.raises(psycopg.errors.QueryCanceled):
        for _ in sql.cursor().stream("SELECT a.id, b.s FROM big a, big b WHERE a.id < 1000"):
            seen += 1
            if seen == 10:
                threading.Thread(target=sql.cancel).start()
    assert seen >= 10


def test_one_owner_may_have_all_the_rows_of_an_answer(sql: psycopg.Connection[Any]) -> None:
    """A statement for one bucket takes one hop, and its answer may be as long as any other."""
    sql.execute("DROP TABLE IF EXISTS skewed")
    sql.execute(
        "CREATE TABLE skewed (k INT, id INT, s TEXT, PRIMARY KEY (k, id)) DISTRIBUTED BY (k)"
    )
    text = "SELECT k, id, length(s) FROM skewed WHERE k = %s"
    for key in (1, 2, 3, 4):  # some here, some away
        sql.execute(
            "INSERT INTO skewed SELECT %s, g, repeat('x', 3000) FROM generate_series(1, 3000) g",
            (key,),
        )
        assert sorted(sql.execute(text, (key,)).fetchall()) == [
            (key, at, 3000) for at in range(1, 3001)
        ]
        whole = sql.execute("SELECT s FROM skewed WHERE k = %s", (key,)).fetchall()
        assert whole == [("x" * 3000,)] * 3000
    sql.execute("DROP TABLE skewed")


@pytest.mark.slow
def test_rows_of_one_bucket_that_do_not_fit_a_message_are_an_answer_too(
    cluster: Cluster, sql: psycopg.Connection[Any]
) -> None:
    sql.execute(
        "CREATE TABLE heavy (k INT, id INT, s TEXT, PRIMARY KEY (k, id)) DISTRIBUTED BY (k)"
    )
    for at in range(8):
        sql.execute("INSERT INTO heavy VALUES (5, %s, repeat('y', 9000000))", (at,))
    for name in ("i1", "i2"):  # one of them has to ask the other
        with cluster[name].connect() as asked:
            found = asked.execute("SELECT s FROM heavy WHERE k = %s", (5,)).fetchall()
            assert [len(s) for (s,) in found] == [9_000_000] * 8
    sql.execute("DROP TABLE heavy")
