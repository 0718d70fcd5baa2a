"""Functions that give rows: lists that json_each takes apart, and `generate_series`."""

from __future__ import annotations

from cairn.model.types.values import SQLITE_TYPES, ColumnType
from cairn.sql.ir import Unnest

#: Rows that SQLite counts itself, each as it is asked for: a list of them would be made whole, and
#: in Python. Past the edges of 64 bits SQLite goes on with real numbers: above, they are greater
#: than any end; below, one of them may be equal to it.
_ROWS = """SELECT value AS x0 FROM (WITH RECURSIVE counted(value, last, step) AS (
SELECT * FROM (SELECT {} AS value, {} AS last, i_step({}) AS step)
WHERE CASE WHEN step > 0 THEN value <= last ELSE value >= last END
UNION ALL SELECT value + step, last, step FROM counted WHERE CASE WHEN step > 0
THEN value + step <= last ELSE value + step >= last AND typeof(value + step) = 'integer' END
) SELECT value FROM counted)""".replace("\n", " ")


def rows_of_series(first: str, last: str, step: str) -> str:
    return _ROWS.format(first, last, step)


def value_of(type_: ColumnType | None, value: str = "value") -> str:
    """How a value of a list is read in SQLite; JSON has no blobs, so they are spelled in hex."""
    return f"unhex({value})" if type_ and SQLITE_TYPES[type_] == "BLOB" else value


def unnested(node: Unnest, of: str) -> list[str]:
    """The columns of a list that json_each takes apart."""
    columns = [
        value_of(type_, f"json_extract({of}value, '$[{at}]')")
        for at, type_ in enumerate(node.types[: node.width])
    ]
    columns = columns or [value_of(node.types[0], f"{of}value")]
    return columns if len(node.types) == len(columns) else [*columns, f"({of}key + 1)"]
