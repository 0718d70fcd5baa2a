"""Tables as Spark and Arrow see them: one place for types in both directions."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

from cairn.client.logic import flows
from cairn.client.logic.effects import always
from cairn.model.errors import (
    CairnError,
    DatatypeMismatch,
    UndefinedColumn,
    UndefinedTable,
    Unsupported,
)
from cairn.model.quoting import identifier
from cairn.model.tables.system_tables import LOCAL_TABLES
from cairn.model.types.enums import text_oid
from cairn.model.types.values import ELEMENTS, TYPE_OF_OID, ColumnType
from cairn.spark.cluster import REPLAN_S, pool

MAX_PRECISION = 38


class ColumnInfo(msgspec.Struct, frozen=True):
    name: str
    type: ColumnType
    nullable: bool
    is_label: bool = False  # of an enum: SQL compares it in another order than Spark its text


class TableInfo(msgspec.Struct, frozen=True):
    """What a task has to know of a table; pickled to it."""

    name: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[str, ...]  # distribution key; empty for a global table, and for rows together
    tier: str | None
    bucket_count: int = 0
    hash_version: int = 2
    told_by: str = ""  # of a local table: the column that says which instance told a row
    is_made: bool = False  # when it is asked for: `_cairn_sessions`, `pg_stat_activity`

    def column(self, name: str) -> ColumnInfo:
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise UndefinedColumn(f'table {self.name} has no column "{name}"; it has {known}')

    @property
    def key_types(self) -> list[ColumnType]:
        return [self.column(name).type for name in self.key]


def describe(dsn: str, name: str) -> TableInfo:
    """The table as the catalogue has it now."""
    connections = pool(dsn)
    row = connections.fetchrow("SELECT format, distribution FROM _pico_table WHERE name = $1", name)
    if row is None:
        return _local(name) or _made(dsn, name)
    columns = tuple(
        ColumnInfo(
            each["name"],
            ColumnType(each["field_type"]),
            bool(each["is_nullable"]),
            "enum" in each,
        )
        for each in row[0]
        if not each.get("dropped")
    )
    sharded = row[1].get("ShardedImplicitly")
    if sharded is None:
        return TableInfo(name, columns, (), None)
    key, _, tier = sharded
    table = connections.topology
    return TableInfo(
        name, columns, tuple(key), tier, table.bucket_count(tier), table.hash_version(tier) or 2
    )


def _local(name: str) -> TableInfo | None:
    """A table that each instance keeps for itself: it is in no catalogue."""
    for table in LOCAL_TABLES:
        if table.name == name:
            told_by = "told_by" if table.column("instance") else "instance"
            columns = [ColumnInfo(each.name, each.type, each.nullable) for each in table.columns]
            first = ColumnInfo(told_by, ColumnType.STRING, False)
            return TableInfo(name, (first, *columns), (), None, told_by=told_by)
    return None


def _made(dsn: str, name: str) -> TableInfo:
    """What no table holds: the instances make its rows when somebody asks. Else there is none."""
    try:
        with pool(dsn).wire() as wire:
            sql = f"SELECT * FROM {qualified(name)} LIMIT 0"
            found = wire.talk(flows.run_once(wire.pg, sql), REPLAN_S, None, always)
    except CairnError as problem:
        if problem.sqlstate not in (UndefinedTable.sqlstate, "3F000"):
            raise
        raise UndefinedTable(
            f'table with name "{name}" not found', hint="names are case-sensitive here"
        ) from None
    columns = tuple(
        ColumnInfo(column, TYPE_OF_OID.get(oid, ColumnType.STRING), True, text_oid(oid) != oid)
        for column, oid, *_ in found.columns
    )
    return TableInfo(name, columns, (), None, is_made=True)


def qualified(name: str) -> str:
    """A name that may have a schema before it: `pg_catalog.pg_class`."""
    return ".".join(map(identifier, name.split(".", 1)))


# --- Spark's types --------------------------------------------------------------------------------


def spark_type(type_: ColumnType, decimal_scale: int) -> Any:
    match type_:
        case ColumnType.BOOLEAN:
            return spark_types.BooleanType()
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            return spark_types.LongType()
        case ColumnType.DOUBLE:
            return spark_types.DoubleType()
        case ColumnType.DECIMAL:
            return spark_types.DecimalType(MAX_PRECISION, decimal_scale)
        case ColumnType.DATETIME:
            return spark_types.TimestampType()
        case ColumnType.TIMESTAMP:
            return spark_types.TimestampNTZType()
        case ColumnType.DATE:
            return spark_types.DateType()
        case ColumnType.VARBINARY:
            return spark_types.BinaryType()
        case _ if type_ in ELEMENTS:
            return spark_types.ArrayType(spark_type(ELEMENTS[type_], decimal_scale))
        case _:
            return spark_types.StringType()


def spark_schema(table: TableInfo, names: tuple[str, ...], decimal_scale: int) -> Any:
    chosen = [table.column(name) for name in names] if names else table.columns
    return spark_types.StructType(
        [
            spark_types.StructField(
                column.name, spark_type(column.type, decimal_scale), column.nullable
            )
            for column in chosen
        ]
    )


def spark_type_of_arrow(type_: Any) -> Any:
    """For a query's result, whose columns have only the types of the wire."""
    if pa.types.is_boolean(type_):
        return spark_types.BooleanType()
    if pa.types.is_integer(type_):
        return spark_types.LongType()
    if pa.types.is_floating(type_):
        return spark_types.DoubleType()
    if pa.types.is_timestamp(type_):
        is_zoned = type_.tz is not None
        return spark_types.TimestampType() if is_zoned else spark_types.TimestampNTZType()
    if pa.types.is_date(type_):
        return spark_types.DateType()
    if pa.types.is_binary(type_):
        return spark_types.BinaryType()
    return spark_types.StringType()


