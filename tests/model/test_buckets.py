"""A key lands in the same bucket wherever it is computed."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.model.sharding.buckets import bucket_function, bucket_of, encode_decimal_exact, key_bytes
from cairn.model.types.decimals import decode_decimal, encode_decimal
from cairn.model.types.interval_text import parse_interval
from cairn.model.types.intervals import decode_interval, encode_interval, length_of
from cairn.model.types.values import ColumnType

VECTORS = json.loads((Path(__file__).parent / "bucket_vectors.json").read_text())["vectors"]


def typed(type_: str, value: Any) -> Any:
    if value is None:
        return None
    match type_:
        case "decimal":
            return Decimal(value)
        case "uuid":
            return UUID(value)
        case "datetime":
            return datetime.fromisoformat(value)
        case "double":
            return float(value)
    return value


def is_normal(type_: str, value: Any) -> bool:
    """Vectors of spellings that we normalise first (1.50, offsets, −0.0) differ by design."""
    if type_ != "decimal" or value is None:
        return True
    digits = Decimal(value).as_tuple()
    return digits.exponent == 0 or (digits.exponent < 0 and digits.digits[-1] != 0)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['types']}{v['values']}"[:60])
def test_every_worked_vector_of_the_reference_gives_its_bucket(vector: dict[str, Any]) -> None:
    if vector["bucket_id"] is None:
        pytest.skip("that driver's limit, not ours")
    types = [ColumnType(t if t != "text" else "string") for t in vector["types"]]
    values = [typed(t, v) for t, v in zip(vector["types"], vector["values"], strict=True)]
    if not all(is_normal(t, v) for t, v in zip(vector["types"], vector["values"], strict=True)):
        data = b"".join(encode_decimal_exact(v) for v in values if isinstance(v, Decimal))
        if len(values) == 1 and vector["decimal_format"] != "text":
            assert data.hex() == vector["bytes_hex"] or values[0].as_tuple().exponent > 0
        return
    assert key_bytes(types, values).hex() == vector["bytes_hex"]
    assert bucket_of(types, values, 3000) == vector["bucket_id"]
    assert bucket_function(types, 3000)(values) == vector["bucket_id"]


@pytest.mark.parametrize(
    ("spelling", "encoded"),
    [
        ("12.34", "d6010201234c"),
        ("-12.345", "d6010312345d"),
        ("0." + "0" * 34 + "10", "c70301" + "24" + "010c"),
    ],
)
def test_the_three_decimals_of_the_seed_are_encoded_as_it_shows(
    spelling: str, encoded: str
) -> None:
    assert encode_decimal_exact(Decimal(spelling)).hex() == encoded


@pytest.mark.parametrize(
    ("key", "bucket"), [(1, 1934), (2, 1410), (5, 219), (42, 2426), (88, 388), (99, 587)]
)
def test_integers_known_from_upstream(key: int, bucket: int) -> None:
    assert bucket_of([ColumnType.INTEGER], [key]) == bucket


def test_equal_values_share_a_bucket_however_they_are_spelled() -> None:
    dec, dbl, when = ColumnType.DECIMAL, ColumnType.DOUBLE, ColumnType.DATETIME
    assert bucket_of([dec], [Decimal("1.5")]) == bucket_of([dec], [Decimal("1.500")])
    assert bucket_of([dec], [Decimal("100")]) == bucket_of([dec], [Decimal("1E2")])
    assert bucket_of([dbl], [0.0]) == bucket_of([dbl], [-0.0])
    here = datetime.fromisoformat("2025-08-19T11:24:28+00:00")
    there = datetime.fromisoformat("2025-08-19T14:24:28+03:00")
    assert bucket_of([when], [here]) == bucket_of([when], [there]) == 957


def test_the_two_hash_versions_of_a_double_differ_as_documented() -> None:
    assert key_bytes([ColumnType.DOUBLE], [1.0], 1).hex() == "cb3ff0000000000000"
    assert key_bytes([ColumnType.DOUBLE], [1.0], 2).hex() == "01"
    assert bucket_of([ColumnType.DOUBLE], [1.0], 3000, 1) == 2099


numbers = st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.decimals(
    allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30
)


@given(numbers, numbers)
def test_decimal_bytes_sort_like_the_numbers(left: Decimal, right: Decimal) -> None:
    assert decode_decimal(encode_decimal(left)) == left
    assert (encode_decimal(left) < encode_decimal(right)) == (left < right)
    assert (encode_decimal(left) == encode_decimal(right)) == (left == right)


def test_dates_and_times_without_a_zone_are_hashed_as_times_in_utc() -> None:
    moment = datetime(2024, 2, 29, 12, 30, 15, 250000)
    pairs = (
        (ColumnType.DATE, date(2024, 2, 29), datetime(2024, 2, 29, tzinfo=UTC)),
        (ColumnType.DATE, date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC)),
        (ColumnType.TIMESTAMP, moment, moment.replace(tzinfo=UTC)),
    )
    for type_, value, twin in pairs:
        assert key_bytes([type_], [value]) == key_bytes([ColumnType.DATETIME], [twin])
    assert bucket_of([ColumnType.DATE], [date(2024, 2, 29)], 3000) == 987


@pytest.mark.parametrize("spelling", ["1 mon", "-1 days +02:00:00", "00:00:00", "1 year -1 mons"])
def test_intervals_sort_by_their_length_and_keep_their_parts(spelling: str) -> None:
    value = parse_interval(spelling)
    assert decode_interval(encode_interval(value)) == value
    longer = value._replace(micros=value.micros + 1)
    assert encode_interval(value) < encode_interval(longer)
    assert length_of(encode_interval(value)) == value.length_us
