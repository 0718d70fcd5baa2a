"""What the requests and answers of a statement look like to C, if they are plain enough for it."""

from __future__ import annotations

from struct import Struct
from typing import Final

from cairn.model.log.records import head_of_insert, pack_value
from cairn.model.tables.schema import Table
from cairn.model.types.values import ColumnType
from cairn.native.point_inserts import NewRow
from cairn.native.point_reads import OUT_TEXTS, REAL, TRUTH, WHOLE, Layout
from cairn.native.points import (
    BINARY_REAL,
    BINARY_TIME,
    BINARY_TRUTH,
    BINARY_WHOLE,
    TEXT_WHOLE,
    TEXTS,
    Asked,
)
from cairn.pgwire.messages import BIND_COMPLETE
from cairn.pgwire.server.extended import Shape, Signature
from cairn.pgwire.server.requests import Bind
from cairn.pgwire.values import oids
from cairn.server.statements import Cached
from cairn.sql import plans

_WHOLE_BYTES: Final = {oids.INT2: 2, oids.INT4: 4, oids.INT8: 8}
_COLUMNS: Final = {
    ColumnType.INTEGER: WHOLE,
    ColumnType.DOUBLE: REAL,
    ColumnType.STRING: OUT_TEXTS,
    ColumnType.BOOLEAN: TRUTH,
}
#: Values that are told in binary, by their type and what the client calls it.
_BINARY: Final = {
    (ColumnType.DOUBLE, oids.FLOAT8): BINARY_REAL,
    (ColumnType.BOOLEAN, oids.BOOL): BINARY_TRUTH,
    (ColumnType.DATETIME, oids.TIMESTAMPTZ): BINARY_TIME,
    (ColumnType.TIMESTAMP, oids.TIMESTAMP): BINARY_TIME,
}
_LONGEST: Final = 65_536  # bytes of constants: what is longer is not copied for every row
Codes = tuple[int, ...]


def read_of(
    cached: Cached, shape: Shape, param_formats: Codes, result_formats: Codes
) -> Layout | None:
    """None: it is not plain."""
    prepared = cached.prepared
    plan = prepared.plan
    if not isinstance(plan, plans.PointRead) or prepared.options or prepared.hidden:
        return None
    if plan.places is None or prepared.complete(0) != "SELECT 0":
        return None
    asked = _asked(plan.places, cached.signature, param_formats, result_formats)
    kinds = [_COLUMNS.get(each.type, -1) for each in prepared.columns]
    if asked is None or -1 in kinds:
        return None
    told = [_WHOLE_BYTES.get(each.oid, 8) for each in prepared.columns]
    codes = (size * code for size, code in zip(told, shape.result_formats, strict=True))
    columns = list(zip(kinds, codes, strict=True))
    return Layout(asked, columns, BIND_COMPLETE, shape.bound)


def insert_of(cached: Cached, param_formats: Codes, result_formats: Codes) -> NewRow | None:
    """None: it is not plain."""
    prepared = cached.prepared
    plan = prepared.plan
    if not isinstance(plan, plans.PointWrite) or prepared.options or prepared.hidden:
        return None
    if plan.row is None or prepared.columns:
        return None
    if not _all_fit(plan.row, plan.table, cached.signature):
        return None
    asked = _asked(plan.row.places, cached.signature, param_formats, result_formats)
    cells = [number or pack_value(value) for number, value in plan.row.cells]
    if asked is None or sum(len(each) for each in cells if isinstance(each, bytes)) > _LONGEST:
        return None
    table = plan.table
    head = head_of_insert(table.id, table.schema_version, len(table.columns))
    return NewRow(asked, plan.sql, head, cells)


def _all_fit(row: plans.PlainRow, table: Table, signature: Signature) -> bool:
    """Whether every whole number that a client can send has room in its column."""
    for (number, _), column in zip(row.cells, table.columns, strict=True):
        if number and column.width is not None:
            sent = _WHOLE_BYTES.get(signature.param_oids[number - 1], 8)
            if sent > column.width.value:
                return False
    return True


def _asked(
    places: plans.Places, signature: Signature, param_formats: Codes, result_formats: Codes
) -> Asked | None:
    """None: some parameter is not plain."""
    count = len(signature.param_oids)
    one_each = len(param_formats) == count
    codes = param_formats if one_each else (param_formats or (0,)) * count
    found: list[tuple[int, int]] = []
    for number, (oid, code) in enumerate(zip(signature.param_oids, codes, strict=True), 1):
        type_ = places.types.get(number)
        if type_ is ColumnType.INTEGER and oid in _WHOLE_BYTES:
            found.append((BINARY_WHOLE if code else TEXT_WHOLE, _WHOLE_BYTES[oid]))
        elif type_ is ColumnType.STRING and oid in (oids.TEXT, oids.VARCHAR):
            found.append((TEXTS, 0))
        elif type_ is not None and code and (type_, oid) in _BINARY:
            found.append((_BINARY[type_, oid], 0))
        else:
            return None
    formats = _listed(result_formats)
    return Asked(found, places.bindings, places.key, places.bucket_count, formats)


def bind_head(request: Bind) -> bytes:
    """Of a Bind to the unnamed portal: what stands before its parameters."""
    count = _codes((len(request.params),))
    return b"\0" + request.statement + b"\0" + _listed(request.param_formats) + count


def _listed(codes: Codes) -> bytes:
    return _codes((len(codes), *codes))


def _codes(numbers: Codes) -> bytes:
    return Struct(f"!{len(numbers)}H").pack(*numbers)
