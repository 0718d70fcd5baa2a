"""How SQLite comes to the rows of each table: by a key, by an index, or by looking at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.sql.ir import scans_in

QueryPlan = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]
_STEP = re.compile(r"(?:SEARCH|SCAN) r(\d+)(?: EXISTS)?(?: LEFT-JOIN)? USING (.*?)(?: \((.*)\))?")
_EACH = re.compile(r"(?:MATERIALIZE|CO-ROUTINE) each")
_COLUMN = re.compile(r"\bc(\d+)\b")
_OF_BUCKETS = re.compile(r"bucket_id[<>=]\?(?: AND )?")


def access_paths(
    node: Any, rows: Sequence[Sequence[Any]], catalog: Catalog | None
) -> dict[int, str]:
    """By relation: ` by index "i" (b=?)`. `rows` are those of SQLite's EXPLAIN QUERY PLAN."""
    tables = {scan.rel: scan.table for scan in scans_in(node)}
    if any(_EACH.fullmatch(str(row[3])) for row in rows):  # see `render/by_key.py`: it has no other
        return dict.fromkeys(tables, " by primary key in each bucket")
    found: dict[int, str] = {}
    for row in rows:
        step = _STEP.fullmatch(str(row[3]).removesuffix(" LEFT-JOIN"))
        if step is not None and (table := tables.get(int(step[1]))) is not None:
            shown = _shown(step[2], step[3] or "", table, catalog)
            if shown:
                found[int(step[1])] = shown
    return found


def _shown(way: str, terms: str, table: Table, catalog: Catalog | None) -> str:
    columns = table.columns
    kept = _OF_BUCKETS.sub("", terms).removesuffix(" AND ")
    kept = _COLUMN.sub(lambda at: columns[int(at[1])].name, kept).replace(" AND ", " and ")
    if "AUTOMATIC" in way:
        name = "a temporary index"
    elif "INDEX" in way:
        physical = way.rpartition(" ")[2]
        for each in _computed(physical, table, catalog):
            kept = kept.replace("<expr>", each, 1)
        name = f'index "{_index_name(physical, table, catalog)}"'
    else:
        name = "primary key"
        if not kept:  # only the buckets are known: all of their rows are looked at
            return ""
    return f" by {name}" + (f" ({kept})" if kept else "")


def _computed(physical: str, table: Table, catalog: Catalog | None) -> list[str]:
    """The expressions of an index: SQLite says only that it has some."""
    known = () if catalog is None else catalog.indexes.get(table.id, ())
    return [
        each.text for index in known if index.physical_name == physical for each in index.computed
    ]


def _index_name(physical: str, table: Table, catalog: Catalog | None) -> str:
    if physical.startswith("sqlite_autoindex"):
        return table.key_name
    for index in () if catalog is None else catalog.indexes.get(table.id, ()):
        if index.physical_name == physical:
            return index.name
    return physical
