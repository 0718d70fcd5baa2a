"""Times and LIKE in C give the values and the errors that Python gives."""

from __future__ import annotations

import itertools
import random
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from cairn.model.types.values import datetime_to_micros
from cairn.native.library import library
from cairn.sql.functions.functions import ALSO_IN_C
from tests.native import test_decimals
from tests.native.test_decimals import SOURCE, connection, told_by_c, told_by_python

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")
__all__ = ["connection"]

UNITS = [
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "milliseconds"),
    *("microseconds", "epoch", "dow", "isodow", "doy", "decade", "century", "isoyear", "YEAR"),
    *("years", "timezone", "", "nothing", "mon"),
]
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
EDGES = [
    *(FIRST, LAST, datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    *(datetime(2000, 2, 29, 12), datetime(1900, 2, 28, 23), datetime(2024, 2, 29)),
    *(datetime(2020, 12, 31), datetime(2021, 1, 3), datetime(2026, 1, 1), datetime(4, 2, 29)),
    *(datetime(1, 1, 6), datetime(2015, 12, 28), datetime(9999, 1, 31)),
]
OUTSIDE = [-(2**63), 2**63 - 1, datetime_to_micros(LAST) + 1, datetime_to_micros(FIRST) - 1]


def moments(chance: random.Random, count: int) -> list[Any]:
    span = LAST - FIRST
    found = [datetime_to_micros(FIRST + chance.random() * span) for _ in range(count)]
    near = [datetime_to_micros(each) for each in EDGES]
    recent = datetime(2024, 1, 1)
    close = [
        datetime_to_micros(recent + timedelta(hours=chance.randint(-(10**5), 10**5)))
        for _ in range(count)
    ]
    return [*found, *near, *close, *OUTSIDE, None]


def same(connection: Any, name: str, args: tuple[Any, ...]) -> None:
    assert told_by_c(connection, name, args) == told_by_python(name, args), (name, args)


def test_python_has_each_of_them_by_another_name() -> None:
    found = set()
    for path in SOURCE.parent.glob("*.c"):
        if '"twins.h"' in path.read_text() and path.name != "functions.c":
            found |= set(re.findall(r'\{"(\w+)", \d, \w+\}', path.read_text()))
    assert found == ALSO_IN_C


@pytest.mark.parametrize("unit", UNITS)
def test_fields_and_beginnings_are_equal(connection: Any, unit: str) -> None:
    for micros in moments(random.Random(unit), 300):
        same(connection, "n_extract", (micros, unit))
        same(connection, "d_part", (unit, micros))
        same(connection, "t_trunc", (unit, micros))


def test_each_day_of_a_few_centuries_has_its_fields(connection: Any) -> None:
    first = datetime(1895, 1, 1)
    for day in range(0, 80_000, 7):
        micros = datetime_to_micros(first + timedelta(days=day))
        for unit in ("week", "doy", "month", "day"):
            same(connection, "n_extract", (micros, unit))


def test_shifts_are_equal(connection: Any) -> None:
    chance = random.Random(3)
    months = (0, 0, 1, -1, 12, 11, -25, 120_000, 120_001, -(10**9), 2**40)
    days = (0, 0, 1, -1, 31, -400, 4_000_000, 10**7, 2**50)
    rests = (0, 1, -1, 86_400_000_000, -(10**12), 2**62, 3_600_000_000)
    for micros in moments(chance, 60):
        for _ in range(12):
            args = (micros, chance.choice(months), chance.choice(days), chance.choice(rests))
            same(connection, "t_shift", args)
    for args in itertools.product(
        [datetime_to_micros(each) for each in EDGES], (1, -1, 13), (0,), (0,)
    ):
        same(connection, "t_shift", args)


def test_likes_are_equal(connection: Any) -> None:
    chance = random.Random(11)
    letters = ("a", "b", "a", "%", "_", "\\", "A", "é", "İ", "\u212a", "😀", "!", "")

    def text(most: int) -> str:
        return "".join(chance.choice(letters) for _ in range(chance.randint(0, most)))

    for _ in range(20_000):
        escape = chance.choice(("\\", "\\", "\\", "!", "", "%", "_", "é", "ab"))
        args = (text(9), text(6), escape)
        same(connection, chance.choice(("c_like", "c_ilike")), args)


@pytest.mark.parametrize(
    "args",
    [
        ("a" * 60_000, "%" + "a" * 9_999 + "b", "\\"),
        ("a" * 5_000 + "b", "%a%a%b", "\\"),
        ("x", "%" * 10_000, "\\"),
        ("", "", ""),
        ("", "%", "%"),
        (None, "%", "\\"),
        ("x", 5, "\\"),
        (b"x", "x", "\\"),
        ("a\x00b", "a_b", "\\"),
    ],
)
def test_odd_likes_are_equal(connection: Any, args: tuple[Any, ...]) -> None:
    ours, theirs = (
        told_by_c(connection, "c_like", args),
        told_by_python("c_like", args),
    )
    assert isinstance(ours, tuple) == isinstance(theirs, tuple)
    assert isinstance(ours, tuple) or ours == theirs


def test_the_names_of_decimals_are_among_them() -> None:
    assert {name for name, _ in test_decimals.NAMES} < ALSO_IN_C
