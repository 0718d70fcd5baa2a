"""Rows of a query that C writes are the messages that Python makes of them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from cairn.model.types.row_shape import RowShape
from cairn.model.types.values import OIDS, ColumnType, to_physical
from cairn.native.batches import RowBatch
from cairn.native.library import OutPlan, library
from cairn.native.out_columns import out_columns
from cairn.node.statements.owner.encoding import converter, rows_encoder
from cairn.pgwire.messages import DATA_ROW
from cairn.pgwire.values.rows import row_encoder
from tests.native.test_messages import TYPES, value

pytestmark = pytest.mark.skipif(library() is None, reason="there was no compiler")
PLAIN = tuple(type_ for type_ in TYPES if type_ is not ColumnType.MAP)


def by_python(shape: RowShape, rows: list[Any]) -> bytes:
    encode = row_encoder([OIDS[type_] for type_ in shape.types], shape.formats)
    convert = converter(shape.types, shape.scales)
    return b"".join(map(encode, rows if convert is None else convert(rows)))


def shape_of(chance: random.Random) -> RowShape:
    types = tuple(chance.choice(PLAIN) for _ in range(chance.randint(1, 20)))
    scales = tuple(
        chance.choice((None, 0, 2, 6)) if type_ is ColumnType.DECIMAL else None for type_ in types
    )
    formats = tuple(chance.choice((0, 0, 1)) for _ in types)
    return RowShape(types, scales, formats)


def drawn(chance: random.Random, type_: ColumnType) -> Any:
    return None if chance.random() < 0.1 else to_physical(type_, value(chance, type_))


@pytest.mark.parametrize("seed", range(60))
def test_messages_are_equal(seed: int) -> None:
    chance = random.Random(seed)
    shape = shape_of(chance)
    count = chance.choice((0, 1, 15, 16, 40, 70_000 if not seed else 3))
    rows = [tuple(drawn(chance, type_) for type_ in shape.types) for _ in range(count)]
    assert rows_encoder(shape)(rows) == by_python(shape, rows), shape


def test_they_are_made_in_c() -> None:
    """Or the test above compares Python with itself."""
    types = (*PLAIN, ColumnType.DOUBLE)
    formats = (0,) * len(PLAIN) + (1,)
    columns = out_columns(types, (None,) * len(types), formats)
    plan = OutPlan(label=DATA_ROW, columns=len(types), null=b"", column=columns)
    row = (1, 2, 0.5, "é", 1, bytes(16), 0, b"\x03\x80\x00\x10", -1, 10**15, 1e300)
    out = RowBatch()
    assert out.write_packed(plan, msgspec.msgpack.encode([row, row]))
    shape = RowShape(types, (None,) * len(types), formats)
    assert bytes(out.written()[0]) == by_python(shape, [row, row])


@pytest.mark.parametrize("seed", range(20))
def test_values_of_other_types_are_left_to_python(seed: int) -> None:
    """Of a plan that has its types wrong, or of bytes that are no rows."""
    chance = random.Random(seed)
    shape = shape_of(chance)
    columns = out_columns(shape.types, shape.scales, shape.formats)
    plan = OutPlan(label=DATA_ROW, columns=len(columns), null=b"", column=columns)
    out = RowBatch()
    others = (
        1,
        -(2**63),
        0.5,
        "text",
        b"\x01",
        b"",
        True,
        None,
        bytes(16),
        2**63 - 1,
        [1],
        2**64 - 1,
    )
    for _ in range(200):
        row = [chance.choice(others) for _ in range(chance.choice((len(columns), 3)))]
        packed = bytearray(msgspec.msgpack.encode([row] * chance.randint(0, 3)))
        if chance.random() < 0.5:
            packed[chance.randrange(len(packed))] = chance.randrange(256)
        out.write_packed(plan, bytes(packed[: chance.randint(0, len(packed))]))
