"""Rows as the client wants them, made where they are read: whoever asked hands them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from cairn.model.types.row_shape import RowShape, oid_as
from cairn.model.types.shown import shown_reader
from cairn.model.types.values import ColumnType
from cairn.native.batches import RowBatch
from cairn.native.library import OutPlan, library
from cairn.native.out_columns import GIVEN, out_columns
from cairn.pgwire.values.rows import row_encoder
from cairn.storage.files.pieces import Encode, Row

_packed = msgspec.msgpack.Encoder().encode
Convert = Callable[[Sequence[Row]], Sequence[Row]]


def converter(types: Sequence[ColumnType], scales: Sequence[int | None]) -> Convert | None:
    """Stored values to Python ones, column by column; None when all are the same already."""
    readers = [shown_reader(*each) for each in zip(types, scales, strict=True)]
    if not any(readers):
        return None

    def convert(rows: Sequence[Row]) -> Sequence[Row]:
        return [
            tuple(
                value if read is None or value is None else read(value)
                for read, value in zip(readers, row, strict=True)
            )
            for row in rows
        ]

    return convert


@lru_cache(maxsize=256)
def rows_encoder(shape: RowShape) -> Encode:
    """Stored rows to messages of a row each."""
    codes = zip(shape.types, shape.formats, strict=True)
    column_oids, formats = (
        [oid_as(*each) for each in codes],
        [min(code, 1) for code in shape.formats],
    )
    encode = row_encoder(column_oids, formats, shape.label)
    convert = converter(shape.types, shape.scales)

    def made(rows: Sequence[Any]) -> bytes:
        return b"".join(map(encode, rows if convert is None else convert(rows)))

    return _in_c(shape, made) or made


def _in_c(shape: RowShape, otherwise: Encode) -> Encode | None:
    """The same by the compiled part, which leaves what is not plain to Python; None: all of it."""
    if library() is None:
        return None
    columns = out_columns(shape.types, shape.scales, shape.formats)
    if any(column.kind == GIVEN for column in columns):
        return None
    plan = OutPlan(label=shape.label, columns=len(columns), null=b"", column=columns)

    def made(rows: Sequence[Any]) -> bytes:
        out = RowBatch()  # of its own: threads share the plan
        if out.write_packed(plan, _packed(rows)):
            return bytes(out.written()[0])
        return otherwise(rows)  # type: ignore[arg-type]

    return made
