"""Packed rows go into a table as they are; bytes that are no rows change nothing, end nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from cairn.model.log.packed_rows import HEAD, as_list, only_of, unpacked
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.native.batches import RowBatch
from cairn.native.library import library
from cairn.native.loading import PACKED_ROWS, load
from cairn.storage.data_db.packed_insert import PackedInsert

COLUMNS = tuple(Column(f"c{at}", ColumnType.ANY) for at in range(3))
TABLE = Table(600, "t", COLUMNS, ("c0",), Sharded(("c0",), "default"))
ROWS = [
    (1, 0, None, 1.5),
    (1, 1, "", b""),
    (1, 2, "é" * 100, bytes(range(256))),
    *((2, 2**power, -(2**power), "x" * power) for power in range(2, 63)),
    (3, -(2**63), 2**63 - 1, "y" * 70_000),
    (70_000, "text", True, False),
]
encode = msgspec.msgpack.Encoder().encode


@pytest.fixture(params=["C", "Python"])
def insert(request: pytest.FixtureRequest) -> Iterator[Any]:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t600(b, c1, c2, c3, PRIMARY KEY (b, c1)) WITHOUT ROWID")
    made = PackedInsert(connection)
    if request.param == "Python":
        made.is_there = False
    elif not made.is_there:
        pytest.skip("there was no compiler")
    yield made
    connection.close()


def stored(insert: PackedInsert) -> set[tuple[Any, ...]]:
    rows: list[Any] = insert._connection.execute("SELECT * FROM t600").fetchall()
    return set(rows)


@pytest.mark.parametrize("count", [0, 1, 15, 16, len(ROWS)])
def test_values_of_every_kind_and_size_are_stored_as_they_were(
    insert: PackedInsert, count: int
) -> None:
    assert insert.insert(TABLE, encode(ROWS[:count])) == count
    assert stored(insert) == set(ROWS[:count])


def test_a_row_that_is_there_already_is_told_by_sqlite_itself(insert: PackedInsert) -> None:
    insert.insert(TABLE, encode(ROWS[:1]))
    with pytest.raises(apsw.ConstraintError, match=r"t600\.b, t600\.c1"):
        insert.insert(TABLE, encode(ROWS[:3]))
    assert stored(insert) == {ROWS[0]}


@pytest.mark.parametrize(
    "packed",
    [
        as_list([encode(ROWS[0])], 2),
        as_list([encode(ROWS[0]), encode(ROWS[1])], 1),
        as_list([encode(ROWS[0][:3])], 1),
        as_list([encode((*ROWS[0], 1))], 1),
        as_list([b"\x94\x01\x02\x03"], 1),
        as_list([b"\x94\x01\x02\x03\xa5text"], 1),
        as_list([b"\x94\x01\x02\x03\xa1\xff"], 1),  # no UTF-8
        as_list([b"\x94\x01\x02\x03\xa3\xed\xa0\x80"], 1),  # half of a pair
        as_list([b"\x94\x01\x02\x03\xc6\xff\xff\xff\xffx"], 1),
        as_list([b"\x94\x01\x02\x03\xcf" + b"\xff" * 8], 1),  # more than SQLite can hold
        as_list([b"\xdc\xff\xff"], 1),
        as_list([b"\x01"], 1),
    ],
)
def test_bytes_that_are_no_rows_of_the_table_are_refused_whole(
    insert: PackedInsert, packed: bytes
) -> None:
    with pytest.raises((msgspec.DecodeError, OverflowError, UnicodeDecodeError)):
        insert.insert(TABLE, packed)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_are_refused_or_are_other_rows(insert: PackedInsert, seed: int) -> None:
    chance = random.Random(seed)
    whole = encode(ROWS)
    for _ in range(100):
        damaged = bytearray(whole[: chance.randint(1, len(whole))])
        for _ in range(chance.randint(0, 3)):
            damaged[chance.randrange(min(len(damaged), 300))] = chance.randrange(256)
        insert._connection.execute("SAVEPOINT s")
        with suppress(msgspec.DecodeError, apsw.Error, OverflowError, TypeError, ValueError):
            insert.insert(TABLE, bytes(damaged))
        insert._connection.execute("ROLLBACK TO s")
    assert stored(insert) == set()


@pytest.mark.skipif(library() is None, reason="there was no compiler")
@pytest.mark.parametrize("width", [0, -1, 257, 300, 2**40])
def test_a_width_that_no_table_has_is_refused(width: int) -> None:
    connection = apsw.Connection(":memory:")
    assert load(connection, PACKED_ROWS)
    wide = encode(tuple(range(300)))
    with pytest.raises(apsw.SQLError, match="two arguments"):
        connection.execute("SELECT c0 FROM packed_rows(?, ?)", (wide, width)).fetchall()
    connection.close()


def test_no_text_can_load_another_library(insert: PackedInsert) -> None:
    with pytest.raises(apsw.SQLError, match=r"not authorized|no such function"):
        insert._connection.execute("SELECT load_extension('x')").fetchall()


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_rows_of_a_batch_come_in_the_order_of_their_buckets_and_of_arrival() -> None:
    chance = random.Random(1)
    batch = RowBatch()
    rows = [(chance.randint(1, 50), at, "x" * (at % 300)) for at in range(5_000)]
    for at in range(0, len(rows), 777):
        batch.add(rows[at : at + 777])
    found = batch.sorted(50)
    by_bucket = sorted(rows, key=lambda row: row[0])
    assert unpacked(found.of(found.buckets)) == by_bucket
    some = [bucket for bucket in found.buckets if bucket % 3 == 0]
    assert unpacked(found.of(some)) == [row for row in by_bucket if row[0] % 3 == 0]
    assert (found.total, len(batch)) == (5_000, 5_000)


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_a_batch_without_rows_is_an_empty_list() -> None:
    found = RowBatch().sorted(10)
    assert (unpacked(found.of([])), found.buckets, len(found.of([]))) == ([], [], HEAD)


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_a_bucket_that_the_tier_does_not_have_is_refused() -> None:
    batch = RowBatch()
    batch.add([(50, 1), (51, 2)])
    with pytest.raises(ValueError, match="beyond 50"):
        batch.sorted(50)


def test_only_rows_of_some_buckets_are_kept() -> None:
    kept = only_of(encode(ROWS), ((1, 1), (3, 4)))
    assert unpacked(kept) == [row for row in ROWS if row[0] in (1, 3)]


def test_what_is_compiled_holds_to_what_python_says_of_it() -> None:
    """Places and sizes are said on both sides."""
    source = Path(__file__).parents[2] / "src/cairn/native"
    assert "#define WIDTH 256" in (source / "packed_rows.c").read_text()
    assert f"#define HEAD_BYTES {HEAD}" in (source / "batch.c").read_text()
