"""Columns to the DataRow messages of a SELECT: whole columns at a time, in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cairn.model.types.row_shape import RowShape, oid_as
from cairn.model.types.shown import shown_reader
from cairn.model.types.values import ColumnType
from cairn.pgwire.messages import TEXT_FORMAT
from cairn.pgwire.values.formats import binary_encoder
from cairn.server.scan.lines import WHOLE, text_writer

_NULL = -1  # as a length
_Write = Callable[[Any], Any]


class MessagesEncoder:
    """Batches of columns as SQLite stores them to messages, in pieces of about so many bytes."""

    def __init__(self, shape: RowShape, piece_bytes: int) -> None:
        columns = zip(shape.types, shape.scales, shape.formats, strict=True)
        self._writers = [column_writer(*each) for each in columns]
        self._most, self._label = max(piece_bytes, 1), shape.label

    def encode_batch(self, batch: Any) -> Iterator[tuple[int, memoryview]]:
        count, width = batch.num_rows, len(self._writers)
        lengths = np.full(count, 6 + 4 * width, np.int32)  # of the messages, without their kind
        parts: list[Any] = []
        for stored, write in zip(batch.columns, self._writers, strict=True):
            column = write(stored).cast(pa.binary())
            sizes = pc.binary_length(column)
            if column.null_count:
                lengths += sizes.fill_null(0).to_numpy()
                sizes, column = sizes.fill_null(_NULL), column.fill_null(b"")
            else:
                lengths += sizes.to_numpy()
            parts += [_fixed(_big_endian(sizes.to_numpy())), column]
        heads = np.empty((count, 11), np.uint8)  # the message's, and that of its first field
        heads[:, 0] = self._label
        heads[:, 1:5] = _big_endian(lengths)
        heads[:, 5:7] = width >> 8, width & 255
        heads[:, 7:] = np.frombuffer(parts[0].buffers()[2], np.uint8).reshape(count, 4)
        parts[0] = _fixed(heads)
        rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        _, places, data = rows.buffers()
        yield from self._cut(np.frombuffer(places, np.int32)[: count + 1], memoryview(data))

    def _cut(self, places: Any, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Between rows, so that each piece has at least one and little more than the asked size."""
        at, last = 0, len(places) - 1
        while at < last:
            end = int(np.searchsorted(places, places[at] + self._most, "right")) - 1
            end = min(max(end, at + 1), last)
            yield end - at, data[int(places[at]) : int(places[end])]
            at = end


def _big_endian(lengths: Any) -> Any:
    return lengths.astype(">i4").view(np.uint8).reshape(-1, 4)


def _fixed(values: Any, valid: Any = None) -> Any:
    """A column of values of the same number of bytes, without copying them."""
    count, width = values.shape
    places = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    parts = [valid, pa.py_buffer(places), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), count, parts)


def column_writer(type_: ColumnType, scale: int | None, fmt: int) -> _Write:
    if fmt == TEXT_FORMAT or type_ is ColumnType.STRING:
        return text_writer(type_, scale)
    if type_ in WHOLE:
        return lambda stored: _fixed_wide(stored, f">i{fmt if fmt > 1 else 8}")
    if type_ is ColumnType.DOUBLE:
        return lambda stored: _fixed_wide(stored, ">f8")
    read, encode = shown_reader(type_, scale), binary_encoder(oid_as(type_, fmt))

    def write(stored: Any) -> Any:
        shown = (None if value is None else read(value) if read else value for value in stored)
        return pa.array([None if value is None else encode(value) for value in shown], pa.binary())

    return lambda stored: write(stored.to_pylist())


def _fixed_wide(stored: Any, form: str) -> Any:
    found = stored.fill_null(0).to_numpy()
    values = found.astype(form)
    if values.itemsize < 8 and not np.array_equal(values, found):
        raise ValueError("a number that is wider than its column")
    values = values.view(np.uint8).reshape(-1, values.itemsize)
    valid = pc.is_valid(stored).buffers()[1] if stored.null_count else None
    return _fixed(values, valid)
