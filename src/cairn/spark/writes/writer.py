"""Batch writes: rows are hashed in the task and go to their owners as Arrow.

`commit=direct` (`direct.py`): one COPY per owner, visible as it goes. `commit=staged`, the default
(`staging.py`): chunks are kept aside under (write id, partition, attempt) and promoted when all
tasks are done; a chunk is inserted once, whatever is repeated, and a write id that was committed
is never written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from cairn.model.errors import CairnError
from cairn.model.quoting import identifier
from cairn.model.rpc import Chunk
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.tables import TableInfo, check_writable
from cairn.spark.writes import staging
from cairn.spark.writes.direct import DirectWrite
from cairn.spark.writes.splitting import Splitter, gathered, to_stream


class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task did."""

    def __init__(self, rows: int, chunks: list[Chunk]) -> None:
        self.rows, self.chunks = rows, chunks


def stage(
    options: Options,
    table: TableInfo,
    owners: Sequence[cluster.Owner],
    write_id: str,
    batches: Iterator[Any],
) -> Written:
    """Keep the rows of a task aside, each chunk with the owner of its rows."""
    task = staging.Task(options.dsn, write_id, TaskContext.get().partitionId())
    slots = staging.slots(owners, table)
    rows, chunks = 0, []
    splitter = Splitter(table, owners)
    for batch in gathered(batches, options.batch_bytes):
        for at, part in splitter.chunks(batch, staging.CHUNK_ROWS):
            chunks.append(task.keep(slots[at], to_stream(part, "zstd"), part.num_rows))
            rows += part.num_rows
    return Written(rows, chunks)


def manifest_of(
    table: TableInfo, names: Sequence[str], on_conflict: str, overwrite: bool, messages: list[Any]
) -> staging.Manifest:
    chunks = tuple(chunk for message in messages if message for chunk in message.chunks)
    return staging.Manifest(table.name, tuple(names), on_conflict, overwrite, chunks)


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
            return
        staging.prepare_direct(options.dsn)
        if overwrite:
            cluster.pool(options.dsn).execute(f"TRUNCATE TABLE {identifier(table.name)}")

    # --- in a task ------------------------------------------------------------------------------

    def write(self, iterator: Iterator[Any]) -> Any:
        with plainly():
            return self._write(iterator)

    def _write(self, iterator: Iterator[Any]) -> Written:
        cluster.settle()
        if self._is_done:
            for _ in iterator:
                pass
            return Written(0, [])
        if self._is_staged:
            return stage(self._options, self._table, self._owners, self._write_id, iterator)
        part = TaskContext.get().partitionId()
        work = DirectWrite(
            self._options, self._table, self._owners, self._names, self._write_id, part
        )
        return Written(work.write(iterator), [])

    # --- on the driver, at the end --------------------------------------------------------------

    def commit(self, messages: list[Any]) -> None:
        if not self._is_staged:
            with plainly():
                staging.forget_direct(self._options.dsn, self._write_id)
        if not self._is_staged or self._is_done:
            return
        manifest = manifest_of(
            self._table, self._names, self._options.on_conflict, self._overwrite, messages
        )
        with plainly():
            staging.commit(self._options.dsn, self._write_id, manifest)

    def abort(self, messages: list[Any]) -> None:
        """Messages may be missing although their tasks have written: clean by write id.

        Never fails: what led here is what the user has to see, and orphans are swept later.
        """
        if self._is_staged and not self._is_done:
            with suppress(CairnError):
                staging.abandon(self._options.dsn, self._write_id)