# --- Arrow ----------------------------------------------------------------------------------------


def wanted_schema(schema: Any) -> Any:
    """The Arrow schema that Spark will compare ours with, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def as_wanted(batch: Any, want: Any) -> Any:
    """A batch of the wire in exactly the types that Spark expects; what does not fit is named."""
    arrays = []
    for at, field in enumerate(want):
        array = batch.column(at)
        if array.type != field.type:
            try:
                array = array.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
                raise DatatypeMismatch(
                    f'column "{field.name}" does not fit {field.type}, it comes as {array.type}: '
                    f"{problem}",
                    hint="give .schema(…) or option decimalScale that holds its values",
                ) from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=want)


_WRITABLE: dict[ColumnType, tuple[str, ...]] = {
    ColumnType.BOOLEAN: ("boolean",),
    ColumnType.INTEGER: ("bigint", "int", "smallint", "tinyint"),
    ColumnType.UNSIGNED: ("bigint", "int", "smallint", "tinyint"),
    ColumnType.DOUBLE: ("double", "float", "bigint", "int", "smallint", "tinyint"),
    ColumnType.DECIMAL: ("decimal", "bigint", "int", "smallint", "tinyint"),
    ColumnType.DATETIME: ("timestamp",),
    ColumnType.TIMESTAMP: ("timestamp_ntz", "timestamp"),
    ColumnType.DATE: ("date",),
    ColumnType.INTERVAL: ("string",),
    ColumnType.TIME: ("string",),
    ColumnType.VARBINARY: ("binary",),
    ColumnType.STRING: ("string",),
    ColumnType.UUID: ("string",),
    ColumnType.MAP: ("string",),
    ColumnType.JSONB: ("string",),
    ColumnType.ARRAY: ("string",),
    ColumnType.ANY: ("string",),
}
_WRITABLE.update(
    {list_: tuple(f"array<{word}" for word in _WRITABLE[of]) for list_, of in ELEMENTS.items()}
)


def check_writable(table: TableInfo, schema: Any) -> None:
    """Every column of the data frame goes somewhere, and what must be filled is."""
    if table.told_by or table.is_made:
        raise Unsupported(f"{table.name} tells what instances do: it can be read, not written")
    if table.tier is not None and not table.key:
        raise Unsupported(
            f"the rows of {table.name} lie together (DISTRIBUTED BY ()): Spark does not write them",
            hint="use COPY or INSERT",
        )
    for field in schema.fields:
        column = table.column(field.name)
        given = field.dataType.simpleString()
        if given.partition("(")[0].rstrip(">") not in _WRITABLE[column.type]:
            raise DatatypeMismatch(
                f'column "{field.name}": the data frame has {given}, the table has '
                f"{column.type.value}",
                hint=f"cast it to {_WRITABLE[column.type][0]}{'>' * (column.type in ELEMENTS)}",
            )
    names = {field.name for field in schema.fields}
    for column in table.columns:
        if column.name not in names and (not column.nullable or column.name in table.key):
            raise UndefinedColumn(
                f'the data frame has no column "{column.name}", which {table.name} must have'
            )
