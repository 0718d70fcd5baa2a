"""Types as people declare them: stored, cast, compared and printed as PostgreSQL does."""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

import os
import random
from typing import Any
from uuid import UUID

import pytest

from cairn.model.errors import CairnError

from .generate_types import TABLE, TypeGenerator
from .harness import NOW, Cluster
from .postgres import postgres  # noqa: F401 (a fixture)
from .typed import Pair

pytestmark = pytest.mark.clients

ARRAYS = r"""
DROP TABLE IF EXISTS listed
CREATE TABLE listed (id BIGINT PRIMARY KEY, i BIGINT[], s TEXT[], d DOUBLE PRECISION[], n NUMERIC[], b BOOLEAN[], u UUID[], t TIMESTAMPTZ[])
INSERT INTO listed VALUES (1, '{1,2}', '{a,"b c",NULL,"NULL",""}', '{1.5,2}', '{1.5,-2}', '{t,f,NULL}', '{12345678-1234-5678-1234-567812345678}', '{"2024-02-29 12:00:00.25+00"}')
INSERT INTO listed VALUES (2, '{}', '{}', '{}', '{}', '{}', '{}', '{}')
INSERT INTO listed VALUES (3, NULL)
INSERT INTO listed (id, i, s, d, n) VALUES (4, ARRAY[1, 2], ARRAY['x', 'y'], ARRAY[1, 2], ARRAY[1, 2.5])
INSERT INTO listed (id, i, s) VALUES (5, ARRAY[]::int[], ARRAY[]::text[])
INSERT INTO listed (id, i) VALUES (6, ARRAY[])
INSERT INTO listed (id, i) VALUES (6, '{1,x}')
INSERT INTO listed (id, i) VALUES (6, '[1,2]')
INSERT INTO listed (id, i) VALUES (6, 'nothing')
INSERT INTO listed (id, u, t) VALUES (7, ARRAY['12345678-1234-5678-1234-567812345678']::uuid[], ARRAY['2024-01-01'::timestamptz, NULL])
INSERT INTO listed (id, i) SELECT 8, i FROM listed WHERE id = 1
INSERT INTO listed (id, i) VALUES (9, ARRAY['a'])
SELECT * FROM listed ORDER BY id
SELECT id, i[1], s[2], d[1], n[1], b[1], u[1], t[1] FROM listed ORDER BY id
SELECT id, i[1] + 1, s[1] || '!', n[1] + 0.25, i[0], i[99] FROM listed ORDER BY id
SELECT id FROM listed WHERE 2 = ANY(i) ORDER BY id
SELECT id FROM listed WHERE i = '{1,2}' ORDER BY id
SELECT id FROM listed WHERE i = ARRAY[1, 2]::bigint[] OR s = '{}' ORDER BY id
SELECT id FROM listed WHERE i <> ARRAY[1, 2]::bigint[] ORDER BY id
SELECT id FROM listed WHERE i IN ('{1,2}', '{}') ORDER BY id
SELECT i, count(*) FROM listed WHERE id IN (1, 4, 8) GROUP BY i
SELECT DISTINCT i FROM listed WHERE id IN (1, 4, 8)
SELECT a.id, b.id FROM listed a JOIN listed b ON a.i = b.i AND a.id < b.id ORDER BY 1, 2
SELECT id, i::text, s::text, b::text FROM listed ORDER BY id
SELECT i::text[], i::numeric[], d::bigint[], s::text FROM listed WHERE id = 1
SELECT '{1,2}'::text[]::bigint[], ARRAY['1', '2']::bigint[], ARRAY[1, 2]::text[], '{t}'::boolean[]::text[]
SELECT ARRAY[1.5, 2]::bigint[], ARRAY[1, 0]::boolean[]
SELECT i || 3::bigint, 0::bigint || i, i || ARRAY[4, 5]::bigint[], i || NULL::bigint[], i || '{7}' FROM listed WHERE id IN (1, 2, 3) ORDER BY id
SELECT array_append(i, 3), array_prepend(0, i), array_cat(i, i), array_remove(i, 1), array_position(i, 2) FROM listed WHERE id IN (1, 2) ORDER BY id
SELECT array_remove(s, NULL), array_position(s, NULL), array_append(s, NULL) FROM listed WHERE id = 1
SELECT cardinality(i), array_length(s, 1), array_upper(s, 1) FROM listed ORDER BY id
SELECT (i || i)[3], (s || s)[2], i[id], ((i))[1] FROM listed ORDER BY id
SELECT array_to_string(i, '-'), coalesce(i, '{9}') FROM listed ORDER BY id
UPDATE listed SET i = i || 9::bigint, s = '{z}' WHERE id = 4
UPDATE listed SET i = '{}' WHERE id = 4 RETURNING i, s
SELECT count(*) FROM (SELECT i FROM listed UNION SELECT '{1,2}'::bigint[]) x
SELECT 'a' = ANY('{a,b}')
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1] = '{2}', ARRAY[1, NULL] = ARRAY[1, NULL]
SELECT ARRAY[1] || 'x'
SELECT 1 || 2
"""

