"""Whole columns for Arrow, straight from the pages of `data.db`: for statements that only scan.

A third of what the same rows cost through SQLite, which hands them over value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.model.types.values import SQLITE_TYPES, ColumnType
from cairn.server.scan.statement import Scan
from cairn.storage.files.file_pages import Pages, UnknownFile
from cairn.storage.files.file_tree import Records, Tree, Values, check_inside, integers

_REAL = 7  # the type of a value with a fraction; whole ones are kept as integers


def _ranges(scan: Scan, pages: Pages) -> list[tuple[int, int]]:
    """The buckets that meet the condition, as SQLite understands it."""
    found: list[tuple[int, int]] = []
    sql = (
        f"WITH RECURSIVE b({BUCKET_COLUMN}, last) AS ("
        f"SELECT min({BUCKET_COLUMN}), (SELECT max({BUCKET_COLUMN}) FROM {scan.table}) "
        f"FROM {scan.table} UNION ALL SELECT {BUCKET_COLUMN} + 1, last FROM b "
        f"WHERE {BUCKET_COLUMN} < last) SELECT {BUCKET_COLUMN} FROM b AS {scan.alias} "
        f"WHERE {scan.condition} ORDER BY 1"
    )
    for (bucket,) in pages.connection.execute(sql):
        if found and found[-1][1] + 1 == bucket:
            found[-1] = found[-1][0], bucket
        else:
            found.append((bucket, bucket))
    return found


def _stored_order(scan: Scan, pages: Pages) -> list[str]:
    """Columns as records have them: those of the key first."""
    execute = pages.connection.execute
    [index] = [row[1] for row in execute(f"PRAGMA index_list({scan.table})") if row[3] == "pk"]
    defaults = {row[1] for row in execute(f"PRAGMA table_info({scan.table})") if row[4] is not None}
    if not defaults.isdisjoint(scan.columns):
        raise UnknownFile("a column with a default, which older rows do not have in them")
    return [row[2] for row in execute(f"PRAGMA index_xinfo({index})")]


def columns_of(data: Path, scan: Scan, types: Sequence[ColumnType]) -> Iterator[Any]:
    """Batches of columns as SQLite stores them."""
    for records, at in records_of(data, scan):
        yield batch_of(records, at, types)


def records_of(data: Path, scan: Scan) -> Iterator[tuple[Records, list[int]]]:
    """Rows as they lie in the pages, and where in a record the scan's columns are."""
    with Pages(data) as pages:
        order = _stored_order(scan, pages)
        if order[0] != BUCKET_COLUMN:
            raise UnknownFile("rows in another order")
        at = [order.index(name) for name in scan.columns]
        find_root = "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = ?"
        found: list[Any] = pages.connection.execute(find_root, (scan.table,)).fetchall()
        tree = Tree(pages, found[0][0])
        for low, high in _ranges(scan, pages):
            for records in tree.records(low, high):
                if len(records.starts):
                    yield records, at


def batch_of(records: Records, at: Sequence[int], types: Sequence[ColumnType]) -> Any:
    values = records.columns(max(at) + 1)
    arrays = [
        _READERS[SQLITE_TYPES.get(type_, "TEXT")](records.buffer, values[place])
        for place, type_ in zip(at, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[str(each) for each in range(len(arrays))])


def _nulls(values: Values) -> Any:
    return None if values.types.min() else values.types == 0


def _integers(buffer: Any, values: Values) -> Any:
    return pa.array(integers(buffer, values), mask=_nulls(values))


def _reals(buffer: Any, values: Values) -> Any:
    check_inside(buffer[7:], values.starts)
    wide = np.ndarray((len(buffer) - 7,), ">f8", buffer, 0, (1,))
    found = wide[values.starts].astype(np.float64)
    if values.types.min() != _REAL or values.types.max() != _REAL:
        whole = np.flatnonzero(values.types != _REAL)
        found[whole] = integers(buffer, Values(values.types[whole], values.starts[whole], 0))
    return pa.array(found, mask=_nulls(values))


def _slices(of: Any) -> Callable[[Any, Values], Any]:
    """Texts or blobs: with the gaps between them they are one array, which is thinned out in C."""

    def read(buffer: Any, values: Values) -> Any:
        count = len(values.starts)
        ends = values.starts + values.sizes
        if count and not 0 <= int(values.starts.min()) <= int(ends.max()) <= len(buffer):
            raise UnknownFile("a text outside of its page")  # Arrow would read what lies there
        places = np.empty(2 * count + 1, np.int32)
        places[0:-1:2] = values.starts
        places[1:-1:2] = ends
        places[-1] = places[-2]
        parts = [None, pa.py_buffer(places), pa.py_buffer(buffer)]
        both = pa.Array.from_buffers(of, 2 * count, parts)
        found = both.take(pa.array(np.arange(0, 2 * count, 2)))
        if (missing := _nulls(values)) is None:
            return found
        valid = pa.array(~missing).buffers()[1]
        return pa.Array.from_buffers(of, count, [valid, *found.buffers()[1:]])

    return read


_READERS: dict[str, Callable[[Any, Values], Any]] = {
    "INTEGER": _integers,
    "REAL": _reals,
    "TEXT": _slices(pa.string()),
    "BLOB": _slices(pa.binary()),
}
