"""Writes of global tables: the driver puts the rows of all tasks into the Raft log, each once.

Every instance keeps a global table whole, so it is small: tasks send their rows along with the
message that they are done. `commit=staged`: one entry of the log has all rows (an overwrite: it
empties the table as well), so a reader sees the table before or after it. `commit=direct`: several
entries, one after the other. `cairn_spark_written` has the ids of entries that are in the log; each
is written by its own entry, so repeating one changes nothing.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from cairn.model.errors import CairnError, LimitExceeded
from cairn.model.quoting import literal
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.tables import TableInfo, check_writable, wanted_schema
from cairn.spark.writes import staging
from cairn.spark.writes.splitting import check_texts, to_stream

DONE = "cairn_spark_written"
ENTRY_BYTES = 8 * 1024 * 1024  # of Arrow in one entry; the log takes 16 MiB
TASK_BYTES = 64 * 1024 * 1024  # that one task may send to the driver
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {DONE} (write_id TEXT NOT NULL, created INTEGER NOT NULL, "
    "PRIMARY KEY (write_id)) DISTRIBUTED GLOBALLY"
)
SEEN_S = 10.0  # patience with instances that apply the log slowly


class Gathered(WriterCommitMessage):  # type: ignore[misc]
    """The rows of one task, as Arrow."""

    def __init__(self, rows: int, body: bytes, write_id: str = "") -> None:
        self.rows, self.body, self.write_id = rows, body, write_id


def gather(table: TableInfo, batches: Iterator[Any], write_id: str = "") -> Gathered:
    """In a task: its rows, if they are few enough."""
    kept: list[Any] = []
    size = 0
    for batch in batches:
        check_texts(batch)
        kept.append(batch)
        size += batch.nbytes
        if size > TASK_BYTES:
            raise _too_large(table, size)
    if not kept:
        return Gathered(0, b"", write_id)
    whole = pa.Table.from_batches(kept).combine_chunks().to_batches()
    return Gathered(sum(map(len, kept)), to_stream(whole[0], "zstd") if whole else b"", write_id)


class GlobalWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Made once on the driver; pickled to tasks and to the commit."""

    def __init__(self, options: Options, table: TableInfo, schema: Any, overwrite: bool) -> None:
        check_writable(table, schema)
        self._options, self._table, self._overwrite = options, table, overwrite
        self._schema = schema
        self._write_id = options.write_id or f"once:{uuid.uuid4().hex}"
        prepare(options.dsn)

    def write(self, iterator: Iterator[Any]) -> Any:
        with plainly():
            cluster.settle()
            return gather(self._table, iterator)

    def commit(self, messages: list[Any]) -> None:
        with plainly():
            put(self._options, self._table, self._schema, self._overwrite, self._write_id, messages)
            if self._options.write_id is None:
                forget(self._options.dsn, self._write_id)

    def abort(self, messages: list[Any]) -> None:
        """Nothing was written before the commit."""


def prepare(dsn: str) -> None:
    staging.create_tables(dsn, {DONE: _CREATE})


def put(
    options: Options,
    table: TableInfo,
    schema: Any,
    overwrite: bool,
    write_id: str,
    messages: Sequence[Any],
) -> None:
    """All rows; in one entry unless the write is direct. Repeating it changes nothing."""
    batches = [
        batch
        for message in messages
        if message is not None and message.body
        for batch in pa.ipc.open_stream(pa.py_buffer(message.body))
    ]
    size = sum(batch.nbytes for batch in batches)
    if options.commit == "staged" and size > ENTRY_BYTES:
        raise _too_large(table, size)
    pieces = _pieces(batches, ENTRY_BYTES if options.commit == "staged" else ENTRY_BYTES // 4)
    if overwrite and not pieces:
        pieces = [pa.RecordBatch.from_pylist([], schema=wanted_schema(schema))]
    name = write_id
    for at, piece in enumerate(pieces):
        name = write_id if options.commit == "staged" else f"{write_id}/{at}"
        _put(options, table, overwrite and at == 0, name, piece)
    if pieces:
        _await_everybody(options.dsn, name)


def _pieces(batches: list[Any], most: int) -> list[Any]:
    if not batches:
        return []
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches() or [None]
    if whole is None:
        return []
    step = max(1, whole.num_rows * most // max(whole.nbytes, most))
    return [whole.slice(start, step) for start in range(0, whole.num_rows, step)]


def _put(options: Options, table: TableInfo, overwrite: bool, write_id: str, batch: Any) -> None:
    body = base64.b64encode(to_stream(batch, "zstd")).decode()
    columns = msgspec.json.encode(batch.schema.names).decode()
    first = ", ".join(map(literal, (table.name, columns, options.on_conflict)))
    last = f"{'true' if overwrite else 'false'}, {literal(DONE)}, {literal(write_id)}, '{body}'"
    cluster.persistently(
        options.dsn,
        lambda _: cluster.call(options.dsn, f"CALL cairn_put({first}, {last})"),
    )


def _await_everybody(dsn: str, write_id: str) -> None:
    """Until all instances that are Online have applied it: whoever is asked next knows of it."""
    until = time.monotonic() + SEEN_S
    sql = f"SELECT 1 FROM {DONE} WHERE write_id = {literal(write_id)}"
    waiting = {each.address for each in cluster.pool(dsn).topology.online()}
    while waiting and time.monotonic() < until:
        for address in list(waiting):
            with suppress(CairnError):  # it may have ended: nobody will ask it
                if not cluster.ask_at(dsn, address, sql):
                    continue
            waiting.discard(address)
        if waiting:
            time.sleep(0.02)


def forget(dsn: str, write_id: str) -> None:
    """A write that nobody will repeat any more, with all of its entries."""
    like = literal(write_id + "/%")
    cluster.pool(dsn).execute(
        f"DELETE FROM {DONE} WHERE write_id = {literal(write_id)} OR write_id LIKE {like}"
    )


def _too_large(table: TableInfo, size: int) -> LimitExceeded:
    return LimitExceeded(
        f"{size >> 20} MiB are too many for {table.name}: every instance keeps a global table "
        f"whole, and one entry of the Raft log takes {ENTRY_BYTES >> 20} MiB",
        hint='option("commit", "direct") writes it in several entries; a sharded table holds more',
    )