TIMES = r"""
DROP TABLE IF EXISTS timed
CREATE TABLE timed (id BIGINT PRIMARY KEY, d DATE, m TIMESTAMP, t TIMESTAMPTZ, v INTERVAL, ds DATE[])
INSERT INTO timed VALUES (1, '2024-02-29', '2024-02-29 12:30:15.25', '2024-02-29 12:30:15.25+01', '1 year 2 mons 3 days 04:05:06.5', '{2024-01-01,NULL}')
INSERT INTO timed VALUES (2, '2023-12-31 23:59:59+05', '1999-01-01T00:00:00Z', '1999-01-01', '-1 day +02:03:00', '{}')
INSERT INTO timed VALUES (3, NULL, NULL, NULL, NULL, NULL)
INSERT INTO timed VALUES (4, '2024-02-30')
INSERT INTO timed VALUES (4, 'yesterday-ish')
INSERT INTO timed (id, v) VALUES (4, 'long')
INSERT INTO timed (id, v) VALUES (5, '30 days'), (6, '1 mon'), (7, '720:00:00')
INSERT INTO timed (id, d, m, t) SELECT 8, t, t, m FROM timed WHERE id = 1
INSERT INTO timed (id, d) VALUES (9, 'Thu, 29 Feb 2024 12:00:00 +0100')
SELECT * FROM timed ORDER BY id
SELECT id, d::text, m::text, t::text, v::text, d::timestamp, d::timestamptz, m::date, t::date, m::timestamptz, t::timestamp FROM timed ORDER BY id
SELECT id FROM timed WHERE d = '2024-02-29' ORDER BY id
SELECT id FROM timed WHERE d < m ORDER BY id
SELECT id FROM timed WHERE d < t AND t > '2000-01-01' ORDER BY id
SELECT id FROM timed WHERE v = '30 days' ORDER BY id
SELECT id FROM timed WHERE v > '29 days' AND v < INTERVAL '2 years' ORDER BY id
SELECT id FROM timed WHERE v IS DISTINCT FROM '1 mon' ORDER BY id
SELECT max(d), min(m), max(t), max(v) FROM timed WHERE id < 5
SELECT d, count(*) FROM timed GROUP BY d ORDER BY d
SELECT d + 1, 1 + d, d - 1, d - '2024-01-01'::date, d + INTERVAL '1 month', d - INTERVAL '1 hour' FROM timed WHERE id < 3 ORDER BY id
SELECT m + v, m - v, t + v, t - v, v + m, d + v FROM timed WHERE id < 3 ORDER BY id
SELECT m - '2024-01-01', t - '2024-01-01'::timestamptz, m - d::timestamp, t - t FROM timed WHERE id < 3 ORDER BY id
SELECT v + v, v - v, -v, v * 2, 0.5 * v, v / 2, v + INTERVAL '1 day' FROM timed WHERE id < 3 ORDER BY id
SELECT INTERVAL '1 day', INTERVAL '1' DAY, '2 weeks'::interval, INTERVAL '1.5 months', INTERVAL '90 minutes', '1:02:03'::interval, 'P1Y2M3DT4H5M6S'::interval, '5'::interval, '1 day ago'::interval
SELECT INTERVAL '0', INTERVAL '-1 mons +2 days', INTERVAL '1 year -1 days', INTERVAL '-00:00:01', INTERVAL '100 hours 0.5 sec'
SELECT INTERVAL '1 day' / 0
SELECT INTERVAL '1 day' * INTERVAL '1 day'
SELECT d + d FROM timed
SELECT d * 2 FROM timed
SELECT extract(year FROM d), extract(epoch FROM m)::bigint, extract(dow FROM t)::bigint, extract(day FROM v), extract(hour FROM v), extract(month FROM v), extract(year FROM v) FROM timed WHERE id < 3 ORDER BY id
SELECT extract(fortnight FROM v) FROM timed
SELECT date_trunc('month', d), date_trunc('hour', m), date_trunc('day', t) FROM timed WHERE id < 3 ORDER BY id
SELECT to_char(d, 'YYYY/MM'), to_char(m, 'HH24:MI'), make_date(2024, 2, 29), to_date('2024-02-29', 'YYYY-MM-DD') FROM timed WHERE id = 1
SELECT age('2024-03-01'::timestamp, '2023-01-31'::timestamp), age('2020-01-01'::timestamptz, '2024-03-05 12:00'::timestamptz), age('2024-05-15'::timestamp, '2024-02-20 10:00'::timestamp)
SELECT t AT TIME ZONE 'UTC', m AT TIME ZONE 'UTC' FROM timed WHERE id = 1
SELECT date '2024-02-29', timestamp '2024-02-29 10:00', timestamptz '2024-02-29 10:00', timestamp with time zone '2024-02-29 10:00+02'
SELECT '2024-02-29 10:00:00.123456'::timestamp(3), '2024-02-29 10:00:00.5'::timestamptz(0)
SELECT pg_typeof(current_date)::text, pg_typeof(localtimestamp)::text, pg_typeof(now())::text, pg_typeof(now() - now())::text
SELECT ds[1], ds FROM timed WHERE id < 3 ORDER BY id
SELECT generate_series FROM generate_series('2024-01-01'::timestamp, '2024-01-02'::timestamp, INTERVAL '12 hours')
SELECT coalesce(d, '2000-01-01'), CASE WHEN id = 1 THEN d ELSE m END FROM timed ORDER BY id
SELECT d FROM timed WHERE id = 1 UNION SELECT m FROM timed WHERE id = 2 ORDER BY 1
SELECT id FROM timed WHERE d BETWEEN '2024-01-01' AND '2024-12-31' ORDER BY id
SELECT id FROM timed WHERE d IN ('2024-02-29', '2023-12-31') ORDER BY id
UPDATE timed SET d = d + 1, v = v * 2 WHERE id = 1 RETURNING d, v
SELECT id FROM timed ORDER BY v, id
DROP TABLE IF EXISTS by_day
CREATE TABLE by_day (d DATE, m TIMESTAMP, n BIGINT, PRIMARY KEY (d, m))
INSERT INTO by_day VALUES ('2024-02-29', '2024-02-29 10:00', 1), ('2024-03-01', '2024-02-29 10:00:00.5', 2)
INSERT INTO by_day VALUES ('2024-02-29', '2024-02-29 10:00', 3)
SELECT n FROM by_day WHERE d = '2024-03-01' AND m = '2024-02-29 10:00:00.5'
SELECT n FROM by_day WHERE d = '2024-03-01'::timestamp AND m = '2024-02-29 10:00:00.5'::timestamp
UPDATE by_day SET n = 9 WHERE d = '2024-02-29' AND m = '2024-02-29 10:00'
SELECT * FROM by_day ORDER BY d
"""

