"""Lines and columns of a COPY to packed rows, in C: `native/` says how.

What C does not take, it leaves: the same lines then go through `copy_rows.py`, which reads every
spelling and says what is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType
from cairn.native.batches import ODD, RowBatch
from cairn.native.library import ArrowColumn, CopyPlan, Int32, library
from cairn.native.library import Column as PlanColumn
from cairn.pgwire.copy import Columns, CopyParser
from cairn.server.chunk_size import SMALL_BYTES, SMALL_ROWS
from cairn.server.scan.copy_rows import is_required

#: As `fields.h` numbers them. Whatever is missing here is read in Python.
_KINDS = {
    ColumnType.INTEGER: 0,
    ColumnType.UNSIGNED: 1,
    ColumnType.DOUBLE: 2,
    ColumnType.STRING: 3,
    ColumnType.BOOLEAN: 4,
    ColumnType.UUID: 5,
    ColumnType.DATETIME: 6,
    ColumnType.TIMESTAMP: 7,
    ColumnType.DATE: 8,
}
_KEY_KINDS = (
    *(ColumnType.INTEGER, ColumnType.UNSIGNED, ColumnType.STRING),
    *(ColumnType.BOOLEAN, ColumnType.UUID),
)

_SIZED = (ColumnType.STRING, ColumnType.INTEGER)  # C knows what their sizes ask
_MORE = 8


class PackedLines:
    """Takes plain lines into a batch; the parser keeps what is not a whole line yet."""

    def __init__(self, plan: CopyPlan, parser: CopyParser) -> None:
        self._plan, self._parser = plan, parser

    def feed(self, batch: RowBatch, chunk: bytes) -> Iterator[Columns]:
        """The fields of those lines that C did not take. Read them before asking for more."""
        parser = self._parser
        lines = parser.whole_lines(chunk)
        if lines is None:
            yield parser.feed_columns(chunk)
            return
        at, few = 0, 1
        while at < len(lines):
            used, count = batch.take_lines(self._plan, lines, at)
            parser.line += count
            # Odd lines often have neighbours of their kind, and one by one they cost most.
            few = 1 if count > few * _MORE else few * _MORE
            at += used
            if at < len(lines):
                end = _behind(lines, at, few)
                yield parser.columns(lines[at:end])
                if parser.is_amid:  # a row that goes on: C cannot begin in its middle
                    yield parser.columns(lines[end:])
                    return
                at = end


def _behind(lines: bytes, at: int, count: int) -> int:
    """The place behind so many line ends, or the end."""
    for _ in range(count):
        at = lines.find(b"\n", at) + 1
        if not at or at == len(lines):
            return len(lines)
    return at


def packed_lines(
    table: Table, names: Sequence[str], catalog: Catalog, parser: CopyParser
) -> PackedLines | None:
    """None: something of the table or of the options is not for C."""
    found = library()
    assert table.sharding is not None
    columns = [column for name in names if (column := table.column(name)) is not None]
    tier = catalog.tiers[table.sharding.tier]
    key = [names.index(name) for name in table.sharding.columns if name in names]
    if (
        found is None
        or not all(_is_plain(column) for column in columns)
        or not key
        or len(key) != len(table.sharding.columns)
        or any(columns[at].type not in _KEY_KINDS for at in key)
        or (parser.fmt == "csv" and parser.escape != parser.quote)
        or tier.bucket_count <= 0
    ):
        return None
    order = [names.index(column.name) if column.name in names else -1 for column in table.columns]
    null = parser.null.encode()
    described = (
        PlanColumn(_KINDS[column.type], is_required(table, column), *(column.sizes or (0,)))
        for column in columns
    )
    plan = CopyPlan(
        *(parser.fmt == "csv", ord(parser.delimiter), ord(parser.quote), null, len(null)),
        *(len(names), (PlanColumn * len(names))(*described)),
        *(len(order), (Int32 * len(order))(*order), len(key), (Int32 * len(key))(*key)),
        tier.bucket_count,
    )
    return None if found.copy_prepare(plan) == ODD else PackedLines(plan, parser)


def _is_plain(column: Column) -> bool:
    if column.enum is not None:
        return False
    return column.type in _KINDS and (column.type in _SIZED or not column.sizes)


# --- columns of Arrow -----------------------------------------------------------------------------

_WHOLE, _REAL, _TEXTS, _BLOBS, _NOTHING = range(5)  # as `columns_in.c` numbers them


class ArrowRows:
    """Checked columns of one stream, with the bucket of each row."""

    def __init__(self, pa: Any, arrays: Sequence[Any], buckets: Any) -> None:
        described = [_described(pa, array) for array in arrays]
        self._columns = [column for column, _ in described]
        self._kept = [array for _, array in described]  # C reads their memory
        self._buckets, self.count = buckets, len(buckets)

    def put(self, batch: RowBatch, first: int, last: int) -> None:
        batch.take_columns(self._columns, self._buckets.ctypes.data, first, last)

    def parts(self, stream_bytes: int) -> Iterator[tuple[int, int]]:
        """Rows from, up to: so many at a time as make a small chunk."""
        each = max(stream_bytes // max(self.count, 1), 1)
        few = max(min(SMALL_ROWS, SMALL_BYTES // each), 1)
        for first in range(0, self.count, few):
            yield first, min(first + few, self.count)


def _described(pa: Any, array: Any) -> tuple[ArrowColumn, Any]:
    """A column for C, and what has to be kept as long as it is used."""
    if array is None:
        return ArrowColumn(_NOTHING), None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # too large for one: nobody sends that much
            array = pa.concat_arrays(array.chunks)
    kinds = {pa.int64(): _WHOLE, pa.float64(): _REAL, pa.string(): _TEXTS, pa.binary(): _BLOBS}
    buffers = [None if each is None else each.address for each in array.buffers()]
    valid = buffers[0] if array.null_count else None
    if kinds[array.type] in (_TEXTS, _BLOBS):
        return ArrowColumn(kinds[array.type], valid, buffers[2], buffers[1], array.offset), array
    return ArrowColumn(kinds[array.type], valid, buffers[1], None, array.offset), array
