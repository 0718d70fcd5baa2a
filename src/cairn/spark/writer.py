"""Batch writes: rows are hashed in the task and go to their owners as Arrow.

`commit=direct`: one COPY per owner, visible as it goes. `commit=staged` (the default): chunks are
kept aside under (write id, partition, attempt) and promoted when all tasks are done; a chunk is
inserted once, whatever is repeated, and a write id that was committed is never written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from cairn.model.errors import NotNullViolation
from cairn.spark import cluster, staging
from cairn.spark.cluster import CopyIn, Owner
from cairn.spark.filters import quote
from cairn.spark.hashing import bucket_ids
from cairn.spark.options import Options
from cairn.spark.tables import TableInfo, check_writable

CHUNK_ROWS = 10_000  # what one statement inserts at the server


class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task did."""

    def __init__(self, rows: int, chunks: list[staging.Chunk]) -> None:
        self.rows, self.chunks = rows, chunks


def to_stream(batch: Any) -> bytes:
    """A batch as the bytes of one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Splitter:
    """Rows of a batch by the owner of their bucket."""

    def __init__(self, table: TableInfo, owners: list[Owner]) -> None:
        self._table = table
        self._owner_of = np.full(table.bucket_count + 1, -1, dtype=np.int32)
        for at, owner in enumerate(owners):
            for low, high in owner.ranges:
                self._owner_of[low : high + 1] = at

    def split(self, batch: Any) -> Iterator[tuple[int, Any]]:
        """(owner's number, its rows)."""
        table = self._table
        columns = [batch.column(batch.schema.get_field_index(name)) for name in table.key]
        for name, column in zip(table.key, columns, strict=True):
            if column.null_count:
                raise NotNullViolation(f'null value in column "{name}" of the distribution key')
        buckets = bucket_ids(columns, table.key_types, table.bucket_count, table.hash_version)
        order = np.argsort(buckets, kind="stable")  # neighbours on disk are written together
        numbers = self._owner_of[buckets[order]]
        for at in np.unique(numbers):
            yield int(at), batch.take(pa.array(order[numbers == at]))


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Made once on the driver; pickled to tasks and to the commit."""

    def __init__(self, options: Options, table: TableInfo, schema: Any, overwrite: bool) -> None:
        check_writable(table, schema)
        self._options, self._table, self._overwrite = options, table, overwrite
        self._names = [field.name for field in schema.fields]
        assert table.tier is not None
        self._owners = cluster.owners(options.dsn, table.tier)
        self._write_id = options.write_id or uuid.uuid4().hex
        self._is_staged = options.commit == "staged"
        self._is_done = False  # a write with this id was committed before
        if self._is_staged:
            self._is_done = staging.prepare(options.dsn, self._write_id)
        elif overwrite:
            cluster.pool(options.dsn).execute(f"TRUNCATE TABLE {quote(table.name)}")

    # --- in a task ------------------------------------------------------------------------------

    def write(self, iterator: Iterator[Any]) -> Any:
        if self._is_done:
            for _ in iterator:
                pass
            return Written(0, [])
        if self._is_staged:
            return self._stage(iterator)
        if self._options.on_conflict == "error":
            return self._copy(iterator)
        return self._ingest(iterator)

    def _batches(self, iterator: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        """(owner's number, at most a chunk of its rows)."""
        splitter = Splitter(self._table, self._owners)
        for batch in iterator:
            for at, part in splitter.split(batch):
                for start in range(0, part.num_rows, CHUNK_ROWS):
                    yield at, part.slice(start, CHUNK_ROWS)

    def _copy(self, iterator: Iterator[Any]) -> Written:
        names = ", ".join(map(quote, self._names))
        sql = f"COPY {quote(self._table.name)} ({names}) FROM STDIN (FORMAT arrow)"
        open_: dict[int, CopyIn] = {}
        try:
            for at, part in self._batches(iterator):
                copy = open_.get(at)
                if copy is None:
                    copy = CopyIn(self._options.dsn, self._address(at), sql, self._timeout_s)
                    open_[at] = copy
                copy.send(to_stream(part))
            rows = sum(open_[at].finish() for at in list(open_))
        except BaseException:
            for copy in open_.values():
                copy.abandon()
            raise
        return Written(rows, [])

    @property
    def _timeout_s(self) -> float:
        return self._options.timeout_s

    def _address(self, at: int) -> str:
        """An owner's master as of planning; whoever answers instead passes rows on."""
        addresses = self._owners[at].addresses
        return addresses[0] if addresses else cluster.any_address(self._options.dsn)

    def _ingest(self, iterator: Iterator[Any]) -> Written:
        """IGNORE and REPLACE need more than COPY can say."""
        rows = 0
        for at, part in self._batches(iterator):
            rows += staging.ingest(
                self._options, self._table.name, self._names, to_stream(part), self._address(at)
            )
        return Written(rows, [])

    def _stage(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        task = staging.Task(
            self._options.dsn, self._write_id, context.partitionId(), context.taskAttemptId()
        )
        slots = staging.slots(self._owners, self._table)
        rows, chunks = 0, []
        for at, part in self._batches(iterator):
            chunks.append(task.keep(slots[at], to_stream(part), part.num_rows))
            rows += part.num_rows
        return Written(rows, chunks)

    # --- on the driver, at the end --------------------------------------------------------------

    def commit(self, messages: list[Any]) -> None:
        if not self._is_staged or self._is_done:
            return
        manifest = staging.Manifest(
            self._table.name,
            tuple(self._names),
            self._options.on_conflict,
            self._overwrite,
            tuple(chunk for message in messages if message for chunk in message.chunks),
        )
        staging.commit(self._options.dsn, self._write_id, manifest)

    def abort(self, messages: list[Any]) -> None:
        """Messages may be missing although their tasks have written: clean by write id."""
        if self._is_staged and not self._is_done:
            staging.abandon(self._options.dsn, self._write_id)


def owner_number(table: TableInfo, owners: list[Owner], columns: list[Any]) -> Any:
    """For `repartition_by_owner`: the number of each row's owner."""
    buckets = bucket_ids(columns, table.key_types, table.bucket_count, table.hash_version)
    owner_of = np.zeros(table.bucket_count + 1, dtype=np.int32)
    for at, owner in enumerate(owners):
        for low, high in owner.ranges:
            owner_of[low : high + 1] = at
    return owner_of[buckets]
