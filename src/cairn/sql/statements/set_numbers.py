"""`SELECT setval('t_id_seq', 42)`: where the numbers of an identity column go on.

Dumps of PostgreSQL end with it, and tools that load rows with their keys. The sequence is that of
an identity column, by PostgreSQL's name for it or by `pg_get_serial_sequence('t', 'id')`. What is
behind it is a query like any other: `SELECT setval(…, max(id)) FROM t`.
"""

from __future__ import annotations

from typing import NamedTuple

from cairn.model.errors import UndefinedTable
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Table
from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.statements.cursor import Cursor

_MOST_TOKENS = 200  # of a longer text all would be looked at for nothing


class SetNumber(NamedTuple):
    table: Table
    query: str  # the number, and whether it was used


def set_number(found: list[Token], text: str, catalog: Catalog) -> SetNumber | None:
    """None: it is another statement, or more than that."""
    if len(found) > _MOST_TOKENS or not any(token.is_word("setval") for token in found):
        return None
    cursor = Cursor(found, text)
    cursor.expect("select")
    if cursor.accept("pg_catalog") and not cursor.accept_op("."):
        return None
    if not cursor.accept("setval") or not cursor.accept_op("("):
        return None
    table = _table(cursor, catalog)
    if table is None or not cursor.accept_op(","):
        return None
    arguments, begun, depth = [], cursor.at, 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and (token.is_op(",") or token.is_op(")")):
            arguments.append(text[found[begun].start : token.start])
            begun = cursor.at + 1
        depth += token.is_op("(") - token.is_op(")")
        cursor.take()
        if depth < 0:
            break
    following = cursor.peek()
    if following is not None and not following.is_word("from"):
        return None
    rest = "" if following is None else f" {text[following.start :]}"
    number, is_used = (*arguments, "true")[:2]
    return SetNumber(table, f"SELECT ({number})::bigint, ({is_used})::boolean{rest}".rstrip("; "))


def _table(cursor: Cursor, catalog: Catalog) -> Table | None:
    first = cursor.peek()
    if first is not None and first.kind == "string":
        return _of_sequence(_plain(cursor.take().value), catalog)
    if cursor.accept("pg_catalog") and not cursor.accept_op("."):
        return None
    if not cursor.accept("pg_get_serial_sequence") or not cursor.accept_op("("):
        return None
    table, column = _plain(cursor.string()), ""
    if cursor.accept_op(","):
        column = cursor.string()
    if not cursor.accept_op(")"):
        return None
    return _of_sequence(f"{table}_{column}_seq", catalog)


def _plain(name: str) -> str:
    """Without its schema and quotes."""
    parts = [token.value for token in tokens(name) if not token.is_op(".")]
    return parts[-1] if parts else name


def _of_sequence(name: str, catalog: Catalog) -> Table:
    for table in catalog.tables.values():
        for column in table.columns:
            if column.identity is not None and f"{table.name}_{column.name}_seq" == name:
                return table
    raise UndefinedTable(
        f'relation "{name}" does not exist',
        hint="sequences are those of identity columns: table_column_seq",
    )
