"""Zeros behind the last digit of a DECIMAL are kept, and count for nothing in comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
ROWS = [(1, "1.50"), (2, "1.5"), (3, "2.00"), (4, "-0.0"), (5, None), (6, "-3.10"), (7, "100")]


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE bill (id INT PRIMARY KEY, d NUMERIC) {request.param}")
        for id_, text in ROWS:
            connection.execute("INSERT INTO bill VALUES (%s, %s::numeric)", (id_, text))
        yield connection
        connection.execute("DROP TABLE bill")


def texts(connection: Connection, text: str, *values: Any) -> list[tuple[str | None, ...]]:
    """As PostgreSQL's clients print them."""
    found = connection.execute(text, values).fetchall()
    return [tuple(None if cell is None else str(cell) for cell in row) for row in found]


def column(connection: Connection, text: str, *values: Any) -> list[str | None]:
    return [row[0] for row in texts(connection, text, *values)]


def test_numbers_come_back_as_they_were_written(sql: Connection) -> None:
    shown = ["1.50", "1.5", "2.00", "0.0", None, "-3.10", "100"]
    assert column(sql, "SELECT d FROM bill ORDER BY id") == shown
    assert column(sql, "SELECT d::text FROM bill ORDER BY id") == shown
    assert column(sql, "SELECT d + 0.000 FROM bill WHERE id < 3 ORDER BY id") == ["1.500"] * 2
    assert column(sql, "SELECT d * 2.0 FROM bill WHERE id = 1") == ["3.000"]
    assert column(sql, "SELECT d / 3 FROM bill WHERE id = 1") == ["0.50000000000000000000"]
    assert texts(sql, "SELECT sum(d), avg(d) FROM bill WHERE id IN (1, 2)") == [
        ("3.00", "1.5000000000000000")
    ]


def test_equal_numbers_are_equal_whatever_their_zeros(sql: Connection) -> None:
    for text in (
        "d = 1.5",
        "d = 1.500",
        "d IN (1.50)",
        "d BETWEEN 1.5 AND 1.50",
        "d = ANY('{1.500}')",
    ):
        assert column(sql, f"SELECT id FROM bill WHERE {text} ORDER BY id") == ["1", "2"], text
    assert column(sql, "SELECT id FROM bill WHERE d = %s::numeric ORDER BY id", "1.500") == [
        "1",
        "2",
    ]
    assert column(sql, "SELECT count(DISTINCT d) FROM bill") == ["5"]
    assert len(column(sql, "SELECT DISTINCT d FROM bill")) == 6
    assert column(sql, "SELECT count(*) FROM bill GROUP BY d ORDER BY d") == list("112111")
    assert column(sql, "SELECT id FROM bill ORDER BY d DESC NULLS LAST, id") == list("7312465")
    joined = "SELECT a.id, b.id FROM bill a JOIN bill b ON a.d = b.d AND a.id < b.id"
    assert texts(sql, joined) == [("1", "2")]
    assert column(sql, "SELECT d FROM bill WHERE id = 1 EXCEPT SELECT 1.500") == []
    assert column(sql, "SELECT d FROM bill WHERE id < 3 UNION SELECT 1.500") in (
        ["1.50"], ["1.5"], ["1.500"],
    )  # fmt: skip


