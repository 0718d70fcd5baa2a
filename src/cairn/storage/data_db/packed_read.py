"""Packed rows out of a table: in one call of C, without Python's lock, where it was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from cairn.model.log.packed_rows import as_list
from cairn.native.batches import RowBatch
from cairn.native.loading import POINTS, load

_encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class Found(NamedTuple):
    packed: bytes  # one list of rows
    rows: int
    size: int  # bytes of their texts, and eight for any other value
    last: tuple[Any, ...]  # of the rows; (): there are none


class PackedRead:
    """For a connection that belongs to one thread at a time, and runs no text of anybody else."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._batch = RowBatch() if load(connection, POINTS) else None

    def read(
        self, sql: str, args: Sequence[Any], width: int, rows_max: int, bytes_max: int
    ) -> Found:
        """Until there are `rows_max` rows, or more than so many bytes: one at least.

        `width` is the number of its columns.
        """
        bytes_max = max(bytes_max, 0)
        if self._batch is not None:
            given = b"".join(map(_encode, args))
            db = self._connection.sqlite3_pointer()
            size = self._batch.take_query(db, sql, given, width, rows_max, bytes_max)
            if size is not None:
                last = _decode_row(self._batch.last()) if len(self._batch) else ()
                return Found(self._batch.as_list(), len(self._batch), size, last)
        return self._read_here(sql, args, rows_max, bytes_max)

    def _read_here(self, sql: str, args: Sequence[Any], rows_max: int, bytes_max: int) -> Found:
        packed: list[bytes] = []
        size, last = 0, ()
        for row in self._connection.cursor().execute(sql, args):
            packed.append(_encode(row))
            size += sum(map(_bytes_of, row))
            last = row
            if len(packed) >= rows_max or size > bytes_max:
                break
        return Found(as_list(packed, len(packed)), len(packed), size, last)


def _bytes_of(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 8
