"""Spark's filters as SQL, and the buckets they leave.

A filter that is pushed and dropped is never checked again by Spark, so only those are dropped
that the server evaluates identically: comparisons of integers, booleans, texts and UUIDs. DOUBLE,
DECIMAL and DATETIME are pushed and checked once more; LIKE stays with Spark. Labels of an enum are
compared as texts, as Spark compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any
from uuid import UUID

from pyspark.sql import datasource as spark

from cairn.model import quoting
from cairn.model.quoting import identifier
from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import INT64_MAX, INT64_MIN, ColumnType
from cairn.spark.tables import TableInfo

MAX_KEYS = 10_000
_EXACT = (
    ColumnType.INTEGER,
    ColumnType.UNSIGNED,
    ColumnType.BOOLEAN,
    ColumnType.STRING,
    ColumnType.UUID,
)
_RECHECKED = (ColumnType.DOUBLE, ColumnType.DECIMAL, ColumnType.DATETIME)
_COMPARISONS = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


class Pushed:
    """What a set of filters comes to."""

    def __init__(self, table: TableInfo, filters: Iterable[Any]) -> None:
        self._table = table
        self.conditions: list[str] = []
        self.left: list[Any] = []  # Spark must check these itself
        self._values: dict[str, list[Any]] = {}
        for each in filters:
            self._take(each)

    def _take(self, each: Any) -> None:
        text = condition(self._table, each)
        if text is None:
            self.left.append(each)
            return
        self.conditions.append(text)
        column = self._table.column(_name(each) or "")
        if column.type in _RECHECKED and not isinstance(each, spark.IsNull | spark.IsNotNull):
            self.left.append(each)
        self._remember(each, column.name)

    def _remember(self, each: Any, name: str) -> None:
        if isinstance(each, spark.EqualTo):
            self._values[name] = [each.value]
        elif isinstance(each, spark.In) and name not in self._values:
            self._values[name] = [value for value in each.value if value is not None]

    def buckets(self) -> set[int] | None:
        """Buckets that can hold matching rows; None: all."""
        table = self._table
        if not table.key or any(name not in self._values for name in table.key):
            return None
        lists = [self._values[name] for name in table.key]
        count = 1
        for values in lists:
            count *= len(values)
        if count > MAX_KEYS:
            return None
        types = table.key_types
        try:
            keys = [
                [_key_value(type_, value) for value in values]
                for type_, values in zip(types, lists, strict=True)
            ]
        except ValueError:
            return None
        return {
            bucket_of(types, key, table.bucket_count, table.hash_version) for key in product(*keys)
        }


def _key_value(type_: ColumnType, value: Any) -> Any:
    if type_ is ColumnType.UUID:
        return UUID(value)
    if type_ is ColumnType.DECIMAL:
        return Decimal(value)
    return value


def _name(each: Any) -> str | None:
    if isinstance(each, spark.Not):
        return _name(each.child)
    path = each.attribute
    return path[0] if len(path) == 1 else None


def condition(table: TableInfo, each: Any) -> str | None:
    """The filter as SQL; None when the server cannot be trusted with it."""
    if isinstance(each, spark.Not):
        if isinstance(each.child, spark.Not | spark.EqualNullSafe):
            return None
        inner = condition(table, each.child)
        return None if inner is None else f"NOT ({inner})"
    name = _name(each) if hasattr(each, "attribute") else None
    if name is None or all(column.name != name for column in table.columns):
        return None
    type_ = table.column(name).type
    quoted = identifier(name) + "::text" * table.column(name).is_label
    if isinstance(each, spark.IsNull):
        return f"{quoted} IS NULL"
    if isinstance(each, spark.IsNotNull):
        return f"{quoted} IS NOT NULL"
    if isinstance(each, spark.In):
        items = [literal(type_, value) for value in each.value]
        if not items or None in items:
            return None
        return f"{quoted} IN ({', '.join(item for item in items if item is not None)})"
    sign = _COMPARISONS.get(type(each))
    value = literal(type_, each.value) if sign is not None else None
    if sign is None or value is None or (type_ is ColumnType.UUID and sign != "="):
        return None
    return f"{quoted} {sign} {value}"


def literal(type_: ColumnType, value: Any) -> str | None:
    """A value of the column's type in SQL, exactly; None when that cannot be said."""
    if value is None or type_ not in _EXACT + _RECHECKED:
        return None
    found: str | None = None
    if type_ is ColumnType.BOOLEAN:
        found = {True: "true", False: "false"}.get(value)
    elif type_ in (ColumnType.INTEGER, ColumnType.UNSIGNED):
        is_fit = isinstance(value, int) and INT64_MIN < value <= INT64_MAX
        found = str(value) if is_fit else None
    elif type_ is ColumnType.STRING:
        found = _text(value)
    elif type_ is ColumnType.UUID:
        found = _uuid(value)
    elif type_ is ColumnType.DECIMAL:
        found = f"'{value:f}'::decimal" if isinstance(value, Decimal) else None
    elif type_ is ColumnType.DOUBLE:
        is_finite = isinstance(value, float) and value - value == 0
        found = f"'{value!r}'::double" if is_finite else None
    elif isinstance(value, datetime):
        found = f"'{value.astimezone(UTC).isoformat(sep=' ')}'::datetime"
    elif isinstance(value, date):
        found = None
    return found


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or "\x00" in value:
        return None
    return quoting.literal(value)


def _uuid(value: Any) -> str | None:
    """Spark compares the text: only the canonical spelling can be equal to ours."""
    try:
        is_canonical = str(UUID(value)) == value
    except (ValueError, TypeError, AttributeError):
        return None
    return f"'{value}'::uuid" if is_canonical else None
