"""Packed rows that are gathered for one transaction."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.errors import LimitExceeded
from cairn.model.log.packed_rows import HEAD, PackedRows, head_of
from cairn.native.library import ArrowColumn, CopyPlan, OutPlan, library

ODD, DAMAGED = 1, 2
#: Bytes that nobody has seen yet, and that C fills: an object of 25 MB is not made twice.
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_encode = msgspec.msgpack.Encoder().encode


class RowBatch:
    """Rows as they come; `sorted` gives them away in the order of their buckets."""

    def __init__(self) -> None:
        self._library = library()
        self._batch = self._library.batch_new()
        if not self._batch:
            raise _no_memory()

    def __del__(self) -> None:
        if self._batch:
            self._library.batch_free(self._batch)

    def __len__(self) -> int:
        return int(self._batch.contents.rows)

    def take_lines(self, plan: CopyPlan, data: bytes, start: int) -> tuple[int, int]:
        """How many bytes were plain rows, from `start` on, and how many line ends."""
        used, lines = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._library.copy_take(self._batch, plan, data, start, len(data), used, lines))
        return used.value, lines.value

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows that begin with their bucket."""
        packed = [_encode(row) for row in rows]
        lengths = array("I", map(len, packed))
        buckets = array("I", [row[0] for row in rows])
        self._check(
            self._library.batch_append(
                self._batch, b"".join(packed), _address(lengths), _address(buckets), len(rows)
            )
        )

    def take_columns(
        self, columns: Sequence[ArrowColumn], buckets: int, first: int, last: int
    ) -> None:
        """Rows of Arrow's columns; `buckets` is where their buckets are, as int32."""
        given = (ArrowColumn * len(columns))(*columns)
        self._check(
            self._library.columns_take(self._batch, given, len(columns), buckets, first, last)
        )

    def take_query(
        self, db: int, sql: str, given: bytes, width: int, rows_max: int, bytes_max: int
    ) -> int | None:
        """Rows of a query instead of what was here: the bytes of their values, as `packed_out.c`
        counts them. None: something is wrong, and Python has to tell it. `given` are its arguments,
        packed."""
        text, counted = sql.encode(), ctypes.c_uint64()
        state = self._library.packed_out(
            *(db, text, len(text), width, given, len(given)),
            *(rows_max, bytes_max, self._batch, counted),
        )
        return None if state else counted.value

    def as_list(self) -> bytes:
        """The rows in the order in which they came."""
        found = self._batch.contents
        rows = ctypes.string_at(found.data, found.size) if found.size else b""
        return head_of(len(self)) + rows

    def last(self) -> bytes:
        """The row that came last."""
        found = self._batch.contents
        length = ctypes.c_uint32.from_address(found.lengths + 4 * (found.rows - 1)).value
        return ctypes.string_at(found.data + found.size - length, length)

    def write_rows(self, plan: OutPlan, memory: int, length: int, starts: int, count: int) -> int:
        """Messages of records of SQLite instead of what was here; how it ended."""
        state: int = self._library.rows_out(self._batch, plan, memory, length, starts, count)
        self._check(state)
        return state

    def write_packed(self, plan: OutPlan, rows: bytes) -> bool:
        """The same of a list of rows in MessagePack; whether they are plain."""
        state: int = self._library.packed_messages(self._batch, plan, rows, len(rows))
        self._check(state)
        return state == 0

    def written(self) -> tuple[memoryview, int]:
        """What was written, and where the lengths of its messages are: good until the next time."""
        found = self._batch.contents
        if not found.size:
            return memoryview(b""), 0
        raw = (ctypes.c_char * found.size).from_address(found.data)
        return memoryview(raw).cast("B"), found.lengths

    def sorted(self, bucket_count: int) -> PackedRows:
        found = self._batch.contents
        data = _new_bytes(None, HEAD + found.size)
        state = self._library.batch_sort(self._batch, bucket_count, head_of(len(self)), data)
        self._check(state)
        if state == ODD:
            raise ValueError(f"a row has a bucket beyond {bucket_count}")
        total = found.bucket_total
        return PackedRows(
            data,
            found.bucket_ids[:total],
            found.bucket_rows[:total],
            found.bucket_starts[: total + 1],
        )

    def _check(self, state: int) -> None:
        if state < 0:
            raise _no_memory()


def _address(values: array[int]) -> int:
    return values.buffer_info()[0]


def _no_memory() -> LimitExceeded:
    return LimitExceeded("not enough memory for rows in bulk", sqlstate="53200")
