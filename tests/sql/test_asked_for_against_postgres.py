"""What people bring from PostgreSQL: quantified comparisons, zones, formats of numbers, rows in SET."""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

from typing import Any

import pytest

from .postgres import postgres  # noqa: F401 (a fixture)
from .typed import Pair

pytestmark = pytest.mark.clients

TABLES = r"""
DROP TABLE IF EXISTS p
DROP TABLE IF EXISTS q
CREATE TABLE p (id BIGINT PRIMARY KEY, v BIGINT, n NUMERIC, m TIMESTAMP, z TIMESTAMPTZ, w TEXT)
CREATE TABLE q (id BIGINT PRIMARY KEY, x BIGINT, y BIGINT, g BIGINT)
INSERT INTO p VALUES (1, 10, 1.5, '2024-01-01 10:00', '2024-01-01 10:00+00', 'a'), (2, 20, -2, '2024-06-30 23:30', '2024-06-30 23:30+00', 'b'), (3, NULL, NULL, NULL, NULL, NULL), (4, 40, 0, '2024-03-31 02:30', '2024-03-31 01:00+00', 'c'), (5, 15, 1234.567, '2024-10-27 02:30', '2024-10-27 00:59:59.5+00', 'd')
DROP TABLE IF EXISTS f
CREATE TABLE f (id BIGINT PRIMARY KEY, i BIGINT, d DOUBLE PRECISION, m TIMESTAMP, y DATE)
INSERT INTO f VALUES (1, 1, 1, '2024-01-01 10:00', '2024-01-01'), (2, 2, 1.5, '2024-01-01 10:30', '2024-01-02'), (3, 2, 2, '2024-01-02 09:00', '2024-01-02'), (4, 5, 3.5, '2024-01-05 00:00', '2024-01-05'), (5, NULL, NULL, NULL, NULL), (6, 8, -1, '2023-12-31 23:59', '2023-12-31'), (7, NULL, 0.25, '2024-01-01 11:00', NULL)
INSERT INTO q VALUES (1, 10, 100, 1), (2, 20, 200, 1), (3, 30, 300, 2), (4, NULL, 400, 2), (5, 15, 500, 3)
"""

QUANTIFIED = [
    f"SELECT id, v {op} {word} (SELECT {what} FROM q WHERE {where}) FROM p ORDER BY id"
    for op in ("<", "<=", ">", ">=", "=", "<>")
    for word in ("ALL", "ANY", "SOME")
    for what, where in (
        ("x", "true"),
        ("x", "g = 1"),
        ("x", "false"),
        ("x", "x IS NULL"),
        ("x + y", "g < 3"),
    )
] + [
    "SELECT id FROM p WHERE v > ALL (SELECT x FROM q WHERE q.g = 1) ORDER BY id",
    "SELECT id FROM p WHERE v >= ALL (SELECT x FROM q WHERE q.id = p.id) ORDER BY id",
    "SELECT id FROM p WHERE v < ANY (SELECT x FROM q WHERE q.id <> p.id) ORDER BY id",
    "SELECT id FROM p WHERE NOT v > ALL (SELECT x FROM q) ORDER BY id",
    "SELECT id FROM p WHERE v > ALL (SELECT max(x) FROM q GROUP BY g) ORDER BY id",
    "SELECT id FROM p WHERE v > ANY (SELECT x FROM q ORDER BY x LIMIT 1) ORDER BY id",
    "SELECT id FROM p WHERE v >= ALL (SELECT x FROM q WHERE g = 1 UNION SELECT 5) ORDER BY id",
    "SELECT id FROM p WHERE v < ANY (ARRAY[15, 16]) ORDER BY id",
    "SELECT id FROM p WHERE v < ANY ('{15,5}'::bigint[]) ORDER BY id",
    "SELECT id FROM p WHERE v > ALL ('{}'::bigint[]) ORDER BY id",
    "SELECT id FROM p WHERE v > ALL (SELECT x, y FROM q) ORDER BY id",
    "SELECT id FROM p WHERE n > ALL (SELECT x / 100.0 FROM q WHERE g = 1) ORDER BY id",
    "SELECT id FROM p WHERE w >= ALL (SELECT 'b') ORDER BY id",
    "SELECT g, count(*) FROM q GROUP BY g HAVING sum(y) > ALL (SELECT 400) ORDER BY g",
    "UPDATE p SET w = 'big' WHERE v >= ALL (SELECT x FROM q WHERE x IS NOT NULL)",
    "SELECT id, w FROM p ORDER BY id",
]

