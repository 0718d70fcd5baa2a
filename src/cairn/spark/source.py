"""`format("cairn")`: what Spark is given."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource

from cairn.model.errors import CairnError, InvalidParameter, UndefinedTable
from cairn.spark.options import Options, read_options
from cairn.spark.reader import PushingReader, QueryReader, TableReader, query_schema
from cairn.spark.tables import describe, spark_schema, spark_type_of_arrow
from cairn.spark.writer import TableWriter


class CairnSparkError(Exception):
    """One sentence for the user instead of a page."""


def _plainly(problem: CairnError) -> CairnSparkError:
    words = [problem.message, problem.detail, problem.hint and f"({problem.hint})"]
    return CairnSparkError(f"[{problem.sqlstate}] " + " ".join(word for word in words if word))


class CairnSource(DataSource):  # type: ignore[misc]
    """Tables and queries in batches, topology and row changes as streams, rows written."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        try:
            self._options: Options = read_options(dict(options))
        except CairnError as problem:
            raise _plainly(problem) from None

    @classmethod
    def name(cls) -> str:
        return "cairn"

    def schema(self) -> Any:
        try:
            return self._schema()
        except CairnError as problem:
            raise _plainly(problem) from None

    def _schema(self) -> Any:
        options = self._options
        if options.stream is not None:
            from cairn.spark import streams

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
        try:
            if options.query is not None:
                return QueryReader(options, schema)
            table = describe(options.dsn, self._table_name())
            for field in schema.fields:
                table.column(field.name)
            return (PushingReader if options.pushdown else TableReader)(options, table, schema)
        except CairnError as problem:
            raise _plainly(problem) from None

    def writer(self, schema: Any, overwrite: bool) -> Any:
        options = self._options
        try:
            return TableWriter(
                options, describe(options.dsn, self._table_name()), schema, overwrite
            )
        except UndefinedTable as problem:
            problem.hint = "create it first: `cairn load --create`, or CREATE TABLE"
            raise _plainly(problem) from None
        except CairnError as problem:
            raise _plainly(problem) from None

    def streamReader(self, schema: Any) -> Any:
        from cairn.spark import streams

        try:
            return streams.reader(self._options, schema)
        except CairnError as problem:
            raise _plainly(problem) from None
