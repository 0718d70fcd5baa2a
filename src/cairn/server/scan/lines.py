"""Columns to the lines of COPY … TO STDOUT, each in its message: whole columns at a time, in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cairn.model.types.shown import shown_reader
from cairn.model.types.values import OIDS, ColumnType
from cairn.pgwire.copy_out import line_style, to_str
from cairn.pgwire.values.encoders import float_text
from cairn.server.scan.statement import LinesAsked

_COPY_DATA = ord("d")
_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e10  # magnitudes that Arrow writes as PostgreSQL does
WHOLE = (ColumnType.INTEGER, ColumnType.UNSIGNED)


class LinesEncoder:
    """Batches of columns as SQLite stores them to CopyData messages, one for each row."""

    def __init__(self, types: Sequence[ColumnType], asked: LinesAsked) -> None:
        style = self._style = line_style(len(types), asked.fmt, **asked.options)
        self._null = pa.scalar(style.null.encode(), pa.binary())
        self._marks = [each.encode() for each in (*style.marks, style.delimiter, "\n")]
        scales = asked.scales or (None,) * len(types)
        self._writers = [text_writer(*each) for each in zip(types, scales, strict=True)]

    def encode_batch(self, batch: Any) -> Iterator[tuple[int, memoryview]]:
        columns = [
            self._careful(write(stored)).cast(pa.binary()).fill_null(self._null)
            for stored, write in zip(batch.columns, self._writers, strict=True)
        ]
        lengths = np.full(batch.num_rows, 4 + len(columns), np.int32)
        parts: list[Any] = []
        for column in columns:
            lengths += pc.binary_length(column).to_numpy()
            parts += [column, self._style.delimiter.encode()]
        parts[-1] = b"\n"
        nothing = pa.scalar(b"", pa.binary())
        lines = pc.binary_join_element_wise(_heads(lengths), *parts, nothing)
        _, places, data = lines.buffers()
        first, last = np.frombuffer(places, np.int32)[[lines.offset, lines.offset + len(lines)]]
        yield batch.num_rows, memoryview(data)[first:last]

    def _careful(self, texts: Any) -> Any:
        """Values that would be taken for something else are escaped or quoted."""
        if not self._needs_care(texts):
            return texts
        care = self._style.care
        listed = [None if value is None else care(value) for value in texts.to_pylist()]
        return pa.array(listed, pa.string())

    def _needs_care(self, texts: Any) -> bool:
        _, places, data = texts.buffers()
        if data is None:
            return bool(len(texts)) and not self._style.null
        first, last = np.frombuffer(places, np.int32)[[texts.offset, texts.offset + len(texts)]]
        raw = memoryview(data)[first:last].tobytes()
        if any(mark in raw for mark in self._marks):
            return True
        return bool(pc.any(pc.equal(texts, self._style.null)).as_py())


def text_writer(type_: ColumnType, scale: int | None) -> Callable[[Any], Any]:
    """A function from a column as it is stored to its texts."""
    if type_ is ColumnType.STRING:
        return lambda stored: stored
    if type_ in WHOLE:
        return lambda stored: stored.cast(pa.string())
    if type_ is ColumnType.DOUBLE:
        return _reals
    if type_ is ColumnType.BOOLEAN:
        return lambda stored: pc.if_else(pc.equal(stored, 0), "f", "t")
    write, read = to_str(OIDS[type_]), shown_reader(type_, scale)
    assert read is not None  # all others were handled above
    return lambda stored: pa.array(
        [None if value is None else write(read(value)) for value in stored.to_pylist()],
        pa.string(),
    )


def _reals(stored: Any) -> Any:
    """Arrow's digits are the shortest too; only very large and small ones look different."""
    texts = stored.cast(pa.string())
    size = np.abs(stored.fill_null(0).to_numpy())
    odd = (size != 0) & ~((size >= _PLAIN_FROM) & (size < _PLAIN_TO))
    if not odd.any():
        return texts
    values = stored.fill_null(0).to_numpy()[odd].tolist()
    return pc.replace_with_mask(
        texts, pa.array(odd), pa.array(map(float_text, values), pa.string())
    )


def _heads(lengths: Any) -> Any:
    """The beginning of each message: its kind and its length."""
    heads = np.empty((len(lengths), 5), np.uint8)
    heads[:, 0] = _COPY_DATA
    heads[:, 1:] = lengths.astype(">i4").view(np.uint8).reshape(-1, 4)
    fixed = pa.Array.from_buffers(pa.binary(5), len(lengths), [None, pa.py_buffer(heads)])
    return fixed.cast(pa.binary())
