"""Rows from the pages of `data.db` to the messages that clients get, in C: `native/rows_out.c`.

Numbers, texts, truth values, times and UUIDs are written there. Columns of other types are made
into texts as `lines.py` and `data_rows.py` do it, and only put into their places in C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cairn.model.errors import StorageDamaged
from cairn.model.types.values import ColumnType
from cairn.native.batches import DAMAGED, ODD, RowBatch
from cairn.native.library import OutPlan, library
from cairn.native.out_columns import GIVEN, NUMBER, REAL, out_columns
from cairn.pgwire.copy_out import line_style
from cairn.pgwire.messages import TEXT_FORMAT
from cairn.server.scan.columns import batch_of
from cairn.server.scan.data_rows import column_writer
from cairn.server.scan.worker import ScanRequest
from cairn.storage.files.file_tree import Records

Piece = tuple[int, memoryview]


def writer(request: ScanRequest) -> MessagesWriter:
    types = request.types
    if request.lines is None:
        assert request.shape is not None
        shape = request.shape
        plan = OutPlan(label=shape.label, columns=len(types), null=b"")
        return MessagesWriter(plan, shape.types, shape.scales, shape.formats, request.piece_bytes)
    asked = request.lines
    style = line_style(len(types), asked.fmt, **asked.options)
    null = style.null.encode()
    quote = asked.options.get("quote") or '"'
    plan = OutPlan(
        *(True, 0, asked.fmt == "csv", ord(style.delimiter), ord(quote)),
        *(ord(asked.options.get("escape") or quote), null, len(null), len(types)),
    )
    scales = asked.scales or (None,) * len(types)
    return MessagesWriter(plan, types, scales, (TEXT_FORMAT,) * len(types), None)


class MessagesWriter:
    """Writes rows as one kind of messages, in pieces of about so many bytes, or as they come."""

    def __init__(
        self,
        plan: OutPlan,
        types: Sequence[ColumnType],
        scales: Sequence[int | None],
        formats: Sequence[int],
        piece_bytes: int | None,
    ) -> None:
        self._plan, self._types = plan, types
        self._columns = plan.column = out_columns(types, scales, formats)
        library().out_prepare(plan)
        asked = zip(types, scales, formats, strict=True)
        self._writers: list[Callable[[Any], Any]] = [column_writer(*each) for each in asked]
        self._most = piece_bytes
        self._out = RowBatch()

    def pieces(self, found: Iterable[tuple[Records, list[int]]]) -> Iterator[Piece]:
        """Each is good until the next one is asked for."""
        for records, at in found:
            yield from self._cut(len(records.starts), *self._written(records, at))

    def _written(self, records: Records, at: list[int]) -> tuple[memoryview, int]:
        starts = np.ascontiguousarray(records.starts, np.int64)
        for column, place in zip(self._columns, at, strict=True):
            column.place = place
        memory = np.ascontiguousarray(records.buffer)
        while True:
            kept = self._give(records, at)
            state = self._out.write_rows(
                self._plan, memory.ctypes.data, len(memory), starts.ctypes.data, len(starts)
            )
            del kept  # until here: C reads its memory
            if state == DAMAGED:
                raise _damaged()
            if state != ODD:
                return self._out.written()
            for column in self._columns:  # unusual ones: from now on Arrow or Python writes them
                is_plain = column.binary if column.kind == REAL else column.kind < NUMBER
                is_plain = is_plain and column.binary in (0, 8)
                if not is_plain:
                    column.kind = GIVEN

    def _give(self, records: Records, at: list[int]) -> list[Any]:
        """Columns that C does not write, as texts; they are kept as long as C reads them."""
        given = [number for number, column in enumerate(self._columns) if column.kind == GIVEN]
        if not given:
            return []
        places, types = [at[number] for number in given], [self._types[each] for each in given]
        batch = batch_of(records, places, types)
        kept = []
        for number, stored in zip(given, batch.columns, strict=True):
            try:
                texts = self._writers[number](stored).cast(pa.binary())
            except (ArithmeticError, LookupError, TypeError, ValueError):
                raise _damaged() from None
            valid, offsets, data = texts.buffers()
            column = self._columns[number]
            column.valid = valid.address if texts.null_count else None
            column.places, column.bytes = offsets.address, 0 if data is None else data.address
            column.offset = texts.offset
            kept.append(texts)
        return kept

    def _cut(self, count: int, data: memoryview, lengths: int) -> Iterator[Piece]:
        """Between rows, so that each piece has at least one and little more than the asked size."""
        if self._most is None or len(data) <= self._most:
            yield count, data
            return
        sizes: Any = (ctypes.c_uint32 * count).from_address(lengths)
        ends = np.cumsum(np.frombuffer(sizes, np.uint32), dtype=np.int64)
        at = start = 0
        while at < count:
            end = int(np.searchsorted(ends, start + max(self._most, 1), "right"))
            end = min(max(end, at + 1), count)
            yield end - at, data[start : int(ends[end - 1])]
            at, start = end, int(ends[end - 1])


def _damaged() -> StorageDamaged:
    """No value of a column looks like this."""
    return StorageDamaged("a row of data.db cannot be read")
