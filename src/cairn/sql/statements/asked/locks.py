"""`SELECT pg_advisory_lock($1), pg_try_advisory_lock(1, 2) AS got`: locks that a session takes.

They are calls of the session, in the order in which they stand, after all their arguments are
known. So they may stand in the list of a SELECT without FROM and nowhere else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cairn.model.errors import CairnError, Unsupported
from cairn.model.quoting import identifier
from cairn.sql.parse.lexer import Token
from cairn.sql.session_plans import LockCall
from cairn.sql.statements.cursor import Cursor

_MOST_TOKENS = 2_000  # of a longer text all would be looked at for nothing
_NAMES = {
    "pg_advisory_lock": LockCall("lock"),
    "pg_advisory_lock_shared": LockCall("lock", mode="shared"),
    "pg_try_advisory_lock": LockCall("try"),
    "pg_try_advisory_lock_shared": LockCall("try", mode="shared"),
    "pg_advisory_xact_lock": LockCall("lock", of_block=True),
    "pg_advisory_xact_lock_shared": LockCall("lock", mode="shared", of_block=True),
    "pg_try_advisory_xact_lock": LockCall("try", of_block=True),
    "pg_try_advisory_xact_lock_shared": LockCall("try", mode="shared", of_block=True),
    "pg_advisory_unlock": LockCall("unlock"),
    "pg_advisory_unlock_shared": LockCall("unlock", mode="shared"),
    "pg_advisory_unlock_all": LockCall("unlock all"),
}
NAMES = frozenset(_NAMES)
_ENDS = ("from", "where", "group", "having", "order", "limit", "offset", "union", "intersect")
_REST = frozenset((*_ENDS, "except", "for", "window", "fetch", "into"))
_MARK = re.compile(r"_advisory_", re.IGNORECASE)


class LockCalls(NamedTuple):
    items: tuple[LockCall | None, ...]  # of the list; None: an expression like any other
    names: tuple[str, ...]  # of the columns of calls
    query: str  # the arguments, and those expressions


def lock_calls(found: list[Token], text: str) -> LockCalls | None:
    """None: it is another statement."""
    if _MARK.search(text) is None or len(found) > _MOST_TOKENS:
        return None
    if not any(_is_call(found, at) for at in range(1, len(found))):
        return None
    cursor = Cursor(found, text)
    cursor.expect("select")
    items: list[LockCall | None] = []
    names: list[str] = []
    asked: list[str] = []
    while True:
        call = _call(cursor)
        if call is None:
            begun = cursor.at
            _step_over(cursor)
            if any(_is_call(found, at) for at in range(begun, cursor.at)):
                raise _misplaced(found)
            asked.append(_text(cursor, begun))
            items.append(None)
        else:
            item, arguments = call
            kind = "int" if len(arguments) == 2 else "bigint"
            asked += [f"({each})::{kind}" for each in arguments]
            items.append(item)
            names.append(_alias(cursor) or item.name)
        if not cursor.accept_op(","):
            break
    if cursor.peek() is not None:
        raise _misplaced(found)
    return LockCalls(tuple(items), tuple(names), f"SELECT {', '.join(asked) or 'NULL'}")


def _is_call(found: list[Token], at: int) -> bool:
    return (
        found[at].kind in ("word", "quoted")
        and found[at].value in _NAMES
        and at + 1 < len(found)
        and found[at + 1].is_op("(")
    )


def _call(cursor: Cursor) -> tuple[LockCall, list[str]] | None:
    begun = cursor.at
    if cursor.accept("pg_catalog") and not cursor.accept_op("."):
        cursor.at = begun
        return None
    if cursor.peek() is None or not _is_call(cursor.tokens, cursor.at):
        cursor.at = begun
        return None
    name = cursor.take()
    cursor.expect_op("(")
    arguments: list[str] = []
    while not cursor.accept_op(")"):
        at = cursor.at
        _step_over(cursor)
        if any(_is_call(cursor.tokens, each) for each in range(at, cursor.at)):
            raise _misplaced(cursor.tokens)
        if cursor.at == at:
            raise cursor.error()
        arguments.append(_text(cursor, at))
        if not cursor.looking_at_op(")"):
            cursor.expect_op(",")
    following = cursor.peek()
    if following is not None and following.kind == "op" and not following.is_op(","):
        if following.is_op("::"):  # void::text, as some tools ask it
            cursor.take()
            cursor.expect("text")
        else:
            raise _misplaced(cursor.tokens)
    wanted = (0,) if name.value == "pg_advisory_unlock_all" else (1, 2)
    if len(arguments) not in wanted:
        raise CairnError(
            f"function {name.value} with {len(arguments)} arguments does not exist",
            hint="it takes one bigint, or two integers" if wanted != (0,) else "it takes none",
            sqlstate="42883",
            position=name.start + 1,
        )
    made = _NAMES[name.value]
    return made.called(name.value, len(arguments)), arguments


def _step_over(cursor: Cursor) -> None:
    """An expression, up to the comma or bracket behind it."""
    depth = 0
    while (token := cursor.peek()) is not None:
        if depth == 0 and (token.is_op(",", ")", ";") or token.is_word(*_REST)):
            return
        depth += token.is_op("(", "[") - token.is_op(")", "]")
        cursor.take()


def _text(cursor: Cursor, begun: int) -> str:
    """As it was written."""
    if begun == cursor.at:
        raise cursor.error()
    last = cursor.tokens[cursor.at - 1]
    return cursor.text[cursor.tokens[begun].start : last.start + len(last.text)]


def _alias(cursor: Cursor) -> str | None:
    following = cursor.peek()
    is_word = following is not None and following.kind in ("word", "quoted")
    if cursor.accept("as") or (is_word and following is not None and following.value not in _REST):
        return cursor.name()
    return None


def _misplaced(found: list[Token]) -> CairnError:
    at = next(each for each in range(len(found)) if _is_call(found, each))
    return Unsupported(
        f"{found[at].value} can only be called in the list of a SELECT without FROM",
        hint=f"SELECT {identifier(found[at].value)}(…), for one lock after the other",
        position=found[at].start + 1,
    )
