"""Foreign keys as PostgreSQL's catalogue and information_schema tell them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import ForeignKey, Index, Table
from cairn.server.catalog.schema import DATABASE

Values = dict[str, Any]
_CODES = {"no action": "a", "restrict": "r", "cascade": "c", "set null": "n"}
_SCHEMA = "public"


def unique_of(catalog: Catalog, key: ForeignKey) -> tuple[Table, Index] | None:
    """What makes the named columns unique: the primary key, or a unique index."""
    parent = catalog.table_by_id(key.parent)
    if parent is None:
        return None
    names = {parent.columns[at].name for at in key.parent_columns}
    if set(parent.primary_key) == names:
        return parent, Index(parent.id, 0, parent.key_name, parent.primary_key, unique=True)
    for index in catalog.indexes.get(parent.id, ()):
        if index.is_key and set(index.columns) == names:
            return parent, index
    return None


def constraint_row(
    catalog: Catalog, table: Table, key: ForeignKey, oid: int, space: int, index_oid: int
) -> Values:
    return {
        **dict.fromkeys(("contypid", "conparentid", "coninhcount"), 0),
        **dict.fromkeys(("convalidated", "conislocal", "connoinherit"), 1),
        "oid": oid,
        "conname": key.name,
        "connamespace": space,
        "contype": "f",
        "condeferrable": int(key.is_deferred),
        "condeferred": int(key.is_deferred),
        "conrelid": table.id,
        "conindid": index_oid,
        "confrelid": key.parent,
        "confupdtype": _CODES[key.on_update],
        "confdeltype": _CODES[key.on_delete],
        "confmatchtype": "s",
        "conkey": _listed(key.columns),
        "confkey": _listed(key.parent_columns),
    }


def definition(
    catalog: Catalog, table: Table, key: ForeignKey, quoted: Callable[[str], Any]
) -> str:
    """As PostgreSQL prints it."""
    parent = catalog.table_by_id(key.parent)
    own = ", ".join(str(quoted(table.columns[at].name)) for at in key.columns)
    if parent is None:
        return f"FOREIGN KEY ({own})"
    theirs = ", ".join(str(quoted(parent.columns[at].name)) for at in key.parent_columns)
    text = f"FOREIGN KEY ({own}) REFERENCES {quoted(parent.name)}({theirs})"
    if key.on_update != "no action":
        text += f" ON UPDATE {key.on_update.upper()}"
    if key.on_delete != "no action":
        text += f" ON DELETE {key.on_delete.upper()}"
    return text + " DEFERRABLE INITIALLY DEFERRED" * key.is_deferred


def _listed(places: tuple[int, ...]) -> str:
    return "{" + ",".join(str(at + 1) for at in places) + "}"


def information_rows(catalog: Catalog, table: Table) -> Iterator[tuple[str, Values]]:
    """Rows of information_schema for the foreign keys of one table."""
    for key in table.foreign_keys:
        found = unique_of(catalog, key)
        named = {
            "constraint_catalog": DATABASE,
            "constraint_schema": _SCHEMA,
            "constraint_name": key.name,
        }
        own = {"table_catalog": DATABASE, "table_schema": _SCHEMA, "table_name": table.name}
        deferred = "YES" if key.is_deferred else "NO"
        kind = {"constraint_type": "FOREIGN KEY", "enforced": "YES"}
        waits = {"is_deferrable": deferred, "initially_deferred": deferred}
        yield "information_schema_table_constraints", {**named, **own, **kind, **waits}
        rules = {"update_rule": key.on_update.upper(), "delete_rule": key.on_delete.upper()}
        unique = {
            "unique_constraint_catalog": DATABASE,
            "unique_constraint_schema": _SCHEMA,
            "unique_constraint_name": None if found is None else found[1].name,
        }
        yield (
            "information_schema_referential_constraints",
            {**named, **unique, "match_option": "NONE", **rules},
        )
        for at, place in enumerate(key.columns, 1):
            column = {"column_name": table.columns[place].name, "ordinal_position": at}
            within = None if found is None else _place_in(*found, key.parent_columns[at - 1])
            yield (
                "information_schema_key_column_usage",
                {**named, **own, **column, "position_in_unique_constraint": within},
            )
        if found is None:
            continue
        parent = found[0]
        theirs = {"table_catalog": DATABASE, "table_schema": _SCHEMA, "table_name": parent.name}
        for place in key.parent_columns:
            used = {**named, **theirs, "column_name": parent.columns[place].name}
            yield "information_schema_constraint_column_usage", used


def _place_in(parent: Table, index: Index, place: int) -> int:
    return index.columns.index(parent.columns[place].name) + 1
