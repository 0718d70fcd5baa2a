"""`WITH a AS (INSERT … RETURNING …), b AS (SELECT …) …`: which parts write, and where each stands.

Here they are only found; `compile_with` plans each of those that write like a statement of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.model.errors import SyntaxProblem, Unsupported
from cairn.sql.parse.lexer import Token
from cairn.sql.statements.cursor import Cursor

WRITES = ("insert", "update", "delete")


@dataclass(frozen=True)
class WithPart:
    """`name (columns) AS (body)`, with its places in the list of tokens."""

    name: str
    columns: tuple[str, ...]
    start: int  # of the name
    body: int  # the first token inside ()
    end: int  # the last )
    writes: bool


@dataclass(frozen=True)
class WithParts:
    """All parts, and where the statement after them begins."""

    parts: tuple[WithPart, ...]
    main: int


def writing_parts(found: Sequence[Token], text: str) -> WithParts | None:
    """None: no part of it writes, or its parser will tell what is wrong with it."""
    if not found[0].is_word("with") or not any(token.is_word(*WRITES) for token in found):
        return None
    try:
        read = _read(Cursor(list(found), text))
    except SyntaxProblem:
        return None
    return read if read.main < len(found) and any(part.writes for part in read.parts) else None


def before_merge(found: Sequence[Token], text: str) -> WithParts | None:
    """`WITH … MERGE`; None: another statement, or its parser will tell what is wrong with it."""
    if not found[0].is_word("with") or not any(token.is_word("merge") for token in found):
        return None
    try:
        read = _read(Cursor(list(found), text))
    except SyntaxProblem:
        return None
    if read.main >= len(found) or not found[read.main].is_word("merge"):
        return None
    for part in read.parts:
        if part.writes:
            raise Unsupported(
                "MERGE after a part of WITH that writes is not supported",
                hint="use statements of their own between BEGIN and COMMIT",
                position=found[part.body].start + 1,
            )
    return read


def _read(cursor: Cursor) -> WithParts:
    cursor.expect("with")
    cursor.accept("recursive")
    parts = [_part(cursor)]
    while cursor.accept_op(","):
        parts.append(_part(cursor))
    return WithParts(tuple(parts), cursor.at)


def _part(cursor: Cursor) -> WithPart:
    start = cursor.at
    name = cursor.name()
    columns = cursor.names() if cursor.looking_at_op("(") else []
    cursor.expect("as")
    if not cursor.accept("not", "materialized"):
        cursor.accept("materialized")
    body = cursor.at + 1
    cursor.skip_parens()
    end = cursor.at - 1
    return WithPart(name, tuple(columns), start, body, end, _writes(cursor, body, end))


def _writes(cursor: Cursor, body: int, end: int) -> bool:
    inner = Cursor(cursor.tokens[body:end], cursor.text)
    if inner.looking_at("with"):
        try:
            inner.at = _read(inner).main
        except SyntaxProblem:
            return False
    token = inner.peek()
    return token is not None and token.is_word(*WRITES)
