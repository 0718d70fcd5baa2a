"""DO blocks around one statement, as tools write them for what there is no IF NOT EXISTS:

    DO $$ BEGIN CREATE TYPE …; EXCEPTION WHEN duplicate_object THEN null; END $$
    DO $$ BEGIN IF NOT EXISTS (SELECT …) THEN CREATE TYPE …; END IF; END $$

One statement is done or not, by itself; so it may be one that no other block holds.
"""

from __future__ import annotations

from cairn.sql.parse.lexer import Token, tokens
from cairn.sql.session_plans import AttemptPlan
from cairn.sql.statements.cursor import Cursor

#: PostgreSQL's names of conditions, as far as one statement can meet them.
CONDITIONS = {
    "duplicate_column": "42701",
    "duplicate_object": "42710",
    "duplicate_function": "42723",
    "duplicate_schema": "42P06",
    "duplicate_table": "42P07",
    "invalid_table_definition": "42P16",
    "undefined_column": "42703",
    "undefined_object": "42704",
    "undefined_table": "42P01",
    "undefined_function": "42883",
    "unique_violation": "23505",
    "foreign_key_violation": "23503",
    "others": "",
}
_STATEMENTS = ("create", "alter", "drop", "insert", "update", "delete", "grant", "revoke")
_LANGUAGES = ("sql", "plpgsql")


def read_attempt(cursor: Cursor) -> AttemptPlan | None:
    """After DO. None: it is another block."""
    begun = cursor.at
    found = _read(cursor)
    cursor.at = begun
    return found


def _read(cursor: Cursor) -> AttemptPlan | None:
    if cursor.accept("language") and not cursor.accept_one(*_LANGUAGES):
        return None
    token = cursor.peek()
    if token is None or token.kind != "string":
        return None
    cursor.take()
    if cursor.accept("language") and not cursor.accept_one(*_LANGUAGES):
        return None
    if cursor.peek() is not None:
        return None
    body = token.value
    inner = Cursor(tokens(body), body)
    if not inner.accept("begin"):
        return None
    condition = ""
    if inner.accept("if"):
        words = _up_to(inner, "then")
        condition = _text(words, body)
        inner.accept("then")
    first = inner.peek()
    if first is None or not first.is_word(*_STATEMENTS):
        return None
    statement = _text(_up_to(inner), body)
    if condition and not (statement and inner.accept("end", "if") and inner.accept_op(";")):
        return None
    codes = _codes(inner) if inner.accept("exception") else ()
    if codes is None or not inner.accept("end") or not (condition or codes):
        return None
    inner.accept_op(";")
    return None if inner.peek() is not None else AttemptPlan(statement, condition, codes)


def _up_to(cursor: Cursor, word: str = "") -> list[Token]:
    """Tokens before the word, or before the semicolon, which is stepped over."""
    found: list[Token] = []
    while (token := cursor.peek()) is not None:
        if token.is_op(";") or (word and token.is_word(word)):
            break
        found.append(cursor.take())
    if not word:
        cursor.accept_op(";")
    return found


def _text(words: list[Token], body: str) -> str:
    return body[words[0].start : words[-1].start + len(words[-1].text)] if words else ""


def _codes(cursor: Cursor) -> tuple[str, ...] | None:
    found: list[str] = []
    while cursor.accept("when"):
        while True:
            name = cursor.accept_one(*CONDITIONS)
            if name is None:
                return None
            found.append(CONDITIONS[name])
            if not cursor.accept("or"):
                break
        if not cursor.accept("then") or not cursor.accept("null") or not cursor.accept_op(";"):
            return None
    return tuple(found) or None
