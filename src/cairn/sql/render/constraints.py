"""SQLite's constraint errors in our words and SQLSTATEs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cairn.model.errors import CairnError
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.model.tables.violations import check_failed, not_unique, null_value
from cairn.model.types.shown import shown_text

_PLACE = re.compile(r"(?:\w+\.)?t(\d+)\.(\w+)")
_CHECK = re.compile(r"CHECK constraint failed: t(\d+)/(\d+)")
_INDEX = re.compile(r"index '(\w+)'")


def translate(
    message: str, catalog: Catalog, row: Sequence[Any] | None = None
) -> CairnError | None:
    """The error behind "UNIQUE constraint failed: t1024.c0"; None for other errors.

    `row` is the physical row that was to be inserted, when there was just one.
    """
    if found := _CHECK.search(message):
        table = catalog.table_by_id(int(found[1]))
        if table is not None and int(found[2]) < len(table.checks):
            return check_failed(table, table.checks[int(found[2])])
    if "UNIQUE" in message and (found := _INDEX.search(message)):  # of DECIMALs: an expression
        for index in (each for all_ in catalog.indexes.values() for each in all_):
            table = catalog.table_by_id(index.table_id)
            if index.physical_name == found[1] and table is not None:
                given = None if index.computed else row
                return not_unique(table, index.name, _key_detail(table, index.words, given))
    places = _PLACE.findall(message)
    if "constraint failed" not in message or not places:
        return None
    table = catalog.table_by_id(int(places[0][0]))
    if table is None:
        return None
    columns = [_column_name(table, column) for _, column in places]
    if (
        "NOT NULL" in message or "CHECK" in message
    ):  # the one check there is (storage/raft_db/ddl.py)
        return null_value(table, columns[0])
    if "UNIQUE" in message or "PRIMARY KEY" in message:
        named = [name for name in columns if name != BUCKET_COLUMN]
        detail = _key_detail(table, named, row)
        return not_unique(table, _index_name(table, named, catalog), detail)
    return None


def row_query(sql: str) -> str | None:
    """What gives the row of an `INSERT … VALUES (…)`; None for one that may do something else."""
    _, values, rest = sql.partition(" VALUES ")
    if not values or not rest.endswith(")") or " ON CONFLICT" in rest:
        return None
    return f"SELECT * FROM (VALUES {rest})"


def _key_detail(table: Table, named: list[str], row: Sequence[Any] | None) -> str:
    if row is None or len(row) != len(table.columns) + 1:
        return f"columns: {', '.join(named)}"
    return key_exists(table, named, row[1:])


def key_exists(table: Table, named: Sequence[str], row: Sequence[Any]) -> str:
    """PostgreSQL's sentence about a key that is taken, from a physical row."""
    values = []
    for name in named:
        at = table.position(name)
        values.append(shown_text(table.columns[at].type, row[at]))
    return f"Key ({', '.join(named)})=({', '.join(values)}) already exists."


def _column_name(table: Table, physical: str) -> str:
    for at, column in enumerate(table.columns):
        if physical_column(at) == physical:
            return column.name
    return physical


def _index_name(table: Table, columns: list[str], catalog: Catalog) -> str:
    for index in catalog.indexes.get(table.id, ()):
        if index.unique and not index.computed and list(index.columns) == columns:
            return index.name
    return table.key_name
