"""A table of SQLite brought to another definition, without touching a row.

SQLite's documentation gives the way for what has no effect on the rows in the file (columns at the
end, NOT NULL, CHECK, defaults): the text of the table is edited. Its own ALTER TABLE would look at
every row, also at those that are not ours any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from cairn.model.errors import CairnError, CheckViolation, NotNullViolation
from cairn.model.tables.altering import newly_required
from cairn.model.tables.schema import Table, create_table_sql, physical_column


def reshape(connection: apsw.Connection, have: Table, want: Table) -> None:
    """Inside the caller's transaction. Columns are only ever added at the end; taking some away
    undoes a change that was aborted, and rows may have come with them."""
    for at in range(len(want.columns), len(have.columns)):
        name = physical_column(at)
        connection.execute(f"ALTER TABLE {want.physical_name} DROP COLUMN {name}")
    if create_table_sql(have) != create_table_sql(want):
        _rewrite(connection, want)


def _rewrite(connection: apsw.Connection, table: Table) -> None:
    name = table.physical_name
    before = _layout(connection, name)
    with writable_schema(connection):
        connection.execute(
            "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?",
            (create_table_sql(table), name),
        )
    if _layout(connection, name)[: len(before)] != before:  # else rows would be read wrongly
        raise CairnError(f"the columns of {name} would lie elsewhere", sqlstate="XX000")


@contextmanager
def writable_schema(connection: apsw.Connection) -> Iterator[None]:
    """The texts of tables and indexes may be changed here; everybody reads them anew then."""
    execute = connection.execute
    before: Any = execute("PRAGMA writable_schema").fetchone()
    execute("PRAGMA writable_schema = ON")
    try:
        yield
        version: Any = execute("PRAGMA schema_version").fetchone()
        execute(f"PRAGMA schema_version = {version[0] + 1}")
    finally:
        execute(f"PRAGMA writable_schema = {before[0]}")


def _layout(connection: apsw.Connection, name: str) -> list[Any]:
    """What says where a value lies in a row: names and types in order, and the key."""
    return [
        (row[0], row[1], row[2], row[5]) for row in connection.execute(f"PRAGMA table_info({name})")
    ]


def check_rows(
    connection: apsw.Connection, have: Table, want: Table, where: str = "true", args: Any = ()
) -> None:
    """Raises if rows that meet a condition do not fit what is asked of them from now on.

    After `reshape`, in the same transaction: columns that were added can be asked for.
    """

    def is_any(condition: str) -> bool:
        text = f"SELECT 1 FROM {want.physical_name} WHERE {where} AND {condition} LIMIT 1"
        return connection.execute(text, args).fetchone() is not None

    for at in newly_required(have, want):
        if is_any(f"{physical_column(at)} IS NULL"):
            raise NotNullViolation(
                f'column "{want.columns[at].name}" of relation "{want.name}" contains null values',
                hint="UPDATE the rows in which it is NULL first"
                if at < len(have.columns)
                else "a NOT NULL column is added to a table with rows only with a DEFAULT",
            )
    for check in want.checks:
        if check not in have.checks and is_any(f"NOT ({check.rule})"):
            raise CheckViolation(
                f'check constraint "{check.name}" of relation "{want.name}" is violated by some row'
            )
