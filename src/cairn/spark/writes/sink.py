"""Streams into a table: a micro-batch is one staged write, named by its query and its number.

Spark repeats a batch whose end it has not noted, with the same number and the same rows. Its write
id is then known already: what was committed is not written again, what was being promoted is
finished. So each batch is in the table once, whenever the driver was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from cairn.model.errors import CairnError, InvalidParameter
from cairn.spark import cluster
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.tables import TableInfo, check_writable
from cairn.spark.writes import global_write, staging
from cairn.spark.writes.writer import Written, manifest_of, stage

KEPT_BATCHES = 100  # as many as Spark keeps in a checkpoint: one may go back to any of them


class BatchWritten(Written):
    """What one task of a micro-batch did, and to which write it belongs."""

    def __init__(self, done: Written, write_id: str) -> None:
        super().__init__(done.rows, done.chunks)
        self.write_id = write_id


class TableSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Made anew for each batch and for its end: what it has to know comes with the tasks."""

    def __init__(self, options: Options, table: TableInfo, schema: Any, overwrite: bool) -> None:
        _check_options(options)
        check_writable(table, schema)
        self._options, self._table, self._overwrite = options, table, overwrite
        self._names = [field.name for field in schema.fields]
        assert table.tier is not None
        self._owners = cluster.owners(options.dsn, table.tier)
        staging.create(options.dsn)

    # --- in a task ------------------------------------------------------------------------------

    def write(self, iterator: Iterator[Any]) -> Any:
        with plainly():
            write_id = _write_id(TaskContext.get())
            if staging.is_decided(self._options.dsn, write_id):
                for _ in iterator:
                    pass
                return BatchWritten(Written(0, []), write_id)
            done = stage(self._options, self._table, self._owners, write_id, iterator)
            return BatchWritten(done, write_id)

    # --- on the driver, at the end --------------------------------------------------------------

    def commit(self, messages: list[Any], batchId: int) -> None:
        known = [message for message in messages if message is not None]
        if not known:
            return
        with plainly():
            manifest = manifest_of(
                self._table, self._names, self._options.on_conflict, self._overwrite, known
            )
            staging.commit(self._options.dsn, known[0].write_id, manifest)
            query = known[0].write_id.rpartition(":")[0]
            staging.forget(self._options.dsn, f"{query}:{batchId - KEPT_BATCHES}")

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Never fails; what tasks without a message have kept is swept after a day."""
        for message in messages:
            if message is not None:
                with suppress(CairnError):
                    staging.abandon(self._options.dsn, message.write_id)
                return


class GlobalSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Into a global table: a micro-batch is one entry of the Raft log."""

    def __init__(self, options: Options, table: TableInfo, schema: Any, overwrite: bool) -> None:
        _check_options(options)
        check_writable(table, schema)
        self._options, self._table, self._overwrite = options, table, overwrite
        self._schema = schema
        global_write.prepare(options.dsn)

    def write(self, iterator: Iterator[Any]) -> Any:
        with plainly():
            return global_write.gather(self._table, iterator, _write_id(TaskContext.get()))

    def commit(self, messages: list[Any], batchId: int) -> None:
        known = [message for message in messages if message is not None]
        if not known:
            return
        with plainly():
            write_id, options = known[0].write_id, self._options
            global_write.put(options, self._table, self._schema, self._overwrite, write_id, known)
            query = write_id.rpartition(":")[0]
            global_write.forget(options.dsn, f"{query}:{batchId - KEPT_BATCHES}")

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing was written before the commit."""


def _check_options(options: Options) -> None:
    if options.commit != "staged" or options.write_id is not None:
        raise InvalidParameter(
            "a stream is always written staged, each batch under an id of its own",
            hint='leave out option("commit", …) and option("writeId", …)',
        )


def _write_id(context: Any) -> str:
    """Spark's API does not tell a task which batch it works on, its local properties do."""
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise CairnError("this Spark does not tell its tasks which batch they are of")
    return f"stream:{query}:{batch}"
