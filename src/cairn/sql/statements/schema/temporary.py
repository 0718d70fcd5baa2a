"""What CREATE TEMP TABLE has that others have not, and what it must not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.model.errors import InvalidTableDefinition, Unsupported
from cairn.model.tables.catalog import Catalog
from cairn.sql.change_plans import OnCommit
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import Tail
from cairn.sql.statements.schema.foreign_keys import are_ignored

if TYPE_CHECKING:
    from cairn.sql.statements.schema.table import Definition

_ON_COMMIT: tuple[tuple[tuple[str, ...], OnCommit], ...] = (
    (("preserve", "rows"), "preserve"),
    (("delete", "rows"), "delete"),
    (("drop",), "drop"),
)


def on_commit(cursor: Cursor, tail: Tail) -> bool:
    if not cursor.accept("on", "commit"):
        return False
    if tail.temp is None:
        raise InvalidTableDefinition("ON COMMIT can only be used on temporary tables")
    for words, tail.temp in _ON_COMMIT:
        if cursor.accept(*words):
            return True
    raise cursor.error()


def check_temp(definition: Definition, catalog: Catalog) -> None:
    if definition.by is not None or definition.is_global or definition.tier is not None:
        raise Unsupported(
            "a temporary table is not distributed: it lies in its session",
            hint="leave DISTRIBUTED and IN TIER out",
        )
    if definition.references and not are_ignored(catalog):
        raise Unsupported(
            "foreign keys of temporary tables are not supported",
            hint="leave REFERENCES out, or make an ordinary table DISTRIBUTED BY ()",
        )
    definition.by = []
