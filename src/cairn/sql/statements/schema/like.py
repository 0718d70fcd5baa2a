"""`LIKE t [INCLUDING …]` in CREATE TABLE: columns of another one, and more where asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import UndefinedTable, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column
from cairn.sql.plans import Right
from cairn.sql.statements.cursor import Cursor

if TYPE_CHECKING:
    from cairn.sql.statements.schema.table import Definition

_PARTS = ("defaults", "identity", "constraints", "indexes")  # what there is to be taken or left
#: Known to PostgreSQL, and nothing that a table here would have (comments are not copied).
_NOTHING = ("comments", "compression", "generated", "statistics", "storage")


def read_like(cursor: Cursor, catalog: Catalog, definition: Definition) -> Right:
    """What follows LIKE. Who takes a table for a pattern has to have the right to read it."""
    name = cursor.name()
    table = catalog.table(name)
    if table is None:
        if name in catalog.views:
            raise Unsupported(
                "LIKE of a view is not supported", hint="CREATE TABLE … AS SELECT … WITH NO DATA"
            )
        raise UndefinedTable(f'relation "{name}" does not exist')
    if table.is_system or table.is_sequence:
        raise Unsupported("LIKE of a system table or a sequence is not supported")
    wanted = _parts(cursor)
    columns = [each for each in table.columns if not each.is_dropped and not each.is_hidden]
    definition.columns += [
        Column(
            each.name,
            each.type,
            each.nullable,
            each.sizes,
            each.default if "defaults" in wanted else None,
            each.identity if "identity" in wanted else None,
            enum=each.enum,
        )
        for each in columns
    ]
    if "constraints" in wanted:
        definition.checks += [(check.name, check.text) for check in table.checks]
    if "indexes" in wanted:
        names = {each.name for each in columns}
        if names.issuperset(table.primary_key):
            definition.key += table.primary_key
        for index in catalog.indexes.get(table.id, ()):
            if index.rule or index.computed:
                raise Unsupported(
                    f"index {index.name} has only some rows, or expressions: INCLUDING INDEXES "
                    "cannot take it over",
                    hint="leave INDEXES out, and make them by CREATE INDEX",
                )
            if index.unique:
                definition.uniques.append(("", list(index.columns)))
            else:
                definition.indexes.append(list(index.columns))
    return "read", "table", table.id, table.name


def _parts(cursor: Cursor) -> set[str]:
    wanted: set[str] = set()
    while word := cursor.accept_one("including", "excluding"):
        what = cursor.accept_one("all", *_PARTS, *_NOTHING)
        if what is None:
            raise cursor.error()
        named = set(_PARTS if what == "all" else (what,)).intersection(_PARTS)
        wanted = wanted | named if word == "including" else wanted - named
    return wanted