SIZES = r"""
DROP TABLE IF EXISTS sized
CREATE TABLE sized (id BIGINT PRIMARY KEY, n NUMERIC(6, 2), w NUMERIC(3), s VARCHAR(3), m TIMESTAMP(0), ns NUMERIC(4, 1)[], ss VARCHAR(2)[])
INSERT INTO sized VALUES (1, 1.5, 12.5, 'abc', '2024-02-29 10:00:00.5', '{1,2.25,NULL}', '{ab,c}')
INSERT INTO sized VALUES (2, 1.005, -0.5, 'abc   ', NULL, '{}', NULL)
INSERT INTO sized VALUES (3, '9999.994', 999, 'é€𝄞', NULL, NULL, NULL)
INSERT INTO sized (id, n) VALUES (4, 9999.995)
INSERT INTO sized (id, n) VALUES (4, -10000)
INSERT INTO sized (id, w) VALUES (4, 999.5)
INSERT INTO sized (id, s) VALUES (4, 'abcd')
INSERT INTO sized (id, s) VALUES (4, 12345)
INSERT INTO sized (id, ns) VALUES (4, '{12345}')
INSERT INTO sized (id, ss) VALUES (4, '{abc}')
INSERT INTO sized (id, n, s) SELECT id + 10, n * 2, upper(s) FROM sized WHERE id < 3
INSERT INTO sized (id, n) SELECT 20, 123456
UPDATE sized SET n = 0.015 WHERE id = 1
UPDATE sized SET s = 'abcd' WHERE id = 1
UPDATE sized SET n = 100000 WHERE id = 1
INSERT INTO sized (id, n) VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n + 0.333
SELECT * FROM sized ORDER BY id
SELECT id, n + 1, n - 0.5, n * 2, n * n, n * 1.50, -n, abs(n), n % 2, round(n), round(n, 1), round(n, 4), floor(n), trunc(n, 1) FROM sized ORDER BY id
SELECT id, n::text, n || '!', w::text, s || n, n::numeric(10, 3), n::bigint, CASE WHEN id = 1 THEN n ELSE n + 1 END FROM sized ORDER BY id
SELECT sum(n), min(n), max(n), count(n) FROM sized
SELECT w, sum(n) FROM sized GROUP BY w ORDER BY w
SELECT x.n, x.double FROM (SELECT n, n * 2 AS double FROM sized) x ORDER BY 1, 2
WITH c AS (SELECT n FROM sized) SELECT n + n FROM c ORDER BY 1
SELECT n FROM sized UNION ALL SELECT n FROM sized ORDER BY 1
SELECT id, sum(n) OVER (ORDER BY id), lag(n) OVER (ORDER BY id) FROM sized ORDER BY id
SELECT (SELECT max(n) FROM sized), coalesce(n, 0.00) FROM sized ORDER BY id
SELECT id FROM sized WHERE n = 3 OR n = 2.00 ORDER BY id
UPDATE sized SET n = n WHERE id = 2 RETURNING n, n + 1.000
SELECT 1.50, -1.50, 1.50 + 1, 2.0 * 3.00, 1.10::text, 0.00, 100.00, 5::numeric(5, 2), '1.5'::numeric(5, 2), 1.005::numeric(5, 2)
SELECT 123456::numeric(5, 2)
CREATE TABLE wrong (id BIGINT PRIMARY KEY, n NUMERIC(0))
CREATE TABLE wrong (id BIGINT PRIMARY KEY, s VARCHAR(0))
CREATE TABLE wrong (id BIGINT PRIMARY KEY, s TEXT(3))
DROP TABLE IF EXISTS sized_key
CREATE TABLE sized_key (n NUMERIC(5, 2), s VARCHAR(3), v BIGINT, PRIMARY KEY (n, s))
INSERT INTO sized_key VALUES (1.005, 'a', 1), (1.5, 'b', 2)
INSERT INTO sized_key VALUES (1.01, 'a', 3)
SELECT v FROM sized_key WHERE n = 1.01 AND s = 'a'
SELECT v FROM sized_key WHERE n = 1.50 AND s = 'b'
SELECT * FROM sized_key ORDER BY n
"""

