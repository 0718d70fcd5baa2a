"""Columns of numbers are read at one go, and exactly as they are read one by one."""

from __future__ import annotations

import random
import struct

import pytest

from cairn.model.errors import CairnError
from cairn.model.types.values import INT64_MAX, INT64_MIN, ColumnType, parse_text, to_physical
from cairn.server.scan.copy_rows import _type_reader


@pytest.mark.parametrize("seed", range(5))
def test_doubles_keep_every_bit(seed: int) -> None:
    chance = random.Random(seed)
    shortest = [repr(struct.unpack("d", chance.randbytes(8))[0]) for _ in range(500)]
    fields = [text for text in shortest if text not in ("nan", "inf", "-inf")]
    fields += [f"{chance.uniform(-1e6, 1e6):.{chance.randrange(1, 25)}f}" for _ in range(500)]
    read = _type_reader(ColumnType.DOUBLE)
    assert read(fields) == [float(text) for text in fields]


def test_whole_numbers_at_the_ends_of_their_range() -> None:
    read = _type_reader(ColumnType.INTEGER)
    assert read([str(INT64_MIN), "0", str(INT64_MAX)]) == [INT64_MIN, 0, INT64_MAX]
    assert read(["007", "+5", " 5 ", "-0"]) == [7, 5, 5, 0]


def test_minus_zero_is_zero() -> None:
    [value] = _type_reader(ColumnType.DOUBLE)(["-0.0"])
    assert str(value) == "0.0"


@pytest.mark.parametrize("type_", [ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.DOUBLE])
@pytest.mark.parametrize(
    "field",
    ["1,2", "1]", "[1", "", "true", "null", "1_0", "٣", "0x1", "1e309", "-1", "1e3", ".5", "5."],
)
def test_whatever_is_odd_is_taken_or_refused_as_alone(type_: ColumnType, field: str) -> None:
    def told(read: object) -> object:
        try:
            return list(read())  # type: ignore[operator]
        except CairnError as problem:
            return problem.sqlstate, problem.message

    alone = told(lambda: [to_physical(type_, parse_text(type_, each)) for each in ("1", field)])
    assert told(lambda: _type_reader(type_)(["1", field])) == alone


def test_a_double_that_is_too_big_is_out_of_range_and_infinity_is_not() -> None:
    with pytest.raises(CairnError) as told:
        parse_text(ColumnType.DOUBLE, "1e309")
    assert told.value.sqlstate == "22003"
    assert parse_text(ColumnType.DOUBLE, "-Infinity") == float("-inf")
