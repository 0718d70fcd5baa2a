"""The rows of information_schema, made from our own catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cairn.model.tables.catalog import View
from cairn.model.tables.schema import VARCHAR, Column, Index, Table
from cairn.model.types.values import ColumnType
from cairn.server.catalog.schema import ARRAYS, DATABASE, TYPES

Values = dict[str, Any]
_TIMES = (ColumnType.DATETIME, ColumnType.TIMESTAMP, ColumnType.TIME)


def schema_of(table: Table) -> str:
    return "pg_catalog" if table.is_system else "public"


def _named(schema: str, name: str) -> Values:
    return {"table_catalog": DATABASE, "table_schema": schema, "table_name": name}


def view_rows(view: View) -> Iterator[tuple[str, Values]]:
    named = _named("public", view.name)
    yield "information_schema_tables", {**named, "table_type": "VIEW", "is_insertable_into": "NO"}
    yield (
        "information_schema_views",
        {**named, "check_option": "NONE", "is_updatable": "NO", "is_insertable_into": "NO"},
    )
    for at, (name, type_) in enumerate(zip(view.columns, view.types, strict=True), 1):
        yield "information_schema_columns", {**named, **_column(at, Column(name, type_), True)}


def table_rows(table: Table, indexes: list[tuple[Index, bool]]) -> Iterator[tuple[str, Values]]:
    """`indexes` with whether they are the primary key."""
    named = _named(schema_of(table), table.name)
    yield (
        "information_schema_tables",
        {**named, "table_type": "BASE TABLE", "is_insertable_into": "YES"},
    )
    for at, column in enumerate(table.columns, 1):
        if not column.is_hidden:
            may_be_null = column.nullable and column.name not in table.primary_key
            yield "information_schema_columns", {**named, **_column(at, column, may_be_null)}
    for index, is_primary in indexes:
        if index.is_key:
            yield from _unique(table, index, is_primary)
    for check in table.checks:
        rule = {**_constraint(table, check.name), "check_clause": f"({check.text})"}
        yield "information_schema_check_constraints", rule
        yield "information_schema_table_constraints", _of_table(table, check.name, "CHECK")


def _constraint(table: Table, name: str) -> Values:
    schema = schema_of(table)
    return {
        "constraint_catalog": DATABASE,
        "constraint_schema": schema,
        "constraint_name": name,
    }


def _of_table(table: Table, name: str, kind: str) -> Values:
    return {
        **_constraint(table, name),
        **_named(schema_of(table), table.name),
        "constraint_type": kind,
        "is_deferrable": "NO",
        "initially_deferred": "NO",
        "enforced": "YES",
    }


def _unique(table: Table, index: Index, is_primary: bool) -> Iterator[tuple[str, Values]]:
    kind = "PRIMARY KEY" if is_primary else "UNIQUE"
    yield "information_schema_table_constraints", _of_table(table, index.name, kind)
    for at, name in enumerate(index.columns, 1):
        used = {
            **_constraint(table, index.name),
            **_named(schema_of(table), table.name),
            "column_name": name,
        }
        yield "information_schema_key_column_usage", {**used, "ordinal_position": at}
        yield "information_schema_constraint_column_usage", used


def _user_type(column: Column) -> Values:
    if column.enum is None:
        return {}
    schema = {"udt_schema": "public", "udt_name": column.enum.name}
    return {"data_type": "USER-DEFINED", **schema}


_LITERAL = re.compile(r"'(?:[^']|'')*'")
_AS_WORDS = re.compile(
    r"(true|false)|(current_(?:date|time|timestamp)|local(?:time|timestamp))", re.I
)


def shown_default(column: Column) -> str | None:
    """As PostgreSQL prints it: tools read the value of a literal only with its type behind it."""
    text = column.default
    if text is None or text.lower() == "null":
        return None
    if (words := _AS_WORDS.fullmatch(text)) is not None:
        return text.lower() if words[1] else text.upper()
    if _LITERAL.fullmatch(text) is None:
        return text
    oid = column.oid
    if column.enum is not None:
        return f"{text}::{column.enum.name}"
    shown = ARRAYS[oid] if oid in ARRAYS else TYPES[oid]
    return f"{text}::{shown[0]}"


def _column(at: int, column: Column, may_be_null: bool) -> Values:
    oid = column.oid
    is_array = oid in ARRAYS
    shown = ARRAYS[oid] if is_array else TYPES[oid]
    return {
        "column_name": column.name,
        "ordinal_position": at,
        "column_default": shown_default(column),
        "is_nullable": "YES" if may_be_null else "NO",
        "data_type": "ARRAY" if is_array else shown[0],
        "character_maximum_length": column.sizes[0] if oid == VARCHAR else None,
        **_precision(column),
        "udt_catalog": DATABASE,
        "udt_schema": "pg_catalog",
        "udt_name": shown[1],
        **_user_type(column),
        "dtd_identifier": str(at),
        "is_identity": "NO" if column.identity is None else "YES",
        "identity_generation": None
        if column.identity is None
        else "ALWAYS" if column.identity.always else "BY DEFAULT",
        "is_generated": "NEVER",
        "is_updatable": "YES",
        "is_self_referencing": "NO",
    }  # fmt: skip


def _precision(column: Column) -> Values:
    match column.type:
        case ColumnType.INTEGER | ColumnType.UNSIGNED:
            bits = 64 if column.width is None else 8 * column.width.value
            return {"numeric_precision": bits, "numeric_precision_radix": 2, "numeric_scale": 0}
        case ColumnType.DOUBLE:
            return {"numeric_precision": 53, "numeric_precision_radix": 2}
        case ColumnType.DECIMAL:
            first, second = column.sizes or (None, None)
            return {
                "numeric_precision": first,
                "numeric_precision_radix": 10,
                "numeric_scale": second,
            }
        case ColumnType.DATE:
            return {"datetime_precision": 0}
        case ColumnType.INTERVAL:
            return {"datetime_precision": 6}
    if column.type in _TIMES:
        return {"datetime_precision": column.sizes[0] if column.sizes else 6}
    return {}
