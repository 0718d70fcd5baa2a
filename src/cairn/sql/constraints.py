"""SQLite's constraint errors in our words and SQLSTATEs."""

from __future__ import annotations

import re

from cairn.model.catalog import Catalog
from cairn.model.errors import CairnError, NotNullViolation, UniqueViolation
from cairn.model.schema import BUCKET_COLUMN, Table, physical_column

_PLACE = re.compile(r"(?:\w+\.)?t(\d+)\.(\w+)")
_INDEX = re.compile(r"index '(\w+)'")


def translate(message: str, catalog: Catalog) -> CairnError | None:
    """The error behind "UNIQUE constraint failed: t1024.c0"; None for other errors."""
    places = _PLACE.findall(message)
    if "constraint failed" not in message or not places:
        return None
    table = catalog.table_by_id(int(places[0][0]))
    if table is None:
        return None
    columns = [_column_name(table, column) for _, column in places]
    if "NOT NULL" in message:
        return NotNullViolation(
            f'null value in column "{columns[0]}" of relation "{table.name}" violates not-null '
            "constraint"
        )
    if "UNIQUE" in message or "PRIMARY KEY" in message:
        named = [name for name in columns if name != BUCKET_COLUMN]
        index = _index_name(table, named, catalog)
        return UniqueViolation(
            f'Duplicate key exists in unique index "{index}" in space "{table.name}"',
            detail=f"columns: {', '.join(named)}",
        )
    return None


def _column_name(table: Table, physical: str) -> str:
    for at, column in enumerate(table.columns):
        if physical_column(at) == physical:
            return column.name
    return physical


def _index_name(table: Table, columns: list[str], catalog: Catalog) -> str:
    for index in catalog.indexes.get(table.id, ()):
        if index.unique and list(index.columns) == columns:
            return index.name
    return f"{table.name}_pkey"
