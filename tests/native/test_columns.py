"""Columns of Arrow that C packs are the rows that Python makes of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cairn.model.log.packed_rows import unpacked
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.native.batches import RowBatch
from cairn.native.library import library
from tests.native.test_lines import CATALOG, TIER

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")

TYPES: dict[ColumnType, Any] = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.UNSIGNED: pa.uint32(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.STRING: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.UUID: pa.binary(16),
    ColumnType.DATETIME: pa.timestamp("us", tz="UTC"),
    ColumnType.TIMESTAMP: pa.timestamp("us"),
    ColumnType.DECIMAL: pa.decimal128(12, 3),
    ColumnType.MAP: pa.string(),
}


def value(chance: random.Random, type_: ColumnType) -> Any:
    match type_:
        case ColumnType.INTEGER:
            return chance.randint(-(2 ** chance.randint(0, 62)), 2 ** chance.randint(0, 62))
        case ColumnType.UNSIGNED:
            return chance.randint(0, 2**31)
        case ColumnType.DOUBLE:
            return chance.choice((0.0, -0.0, 1.5, -1e300, chance.random()))
        case ColumnType.STRING:
            return chance.choice(("", "é", "日本語" * 20, "x" * 300, "plain"))
        case ColumnType.BOOLEAN:
            return chance.random() < 0.5
        case ColumnType.UUID:
            return chance.randbytes(16)
        case ColumnType.DECIMAL:
            from decimal import Decimal

            return Decimal(chance.randint(-(10**9), 10**9)) / 1000
        case ColumnType.MAP:
            return '{"a":[1,2]}'
    return chance.randint(0, 4 * 10**15)


@pytest.mark.parametrize("seed", range(30))
def test_a_stream_gives_the_same_rows_in_c(seed: int) -> None:
    from cairn.server.scan.arrow_in import BatchDecoder

    chance = random.Random(seed)
    kinds = [ColumnType.INTEGER, *chance.choices(list(TYPES), k=chance.randint(1, 6))]
    columns = tuple(Column(f"c{at}", kind) for at, kind in enumerate(kinds))
    key = ("c0",) if chance.random() < 0.7 else ("c0", "c1")
    table = Table(
        600, "t", (*columns, Column("left", ColumnType.STRING)), ("c0",), Sharded(key, TIER)
    )
    if kinds[1] is ColumnType.MAP:
        table = Table(600, "t", table.columns, ("c0",), Sharded(("c0",), TIER))
    count = chance.choice((0, 1, 7, 8, 9, 1000))
    arrays = []
    for kind in kinds:
        has_nulls = kind is not kinds[0] and chance.random() < 0.5
        made = [
            None if has_nulls and chance.random() < 0.3 else value(chance, kind)
            for _ in range(count)
        ]
        arrays.append(pa.array(made, TYPES[kind]))
    batch = pa.record_batch(arrays, names=[column.name for column in columns])
    skipped = chance.randint(0, min(count, 3))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        for part in (batch.slice(skipped), batch.slice(0, skipped)):
            stream.write_batch(part)
    data = sink.getvalue().to_pybytes()
    decoder = BatchDecoder(table, [column.name for column in columns], CATALOG)
    packed, rows = RowBatch(), decoder.arrow_rows(data)
    for first, last in rows.parts(len(data) * 5_000):  # as if rows were long: in several parts
        rows.put(packed, first, last)
    found = packed.sorted(300)
    wanted = sorted(decoder.decode(data), key=lambda row: row[0])
    assert unpacked(found.of(found.buckets)) == wanted, (seed, kinds)
