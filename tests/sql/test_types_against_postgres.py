"""Types as people declare them: stored, cast, compared and printed as PostgreSQL does."""

# ruff: noqa: E501 (a statement to a line)

from __future__ import annotations

from typing import Any

import pytest

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
SELECT array_to_string(i, '-'), coalesce(i, '{9}') FROM listed ORDER BY id
UPDATE listed SET i = i || 9::bigint, s = '{z}' WHERE id = 4
UPDATE listed SET i = '{}' WHERE id = 4 RETURNING i, s
SELECT count(*) FROM (SELECT i FROM listed UNION SELECT '{1,2}'::bigint[]) x
SELECT 'a' = ANY('{a,b}')
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1] = '{2}', ARRAY[1, NULL] = ARRAY[1, NULL]
SELECT ARRAY[1] || 'x'
SELECT 1 || 2
"""


@pytest.fixture
def pair(postgres: Any) -> Pair:  # noqa: F811
    return Pair(postgres)


def test_arrays_of_every_type(pair: Pair) -> None:
    pair.both(ARRAYS)
    pair.check()
