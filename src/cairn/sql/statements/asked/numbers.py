"""`SELECT setval('t_id_seq', 42)`: where the numbers of a sequence or identity column go on.

Dumps of PostgreSQL end with it, and tools that load rows with their keys. That of an identity
column goes by PostgreSQL's name for it or by `pg_get_serial_sequence('t', 'id')`. What is behind it
is a query like any other: `SELECT setval(…, max(id)) FROM t`.
"""

from __future__ import annotations

from typing import NamedTuple

from cairn.model.errors import UndefinedTable
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.sequences import Numbering, numbering
from cairn.sql.parse.lexer import Token, plain_name
from cairn.sql.statements.cursor import Cursor

_MOST_TOKENS = 200  # of a longer text all would be looked at for nothing


class SetNumber(NamedTuple):
    numbers: Numbering
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
    numbers = _numbers(cursor, catalog)
    if numbers is None or not cursor.accept_op(","):
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
    return SetNumber(numbers, f"SELECT ({number})::bigint, ({is_used})::boolean{rest}".rstrip("; "))


def _numbers(cursor: Cursor, catalog: Catalog) -> Numbering | None:
    first = cursor.peek()
    if first is not None and first.kind == "string":
        name = plain_name(cursor.take().value)
        if cursor.accept_op("::") and cursor.accept_one("regclass", "text") is None:
            return None
        return _of_sequence(name, catalog)
    if cursor.accept("pg_catalog") and not cursor.accept_op("."):
        return None
    if not cursor.accept("pg_get_serial_sequence") or not cursor.accept_op("("):
        return None
    table, column = plain_name(cursor.string()), ""
    if cursor.accept_op(","):
        column = cursor.string()
    if not cursor.accept_op(")"):
        return None
    return _of_sequence(f"{table}_{column}_seq", catalog)


def _of_sequence(name: str, catalog: Catalog) -> Numbering:
    found = numbering(catalog, name)
    if found is None:
        raise UndefinedTable(f'relation "{name}" does not exist')
    return found
