"""Arrow bytes that lie about themselves: refused, and nothing outside of them is ever read."""

from __future__ import annotations

import datetime as dt
import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from cairn.model.errors import CairnError
from cairn.model.log.packed_rows import unpacked
from cairn.model.members.topology import Tier
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.server.scan import arrow_limits
from cairn.server.scan.arrow import BatchDecoder

SEED = 11
TABLE = Table(
    1024,
    "t",
    (
        Column("id", ColumnType.INTEGER, False),
        Column("v", ColumnType.STRING),
        Column("u", ColumnType.UUID),
        Column("n", ColumnType.DECIMAL),
        Column("j", ColumnType.ANY),
    ),
    ("id",),
    Sharded(("id",), "default"),
)
CATALOG = Catalog(tables={"t": TABLE}, tiers={"default": Tier("default", 1)})
UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"


def decoder(*names: str) -> BatchDecoder:
    return BatchDecoder(TABLE, names or ("id", "v"), CATALOG)


def stream(columns: dict[str, Any], compression: str | None = None) -> bytes:
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


GOOD = {"id": pa.array([1], pa.int64()), "v": pa.array(["abcdefgh"])}


def refused(data: bytes, *names: str) -> str:
    with pytest.raises(CairnError) as told:
        decoder(*names).decode(data)
    assert told.value.sqlstate != "XX000"
    return told.value.sqlstate


@pytest.mark.parametrize(
    ("first", "last"), [(0, 100), (0, 2**31 - 1), (2**30, 2**30 + 1), (-8, 8), (8, 0)]
)
def test_offsets_that_point_outside_of_the_text_are_refused(first: int, last: int) -> None:
    data = stream(GOOD)
    at = data.rfind(struct.pack("<ii", 0, 8))
    data = data[:at] + struct.pack("<ii", first, last) + data[at + 8 :]
    assert refused(data) == "22P03"


def test_an_index_past_its_dictionary_is_refused() -> None:
    words = pa.DictionaryArray.from_arrays(
        pa.array([77], pa.int32()), pa.array(["a", "b"]), safe=False
    )
    assert refused(stream({"id": GOOD["id"], "v": words})) == "22P03"


def test_text_that_is_no_utf8_is_refused() -> None:
    data = stream(GOOD).replace(b"abcdefgh", b"abc\xff\xfefgh"[:8])
    assert refused(data) == "22P03"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.nulls(1),
        pa.array([[[[[1]]]]]),
        pa.array([{"a": [{"b": 1}]}]),
    ],
    ids=str,
)
def test_nested_and_empty_types_are_refused(column: Any) -> None:
    assert refused(stream({"id": GOOD["id"], "v": column})) == "42804"


def test_bytes_that_unpack_to_too_much_are_refused_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_limits, "MAX_BYTES", 100_000)
    bomb = stream({"id": GOOD["id"], "v": pa.array(["x" * 1_000_000])}, "zstd")
    assert len(bomb) < 100_000
    assert refused(bomb) == "54000"
    small = stream({"id": GOOD["id"], "v": pa.array(["x" * 50_000])}, "zstd")
    assert len(decoder().decode(small)) == 1


def test_a_number_is_no_uuid() -> None:
    numbers = {"id": GOOD["id"], "u": pa.array([2**40], pa.int64())}
    assert refused(stream(numbers), "id", "u") == "22P02"


def test_no_flipped_byte_brings_anything_but_rows_or_an_error() -> None:
    """What is taken was in the bytes that came: nothing longer, nothing of the heap."""
    print("seed", SEED)
    chance = random.Random(SEED)
    names = ("id", "v", "u", "n", "j")
    columns = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "v": pa.array(["abc", None, "é" * 20]),
        "u": pa.array([UUID_TEXT] * 3),
        "n": pa.array(["1.5", "2", None]),
        "j": pa.array(["[1]", None, '{"a":1}']),
    }
    words = columns["v"].dictionary_encode()
    taken = 0
    for data in (stream(columns), stream(columns, "lz4"), stream({**columns, "v": words})):
        for _ in range(2_000):
            bad = bytearray(data)
            for _ in range(chance.choice((1, 1, 2, 8))):
                at = chance.randrange(len(bad))
                bad[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            if chance.random() < 0.1:
                del bad[chance.randrange(len(bad)) :]
            try:
                rows = decoder(*names).decode(bytes(bad))
            except CairnError as problem:
                assert problem.sqlstate != "XX000", problem  # noqa: PT017
                continue
            taken += 1
            assert sum(len(str(value)) for row in rows for value in row) < 20 * len(bad)
    assert taken


def test_times_and_dates_are_packed_as_they_are_decoded() -> None:
    kinds = (ColumnType.INTEGER, ColumnType.TIME, ColumnType.DATE, ColumnType.VARBINARY)
    columns = tuple(Column(name, kind) for name, kind in zip("abcd", kinds, strict=True))
    table = Table(1025, "times", columns, ("a",), Sharded(("a",), "default"))
    data = stream(
        {
            "a": pa.array([1, 2, 3], pa.int64()),
            "b": pa.array(["23:59:59.999999", None, "00:00"]),
            "c": pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1), None]),
            "d": pa.array([b"", b"\x00\xff", None]),
        }
    )
    made = BatchDecoder(table, tuple("abcd"), CATALOG)
    rows = made.packed(data)
    assert unpacked(rows.of(rows.buckets)) == sorted(made.decode(data))
