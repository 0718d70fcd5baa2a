"""Texts that differ in their values only are understood once, and mean what they say.

The oracle is the same text with a comment in it: such a text is always read as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

CREATE = (
    "CREATE TABLE kinds (id INT PRIMARY KEY, t TEXT, d DECIMAL, f DOUBLE, b BOOLEAN, u UUID, "
    "day DATE, at DATETIME, n NUMERIC(8, 2)) DISTRIBUTED BY (id)"
)
ROWS = (
    "(1, 'one', 1.50, 1.5, true, '00000000-0000-0000-0000-000000000001', '2026-01-01', "
    "'2026-01-01 00:00:00Z', 1.5)",
    "(2, 'it''s', -2, -2.0, false, NULL, '2026-02-02', '2026-02-02 02:00:00Z', -2)",
    "(-3, '3', 3.000, 1e300, NULL, NULL, NULL, NULL, NULL)",
)
COLUMNS = ("id", "t", "d", "f", "b", "u", "day", "at", "n")
VALUES = (
    *("1", "-3", "2", "0", "1.5", "-2.0", "3.000", "99999999999999999", "12345678901234567890"),
    *("'one'", "'it''s'", "'3'", "'1'", "'1.50'", "''", "'true'", "'f'", "'2026-01-01'"),
    *("'2026-02-02 02:00:00Z'", "'00000000-0000-0000-0000-000000000001'", "'no such thing'"),
    *("NULL", "1e300", "'1e300'", "'-2'", "- 3", "'NaN'", "' 2 '", "'ünï'"),
)
OTHERS = (
    "SELECT id + 1, t FROM kinds WHERE id + 1 = 2",
    "SELECT id FROM kinds WHERE id = 1 OR t = 'it''s' ORDER BY id",
    "SELECT id FROM kinds WHERE id = -3 AND id = 1",
    "SELECT count(*), b FROM kinds WHERE d > -5 GROUP BY b HAVING count(*) >= 1 ORDER BY 2",
    "SELECT id FROM kinds WHERE f / 2 < 3 ORDER BY id LIMIT 2 - 1",
    "SELECT id FROM kinds WHERE id > -10 ORDER BY id * -1",
    "SELECT DISTINCT id + 1 FROM kinds WHERE id > 0 ORDER BY id + 1",
    "SELECT id + 1, count(*) FROM kinds WHERE id > 0 GROUP BY id + 1 ORDER BY 1",
    "SELECT id FROM kinds WHERE t || '!' = 'one' || '!'",
    "SELECT id FROM kinds WHERE day = '2026-01-01'::date",
    "SELECT id FROM kinds WHERE at > '2026-01-01'::date + 5",
    "SELECT id FROM kinds WHERE id = 5 / 0",
    "SELECT id FROM kinds WHERE nothing = 5",
    "SELECT id FROM nothing WHERE id = 5",
    "SELECT id FROM kinds WHERE id = 'x' 'y'",
    "SELECT id FROM kinds WHERE id = (SELECT max(id) FROM kinds WHERE id < 2)",
    "SELECT a.id FROM kinds a JOIN kinds b ON a.id = b.id WHERE a.id = 1 AND b.t = 'one'",
    "SELECT CASE WHEN id = 1 THEN 'a' ELSE 'b' END FROM kinds WHERE id <> 2 ORDER BY 1",
    "SELECT id FROM kinds WHERE t = 'one' UNION SELECT id FROM kinds WHERE t = '3' ORDER BY 1",
)


@pytest.fixture(scope="module")
def sql(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    with cluster["i1"].connect() as connection:
        connection.execute(CREATE)
        connection.execute(f"INSERT INTO kinds VALUES {', '.join(ROWS)}")
        yield connection
        connection.execute("DROP TABLE kinds")


def answer(connection: psycopg.Connection[Any], text: str) -> Any:
    """Rows, the names and types of columns; or the whole error."""
    try:
        cursor = connection.execute(text)
    except psycopg.Error as problem:
        said = problem.diag
        return said.sqlstate, said.message_primary, said.message_detail, said.statement_position
    if cursor.description is None:
        return cursor.statusmessage
    columns = [(each.name, each.type_code) for each in cursor.description]
    return cursor.statusmessage, columns, list(map(repr, cursor.fetchall()))


@pytest.mark.parametrize("column", COLUMNS)
def test_a_comparison_with_a_value_answers_as_it_does_when_it_is_read_as_it_is(
    sql: psycopg.Connection[Any], column: str
) -> None:
    for operator in ("=", "<", ">=", "<>"):
        for value in VALUES:
            text = f"SELECT id, {column} FROM kinds WHERE {column} {operator} {value} ORDER BY id"
            assert answer(sql, text) == answer(sql, text + " /**/"), text


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_answer_as_they_do_when_they_are_read_as_they_are(
    sql: psycopg.Connection[Any], text: str
) -> None:
    assert answer(sql, text) == answer(sql, text + " /**/")


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_what_is_written_is_what_the_text_says(sql: psycopg.Connection[Any], column: str) -> None:
    for value in VALUES:
        found = []
        for comment in ("", " /**/"):
            put = f"INSERT INTO kinds (id, {column}) VALUES (100, {value}){comment}"
            change = f"UPDATE kinds SET {column} = {value} WHERE id = 100{comment}"
            look = f"SELECT {column} FROM kinds WHERE id = 100 /**/"
            empty = "DELETE FROM kinds WHERE id = 100"
            found.append([answer(sql, text) for text in (put, look, change, look, empty)])
        assert found[0] == found[1], (column, value)


def test_a_text_with_other_values_is_not_understood_anew(sql: psycopg.Connection[Any]) -> None:
    """Not while the loop has understood enough for a moment, nor across a change of the tables."""
    seen = (
        "SELECT sum(calls), sum(cache_hits) FROM _cairn_statements "
        "WHERE query LIKE 'SELECT f, t FROM kinds%'"
    )
    numbers = itertools.count()

    def asked() -> tuple[int, int]:
        [(calls, hits)] = sql.execute(seen).fetchall()
        for number in itertools.islice(numbers, 20):
            sql.execute(f"SELECT f, t FROM kinds WHERE id = {number} AND t <> 'x{number}'")
        [(more_calls, more_hits)] = sql.execute(seen).fetchall()
        return more_calls - (calls or 0), more_hits - (hits or 0)

    eventually(lambda: asked() == (20, 20), "twenty texts that were known")


def test_whoever_looks_sees_the_text_that_was_sent(sql: psycopg.Connection[Any]) -> None:
    text = "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid() AND 77 = 77"
    [(shown,)] = sql.execute(text).fetchall()
    assert shown == text
