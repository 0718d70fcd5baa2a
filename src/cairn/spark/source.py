"""`format("cairn")`: what Spark is given."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource

from cairn.model.errors import InvalidParameter, UndefinedTable
from cairn.spark import cluster
from cairn.spark.options import Options, read_options
from cairn.spark.plainly import plainly
from cairn.spark.reads.local_read import LocalReader, MadeReader
from cairn.spark.reads.reader import PushingReader, QueryReader, TableReader, query_schema
from cairn.spark.tables import TableInfo, describe, spark_schema, spark_type_of_arrow
from cairn.spark.writes.writer import TableWriter


class CairnSource(DataSource):  # type: ignore[misc]
    """Tables and queries in batches, topology and row changes as streams, rows written."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        cluster.settle()
        with plainly():
            self._options: Options = read_options(dict(options))

    @classmethod
    def name(cls) -> str:
        return "cairn"

    def schema(self) -> Any:
        with plainly():
            return self._schema()

    def _schema(self) -> Any:
        options = self._options
        if options.stream is not None:
            from cairn.spark.streams import streams

            return streams.schema(options)
        if options.query is not None:
            return spark_types.StructType(
                [
                    spark_types.StructField(field.name, spark_type_of_arrow(field.type))
                    for field in query_schema(options)
                ]
            )
        table = describe(options.dsn, self._table_name())
        return spark_schema(table, options.columns, options.decimal_scale)

    def _table_name(self) -> str:
        if self._options.table is None:
            raise InvalidParameter('option("table", …) is missing')
        return self._options.table

    def reader(self, schema: Any) -> Any:
        options = self._options
        with plainly():
            if options.query is not None:
                return QueryReader(options, schema)
            table = describe(options.dsn, self._table_name())
            for field in schema.fields:
                table.column(field.name)
            if table.told_by:
                return LocalReader(options, table, schema)
            if table.is_made:
                return MadeReader(options, table, schema)
            if options.snapshot is not None:
                from cairn.spark.reads.snapshot_read import SnapshotReader

                return SnapshotReader(options, table, schema)
            return (PushingReader if options.pushdown else TableReader)(options, table, schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        with plainly():
            table = self._target()
            if table.tier is None:
                from cairn.spark.writes.global_write import GlobalWriter

                return GlobalWriter(self._options, table, schema, overwrite)
            return TableWriter(self._options, table, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from cairn.spark.writes.sink import GlobalSink, TableSink

        with plainly():
            table = self._target()
            sink = GlobalSink if table.tier is None else TableSink
            return sink(self._options, table, schema, overwrite)

    def _target(self) -> TableInfo:
        try:
            return describe(self._options.dsn, self._table_name())
        except UndefinedTable as problem:
            problem.hint = "create it first: `cairn load --create`, or CREATE TABLE"
            raise

    def streamReader(self, schema: Any) -> Any:
        from cairn.spark.streams import streams

        return streams.reader(self._options, schema)
