"""`DO $$ BEGIN … END $$`: statements that happen together, at the one owner of their rows.

    BEGIN [ATOMIC]
      LET name = (SELECT …);           -- one column; a later step knows the value by this name
      RETURN QUERY SELECT …;           -- its rows are the answer
      INSERT … | UPDATE … | DELETE …;
      IF condition THEN …; END IF;     -- INSERT, UPDATE and DELETE inside
    END

Here it is read; `compile_block` plans each step like a statement of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.model.errors import LimitExceeded, SyntaxProblem, Unsupported
from cairn.sql.parse.lexer import Token, syntax_error
from cairn.sql.statements.cursor import Cursor

MAX_STEPS = 1_000
_CHANGES = ("insert", "update", "delete", "with")


@dataclass(frozen=True)
class WrittenStep:
    """A step as it is written: the words of its query, and those inside of it."""

    kind: str  # run return let if
    words: tuple[Token, ...]
    name: str = ""
    body: tuple[WrittenStep, ...] = ()


def read_do(cursor: Cursor) -> Token:
    """`DO [LANGUAGE SQL] 'body' [LANGUAGE SQL]` after its first word, to the body."""
    _language(cursor)
    token = cursor.peek()
    cursor.string()
    _language(cursor)
    cursor.end()
    assert token is not None
    return token


def _language(cursor: Cursor) -> None:
    if cursor.accept("language") and cursor.take().value.lower() != "sql":
        raise Unsupported(
            "blocks are written in LANGUAGE SQL",
            hint="statements, LET, IF and RETURN QUERY between BEGIN and END",
        )


def read_steps(words: Sequence[Token], text: str) -> list[WrittenStep]:
    """`BEGIN … END` to steps; errors point into `text`."""
    return list(_steps(Cursor(list(words), text), text))


def _steps(cursor: Cursor, text: str) -> Iterator[WrittenStep]:
    if cursor.looking_at("declare"):
        raise Unsupported("DECLARE is not supported", hint="LET name = (SELECT …) inside the block")
    cursor.expect("begin")
    cursor.accept("atomic")
    count = 0
    while not (cursor.looking_at("end") and not cursor.looking_at("end", "if")):
        yield _step(cursor, text)
        count += 1
        if count > MAX_STEPS:
            raise LimitExceeded(f"a block has at most {MAX_STEPS} steps")
    cursor.expect("end")
    while cursor.accept_op(";"):
        pass
    cursor.end()


def _step(cursor: Cursor, text: str) -> WrittenStep:
    first = cursor.peek()
    if cursor.accept("let"):
        name = cursor.name()
        cursor.expect_op("=")
        return WrittenStep("let", _until_end(cursor), name)
    if cursor.accept("return"):
        cursor.expect("query")
        return WrittenStep("return", _until_end(cursor))
    if cursor.accept("if"):
        return _if(cursor, text)
    if first is not None and first.is_word("select", "values", "table"):
        raise SyntaxProblem(
            "a query inside a block has nobody to give its rows to",
            hint="use RETURN QUERY to return rows, or LET name = (SELECT …)",
            position=first.start + 1,
        )
    return WrittenStep("run", _change(cursor, text))


def _change(cursor: Cursor, text: str) -> tuple[Token, ...]:
    first = cursor.peek()
    if first is None:
        raise cursor.error()
    if first.kind == "word" and not first.is_word(*_CHANGES):
        if first.value in ("begin", "commit", "rollback", "savepoint", "start", "abort"):
            raise Unsupported(
                f"{first.text.upper()} is not for the inside of a block: it is one transaction"
            )
        if first.value in ("create", "alter", "drop", "truncate", "grant", "revoke", "copy", "do"):
            raise Unsupported(
                f"{first.text.upper()} cannot run inside a block",
                hint="a block holds INSERT, UPDATE, DELETE, LET, IF and RETURN QUERY",
            )
        raise syntax_error(first, text)
    return _until_end(cursor)


def _if(cursor: Cursor, text: str) -> WrittenStep:
    condition: list[Token] = []
    depth = 0  # of CASE, which has THEN and END of its own
    while depth or not cursor.looking_at("then"):
        word = cursor.take()
        depth += word.is_word("case") - (depth > 0 and word.is_word("end"))
        if word.is_op(";"):
            cursor.at -= 1
            raise cursor.error()
        condition.append(word)
    cursor.expect("then")
    body: list[WrittenStep] = []
    while not cursor.accept("end", "if"):
        first = cursor.peek()
        if first is not None and first.is_word("let", "return", "if", "select", "else", "elsif"):
            raise Unsupported(
                f"{first.text.upper()} is not allowed inside IF",
                hint="INSERT, UPDATE and DELETE may stand between THEN and END IF",
            )
        body.append(WrittenStep("run", _change(cursor, text)))
    cursor.expect_op(";")
    return WrittenStep("if", tuple(condition), body=tuple(body))


def _until_end(cursor: Cursor) -> tuple[Token, ...]:
    """Up to `;`, which is read."""
    found: list[Token] = []
    while not cursor.accept_op(";"):
        found.append(cursor.take())
    if not found:
        cursor.at -= 1
        raise cursor.error()
    return tuple(found)