DEFAULTS = r"""
DROP TABLE IF EXISTS filled
CREATE TABLE filled (id BIGINT PRIMARY KEY, n NUMERIC(6, 2) DEFAULT 1.5, s VARCHAR(5) NOT NULL DEFAULT 'a, b', b BOOLEAN DEFAULT true, d DATE DEFAULT '2024-02-29', i BIGINT DEFAULT (1 + 2) * 3, l BIGINT[] DEFAULT '{}', x TEXT DEFAULT NULL, y TEXT)
INSERT INTO filled (id) VALUES (1)
INSERT INTO filled VALUES (2, DEFAULT, 'x', NULL, DEFAULT)
INSERT INTO filled (id, s) VALUES (3, DEFAULT), (4, 'z')
INSERT INTO filled (id, i) SELECT 5, 7
INSERT INTO filled (id, s) VALUES (6, NULL)
UPDATE filled SET n = DEFAULT, y = 'there' WHERE id = 4
UPDATE filled SET n = 7, i = DEFAULT WHERE id = 5 RETURNING *
SELECT * FROM filled ORDER BY id
CREATE TABLE wrong (id BIGINT PRIMARY KEY, n BIGINT DEFAULT 'x')
CREATE TABLE wrong (id BIGINT PRIMARY KEY, n BIGINT DEFAULT (SELECT 1))
CREATE TABLE wrong (id BIGINT PRIMARY KEY, n BIGINT DEFAULT true)
"""


