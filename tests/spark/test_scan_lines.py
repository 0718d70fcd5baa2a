"""COPY to text by columns: byte for byte what the encoder of rows writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from cairn.client.sync_pool import SyncPool
from cairn.model.types.values import OIDS, ColumnType, from_physical, to_physical
from cairn.pgwire.copy_out import copy_encoder
from cairn.server.scan.lines import LinesEncoder
from cairn.server.scan.statement import ENOUGH, LinesAsked
from cairn.spark import cluster

ARROW = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.STRING: pa.string(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.int64(),
    ColumnType.DATETIME: pa.int64(),
    ColumnType.DECIMAL: pa.binary(),
    ColumnType.UUID: pa.binary(),
}
TEXTS = [
    "",
    "plain",
    "ä€𝄞",
    "tab\there",
    "line\nend",
    "\\N",
    "\\.",
    'a "quote"',
    "a,b;c",
    "\r",
    "\v\b\f",
    "NULL",
]
REALS = [
    0.0, -0.0, 0.5, 1500.0, 1e10, 1e9, 123456789.125, 1e15, 1e22, 1e-4, 1e-5, 9.999e-5, 5e-324,
    1.7976931348623157e308, -2.5, 0.1, 1 / 3, 9007199254740993.0, float("inf"), float("-inf"),
]  # fmt: skip


def stored_value(chance: random.Random, type_: ColumnType) -> Any:
    if chance.random() < 0.2:
        return None
    match type_:
        case ColumnType.INTEGER:
            return chance.choice([0, -1, 2**63 - 1, -(2**63), chance.randint(-9999, 9999)])
        case ColumnType.STRING:
            return chance.choice(TEXTS)
        case ColumnType.DOUBLE:
            return chance.choice([*REALS, chance.random() * 10.0 ** chance.randint(-9, 20)])
        case ColumnType.BOOLEAN:
            return chance.randint(0, 1)
        case ColumnType.DATETIME:
            return chance.choice([0, 1, 1_700_000_000_123_000, -1_000_000, 253402300799_999999])
        case ColumnType.DECIMAL:
            return to_physical(type_, chance.choice(["0", "1.50", "-12345678901234567890.5"]))
        case _:
            return chance.randbytes(16)


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("text", {}),
        ("csv", {}),
        ("text", {"delimiter": "|", "null": "NULL"}),
        ("csv", {"delimiter": ";", "null": "NULL", "quote": "'"}),
        ("csv", {"null": "plain", "escape": "\\"}),
    ],
)
def test_columns_become_the_lines_that_rows_become(fmt: Any, options: dict[str, str]) -> None:
    chance = random.Random(5)
    for count in (1, 1, 2, 3, 7, 7, 7):
        types = chance.choices(list(ARROW), k=count)
        rows = [tuple(stored_value(chance, type_) for type_ in types) for _ in range(200)]
        columns = [
            pa.array(values, ARROW[type_])
            for values, type_ in zip(zip(*rows, strict=True), types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(count)])
        [(told, lines)] = LinesEncoder(types, LinesAsked(fmt, options)).encode_batch(batch)
        values = [
            tuple(from_physical(type_, value) for type_, value in zip(types, row, strict=True))
            for row in rows
        ]
        by_rows = copy_encoder([OIDS[type_] for type_ in types], fmt, **options)  # type: ignore[arg-type]
        assert (told, bytes(lines)) == (len(rows), by_rows(values)), types


def test_a_text_column_with_nothing_in_it_is_no_null_in_csv() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["", ""])], names=["a"])
    [(_, lines)] = LinesEncoder([ColumnType.STRING], LinesAsked("csv", {})).encode_batch(batch)
    assert bytes(lines) == b'd\x00\x00\x00\x07""\n' * 2


def test_many_rows_leave_as_the_same_lines_as_few(
    dsn: str, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT, d DOUBLE, b BOOLEAN, n DECIMAL, w DATETIME")
    whole = [
        (at, TEXTS[at % len(TEXTS)], REALS[at % 18], at % 3 == 0, f"{at}.50", "2026-11-16 05:00Z")
        for at in range(ENOUGH * 5 // 2)
    ]
    lines = copy_encoder([OIDS[ColumnType.STRING]] * 6, framed=False)
    texts = lines([(str(a), s, repr(d), "t" if b else "f", n, w) for a, s, d, b, n, w in whole])
    pool.copy_in(f"COPY {name} FROM STDIN", [texts])
    [first, *_] = cluster.owners(dsn, "default", "master")
    [(low, high), *_], address = first.ranges, first.addresses[0]
    here = f"{name} WHERE bucket_id BETWEEN {low} AND {high}"  # all of it is one instance's
    for fmt in ("text", "csv"):
        scanned, by_rows = (
            cluster.copy_out(dsn, address, f"COPY ({sql}) TO STDOUT (FORMAT {fmt})", 60)
            for sql in (f"SELECT * FROM {here}", f"SELECT * FROM {here} ORDER BY id")
        )
        assert sorted(lines_of(scanned)) == sorted(lines_of(by_rows))


def lines_of(pieces: Iterable[bytes]) -> list[bytes]:
    return b"".join(bytes(piece) for piece in pieces).split(b"\n")
