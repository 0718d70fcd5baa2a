"""Which literals of a text become parameters."""

from __future__ import annotations

import pytest

from cairn.sql.parse.literals import Lifted, lifted

INT, OPEN = 20, 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            b"SELECT a FROM t WHERE id = 5;",
            Lifted(b"SELECT a FROM t WHERE id = $1;", (INT,), (b"5",)),
        ),
        (
            b"UPDATE t SET a = a + -12, b=-3 WHERE c <> 'it''s'",
            Lifted(
                b"UPDATE t SET a = a + $1, b=$2 WHERE c <> $3",
                (INT, INT, OPEN),
                (b"-12", b"-3", b"it's"),
            ),
        ),
        (
            b"INSERT INTO t VALUES (1, - 2, 'x', 2.50), (f(3), 4 + 5, NULL)",
            Lifted(
                b"INSERT INTO t VALUES ($1, $2, $3, 2.50), (f(3), 4 + 5, NULL)",
                (INT, INT, OPEN),
                (b"1", b"-2", b"x"),
            ),
        ),
        (
            b'SELECT 1, "a = 5" FROM t WHERE a - 5 > b LIMIT 21',
            Lifted(b'SELECT 1, "a = 5" FROM t WHERE a - $1 > b LIMIT 21', (INT,), (b"5",)),
        ),
    ],
)
def test_values_that_are_compared_calculated_with_or_put_into_rows(
    text: bytes, found: Lifted
) -> None:
    assert lifted(text) == found


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT 1",
        b"SELECT a FROM t WHERE b IN (1, 2) AND c LIKE 'x' ORDER BY 1 LIMIT 5",
        b"SELECT a FROM t WHERE b = E'x' AND c = 1e5 AND d = 0x1F AND e = DATE '2020-01-01'",
        b"SELECT a FROM t WHERE b ->> 'k' = c AND b @> '{}' AND d ~ 'x'",
        b"SELECT a FROM t WHERE b = $1 AND c = 5",
        b"SELECT a FROM t WHERE b = 5 -- c = 6",
        b"SELECT a FROM t /* WHERE b = 5 */ WHERE c = 6",
        b"SELECT a FROM t WHERE b = 'back\\slash'",
        b"SELECT a FROM t WHERE b = 1234567890123456789",
        b"SELECT a FROM t WHERE b = 1.50 AND c = .5 AND d < 'NaN' AND e = '1e300'",
        b"SET statement_timeout = 5",
        b"EXPLAIN SELECT a FROM t WHERE b = 5",
        b"SELECT a FROM t OPTION (sql_motion_row_max = 5)",
        b"WITH x AS (SELECT 1) SELECT * FROM x WHERE a = 5",
    ],
)
def test_all_others_stay_where_they_are(text: bytes) -> None:
    assert lifted(text) is None