@pytest.fixture
def pair(postgres: Any) -> Pair:  # noqa: F811
    return Pair(postgres)


def test_arrays_of_every_type(pair: Pair) -> None:
    pair.both(ARRAYS)
    pair.check()


def test_dates_times_and_intervals(pair: Pair) -> None:
    pair.both(TIMES)
    pair.check()


def test_sizes_of_types_are_kept_and_shown(pair: Pair) -> None:
    pair.both(SIZES)
    pair.check()


def test_defaults_fill_what_is_not_given(pair: Pair) -> None:
    pair.both(DEFAULTS)
    pair.check()


def test_a_default_may_be_the_time_or_a_new_uuid() -> None:
    cluster = Cluster()
    cluster.run(
        "CREATE TABLE made (id INT PRIMARY KEY, at DATETIME DEFAULT now(), "
        "k UUID DEFAULT gen_random_uuid())"
    )
    cluster.run("INSERT INTO made (id) VALUES (1), ($1)", [2])
    assert cluster.run("SELECT * FROM made ORDER BY id") == [
        (key, NOW, UUID(bytes=bytes(range(16)))) for key in (1, 2)
    ]
    for text in ("n INT DEFAULT id", "n INT DEFAULT $1", "n INT DEFAULT", "n INT DEFAULT max(1)"):
        with pytest.raises(CairnError):
            cluster.run(f"CREATE TABLE wrong (id INT PRIMARY KEY, {text})")


SEED, QUERIES = 71, int(os.environ.get("CAIRN_TYPE_QUERIES", "150"))


def test_generated_types_give_the_same_answers(pair: Pair) -> None:
    """The seed of a failure is SEED; each statement stands in the message."""
    generator = TypeGenerator(random.Random(SEED))
    pair.both(f"DROP TABLE IF EXISTS typed\n{TABLE}")
    for key in range(1, 25):
        pair.one(generator.row(key))
    for _ in range(QUERIES):
        pair.one(generator.query(), ordered=False)
    pair.check()
