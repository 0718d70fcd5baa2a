"""Statements that are refused by name, and what to do instead."""

from __future__ import annotations

from cairn.model.errors import Unsupported
from cairn.sql.statements.cursor import Cursor

#: Statements of the reference, or of PostgreSQL, that Cairn refuses by name.
REFUSED: tuple[tuple[str, ...], ...] = (
    ("create", "plugin"),
    ("drop", "plugin"),
    ("alter", "plugin"),
    ("create", "function"),
    ("create", "trigger"),
    ("create", "extension"),
    ("create", "database"),
    ("create", "materialized"),
    ("create", "temp"),
    ("create", "temporary"),
    ("create", "or", "replace", "function"),
    ("audit", "policy"),
    ("alter", "role"),
    ("backup",),
    ("restore",),
    ("lock",),
    ("listen",),
    ("notify",),
    ("unlisten",),
    ("prepare", "transaction"),
    ("checkpoint",),
    ("cluster",),
    ("reindex",),
    ("refresh",),
    ("import",),
    ("load",),
    ("reassign",),
    ("security",),
    ("drop",),
    ("create",),
    ("alter",),
)


_INSTEAD = {
    "CREATE TEMP": "only tables can be temporary",
    "CREATE TEMPORARY": "only tables can be temporary",
    "CREATE DATABASE": "there is one database; tables are told apart by their names",
    "VACUUM": "nothing is left to clean up",
    "ANALYZE": "there are no statistics to gather",
    "LISTEN": "topology events come with options=smart_connector=0.1",
    "LOCK": "write a block (BEGIN … COMMIT): it fails with 40001 if others changed what it read",
    "CREATE MATERIALIZED": "CREATE TABLE … AS keeps an answer, CREATE VIEW names a query",
}


def refuse_by_name(cursor: Cursor) -> Unsupported | None:
    for words in REFUSED:
        if cursor.looking_at(*words):
            shown = [token.value for token in cursor.tokens[:2] if token.kind == "word"]
            count = 2 if len(words) == 2 or words[0] in ("create", "drop", "alter") else 1
            what = " ".join(shown[:count]).upper()
            return Unsupported(f"{what} is not supported", hint=_INSTEAD.get(what))
    return None
