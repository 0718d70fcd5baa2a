"""Statements that differ in their values only are shown as one."""

from __future__ import annotations

import pytest

from cairn.sql.statements.normalized import MOST, normalized


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT 1", "SELECT $1"),
        (
            "SELECT * FROM t WHERE a = 'it''s' AND b=-1.5e3;",
            "SELECT * FROM t WHERE a = $1 AND b=-$2",
        ),
        ("SELECT a\n  FROM t -- all\n/* of it */ WHERE id = $1", "SELECT a FROM t WHERE id = $1"),
        ("SELECT a FROM t WHERE id = $2 AND b = 7", "SELECT a FROM t WHERE id = $2 AND b = $3"),
        ('SELECT "1" FROM t2 WHERE c3 = 4', 'SELECT "1" FROM t2 WHERE c3 = $1'),
        ("SELECT a FROM t WHERE id IN (1, 2, 3)", "SELECT a FROM t WHERE id IN ($1 /*, … */)"),
        ("INSERT INTO t VALUES (1, 'a'), (2, now())", "INSERT INTO t VALUES ($1, $2) /*, … */"),
        (r"SELECT E'a\'b', $$it's$$, $x$ $$ $x$", "SELECT $1, $2, $3"),
        ("ALTER USER ann PASSWORD 'Secret1'", "ALTER USER ann PASSWORD $1"),
        ("ALTER USER ann PASSWORD 'half of it", "ALTER USER ann PASSWORD $1"),
        ("SELECT round(1.5, 2), 'a'", "SELECT round($1, $2), $3"),
        ("", ""),
    ],
)
def test_literals_are_left_out(text: str, shown: str) -> None:
    assert normalized(text) == shown


def test_inserts_of_any_length_are_one_statement() -> None:
    texts = {
        normalized("INSERT INTO t (a, b) VALUES " + ", ".join(["(1, 'x')"] * count))
        for count in (2, 3, 100, 1_000, 5_000)
    }
    assert texts == {"INSERT INTO t (a, b) VALUES ($1, $2) /*, … */"}


def test_no_part_of_a_literal_is_shown_wherever_the_text_is_cut() -> None:
    for length in range(MOST - 20, MOST + 20):
        start = "SELECT " + "a" * (length - 20) + " = "
        assert "secret" not in normalized(f"{start}'secret secret secret secret'")
        assert "secret" not in normalized(f"{start}$q$secret secret secret secret$q$")
        assert "secret" not in normalized(f"{start}E'\\'secret secret secret secret'")
