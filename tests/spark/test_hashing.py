"""The numpy kernel gives every key the bucket that the server gives it."""

from __future__ import annotations

import json
import random
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cairn.model.sharding.bucket_columns import bucket_ids
from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import ColumnType

VECTORS = json.loads(
    (Path(__file__).parents[1] / "model" / "bucket_vectors.json").read_text(encoding="utf-8")
)
EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, -1, -32, -33]
EDGES += [-128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]
PLAIN = {
    "integer": pa.int64(),
    "unsigned": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


def _fits(vector: dict[str, Any]) -> bool:
    return all(
        name in PLAIN and (value is None or not isinstance(value, int) or abs(value) < 2**63)
        for name, value in zip(vector["types"], vector["values"], strict=True)
    )


@pytest.mark.parametrize("at", range(len(VECTORS["vectors"])))
def test_the_shared_vectors_hold(at: int) -> None:
    vector = VECTORS["vectors"][at]
    if not _fits(vector) or vector["bucket_id"] is None:
        pytest.skip("a type that is hashed by the server's own function")
    columns = [
        pa.array([value], type=PLAIN[name])
        for name, value in zip(vector["types"], vector["values"], strict=True)
    ]
    types = [ColumnType(name) for name in vector["types"]]
    assert bucket_ids(columns, types, VECTORS["bucket_count"]).tolist() == [vector["bucket_id"]]


def _keys(chance: random.Random) -> tuple[list[int | None], list[str | None]]:
    ints: list[int | None] = [*EDGES, None]
    ints += [chance.randrange(-(2**63), 2**63) >> chance.randrange(64) for _ in range(2000)]
    letters = string.printable + "äöüж漢"
    texts: list[str | None] = ["", "a", "ab", "abc", "abcd", None]
    texts += ["".join(chance.choices(letters, k=chance.randrange(40))) for _ in ints[6:]]
    return ints, texts


@pytest.mark.parametrize("order", ["i", "s", "is", "si", "sis"])
def test_any_key_of_integers_and_texts_is_hashed_as_the_server_does(order: str) -> None:
    ints, texts = _keys(random.Random(7))
    values = [ints if letter == "i" else texts for letter in order]
    types = [ColumnType.INTEGER if letter == "i" else ColumnType.STRING for letter in order]
    arrays = [
        pa.array(each, type=pa.int64() if type_ is ColumnType.INTEGER else pa.string())
        for each, type_ in zip(values, types, strict=True)
    ]
    wanted = [bucket_of(types, key) for key in zip(*values, strict=True)]
    assert bucket_ids(arrays, types, 3000).tolist() == wanted
    sliced = [array.slice(5, 50) for array in arrays]
    assert bucket_ids(sliced, types, 3000).tolist() == wanted[5:55]


@pytest.mark.parametrize(
    ("type_", "array", "values"),
    [
        (ColumnType.UUID, pa.array([str(UUID(int=5))]), [UUID(int=5)]),
        (ColumnType.DECIMAL, pa.array([Decimal("1.50")]), [Decimal("1.5")]),
        (ColumnType.DOUBLE, pa.array([0.5, 3.0, -0.0]), [0.5, 3.0, 0.0]),
        (
            ColumnType.DATETIME,
            pa.array([datetime(2024, 1, 2, tzinfo=UTC)], type=pa.timestamp("us", tz="UTC")),
            [datetime(2024, 1, 2, tzinfo=UTC)],
        ),
        (ColumnType.DATE, pa.array([date(2024, 1, 2)]), [date(2024, 1, 2)]),
        (
            ColumnType.TIMESTAMP,
            pa.array([datetime(2024, 1, 2, 3)], type=pa.timestamp("us")),
            [datetime(2024, 1, 2, 3)],
        ),
    ],
)
def test_rare_key_types_agree_too(type_: ColumnType, array: Any, values: list[Any]) -> None:
    assert bucket_ids([array], [type_], 3000).tolist() == [bucket_of([type_], [v]) for v in values]


def test_no_rows_have_no_buckets() -> None:
    empty = pa.array([], type=pa.int64())
    assert bucket_ids([empty], [ColumnType.INTEGER], 3000).tolist() == []