ZONES = [
    f"SELECT id, z AT TIME ZONE '{zone}', m AT TIME ZONE '{zone}' FROM p ORDER BY id"
    for zone in (
        "Europe/Berlin",
        "america/new_york",
        "UTC",
        "+03",
        "-03:30",
        "UTC+2",
        "EST",
        "PST",
        "CEST",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "nowhere",
        "",
    )
] + [
    "SELECT id, timezone('Europe/Berlin', z), timezone('Europe/Berlin', m) FROM p ORDER BY id",
    "SELECT id, z AT TIME ZONE INTERVAL '3 hours', m AT TIME ZONE INTERVAL '-02:30' FROM p ORDER BY id",
    "SELECT id, z AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'America/New_York' FROM p ORDER BY id",
    "SELECT id, (z AT TIME ZONE 'Europe/Berlin')::date FROM p ORDER BY id",
    "SELECT '2024-02-29'::date AT TIME ZONE 'Asia/Tokyo'",
    "SELECT date_trunc('day', z, 'America/New_York') FROM p ORDER BY id",
    "SELECT id FROM p WHERE z AT TIME ZONE 'Asia/Tokyo' > '2024-07-01' ORDER BY id",
    "SELECT z AT TIME ZONE NULL FROM p WHERE id = 1",
]

SETS = [
    "UPDATE p SET (v, n) = (SELECT x, y FROM q WHERE q.id = p.id) WHERE id < 4",
    "SELECT id, v, n FROM p ORDER BY id",
    "UPDATE p SET (v, w) = (SELECT sum(x), 's' FROM q)",
    "SELECT id, v, w FROM p ORDER BY id",
    "UPDATE p SET (v, n) = ROW (7, 8.50) WHERE id = 1",
    "UPDATE p SET (v, n) = (DEFAULT, 9) WHERE id = 2",
    "UPDATE p SET (v, n) = (SELECT x, y FROM q WHERE q.id = 99), w = 'none' WHERE id = 3",
    "UPDATE p SET (v, n) = (SELECT x FROM q WHERE q.id = 1)",
    "UPDATE p SET (v, n) = (SELECT x, y FROM q)",
    "UPDATE p SET (v, v) = (1, 2)",
    "UPDATE p SET (v, n) = (1, 2, 3)",
    "SELECT id, v, n, w FROM p ORDER BY id",
]

KEYS = [
    "DROP TABLE IF EXISTS js",
    "CREATE TABLE js (id BIGINT PRIMARY KEY, j JSONB, k TEXT)",
    """INSERT INTO js VALUES (1, '{"a": 1, "b": {"c": null}}', 'a'), (2, '["a", "b", 3]', 'b'), (3, '"a"', 'c'), (4, '5', 'x'), (5, NULL, 'a'), (6, '{}', NULL)""",
    "SELECT id, j ? 'a', j ?| array['a', 'z'], j ?& array['a', 'b'] FROM js ORDER BY id",
    "SELECT id, j -> 'b' ? 'c', NOT j ? 'b' FROM js ORDER BY id",
    "SELECT id FROM js WHERE j ? 'a' AND id < 3 OR j ? 'zz' ORDER BY id",
    "SELECT id, j ?| '{a,b}', j ?& '{}', j ?& array[NULL, 'a'], j ?| array[NULL]::text[] FROM js ORDER BY id",
    "SELECT id, j ? ('a' || '') FROM js ORDER BY id",
    "SELECT id FROM js WHERE k ? 'a'",
    """SELECT id FROM js WHERE j @> '{"a": 1}' ORDER BY id""",
    "DROP TABLE js",
]

