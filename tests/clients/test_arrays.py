"""Lists to and from array columns, by unmodified drivers and without a cast."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pg8000.native
import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

pytestmark = pytest.mark.clients

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC)
KEY = UUID("12345678-1234-5678-1234-567812345678")
COLUMNS = (
    "id INTEGER PRIMARY KEY, i INT[], s TEXT[], d DOUBLE[], n DECIMAL[], b BOOL[], "
    "u UUID[], t DATETIME[]"
)
FULL: tuple[Any, ...] = (
    1,
    [1, None, -3],
    ["a", 'b "c"', None, "NULL", ""],
    [1.5, -2.0],
    [Decimal("1.5"), Decimal(-2)],
    [True, False, None],
    [KEY],
    [MOMENT],
)
EMPTY: tuple[Any, ...] = (2, *([] for _ in range(7)))
OIDS = [1016, 1009, 1022, 1231, 1000, 2951, 1185]


@pytest.fixture
def lists(cluster: Cluster, fresh: str) -> str:
    node = cluster["i1"]
    node.sql(f"DROP TABLE {fresh}")
    node.sql(f"CREATE TABLE {fresh} ({COLUMNS}) DISTRIBUTED BY (id) WAIT APPLIED GLOBALLY")
    return fresh


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_keeps_lists(dsn: str, lists: str, binary: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        marks = ", ".join(["%b" if binary else "%s"] * len(FULL))
        for row in (FULL, EMPTY):
            cursor.execute(f"INSERT INTO {lists} VALUES ({marks})", row)
        found = cursor.execute(f"SELECT * FROM {lists} ORDER BY id")
        assert [each.type_code for each in found.description or ()][1:] == OIDS
        assert found.fetchall() == [FULL, EMPTY]
        found = cursor.execute(f"SELECT i[1], s[1], n[1], t[1] FROM {lists} WHERE id = 1")
        assert [each.type_code for each in found.description or ()] == [20, 25, 1700, 1184]
        assert found.fetchall() == [(1, "a", Decimal("1.5"), MOMENT)]
        with cursor.copy(f"COPY (SELECT * FROM {lists} WHERE id = 1) TO STDOUT") as copy:
            line = b"".join(copy)
        cursor.execute(f"DELETE FROM {lists} WHERE id = 1")
        with cursor.copy(f"COPY {lists} FROM STDIN") as copy:
            copy.write(line)
        found = cursor.execute(f"SELECT * FROM {lists} WHERE id = 1")
        assert found.fetchall() == [FULL]


def test_asyncpg_keeps_lists(dsn: str, lists: str) -> None:
    async def session() -> None:
        connection = await asyncpg.connect(dsn)
        marks = ", ".join(f"${at}" for at in range(1, len(FULL) + 1))
        for row in (FULL, EMPTY):
            await connection.execute(f"INSERT INTO {lists} VALUES ({marks})", *row)
        found = await connection.fetch(f"SELECT * FROM {lists} ORDER BY id")
        assert [tuple(row) for row in found] == [FULL, EMPTY]
        hits = await connection.fetch(f"SELECT id FROM {lists} WHERE i = $1", FULL[1])
        assert [tuple(row) for row in hits] == [(1,)]
        await connection.close()

    asyncio.run(session())


def test_pg8000_keeps_lists(cluster: Cluster, lists: str) -> None:
    port = cluster["i1"].pg_port
    connection = pg8000.native.Connection(
        "admin", host="127.0.0.1", port=port, password=PASSWORD, database="cairn"
    )
    try:
        names = ["id", "i", "s", "d", "n", "b", "u", "t"]
        marks = ", ".join(f":{name}" for name in names)
        for row in (FULL, EMPTY):
            given = dict(zip(names, row, strict=True))
            connection.run(f"INSERT INTO {lists} VALUES ({marks})", **given)
        found = connection.run(f"SELECT * FROM {lists} ORDER BY id")
        assert [tuple(row) for row in found] == [FULL, EMPTY]
    finally:
        connection.close()


def test_an_untyped_array_column_takes_an_empty_list(dsn: str, lists: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE {lists}")
        connection.execute(f"CREATE TABLE {lists} (id INT PRIMARY KEY, a ARRAY)")
        connection.execute(f"INSERT INTO {lists} VALUES (%s, %s)", (1, []))
        connection.execute(f"INSERT INTO {lists} VALUES (%s, %s)", (2, [1, 2]))
        connection.execute(f"INSERT INTO {lists} VALUES (3, '{{}}')")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute(f"INSERT INTO {lists} VALUES (4, '{{\"a\": 1}}')")
        found = connection.execute(f"SELECT a FROM {lists} ORDER BY id").fetchall()
        assert found == [([],), ([1, 2],), ([],)]
