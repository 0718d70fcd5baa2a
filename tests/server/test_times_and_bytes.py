"""Times of day and bytes on their way through every door: COPY, keys, arrays, pages of the file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import time
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

BYTES = b"\x00\xff\\\t\n'" + bytes(range(256))
ROWS = [
    (b"", time(0, 0), [time(1, 2, 3)], [b"", None]),
    (b"\x00", time(23, 59, 59, 999999), [], []),
    (BYTES, time(9, 30, 0, 500000), None, [BYTES, b"x"]),
    (b"abc", None, [None], None),
    (b"\xff" * 5000, time(12), None, None),
]
CREATE = (
    "CREATE TABLE sealed (seal BYTEA PRIMARY KEY, at TIME, times TIME[], seals BYTEA[]) "
    "WAIT APPLIED GLOBALLY"
)


def connect(port: int) -> Any:
    return psycopg.connect(
        host="127.0.0.1", port=port, user="admin", password=PASSWORD, autocommit=True
    )


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Any]:
    with connect(cluster["i1"].pg_port) as connection:
        connection.execute(CREATE)
        yield connection
        connection.execute("DROP TABLE sealed")


def stored(sql: Any) -> list[Any]:
    found = [tuple(row) for row in sql.execute("SELECT * FROM sealed ORDER BY seal").fetchall()]
    assert found == [
        tuple(row) for row in sql.cursor(binary=True).execute("SELECT * FROM sealed ORDER BY seal")
    ]
    return found


def test_parameters_and_keys(sql: Any, cluster: Cluster) -> None:
    for row in ROWS:
        sql.execute("INSERT INTO sealed VALUES (%s, %s, %s, %s)", row)
    assert stored(sql) == sorted(ROWS, key=lambda row: row[0])
    with connect(cluster["i2"].pg_port) as other:
        for seal, at, _, _ in ROWS:
            for kind in ("%s", "%b"):
                found = other.execute(f"SELECT at FROM sealed WHERE seal = {kind}", (seal,))
                assert found.fetchall() == [(at,)]
    wanted = [row[0] for row in ROWS[:3]]
    assert sql.execute(
        "SELECT count(*) FROM sealed WHERE seal = ANY(%s)", (wanted,)
    ).fetchone() == (3,)
    assert (
        sql.execute("UPDATE sealed SET at = at + interval '1 hour' WHERE seal = ''").rowcount == 1
    )
    assert sql.execute("SELECT at FROM sealed WHERE seal = ''").fetchone() == (time(1, 0),)


@pytest.mark.parametrize("how", ["text", "csv"])
def test_copy_gives_what_it_was_given(sql: Any, how: str) -> None:
    with sql.cursor().copy("COPY sealed FROM STDIN") as copy:
        for row in ROWS:
            copy.write_row(row)
    first = stored(sql)
    assert first == sorted(ROWS, key=lambda row: row[0])
    with sql.cursor().copy(f"COPY sealed TO STDOUT WITH (FORMAT {how})") as copy:
        data = b"".join(bytes(piece) for piece in copy)
    sql.execute("TRUNCATE sealed")
    with sql.cursor().copy(f"COPY sealed FROM STDIN WITH (FORMAT {how})") as copy:
        copy.write(data)
    assert stored(sql) == first


def test_a_default_a_check_and_an_index(sql: Any) -> None:
    sql.execute("ALTER TABLE sealed ADD COLUMN until TIME(0) NOT NULL DEFAULT '17:00:00.6'")
    sql.execute("ALTER TABLE sealed ADD COLUMN mark BYTEA DEFAULT '\\x0102'")
    sql.execute("ALTER TABLE sealed ADD CONSTRAINT late CHECK (until > '08:00')")
    sql.execute("CREATE INDEX by_until ON sealed (until, mark) WAIT APPLIED GLOBALLY")
    sql.execute("INSERT INTO sealed (seal) VALUES ('a')")
    query = "SELECT until, mark FROM sealed WHERE until = '17:00:01' AND mark = '\\x0102'"
    assert sql.execute(query).fetchall() == [(time(17, 0, 1), b"\1\2")]
    with pytest.raises(psycopg.errors.CheckViolation):
        sql.execute("UPDATE sealed SET until = '07:00'")


def test_what_is_no_time_and_no_bytes_is_refused_in_the_words_of_postgres(sql: Any) -> None:
    wrong = {
        "INSERT INTO sealed VALUES ('a', '25:00')": "22008",
        "INSERT INTO sealed VALUES ('a', 'noonish')": "22007",
        "INSERT INTO sealed VALUES ('\\x6')": "22023",
        "INSERT INTO sealed VALUES ('a\\9')": "22P02",
        "INSERT INTO sealed VALUES (7)": "42804",
        "CREATE TABLE zoned (id INT PRIMARY KEY, at TIME WITH TIME ZONE)": "0A000",
        "CREATE TABLE zoned (id INT PRIMARY KEY, at TIMETZ)": "0A000",
    }
    told = {}
    for text in wrong:
        with pytest.raises(psycopg.Error) as problem:
            sql.execute(text)
        told[text] = problem.value.sqlstate
    assert told == wrong


def test_the_catalogue_tells_them_as_postgres_does(sql: Any) -> None:
    sql.execute("ALTER TABLE sealed ADD COLUMN until TIME(3)")
    shown = sql.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'sealed'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    assert shown == [
        ("seal", "bytea"),
        ("at", "time without time zone"),
        ("times", "time without time zone[]"),
        ("seals", "bytea[]"),
        ("until", "time(3) without time zone"),
    ]
