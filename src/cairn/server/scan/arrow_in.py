"""Arrow batches that come in by COPY or in chunks of Spark: to rows as they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    InvalidText,
    Unsupported,
)
from cairn.model.log.packed_rows import PackedRows
from cairn.model.sharding.buckets import bucket_function
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table, fit_of
from cairn.model.tables.violations import null_value
from cairn.model.types.values import SQLITE_TYPES, ColumnType, physical_reader, to_physical
from cairn.model.unexpected import of_value
from cairn.native.batches import RowBatch
from cairn.server.scan.arrow_limits import read_table
from cairn.server.scan.arrow_types import Row, load_pyarrow
from cairn.server.scan.copy_rows import check_filled, is_required
from cairn.server.scan.packed_in import ArrowRows

#: What a column of a key is brought to before it is hashed.
_KEY_TYPES: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.INTEGER: lambda pa: pa.int64(),
    ColumnType.UNSIGNED: lambda pa: pa.int64(),
    ColumnType.STRING: lambda pa: pa.string(),
    ColumnType.BOOLEAN: lambda pa: pa.bool_(),
}


class RowDecoder:
    """The bytes of an IPC stream to physical rows."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        self._pa = load_pyarrow()
        columns = [table.column(name) for name in names]
        self._columns = [column for column in columns if column is not None]
        self._table, self._names = table, list(names)
        check_filled(table, names)
        order = {name: at for at, name in enumerate(self._names)}
        self._order = [order.get(column.name) for column in table.columns]

    def rows(self, data: bytes) -> list[Row]:
        """In the table's own order; NULL where no column is named."""
        table, found = self.checked(data)
        columns = [_listed(column) for column in found]
        empty = [None] * table.num_rows
        ordered = [empty if at is None else columns[at] for at in self._order]
        return list(zip(*ordered, strict=True))

    def checked(self, data: bytes) -> tuple[Any, list[Any]]:
        """The batch, and its columns as they would be stored: Arrow's where it can make them."""
        table = read_table(self._pa, data, len(self._columns))
        return table, [self._physical(at, table.column(at)) for at in range(len(self._columns))]

    def _physical(self, at: int, array: Any) -> Any:
        column = self._columns[at]
        if is_required(self._table, column) and array.null_count:
            raise null_value(self._table, column.name)
        try:
            found = _stored(self._pa, column.type, array)
            # Zeros of an Arrow number are those of its type: only a text has zeros of its own.
            keeps = column.keeps_zeros and not self._pa.types.is_decimal(array.type)
            fit = fit_of(replace(column, keeps_zeros=keeps))
            return found if fit is None else [fit(value) for value in _listed(found)]
        except (self._pa.ArrowException, TypeError) as problem:
            raise DatatypeMismatch(
                f'column "{column.name}" is {column.type}, the stream has {array.type}: {problem}'
            ) from None
        except Exception as problem:
            raise of_value(problem, f"column {column.name} of an Arrow stream") from None


