"""Which columns of an answer the compiled part can write, and how (`out.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.model.types.values import ColumnType
from cairn.native.library import OutColumn
from cairn.pgwire.messages import BINARY_FORMAT

WHOLE, REAL, TEXTS, TRUTH, GIVEN, NUMBER, MOMENT, ZONED, DATE, UUID = range(10)
_KINDS = {
    ColumnType.INTEGER: WHOLE,
    ColumnType.UNSIGNED: WHOLE,
    ColumnType.DOUBLE: REAL,
    ColumnType.STRING: TEXTS,
    ColumnType.TIMESTAMP: MOMENT,
    ColumnType.DATETIME: ZONED,
    ColumnType.DATE: DATE,
}
_AS_TEXT = {
    **_KINDS,
    ColumnType.BOOLEAN: TRUTH,
    ColumnType.DECIMAL: NUMBER,
    ColumnType.UUID: UUID,
}


def out_columns(
    types: Sequence[ColumnType], scales: Sequence[int | None], formats: Sequence[int]
) -> Any:
    """An array for C; a column is GIVEN where somebody else has to write it."""
    found = (OutColumn * len(types))()
    for column, type_, scale, format_ in zip(found, types, scales, formats, strict=True):
        column.binary, column.scale = 8 if format_ == BINARY_FORMAT else format_, scale or 0
        column.kind = (_KINDS if column.binary else _AS_TEXT).get(type_, GIVEN)
    return found