def test_an_index_finds_them_and_a_unique_one_refuses_the_second(sql: Connection) -> None:
    sql.execute("CREATE INDEX bill_d ON bill (d)")
    assert column(sql, "SELECT id FROM bill WHERE d = 1.500 ORDER BY id") == ["1", "2"]
    plan = "\n".join(row[0] for row in sql.execute("EXPLAIN SELECT id FROM bill WHERE d = 1.5"))
    assert "bill_d" in plan
    sql.execute("DELETE FROM bill WHERE id = 2")
    is_sharded = sql.execute("SELECT distribution FROM _pico_table WHERE name = 'bill'").fetchall()
    if "Global" in str(is_sharded):
        sql.execute("CREATE UNIQUE INDEX bill_u ON bill (d)")
        with pytest.raises(psycopg.errors.UniqueViolation, match="bill_u"):
            sql.execute("INSERT INTO bill VALUES (8, 1.5000)")
        with pytest.raises(psycopg.errors.UniqueViolation, match="bill_u"):
            sql.execute("UPDATE bill SET d = 1.500 WHERE id = 3")
        sql.execute("INSERT INTO bill VALUES (9, 1.500) ON CONFLICT (d) DO UPDATE SET d = 1.5000")
        assert column(sql, "SELECT d FROM bill WHERE d = 1.5") == ["1.5000"]
    sql.execute("DROP INDEX bill_d")


def test_copy_keeps_them_on_both_ways(sql: Connection) -> None:
    sql.execute("DELETE FROM bill")
    with sql.cursor() as cursor:
        with cursor.copy("COPY bill FROM STDIN") as copy:
            copy.write("1\t7.100\n2\t7.1\n3\t0.00\n")
        with cursor.copy("COPY bill TO STDOUT") as copy:
            found = sorted(bytes(each).decode() for each in copy)
    assert found == ["1\t7.100\n", "2\t7.1\n", "3\t0.00\n"]


def test_keys_and_declared_scales_have_one_form(cluster: Cluster, sql: Connection) -> None:
    sql.execute("CREATE TABLE price (k NUMERIC PRIMARY KEY, p NUMERIC(10, 2), d NUMERIC)")
    try:
        sql.execute("INSERT INTO price VALUES (1.50, 2.5, 3.10)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            sql.execute("INSERT INTO price VALUES (1.5, 1, 1)")
        assert texts(sql, "SELECT * FROM price WHERE k = 1.500") == [("1.5", "2.50", "3.10")]
        assert texts(
            sql, "SELECT p * d, p + d, coalesce(d, p), coalesce(NULL, p, d) FROM price"
        ) == [("7.7500", "5.60", "3.10", "2.50")]
        union = "SELECT p FROM price UNION ALL SELECT d FROM price"
        assert sorted(map(str, column(sql, union))) == ["2.50", "3.10"]
        assert texts(sql, "SELECT (SELECT p FROM price), (SELECT d FROM price)") == [
            ("2.50", "3.10")
        ]
        sql.execute("UPDATE price SET d = p")
        assert texts(sql, "SELECT d, scale(d), scale(p) FROM price") == [("2.50", "2", "2")]
    finally:
        sql.execute("DROP TABLE price")


def test_copy_fills_a_default_with_its_zeros(cluster: Cluster, sql: Connection) -> None:
    sql.execute(
        "CREATE TABLE fee (k INT PRIMARY KEY, a NUMERIC DEFAULT 1.50, b NUMERIC(6, 2) DEFAULT 2)"
    )
    try:
        with sql.cursor() as cursor, cursor.copy("COPY fee (k) FROM STDIN") as copy:
            copy.write("1\n2\n")
        sql.execute("INSERT INTO fee (k) VALUES (3)")
        assert texts(sql, "SELECT a, b FROM fee") == [("1.50", "2.00")] * 3
        assert texts(sql, "SELECT count(*) FROM fee WHERE a = 1.5") == [("3",)]
    finally:
        sql.execute("DROP TABLE fee")


def test_what_was_stored_before_is_read_as_it_was() -> None:
    from decimal import Decimal

    from cairn.model.types.decimals import decode_decimal, encode_decimal, encode_shown, key_form

    for text in ("0", "1.5", "-1.5", "1500", "0.001", "-0.00", "1.500", "-20.0", "1E+3"):
        value = Decimal(text)
        key, shown = encode_decimal(value), encode_shown(value)
        assert decode_decimal(key) == value and key_form(shown) == key == key_form(key)
        assert f"{decode_decimal(shown):f}" == f"{value:f}".removeprefix("-" if not value else "\0")
