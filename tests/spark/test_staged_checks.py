"""Keys of a staged write are compared in passes: together they see every row once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cairn.model.errors import UniqueViolation
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.server.calls.staged_checks import Keys, Unique, _keys, _refuse_twins

TABLE = Table(
    1024,
    "t",
    (Column("id", ColumnType.INTEGER, False), Column("s", ColumnType.STRING)),
    ("id",),
    Sharded(("id",), "default"),
)
KEY, WORDS = Unique("t_pkey", ("id",)), Unique("t_s", ("id", "s"))


def keys(ids: list[int], words: list[str | None], unique: Unique, at: int, passes: int) -> Keys:
    buckets = [number % 7 + 1 for number in ids]
    stored: list[Any] = [pa.chunked_array([ids]), words]  # a list: what Arrow did not make
    return _keys(["id", "s"], unique, buckets, stored, at, passes)


def test_every_row_is_looked_at_in_one_pass() -> None:
    ids = list(range(20))
    seen = [list(keys(ids, ["w"] * 20, KEY, at, 3).rows()) for at in range(3)]
    assert sorted(row for rows in seen for row in rows) == sorted((i % 7 + 1, i) for i in ids)
    assert all(seen)


@pytest.mark.parametrize("passes", [1, 3])
def test_equal_keys_of_two_chunks_meet(passes: int) -> None:
    refusals = []
    for at in range(passes):
        parts = [keys(ids, ["w"] * 3, KEY, at, passes) for ids in ([1, 2, 3], [4, 5, 2])]
        try:
            _refuse_twins(TABLE, KEY, parts)
        except UniqueViolation as problem:
            refusals.append(problem.detail)
    said = "Key (id)=(2) is in the rows to be written more than once; nothing was written."
    assert refusals == [said]


def test_null_equals_nothing() -> None:
    found = keys([1, 1, 2], [None, None, "x"], WORDS, 0, 1)
    _refuse_twins(TABLE, WORDS, [found])
    assert list(found.rows()) == [(3, 2, "x")]
