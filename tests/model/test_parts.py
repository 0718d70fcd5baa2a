"""Rows that are dealt out: what is equal meets, wherever it was dealt out and in whatever form."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from decimal import Decimal

import pytest

from cairn.model.sharding.buckets import bucket_of
from cairn.model.sharding.parts import ByBuckets, bucket_dealer, dealer
from cairn.model.types.values import ColumnType, to_physical

SOME = [0, 1, -1, 7, 2**62, -(2**63), 0.5, 1e300, "", "a", "ä", b"", b"\x03\x80", None]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0.0, -0.0), (2**53, float(2**53))])
def test_numbers_that_are_equal_are_in_one_part(one: float, other: float) -> None:
    deal = dealer(97, (0,), keeps_null=False)
    assert deal((one,)) == deal((other,))


def test_another_process_deals_out_alike() -> None:
    text = (
        "from cairn.model.sharding.parts import dealer; "
        f"print([dealer(97, (0, 0), keeps_null=True)((v,)) for v in {SOME!r}])"
    )
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    assert told.stdout.decode().strip() == str(
        [dealer(97, (0, 0), keeps_null=True)((value,)) for value in SOME]
    )


@pytest.mark.parametrize("step", [1, 2, 8, 1024, 10**9])
def test_keys_in_a_row_are_spread_over_all_parts(step: int) -> None:
    deal = dealer(8, (0,), keeps_null=False)
    found = Counter(deal((at * step,)) for at in range(8_000))
    assert set(found) == set(range(8)) and max(found.values()) < 2_000


def test_rows_without_a_key_meet_nothing_or_are_kept_together() -> None:
    assert dealer(5, (0, 1), keeps_null=False)((1, None)) is None
    kept = dealer(5, (1,), keeps_null=True)
    assert len({kept((at, None)) for at in range(20)}) == 1


def test_a_part_may_be_whoever_owns_the_bucket() -> None:
    types = (ColumnType.INTEGER, ColumnType.DECIMAL)
    by = ByBuckets(types, 30, 2, (1, 11, 21), (2, 0, 1))
    deal = bucket_dealer(by, (2, 0), keeps_null=False)
    for at in range(50):
        bucket = bucket_of(types, (at, Decimal(at)), 30)
        row = (to_physical(ColumnType.DECIMAL, Decimal(at)), "x", at)
        assert deal(row) == (2, 0, 1)[(bucket - 1) // 10]
    assert deal((None, "x", 1)) is None
    kept = bucket_dealer(by, (2, 0), keeps_null=True)
    assert kept((None, "x", 1)) == (2, 0, 1)[(bucket_of(types, (1, None), 30) - 1) // 10]


def test_a_time_beyond_all_calendars_has_a_part_too() -> None:
    by = ByBuckets((ColumnType.DATETIME,), 30, 2, (1, 11), (0, 1))
    assert bucket_dealer(by, (0,), keeps_null=False)((2**62,)) == 0
