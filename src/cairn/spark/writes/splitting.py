"""Rows of a batch by the replicaset that owns their bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cairn.model.errors import InvalidText, NotNullViolation
from cairn.model.sharding.bucket_columns import bucket_ids
from cairn.spark.cluster import Owner
from cairn.spark.tables import TableInfo

CHUNK_ROWS = 20_000  # of one message to the server
CHUNK_BYTES = 8 * 1024 * 1024  # wide rows make smaller chunks


def gathered(batches: Iterable[Any], most_bytes: int) -> Iterator[Any]:
    """Spark's batches in larger ones: rows of a bucket lie together in the table.

    The more rows of a bucket come at once, the fewer pages are written twice: 8 MB cost the
    server a quarter more time than 32 MB.
    """
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield from _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[Any]) -> list[Any]:
    found: list[Any] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


def to_stream(batch: Any, compression: str | None = None) -> bytes:
    """A batch as the bytes of one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Splitter:
    """Knows the owner of each bucket, as of when it was made."""

    def __init__(self, table: TableInfo, owners: Sequence[Owner]) -> None:
        self._table = table
        self._owner_of = np.full(table.bucket_count + 1, -1, dtype=np.int32)
        for at, owner in enumerate(owners):
            for low, high in owner.ranges:
                self._owner_of[low : high + 1] = at

    def chunks(self, batch: Any, most: int = CHUNK_ROWS) -> Iterator[tuple[int, Any]]:
        """(owner's number, at most a chunk of its rows)."""
        for at, part in self.split(batch):
            step = max(1, min(most, part.num_rows * CHUNK_BYTES // max(part.nbytes, 1)))
            for start in range(0, part.num_rows, step):
                yield at, part.slice(start, step)

    def split(self, batch: Any) -> Iterator[tuple[int, Any]]:
        """(owner's number, its rows)."""
        table = self._table
        check_texts(batch)
        columns = [batch.column(batch.schema.get_field_index(name)) for name in table.key]
        for name, column in zip(table.key, columns, strict=True):
            if column.null_count:
                raise NotNullViolation(f'null value in column "{name}" of the distribution key')
        buckets = bucket_ids(columns, table.key_types, table.bucket_count, table.hash_version)
        order = np.argsort(buckets, kind="stable")  # neighbours on disk are written together
        numbers = self._owner_of[buckets[order]]
        for at in np.unique(numbers):
            yield int(at), batch.take(pa.array(order[numbers == at]))

    def numbers(self, columns: Sequence[Any]) -> Any:
        """The number of each row's owner, from the columns of the key."""
        table = self._table
        buckets = bucket_ids(columns, table.key_types, table.bucket_count, table.hash_version)
        return np.maximum(self._owner_of[buckets], 0)


def check_texts(batch: Any) -> None:
    """Spark lets any bytes be a string; the database keeps UTF-8."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                raise InvalidText(
                    f'column "{field.name}" has a string that is not UTF-8',
                    hint="decode it in Spark first: decode(column, 'ISO-8859-1')",
                    sqlstate="22021",
                ) from None
