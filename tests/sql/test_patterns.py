"""LIKE, SIMILAR TO and regular expressions: PostgreSQL's answers, and in linear time."""

from __future__ import annotations

import random

import pytest

from cairn.model.errors import CairnError
from cairn.sql.functions import patterns
from cairn.sql.functions.functions import SCALARS

SEED = 7
LONG = "a" * 200_000


def like_by_table(text: str, pattern: str) -> bool:
    """The definition of LIKE, without escapes: a table of which prefixes match."""
    row = [True] + [False] * len(text)
    for char in pattern:
        if char == "%":
            at = row.index(True) if True in row else len(row)
            row = [False] * at + [True] * (len(row) - at)
        else:
            row = [False] + [
                row[at] and (char == "_" or char == text[at]) for at in range(len(text))
            ]
    return row[-1]


def test_like_says_what_its_definition_says() -> None:
    chance = random.Random(SEED)
    for _ in range(20_000):
        text = "".join(chance.choices("ab", k=chance.randrange(9)))
        pattern = "".join(chance.choices("ab%_", k=chance.randrange(8)))
        assert SCALARS["c_like"](text, pattern) == like_by_table(text, pattern), (text, pattern)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("function", "pattern"),
    [
        ("c_like", "%a" * 500 + "%b"),
        ("c_like", "%a_a" * 200 + "%b"),
        ("c_ilike", "%A" * 500 + "%B"),
        ("c_similar", "(%a%)*b"),
        ("c_similar", "((a|aa)*)*b"),
        ("c_regexp", "^((a*)*)*b$"),
        ("c_regexp", "(a|a?)+b"),
        ("c_iregexp", "(A+)+B"),
    ],
)
def test_no_pattern_makes_a_long_text_take_long(function: str, pattern: str) -> None:
    assert SCALARS[function](LONG, pattern) == 0


@pytest.mark.parametrize(
    ("function", "text", "pattern", "expected"),
    [
        ("c_like", "a%c", "a\\%c", 1),
        ("c_like", "abc", "a\\%c", 0),
        ("c_like", "a\nb", "a_b", 1),
        ("c_ilike", "ÄRGER", "ä%r", 1),
        ("c_regexp", "déjà", r"^\w+$", 1),
        ("c_regexp", "a b", r"^\W$", 0),
        ("c_regexp", "٣", r"^\d$", 1),
        ("c_regexp", "x]y", "[]x]+y", 1),
        ("c_regexp", "É", "[[:upper:]]", 1),
        ("c_regexp", "a\nb", "a.b", 1),
        ("c_regexp", "a\n", "a$", 0),
        ("c_iregexp", "STRASSE", "strasse", 1),
        ("c_similar", "abc", "%(b|d)%", 1),
        ("c_similar", "x1", "[[:alpha:]][[:digit:]]", 1),
    ],
)
def test_patterns_mean_what_they_mean_to_postgresql(
    function: str, text: str, pattern: str, expected: int
) -> None:
    assert SCALARS[function](text, pattern) == expected


def test_flags_of_regexp_replace() -> None:
    replace = SCALARS["c_regexp_replace"]
    assert replace("a.b\na.b", "^ a . b $ # all", "x", "xgn") == "x\nx"
    assert replace("aAa", "a", "b", "gi") == "bbb"
    assert replace("abc", "(b)(c)?", "[\\2\\1\\&\\\\]") == "a[cbbc\\]"


@pytest.mark.parametrize(
    ("pattern", "sqlstate"),
    [
        ("(a)\\1", "2201B"),
        ("(?=a)", "2201B"),
        ("a{1001}", "2201B"),
        ("((a{100}){100}){100}", "2201B"),
        ("a" * (patterns.MAX_PATTERN + 1), "2201B"),
    ],
)
def test_what_cannot_run_in_linear_time_is_refused(pattern: str, sqlstate: str) -> None:
    with pytest.raises(CairnError) as refused:
        SCALARS["c_regexp"]("a", pattern)
    assert refused.value.sqlstate == sqlstate
    assert refused.value.hint
