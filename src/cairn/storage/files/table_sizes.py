"""How many rows and bytes each table has in a file, from one walk over its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

#: Cells of a table without rowid are its rows, on every page of its tree.
_SIZES = """
SELECT s.tbl_name, sum(iif(s.type = 'table', d.ncell, 0)), sum(d.pgsize),
       sum(iif(s.type = 'index', d.pgsize, 0))
FROM dbstat AS d JOIN sqlite_schema AS s ON s.name = d.name
WHERE d.aggregate = 1 GROUP BY s.tbl_name
"""


def table_sizes(file: Path) -> dict[str, tuple[int, int, int]]:
    """By physical name: rows, bytes with those of its indexes, bytes of its indexes alone."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(str(file), flags=flags)
    try:
        connection.set_busy_timeout(10_000)
        found: list[Any] = connection.execute(_SIZES).fetchall()
    finally:
        connection.close()
    return {name: (rows, size, of_indexes) for name, rows, size, of_indexes in found}
