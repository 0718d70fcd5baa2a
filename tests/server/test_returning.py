"""RETURNING, upserts and arrays over the wire, on rows of several replicasets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(port: int, user: str = "admin", password: str = PASSWORD) -> Connection:
    dsn = f"postgresql://{user}:{password}@127.0.0.1:{port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture
def table(cluster: Cluster) -> Iterator[str]:
    first = cluster["i1"]
    first.sql("DROP TABLE IF EXISTS told")
    first.sql("CREATE TABLE told (id INT PRIMARY KEY, n INT, s TEXT, d DECIMAL)")
    yield "told"
    first.sql("DROP TABLE told")


@pytest.fixture
def sql(cluster: Cluster, table: str) -> Iterator[Connection]:
    with connect(cluster["i1"].pg_port) as connection:
        yield connection


def rows(connection: Connection, text: str, *values: Any) -> list[Any]:
    return connection.execute(text, values).fetchall()


def test_rows_of_both_replicasets_come_back_in_the_order_of_insert(sql: Connection) -> None:
    cursor = sql.execute(
        "INSERT INTO told (id, n) VALUES "
        + ", ".join(f"({n}, {n * n})" for n in range(40, 0, -1))
        + " RETURNING id, n"
    )
    assert cursor.statusmessage == "INSERT 0 40"
    assert cursor.fetchall() == [(n, n * n) for n in range(40, 0, -1)]
    assert rows(sql, "SELECT count(*) FROM told") == [(40,)]


def test_what_comes_back_is_what_was_done(sql: Connection) -> None:
    rows(sql, "INSERT INTO told (id, n) SELECT k, k FROM generate_series(1, 30) AS k RETURNING id")
    doubled = rows(sql, "UPDATE told SET n = n * 2 WHERE mod(id, 3) = 0 RETURNING id, n")
    assert sorted(doubled) == [(n, 2 * n) for n in range(3, 31, 3)]
    gone = rows(sql, "DELETE FROM told WHERE n >= 40 RETURNING id, n")
    assert sorted(gone) == [(n, 2 * n) for n in (21, 24, 27, 30)]
    assert rows(sql, "DELETE FROM told WHERE id = 1 RETURNING *") == [(1, 1, None, None)]
    assert rows(sql, "DELETE FROM told WHERE id = 1 RETURNING *") == []
    assert rows(sql, "SELECT count(*) FROM told") == [(25,)]


def test_a_refused_write_tells_nothing_and_does_nothing(sql: Connection) -> None:
    rows(sql, "INSERT INTO told (id) VALUES (5) RETURNING id")
    many = ", ".join(f"({n})" for n in range(1, 30))
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute(f"INSERT INTO told (id) VALUES {many} RETURNING id")
    assert rows(sql, "SELECT id FROM told") == [(5,)]


def test_an_upsert_inserts_or_updates_and_tells_which_row_is_there_now(sql: Connection) -> None:
    text = (
        "INSERT INTO told (id, n, s) VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE "
        "SET n = told.n + EXCLUDED.n, s = EXCLUDED.s || %s RETURNING id, n, s"
    )
    assert rows(sql, text, 7, 1, "a", "!") == [(7, 1, "a")]
    assert rows(sql, text, 7, 2, "b", "!") == [(7, 3, "b!")]
    with sql.cursor() as cursor:
        cursor.executemany(text, [(8, 1, "x", "?"), (7, 4, "c", "?")], returning=True)
        found = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
    assert found == [[(8, 1, "x")], [(7, 7, "c?")]]


@pytest.mark.parametrize("binary", [False, True])
def test_an_array_parameter_names_the_rows(sql: Connection, binary: bool) -> None:
    sql.execute("INSERT INTO told SELECT k, k, 's' || k, 1.5 FROM generate_series(1, 9) AS k")
    text = "SELECT id FROM told WHERE {} = ANY(%s) ORDER BY id"
    for column, values, expected in (
        ("id", [2, 3, 99], [2, 3]),
        ("s", ["s4", "nope"], [4]),
        ("d", [Decimal("1.50")], list(range(1, 10))),
        ("id", [], []),
    ):
        cursor = sql.execute(text.format(column), (values,), binary=binary)
        assert [row[0] for row in cursor] == expected
    [(listed,)] = sql.execute("SELECT array_agg(s ORDER BY id) FROM told", binary=binary)
    assert listed == [f"s{k}" for k in range(1, 10)]


def test_an_array_on_the_key_is_bound_to_its_buckets(sql: Connection) -> None:
    lines = [row[0] for row in sql.execute("EXPLAIN SELECT * FROM told WHERE id = ANY('{1,2}')")]
    assert lines[-1] == "buckets = [1410,1934]"


def test_asyncpg_sends_and_gets_arrays(cluster: Cluster, sql: Connection) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    sql.execute("INSERT INTO told (id, n) SELECT k, k FROM generate_series(1, 5) AS k")

    async def session() -> list[Any]:
        dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
        connection = await asyncpg.connect(dsn)
        try:
            return [
                [
                    r["id"]
                    for r in await connection.fetch(
                        "SELECT id FROM told WHERE id = ANY($1) ORDER BY id", [1, 4, 9]
                    )
                ],
                await connection.fetchval("SELECT array_agg(id ORDER BY id) FROM told"),
                await connection.fetchval("INSERT INTO told (id) VALUES ($1) RETURNING id", 77),
                await connection.execute("DELETE FROM told WHERE id = ANY($1::bigint[])", [77]),
            ]
        finally:
            await connection.close()

    assert asyncio.run(session()) == [[1, 4], [1, 2, 3, 4, 5], 77, "DELETE 1"]


def test_returning_needs_the_right_to_read(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS scribe")
    sql.execute("CREATE USER scribe WITH PASSWORD 'Passw0rd1'")
    sql.execute("GRANT WRITE ON TABLE told TO scribe")
    with connect(cluster["i2"].pg_port, "scribe", "Passw0rd1") as scribe:
        scribe.execute("INSERT INTO told (id) VALUES (1)")
        for text in (
            "INSERT INTO told (id) VALUES (2) RETURNING id",
            "INSERT INTO told (id) VALUES (2) ON CONFLICT (id) DO UPDATE SET n = 1",
            "DELETE FROM told RETURNING id",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                scribe.execute(text)
    assert rows(sql, "SELECT id FROM told") == [(1,)]
    sql.execute("DROP USER scribe")


def test_every_instance_has_the_same_rows_afterwards(cluster: Cluster, sql: Connection) -> None:
    """Written by record: what RETURNING told is what the other instance reads."""
    told = rows(
        sql,
        "INSERT INTO told (id, s) SELECT k, md5('x') FROM generate_series(1, 20) AS k "
        "RETURNING id, s",
    )
    with connect(cluster["i2"].pg_port) as other:
        assert sorted(rows(other, "SELECT id, s FROM told")) == sorted(told)


def test_random_values_are_stored_as_they_were_told(sql: Connection) -> None:
    sql.execute("DROP TABLE IF EXISTS keyed")
    sql.execute("CREATE TABLE keyed (id UUID PRIMARY KEY, n INT)")
    told = rows(
        sql,
        "INSERT INTO keyed VALUES (gen_random_uuid(), 1), (gen_random_uuid(), 2) RETURNING id, n",
    )
    assert len({key for key, _ in told}) == 2
    assert sorted(rows(sql, "SELECT id, n FROM keyed")) == sorted(told)
    for key, n in told:
        assert rows(sql, "SELECT n FROM keyed WHERE id = %s", key) == [(n,)]
    sql.execute("DROP TABLE keyed")