FRAMES = [
    f"SELECT id, {what} OVER ({part} ORDER BY {by} {turn} RANGE BETWEEN {start} AND {end}) FROM f ORDER BY id"
    for what in ("count(*)", "sum(i)::bigint", "min(id)")
    for part in ("", "PARTITION BY id % 2")
    for turn in ("", "DESC", "NULLS FIRST", "DESC NULLS LAST")
    for by, near, far in (
        ("i", "1", "3"),
        ("d", "0.5", "2"),
        ("m", "INTERVAL '1 hour'", "'2 days'"),
        ("y", "INTERVAL '1 day'", "'3 days'"),
    )
    for start, end in (
        (f"{near} PRECEDING", "CURRENT ROW"),
        (f"{far} PRECEDING", f"{near} FOLLOWING"),
        (f"{near} FOLLOWING", f"{far} FOLLOWING"),
        ("UNBOUNDED PRECEDING", f"{near} PRECEDING"),
    )
] + [
    "SELECT count(*) OVER (ORDER BY i, d RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM f",
    "SELECT count(*) OVER (RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM f",
    "SELECT count(*) OVER (ORDER BY i RANGE BETWEEN -1 PRECEDING AND CURRENT ROW) FROM f",
]

NUMBERS = (
    "0",
    "1",
    "-1",
    "12",
    "-12",
    "0.5",
    "-0.5",
    "0.05",
    "123.456",
    "-123.456",
    "1234567.891",
    "-9999",
    "99.995",
    "485",
    "0.1",
    "148.5",
    "3148.5",
)
FORMATS = (
    *(
        "9",
        "99",
        "999",
        "0",
        "000",
        "0999",
        "9990",
        "9999",
        "FM9",
        "FM999",
        "FM000",
        "FM0999",
        "990",
        "9G999",
        "9,999",
        "999,999,999",
        "FM999,999,999",
    ),
    *(
        "9.9",
        "99.99",
        "0.00",
        "990.00",
        "FM990.00",
        "FM999.99",
        "FM0.00",
        "FM990.0099",
        "999.990",
        "9,999.99",
        "FM9,999.99",
        "9,999,990.00",
        "FM9999.9900",
    ),
    *(
        "S999",
        "999S",
        "S9999.9",
        "9999.9S",
        "MI999",
        "999MI",
        "FM999MI",
        "PL999",
        "SG999",
        "999SG",
        "999PR",
        "FM999PR",
        "9999.99PR",
        "FMS999",
        "999D9",
        "9V9",
        "99V999",
    ),
    *('"no" 99', '99 "ok"', "$999", "999 %", "00-00", "99.", ".99", ".00", "FM.99", "9 9 9", ""),
)


@pytest.fixture
def pair(postgres: Any) -> Pair:  # noqa: F811 (the fixture)
    postgres.prepare_threshold = None
    made = Pair(postgres)
    made.both(TABLES)
    return made


@pytest.mark.parametrize("texts", [QUANTIFIED, ZONES, SETS, KEYS, FRAMES])
def test_the_answers_are_those_of_postgresql(pair: Pair, texts: list[str]) -> None:
    for text in texts:
        pair.one(text)
    pair.check()


def test_numbers_are_formatted_as_in_postgresql(pair: Pair) -> None:
    for text in FORMATS:
        quoted = text.replace("'", "''")
        shown = ", ".join(f"to_char({number}, '{quoted}')" for number in NUMBERS)
        pair.one(f"SELECT {shown}")
        pair.one(
            f"SELECT to_char(id, '{quoted}'), to_char(n, '{quoted}'), to_char(n::double precision, '{quoted}') FROM p ORDER BY id"
        )
    pair.check()
