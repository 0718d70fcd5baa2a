"""Rows of every type to an Arrow stream and back: stored bytes are the same afterwards."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from cairn.model.members.topology import Tier
from cairn.model.sharding.buckets import bucket_of
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.intervals import Interval
from cairn.model.types.values import LISTS, ColumnType, to_physical
from cairn.server.scan.arrow import BatchDecoder
from cairn.server.scan.arrow_types import BatchEncoder

SAMPLES: dict[ColumnType, list[Any]] = {
    ColumnType.BOOLEAN: [True, False],
    ColumnType.INTEGER: [0, -(2**63)],
    ColumnType.UNSIGNED: [7],
    ColumnType.DOUBLE: [1.5, -0.25],
    ColumnType.DECIMAL: [Decimal("12345678901234567890.125"), Decimal(-3)],
    ColumnType.STRING: ["", "ä,{}\"'"],
    ColumnType.UUID: [UUID(int=7)],
    ColumnType.DATETIME: [datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)],
    ColumnType.TIMESTAMP: [datetime(2024, 2, 29, 12, 30, 15, 123456)],
    ColumnType.DATE: [date(2024, 2, 29), date(1, 1, 1)],
    ColumnType.INTERVAL: [Interval(14, -3, 5_000_001)],
    ColumnType.TIME: [time(0, 0), time(23, 59, 59, 999999)],
    ColumnType.VARBINARY: [b"", b"\x00\xff\\"],
}
CATALOG = Catalog(version=1, tiers={"default": Tier("default", 1, bucket_count=30)})


def samples(type_: ColumnType) -> list[Any]:
    """Values of the type, with NULL; of a list also an empty one and one with NULL in it."""
    return [*SAMPLES[type_], None]


def test_every_type_and_every_list_makes_the_round_trip() -> None:
    cases = {type_: samples(type_) for type_ in SAMPLES}
    cases |= {LISTS[of]: [samples(of), [], None] for of in SAMPLES if of in LISTS}
    for type_, values in cases.items():
        columns = (Column("id", ColumnType.INTEGER, False), Column("v", type_))
        table = Table(1024, "t", columns, ("id",), Sharded(("id",), "default"))
        rows = [(at, to_physical(type_, value)) for at, value in enumerate(values)]
        stream = BatchEncoder(("id", "v"), [each.type for each in columns]).encode(rows)
        back = BatchDecoder(table, ("id", "v"), CATALOG).decode(bytes(stream))
        assert [row[1:] for row in back] == rows, type_


def test_rows_that_lie_together_are_given_their_one_bucket() -> None:
    columns = (Column("id", ColumnType.INTEGER, False),)
    table = Table(1024, "t", columns, ("id",), Sharded((), "default"))
    stream = BatchEncoder(("id",), [ColumnType.INTEGER]).encode([(at,) for at in range(5)])
    back = BatchDecoder(table, ("id",), CATALOG).decode(bytes(stream))
    assert {row[0] for row in back} == {bucket_of((), (), 30)} and len(back) == 5