class BatchDecoder(RowDecoder):
    """Of a sharded table: rows have their bucket first."""

    def __init__(self, table: Table, names: Sequence[str], catalog: Catalog) -> None:
        super().__init__(table, names)
        from cairn.model.sharding.bucket_columns import bucket_ids, is_quick

        self._bucket_ids, self._is_quick = bucket_ids, is_quick
        if table.sharding is None or table.is_temp:
            raise Unsupported("COPY FROM with FORMAT arrow is for sharded tables; use FORMAT csv")
        tier = catalog.tiers[table.sharding.tier]
        key = table.sharding.columns
        self._key = [self._names.index(name) for name in key if name in self._names]
        self._key_types = types = [self._columns[at].type for at in self._key]
        self._key_parts = list(zip(self._key, types, strict=True))
        self._tier = tier.bucket_count, tier.hash_version
        self._bucket = bucket_function(types, tier.bucket_count, tier.hash_version)
        self._key_readers = [physical_reader(type_) for type_ in types]

    def decode(self, data: bytes) -> list[Row]:
        """Rows in the table's own order; NULL where COPY names no column."""
        table, found = self.checked(data)
        columns = [_listed(column) for column in found]
        buckets = [*map(int, self.buckets(table, columns))]
        empty = [None] * len(buckets)
        return list(
            zip(
                buckets,
                *(empty if at is None else columns[at] for at in self._order),
                strict=True,
            )
        )

    def arrow_rows(self, data: bytes) -> ArrowRows:
        """The same rows, to be packed in C."""
        import numpy as np

        table, found = self.checked(data)
        arrays = [self._array(at, column) for at, column in enumerate(found)]
        buckets = np.asarray(self.buckets(table, found), np.int32)
        ordered = [None if at is None else arrays[at] for at in self._order]
        return ArrowRows(self._pa, ordered, buckets)

    def packed(self, data: bytes) -> PackedRows:
        batch, rows = RowBatch(), self.arrow_rows(data)
        rows.put(batch, 0, rows.count)
        return batch.sorted(self._tier[0])

    def _array(self, at: int, column: Any) -> Any:
        if not isinstance(column, list):
            return column
        kind = SQLITE_TYPES.get(self._columns[at].type, "TEXT")
        made = {"BLOB": self._pa.binary(), "INTEGER": self._pa.int64()}
        return self._pa.array(column, made.get(kind, self._pa.string()))

    def buckets(self, table: Any, columns: list[Any]) -> Any:
        """Of each row of what `checked` has given."""
        if not table.num_rows:
            return []
        if not self._key:
            return [self._bucket(())] * table.num_rows
        if self._is_quick(self._key_types):
            key = [table.column(at).cast(_KEY_TYPES[t](self._pa)) for at, t in self._key_parts]
            return self._bucket_ids(key, self._key_types, *self._tier)
        parts = []
        for at, read in zip(self._key, self._key_readers, strict=True):
            values = _listed(columns[at])
            if read is not None:
                values = [None if value is None else read(value) for value in values]
            parts.append(values)
        return list(map(self._bucket, zip(*parts, strict=True)))


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column if isinstance(column, list) else column.to_pylist()
    return found


def _stored(pa: Any, type_: ColumnType, array: Any) -> Any:
    """One column as SQLite stores it: an array, or a list of what Arrow cannot make."""
    import pyarrow.compute as pc

    found: Any
    match type_:
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            found = array.cast(pa.int64())
            if type_ is ColumnType.UNSIGNED and pc.any(pc.less(found, 0)).as_py():
                raise CairnError("a negative value is out of range for unsigned", sqlstate="22003")
        case ColumnType.DATETIME:
            found = array.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        case ColumnType.TIMESTAMP:
            found = array.cast(pa.timestamp("us")).cast(pa.int64())
        case ColumnType.BOOLEAN:
            found = array.cast(pa.bool_()).cast(pa.int64())
        case ColumnType.STRING:
            found = array.cast(pa.string())
            if _may_have_zeros(found) and pc.any(pc.match_substring(found, "\x00")).as_py():
                raise InvalidText("a string cannot contain a zero byte", sqlstate="22021")
        case ColumnType.UUID:
            found = [None if v is None else _uuid_bytes(v) for v in array.to_pylist()]
        case ColumnType.DOUBLE:
            found = _doubles(pa, array)
        case ColumnType.MAP | ColumnType.ARRAY | ColumnType.ANY | ColumnType.JSONB:
            found = array.cast(pa.string()).to_pylist()
            for value in found:
                _check_json(value)
        case _:
            found = [to_physical(type_, v) for v in array.to_pylist()]
    return found


def _may_have_zeros(texts: Any) -> bool:
    """Whether a zero byte is among the bytes of these texts, or of what a NULL lies upon."""
    import numpy as np

    for chunk in texts.chunks:
        _, offsets, data = chunk.buffers()
        if data is None or not len(chunk):
            continue
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        if not np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].all():
            return True
    return False


def _doubles(pa: Any, array: Any) -> Any:
    import pyarrow.compute as pc

    plain = array.cast(pa.float64())
    if pc.any(pc.is_nan(plain)).as_py():
        to_physical(ColumnType.DOUBLE, float("nan"))  # says why not
    return pc.add(plain, 0.0)  # -0.0 becomes 0.0


def _check_json(value: str | None) -> None:
    try:
        None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidText(f'invalid input syntax for type json: "{str(value)[:200]}"') from None


def _uuid_bytes(value: Any) -> bytes:
    try:
        if isinstance(value, bytes):
            return UUID(bytes=value).bytes
        return UUID(value).bytes
    except (ValueError, AttributeError, TypeError):
        raise InvalidText(f'invalid input syntax for type uuid: "{value}"') from None
