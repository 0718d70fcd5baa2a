"""COPY in binary, as drivers load and read rows in bulk: bytes as those of Bind and DataRow."""

from __future__ import annotations

import asyncio
import datetime
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
HEAD, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
TYPES = (
    "int4 int2 int8 float8 numeric bool text uuid timestamptz date interval bytea jsonb int4[] "
    "text[]"
)
COLUMNS = (
    "id INT4 PRIMARY KEY, a SMALLINT, b INT, d DOUBLE, n NUMERIC(12, 3), t BOOLEAN, s TEXT, "
    "u UUID, z TIMESTAMPTZ, y DATE, v INTERVAL, x BYTEA, j JSONB, li INT4[], ls TEXT[]"
)
WHEN = datetime.datetime(2026, 11, 18, 20, 30, 1, 250, datetime.UTC)
FULL: tuple[Any, ...] = (
    *(7, -5, 1 << 40, 2.5, Decimal("12.500"), True, "tab\tline\n\\", uuid.UUID(int=9), WHEN),
    *(
        datetime.date(1999, 12, 31),
        datetime.timedelta(days=3, seconds=5),
        b"\0\xff",
        {"k": [1, None]},
    ),
    *([1, None, -3], ["a,b", None, ""]),
)
EMPTY: tuple[Any, ...] = (8, *[None] * 14)


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE bulk ({COLUMNS}) {request.param}")
        yield connection
        connection.execute("DROP TABLE bulk")


def put(connection: Connection, rows: list[tuple[Any, ...]]) -> None:
    with connection.cursor().copy("COPY bulk FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(TYPES.split())
        for row in rows:
            copy.write_row([psycopg.types.json.Jsonb(v) if isinstance(v, dict) else v for v in row])


def read(connection: Connection, what: str = "bulk") -> list[tuple[Any, ...]]:
    with connection.cursor().copy(f"COPY {what} TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(TYPES.split())
        return sorted(copy.rows())


def test_values_of_every_type_go_in_and_come_out(sql: Connection) -> None:
    put(sql, [FULL, EMPTY])
    assert sql.execute("SELECT * FROM bulk ORDER BY id").fetchall() == [FULL, EMPTY]
    assert read(sql) == [FULL, EMPTY]
    assert read(sql, "(SELECT * FROM bulk WHERE id = 8)") == [EMPTY]
    assert read(sql, "(SELECT * FROM bulk WHERE id = 9)") == []


def test_a_stream_that_was_read_can_be_put_back(sql: Connection) -> None:
    put(sql, [FULL, EMPTY, *[(at, *FULL[1:]) for at in range(100, 3_000)]])
    with sql.cursor().copy("COPY bulk TO STDOUT BINARY") as copy:
        stream = b"".join(bytes(piece) for piece in copy)
    assert stream.startswith(HEAD)
    assert stream.endswith(END)
    before = sorted(sql.execute("SELECT * FROM bulk").fetchall())
    sql.execute("TRUNCATE bulk")
    with sql.cursor().copy("COPY bulk FROM STDIN WITH BINARY") as copy:
        for at in range(0, len(stream), 70_001):
            copy.write(stream[at : at + 70_001])
    assert sorted(sql.execute("SELECT * FROM bulk").fetchall()) == before


def test_asyncpg_copies_its_records(cluster: Cluster) -> None:
    async def talk() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=cluster["i1"].pg_port,
            user="admin",
            password=PASSWORD,
            database="cairn",
        )
        try:
            await connection.execute(
                "CREATE TABLE events (id INT PRIMARY KEY, at TIMESTAMPTZ, s TEXT)"
            )
            rows = [(n, WHEN, f"event {n}") for n in range(30_000)]
            told = await connection.copy_records_to_table("events", records=rows)
            assert told == "COPY 30000"
            assert await connection.fetch("SELECT count(*), sum(id) FROM events") == [
                (30_000, Decimal(449_985_000))
            ]
            pieces: list[bytes] = []

            async def take(data: bytes) -> None:
                pieces.append(data)

            await connection.copy_from_table("events", output=take, format="binary")
            stream = b"".join(pieces)
            assert stream.startswith(HEAD)
            assert stream.count(b"event ") == 30_000
        finally:
            await connection.execute("DROP TABLE IF EXISTS events")
            await connection.close()

    asyncio.run(talk())


def packed(*fields: bytes | None) -> bytes:
    told = (b"\xff" * 4 if f is None else struct.pack("!i", len(f)) + f for f in fields)
    return struct.pack("!h", len(fields)) + b"".join(told)


@pytest.mark.parametrize(
    ("row", "sqlstate"),
    [
        (packed(b"\0\0\0\1", b"\0"), "22P03"),
        (packed(b"\0\0\0\1", b"\0\0\0\1"), "22P03"),
        (packed(None, b"\0\1"), "23502"),
        (packed(b"\0\0\0\1"), "22P04"),
        (packed(b"\0\0\0\1", b"\0\1", b"x"), "22P04"),
        (b"\0\2\xff\xff\xff\xf0", "22P04"),
        (b"nonsense", "22P04"),
    ],
)
def test_a_bad_row_is_refused_and_nothing_is_stored(
    sql: Connection, row: bytes, sqlstate: str
) -> None:
    good = packed(b"\0\0\0\5", b"\0\2")
    with (
        pytest.raises(psycopg.Error) as told,
        sql.cursor().copy("COPY bulk (id, a) FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.write(HEAD + good + row + END)
    assert told.value.sqlstate == sqlstate
    assert sql.execute("SELECT count(*) FROM bulk").fetchone() == (0,)


def test_texts_are_checked_as_those_of_bind(sql: Connection) -> None:
    for text in (b"\xff\xfe", b"a\0b"):
        with (
            pytest.raises(psycopg.errors.CharacterNotInRepertoire),
            sql.cursor().copy("COPY bulk (id, s) FROM STDIN (FORMAT binary)") as copy,
        ):
            copy.write(HEAD + packed(b"\0\0\0\1", text) + END)
    with (
        pytest.raises(psycopg.Error) as told,
        sql.cursor().copy("COPY bulk (id, d) FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.write(HEAD + packed(b"\0\0\0\1", struct.pack("!d", float("nan"))) + END)
    assert told.value.sqlstate == "22003"


def test_options_of_lines_are_refused(sql: Connection) -> None:
    for option in ("HEADER", "DELIMITER ';'", "NULL ''", "QUOTE '''", "ESCAPE '/'"):
        option = option.replace("'''", "'\"'")
        with pytest.raises(psycopg.errors.SyntaxError, match="in BINARY mode"):
            sql.execute(f"COPY bulk TO STDOUT (FORMAT binary, {option})")


def test_a_long_table_leaves_through_a_worker(cluster: Cluster, sql: Connection) -> None:
    """Many rows of a plain scan are read from the file's pages by another process."""
    sql.execute("CREATE TABLE wide (id INT PRIMARY KEY, two SMALLINT, d DOUBLE, s TEXT, n NUMERIC)")
    try:
        with sql.cursor().copy("COPY wide FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "int2", "float8", "text", "numeric"])
            for n in range(60_000):
                row = (n, n % 1000, n / 3, None if n % 7 == 0 else f"é{n}", Decimal(n) / 4)
                copy.write_row(row)
        with sql.cursor().copy("COPY wide TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int8", "int2", "float8", "text", "numeric"])
            got = sorted(copy.rows())
        assert got == sorted(sql.execute("SELECT * FROM wide").fetchall())
    finally:
        sql.execute("DROP TABLE wide")
