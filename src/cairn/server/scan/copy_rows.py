"""Fields of a COPY, texts or bytes, to rows as SQLite stores them, column by column.

A column is read by one call over all its fields: a loop over rows would cost more than the reading.
Whatever the quick way cannot vouch for is read again, field by field, to say where it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NotNullViolation, Unsupported
from cairn.model.members.topology import Tier
from cairn.model.sharding.buckets import bucket_of, buckets_function
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import TEMP_TIER, Column, Table, fit_of
from cairn.model.tables.violations import null_value
from cairn.model.types.values import (
    INT64_MAX,
    INT64_MIN,
    ColumnType,
    is_too_small,
    parse_text,
    physical_reader,
    to_physical,
)
from cairn.pgwire.messages import BINARY_FORMAT, TEXT_FORMAT
from cairn.pgwire.values.formats import decoder

Fields = Sequence[str | None] | Sequence[bytes | None]  # of one column
Row = tuple[Any, ...]
ReadColumn = Callable[[Sequence[Any]], Sequence[Any]]
_decode_integers = msgspec.json.Decoder(list[int]).decode
_decode_doubles = msgspec.json.Decoder(list[float]).decode


class RowMaker:
    """Lines of fields to physical rows: the bucket first, then the table's columns in its order.

    `filled` are columns that the lines leave out and that have a DEFAULT or are generated: their
    values come with the lines.
    """

    def __init__(
        self, table: Table, names: Sequence[str], catalog: Catalog, fmt: int = TEXT_FORMAT
    ) -> None:
        assert table.sharding is not None
        self._table = table
        self._columns = [_column(table, name) for name in names]
        self.filled = [
            column
            for column in table.columns
            if column.name not in names and (column.identity or column.default is not None)
        ]
        known = [*names, *(column.name for column in self.filled)]
        check_filled(table, known)
        self._required = [is_required(table, column) for column in self._columns]
        self._readers = [_column_reader(column, fmt) for column in self._columns]
        place = {name: at for at, name in enumerate(known)}
        self._order = [place.get(column.name) for column in table.columns]
        key = [place[name] for name in table.sharding.columns]
        types = [_column(table, name).type for name in table.sharding.columns]
        self._key = [(at, physical_reader(type_)) for at, type_ in zip(key, types, strict=True)]
        tier = catalog.tiers.get(table.sharding.tier) or Tier(TEMP_TIER, 1)
        self._buckets = buckets_function(types, tier.bucket_count, tier.hash_version)
        self._only = 0 if types else bucket_of((), (), tier.bucket_count)  # of rows together

    def rows(self, read: Sequence[Fields], filled: Sequence[Sequence[Any]] = ()) -> list[Row]:
        """Rows of columns, or an error: `find_bad_line` tells which line is to blame."""
        if not read:
            return []
        columns = [self._read(at, fields) for at, fields in enumerate(read)]
        for column, values in zip(self.filled, filled, strict=True):
            if is_required(self._table, column) and None in values:
                raise null_value(self._table, column.name)
            columns.append(values)
        parts = [
            columns[at] if given is None else [None if v is None else given(v) for v in columns[at]]
            for at, given in self._key
        ]
        empty = [None] * len(read[0])
        wide = (empty if at is None else columns[at] for at in self._order)
        buckets = self._buckets(parts) if parts else [self._only] * len(read[0])
        return list(zip(buckets, *wide, strict=True))

    def _read(self, at: int, fields: Fields) -> Sequence[Any]:
        read = self._readers[at]
        if None not in fields:
            return read(fields)
        if self._required[at]:
            raise null_value(self._table, self._columns[at].name)
        there = iter(read([field for field in fields if field is not None]))
        return [None if field is None else next(there) for field in fields]


def find_bad_line(
    table: Table,
    names: Sequence[str],
    read: Sequence[Fields],
    first: int,
    fmt: int = TEXT_FORMAT,
) -> CairnError | None:
    """The first field that is no value, with its line; `first` is the number of line one."""
    columns = [_column(table, name) for name in names]
    for number, fields in enumerate(zip(*read, strict=True), first):
        for column, field in zip(columns, fields, strict=True):
            try:
                if field is None and is_required(table, column):
                    raise null_value(table, column.name)
                if field is not None:
                    _column_reader(column, fmt)([field])
            except CairnError as problem:
                problem.detail = f"COPY {table.name}, line {number}, column {column.name}"
                return problem
    return None


def check_filled(table: Table, names: Sequence[str]) -> None:
    """COPY has no defaults: what must not be NULL, or has one, has to be among its columns."""
    hashed = () if table.sharding is None else table.sharding.columns
    for column in table.columns:
        if column.identity is not None and column.name not in names:
            raise Unsupported(
                f'COPY must name column "{column.name}": numbers are given out for INSERT only',
                hint="give it a value in every line, or use INSERT",
            )
        must = is_required(table, column) or column.name in hashed
        if must and column.name not in names:
            raise NotNullViolation(f'COPY must fill column "{column.name}"')
        if column.default is not None and column.name not in names:
            raise Unsupported(
                f'COPY must name column "{column.name}": its DEFAULT is for INSERT only',
                hint="give it a value in every line, or use INSERT",
            )


def is_required(table: Table, column: Column) -> bool:
    return not column.nullable or column.name in table.primary_key


def _column(table: Table, name: str) -> Column:
    found = table.column(name)
    assert found is not None  # the plan has named it
    return found


def _column_reader(column: Column, fmt: int) -> ReadColumn:
    read = _type_reader(column.type) if fmt == TEXT_FORMAT else _binary_reader(column)
    fit = fit_of(column)
    return read if fit is None else lambda fields: [fit(value) for value in read(fields)]


def value_reader(column: Column, fmt: int) -> Callable[[Any], Any]:
    """One field to the value that a parameter would have."""
    type_ = column.type
    return decoder(column.oid, fmt) if fmt != TEXT_FORMAT else lambda text: parse_text(type_, text)


def _binary_reader(column: Column) -> ReadColumn:
    decode, type_ = decoder(column.oid, BINARY_FORMAT), column.type
    if type_ in (ColumnType.INTEGER, ColumnType.STRING):
        return lambda fields: [decode(field) for field in fields]
    return lambda fields: [to_physical(type_, decode(field)) for field in fields]


def _type_reader(type_: ColumnType) -> ReadColumn:
    match type_:
        case ColumnType.INTEGER:
            return lambda fields: _integers(type_, INT64_MIN, fields)
        case ColumnType.UNSIGNED:
            return lambda fields: _integers(type_, 0, fields)
        case ColumnType.DOUBLE:
            return _doubles
        case ColumnType.STRING:
            return lambda fields: fields  # the parser has refused what is no text
    return lambda fields: _one_by_one(type_, fields)


def _one_by_one(type_: ColumnType, fields: Sequence[str]) -> list[Any]:
    return [to_physical(type_, parse_text(type_, field)) for field in fields]


def _numbers(decode: Callable[[str], list[Any]], fields: Sequence[str]) -> list[Any] | None:
    """Read as one list of JSON, which knows neither `1_000` nor `١٢`; None: not so plain."""
    try:
        values = decode(f"[{','.join(fields)}]")
    except msgspec.DecodeError:
        return None
    return values if len(values) == len(fields) else None  # a field had a comma in it


def _integers(type_: ColumnType, low: int, fields: Sequence[str]) -> Sequence[Any]:
    values = _numbers(_decode_integers, fields)
    if values and low <= min(values) and max(values) <= INT64_MAX:
        return values
    return _one_by_one(type_, fields)


def _doubles(fields: Sequence[str]) -> Sequence[Any]:
    values = _numbers(_decode_doubles, fields)
    if values is None or not math.isfinite(sum(values)):
        return _one_by_one(ColumnType.DOUBLE, fields)
    if 0 in values and any(map(is_too_small, values, fields)):
        return _one_by_one(ColumnType.DOUBLE, fields)
    return [value + 0.0 for value in values]  # -0.0 becomes 0.0
