"""Keys of all rows of a table in the order of an index: where to put what is added to it next.

Entries that come in their order fill page after page. In any other order each of them changes a
page of its own, and a large index would be written many times over.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from cairn.model.log.records import pack_rows
from cairn.model.tables.schema import BUCKET_COLUMN, Index, Table, index_parts, physical_column
from cairn.storage.files.spill import OPEN_EMPTY, SpillFiles, native
from cairn.storage.files.sqlite import open_reader

CACHE_KIB = 16_000  # the rest goes to files without names


class KeyList:
    """Any thread, one at a time. What it holds of the file at once are the rows of some buckets."""

    def __init__(
        self,
        source: Path,
        table: Table,
        index: Index,
        register: Callable[[apsw.Connection], None],
    ) -> None:
        self._files = SpillFiles(source.parent)
        self._connection = apsw.Connection("", flags=OPEN_EMPTY, vfs=self._files.name)
        self._cursor: apsw.Cursor | None = None
        execute = self._connection.execute
        execute(f"PRAGMA cache_size = {-CACHE_KIB}")
        execute("PRAGMA journal_mode = off")
        execute(f"ATTACH 'file:{source}?mode=ro&vfs={native()}' AS data")
        register(self._connection)
        parts = index_parts(table, index)
        key = [BUCKET_COLUMN, *map(physical_column, table.key_positions)]
        columns = [*(f"p{at}" for at in range(len(parts))), *(f"k{at}" for at in range(len(key)))]
        execute(f"CREATE TABLE keys ({', '.join(columns)})")
        self._ordered = f"SELECT {', '.join(columns[len(parts) :])} FROM keys ORDER BY " + (
            ", ".join(columns)
        )
        where = f"{BUCKET_COLUMN} BETWEEN ? AND ?" + (f" AND ({index.rule})" if index.rule else "")
        self._gather = (
            f"INSERT INTO keys SELECT {', '.join((*parts, *key))} "
            f"FROM data.{table.physical_name} WHERE {where}"
        )
        self.count = 0

    def gather(self, low: int, high: int) -> int:
        """Of the rows in these buckets, as they are now; how many."""
        before = self._connection.total_changes()
        self._connection.execute(self._gather, (low, high))
        found = self._connection.total_changes() - before
        self.count += found
        return found

    def take(self, most: int) -> bytes | None:
        """The next keys, packed; None: there are no more. The first call sorts them."""
        if self._cursor is None:
            self._cursor = self._connection.execute(self._ordered)
        rows: list[Any] = list(islice(self._cursor, most))
        return pack_rows(rows) if rows else None

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close(True)
        self._connection.close()
        self._files.unregister()


def has_over(source: Path, table: Table, rows: int) -> bool:
    connection = open_reader(source)
    try:
        query = f"SELECT 1 FROM {table.physical_name} LIMIT 1 OFFSET ?"
        return connection.execute(query, (rows,)).fetchone() is not None
    finally:
        connection.close()


def count_rows(source: Path, table: Table) -> int:
    connection = open_reader(source)
    try:
        found: Any = connection.execute(f"SELECT count(*) FROM {table.physical_name}").fetchone()
        return int(found[0])
    finally:
        connection.close()
