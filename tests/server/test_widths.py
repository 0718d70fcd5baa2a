"""Whole numbers that are declared with two or four bytes: what they take, and how they are told."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
INT2, INT4, INT8, INT2S, INT4S, NUMERIC = 21, 23, 20, 1005, 1007, 1700
EDGES = [(1, -(1 << 15), -(1 << 31), 1 << 62), (2, (1 << 15) - 1, (1 << 31) - 1, -(1 << 62))]
MADE = "CREATE TABLE few (id INT4 PRIMARY KEY, two SMALLINT, four INT4, eight INT)"


@pytest.fixture(params=["DISTRIBUTED BY (id)", "DISTRIBUTED GLOBALLY"])
def sql(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"{MADE} {request.param}")
        for row in EDGES:
            connection.execute("INSERT INTO few VALUES (%s, %s, %s, %s)", row)
        yield connection
        connection.execute("DROP TABLE few")


def oids(connection: Connection, text: str, *values: Any) -> list[int]:
    told = connection.execute(text, values).description
    assert told is not None
    return [column.type_code for column in told]


def refused(connection: Connection, text: str, *values: Any) -> str:
    with pytest.raises(psycopg.errors.NumericValueOutOfRange) as told:
        connection.execute(text, values)
    return str(told.value.diag.message_primary)


@pytest.mark.parametrize("is_binary", [False, True])
def test_clients_are_told_the_types_that_were_declared(sql: Connection, is_binary: bool) -> None:
    with sql.cursor(binary=is_binary) as cursor:
        for text, narrow in (
            ("SELECT * FROM few ORDER BY id", EDGES),
            ("SELECT * FROM few", EDGES),
            ("SELECT * FROM few WHERE id = 2", EDGES[1:]),
            ("SELECT * FROM few WHERE id IN (1, 2)", EDGES),
        ):
            for _ in range(3):  # the third time by the lane in C
                found = cursor.execute(text).fetchall()
                assert sorted(found) == narrow, text
                assert cursor.description is not None
                told = [each.type_code for each in cursor.description]
                assert told == [INT4, INT2, INT4, INT8], text
        for _ in range(4):
            found = cursor.execute("SELECT two, four FROM few WHERE id = %s", (2,)).fetchall()
            assert found == [EDGES[1][1:3]]


def test_expressions_keep_a_width_where_their_values_do(sql: Connection) -> None:
    plain = {
        "two": INT2,
        "coalesce(two, 0)": INT4,
        "coalesce(two, two)": INT2,
        "CASE WHEN id = 1 THEN four ELSE two END": INT4,
        "CASE WHEN id = 1 THEN eight ELSE two END": INT8,
        "two + 1": INT8,
        "two::int4": INT4,
        "four::bigint": INT8,
        "eight::int": INT8,
        "lag(two) OVER (ORDER BY id)": INT2,
        "lag(two, 1, 100000) OVER (ORDER BY id)": INT4,
        "(SELECT max(four) FROM few)": INT4,
    }
    counted = {
        "max(two)": INT2,
        "sum(two)": INT8,
        "sum(DISTINCT four)": INT8,
        "sum(eight)": NUMERIC,
    }
    counted |= {"count(*)": INT8, "avg(two)": NUMERIC, "avg(DISTINCT two)": NUMERIC}
    for text, oid in {**plain, **counted}.items():
        assert oids(sql, f"SELECT {text} FROM few") == [oid], text
    assert sql.execute("SELECT sum(two), sum(DISTINCT four), avg(two) FROM few").fetchall() == [
        (-1, -1, Decimal("-0.50000000000000000000"))
    ]
    running = "SELECT sum(two) OVER (ORDER BY id), avg(four) OVER () FROM few ORDER BY id"
    half = Decimal("-0.50000000000000000000")
    assert sql.execute(running).fetchall() == [(-32768, half), (-1, half)]
    both = "SELECT two FROM few UNION ALL SELECT four FROM few"
    assert oids(sql, both) == [INT4]
    assert oids(sql, "SELECT two FROM few UNION ALL SELECT eight FROM few") == [INT8]
    rising = """WITH RECURSIVE r AS (
                    SELECT two AS a, two AS b FROM few WHERE id = 2
                    UNION ALL SELECT a + 30000, a FROM r WHERE a < 90000
                ) SELECT a, b FROM r ORDER BY a"""
    assert sql.execute(rising).fetchall()[-1] == (92767, 62767)


def test_what_is_no_size_of_a_number_is_refused(sql: Connection) -> None:
    for text in ("n INT4(2)", "n INT2(4)", "n INT8(4)[]"):
        with pytest.raises(psycopg.errors.SyntaxError, match="type modifier is not allowed"):
            sql.execute(f"CREATE TABLE odd (id INT PRIMARY KEY, {text})")


def test_what_does_not_fit_is_refused(sql: Connection) -> None:
    assert refused(sql, "INSERT INTO few VALUES (3, 32768)") == "smallint out of range"
    assert refused(sql, "INSERT INTO few VALUES (3, 1, -2147483649)") == "integer out of range"
    assert refused(sql, "INSERT INTO few VALUES (2147483648)") == "integer out of range"
    assert refused(sql, "INSERT INTO few SELECT 3, 99999") == "smallint out of range"
    assert refused(sql, "INSERT INTO few SELECT id + 10, four FROM few") == "smallint out of range"
    assert refused(sql, "UPDATE few SET two = two + 1 WHERE id = 2") == "smallint out of range"
    assert refused(sql, "UPDATE few SET two = two + 1") == "smallint out of range"
    assert refused(sql, "SELECT four::smallint FROM few") == "smallint out of range"
    assert refused(sql, "SELECT 99999::int2") == "smallint out of range"
    assert refused(sql, "SELECT '99999'::int2") == "smallint out of range"
    for _ in range(4):
        told = refused(sql, "INSERT INTO few (id, two) VALUES (%s, %s)", 3, 1 << 20)
        assert told == "smallint out of range"
    upsert = "INSERT INTO few VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET two = few.four"
    assert refused(sql, upsert) == "smallint out of range"
    assert sql.execute("SELECT * FROM few ORDER BY id").fetchall() == EDGES


@pytest.mark.parametrize("form", ["text", "csv"])
def test_copy_checks_and_tells_widths(sql: Connection, form: str) -> None:
    with sql.cursor() as cursor:
        with cursor.copy(f"COPY few TO STDOUT (FORMAT {form})") as copy:
            data = b"".join(copy)
        cursor.execute("TRUNCATE few")
        with cursor.copy(f"COPY few FROM STDIN (FORMAT {form})") as copy:
            copy.write(data)
        assert cursor.execute("SELECT * FROM few ORDER BY id").fetchall() == EDGES
        lines = "".join(f"{n}{',' if form == 'csv' else chr(9)}{n * 400}\n" for n in range(10, 200))
        with (
            pytest.raises(psycopg.errors.NumericValueOutOfRange) as told,
            cursor.copy(f"COPY few (id, two) FROM STDIN (FORMAT {form})") as copy,
        ):
            copy.write(lines)
    assert told.value.diag.message_primary == "smallint out of range"
    assert sql.execute("SELECT count(*) FROM few").fetchone() == (2,)


def test_parameters_are_told_as_wide_as_what_they_meet(sql: Connection) -> None:
    def told(text: str) -> list[int]:
        sql.pgconn.prepare(b"", text.encode())
        found = sql.pgconn.describe_prepared(b"")
        return [found.param_type(at) for at in range(found.nparams)]

    assert told("INSERT INTO few VALUES ($1, $2, $3, $4)") == [INT4, INT2, INT4, INT8]
    assert told("SELECT 1 FROM few WHERE id = $1 AND two < $2 AND eight = $3") == [INT4, INT2, INT8]
    assert told("SELECT $1 + two FROM few WHERE two = $1") == [INT8]
    assert told("UPDATE few SET two = $1, four = $1 WHERE id = $2") == [INT4, INT4]
    assert told("SELECT * FROM few LIMIT $1") == [INT8]


def test_catalogues_tell_widths(sql: Connection) -> None:
    asked = """SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attlen FROM pg_attribute a
               WHERE a.attrelid = 'few'::regclass AND a.attnum > 0 ORDER BY a.attnum"""
    assert sql.execute(asked).fetchall() == [
        ("id", "integer", 4),
        ("two", "smallint", 2),
        ("four", "integer", 4),
        ("eight", "bigint", 8),
    ]
    asked = """SELECT column_name, data_type, udt_name, numeric_precision FROM
               information_schema.columns WHERE table_name = 'few' ORDER BY ordinal_position"""
    assert sql.execute(asked).fetchall() == [
        ("id", "integer", "int4", 32),
        ("two", "smallint", "int2", 16),
        ("four", "integer", "int4", 32),
        ("eight", "bigint", "int8", 64),
    ]
    shown = "SELECT pg_typeof(two), pg_typeof(four), pg_typeof(eight) FROM few WHERE id = 1"
    assert sql.execute(shown).fetchall() == [("smallint", "integer", "bigint")]


def test_lists_have_widths_too(sql: Connection) -> None:
    sql.execute("CREATE TABLE lists (id INT PRIMARY KEY, a SMALLINT[], b INT4[])")
    try:
        sql.execute("INSERT INTO lists VALUES (1, '{1,-32768}', '{2147483647,NULL}')")
        assert oids(sql, "SELECT a, b, a[1] FROM lists") == [INT2S, INT4S, INT2]
        with sql.cursor(binary=True) as cursor:
            found = cursor.execute("SELECT a, b FROM lists").fetchall()
        assert found == [([1, -32768], [2147483647, None])]
        assert refused(sql, "INSERT INTO lists VALUES (2, '{40000}')") == "smallint out of range"
        wide = "INSERT INTO lists VALUES (2, %s, %s)"
        assert refused(sql, wide, [1], [1 << 40]) == "integer out of range"
        assert refused(sql, "UPDATE lists SET a = a || 99999") == "smallint out of range"
    finally:
        sql.execute("DROP TABLE lists")


def test_a_column_becomes_wider_and_never_narrower(sql: Connection) -> None:
    sql.execute("ALTER TABLE few ALTER COLUMN two TYPE INT4")
    sql.execute("UPDATE few SET two = 100000 WHERE id = 1")
    sql.execute("ALTER TABLE few ALTER COLUMN two TYPE BIGINT")
    assert oids(sql, "SELECT two FROM few") == [INT8]
    with pytest.raises(psycopg.errors.FeatureNotSupported) as told:
        sql.execute("ALTER TABLE few ALTER COLUMN two TYPE SMALLINT")
    assert "smallint" in str(told.value)
    sql.execute("ALTER TABLE few ADD COLUMN more SMALLINT DEFAULT 7")
    assert sql.execute("SELECT more FROM few WHERE id = 1").fetchone() == (7,)
    assert oids(sql, "SELECT more FROM few") == [INT2]
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        sql.execute("ALTER TABLE few ADD COLUMN other SMALLINT DEFAULT 70000")


def test_made_from_others_they_keep_their_widths(sql: Connection) -> None:
    try:
        sql.execute("CREATE TABLE same (LIKE few)")
        sql.execute("CREATE VIEW seen AS SELECT two, four FROM few")
        sql.execute("CREATE TABLE got AS SELECT two, four, eight, 5 AS n FROM few")
        assert oids(sql, "SELECT * FROM same") == [INT4, INT2, INT4, INT8]
        assert oids(sql, "SELECT * FROM seen") == [INT2, INT4]
        assert oids(sql, "SELECT * FROM got") == [INT2, INT4, INT8, INT8]
        assert refused(sql, "INSERT INTO got VALUES (99999, 1, 1, 1)") == "smallint out of range"
    finally:
        for text in ("TABLE IF EXISTS same", "VIEW IF EXISTS seen", "TABLE IF EXISTS got"):
            sql.execute(f"DROP {text}")


def test_int_is_as_wide_as_the_setting_says(sql: Connection) -> None:
    try:
        sql.execute("ALTER SYSTEM SET default_int_size = 4")
        sql.execute("CREATE TABLE ints (id SERIAL PRIMARY KEY, n INT, b BIGINT, a INT[])")
        assert oids(sql, "SELECT *, n::int FROM ints") == [INT4, INT4, INT8, INT4S, INT4]
        assert oids(sql, "SELECT * FROM few") == [INT4, INT2, INT4, INT8]
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            sql.execute("ALTER SYSTEM SET default_int_size = 2")
    finally:
        sql.execute("ALTER SYSTEM RESET default_int_size")
        sql.execute("DROP TABLE IF EXISTS ints")
    assert oids(sql, "SELECT 1::int") == [INT8]
