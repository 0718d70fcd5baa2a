"""DECLARE, FETCH, MOVE and CLOSE: an answer that is read in parts, by statements."""

from __future__ import annotations

from typing import Literal

from cairn.model.errors import CairnError, Unsupported
from cairn.sql.plans import CursorPlan
from cairn.sql.statements.cursor import Cursor

_BACK = ("prior", "first", "last", "absolute", "backward")


def parse_declare(cursor: Cursor) -> tuple[str, bool, bool]:
    """Up to the query: the name, whether it outlives its block, whether its rows are binary."""
    name = cursor.name()
    is_binary = False
    while not cursor.accept("cursor"):
        if cursor.accept("binary"):
            is_binary = True
        elif cursor.looking_at("scroll"):
            raise Unsupported("SCROLL is not supported", hint="ask for the rows in reverse order")
        elif not (cursor.accept_one("insensitive", "asensitive") or cursor.accept("no", "scroll")):
            raise cursor.error()
    is_held = cursor.accept("with", "hold")
    if not is_held:
        cursor.accept("without", "hold")
    cursor.expect("for")
    return name, is_held, is_binary


def parse_fetching(cursor: Cursor) -> tuple[str, CursorPlan] | None:
    """FETCH, MOVE and CLOSE, with their tags."""
    if cursor.accept("fetch"):
        return "FETCH", _fetch(cursor, "fetch")
    if cursor.accept("move"):
        return "MOVE", _fetch(cursor, "move")
    if cursor.accept("close"):
        name = None if cursor.accept("all") else cursor.name()
        cursor.end()
        return "CLOSE CURSOR" if name else "CLOSE CURSOR ALL", CursorPlan("close", name)
    return None


def _fetch(cursor: Cursor, action: Literal["fetch", "move"]) -> CursorPlan:
    count: int | None = 1
    following = cursor.peek(1)
    if following is not None and not cursor.looking_at("from") and not cursor.looking_at("in"):
        count = _count(cursor)
    cursor.accept_one("from", "in")
    plan = CursorPlan(action, cursor.name(), count)
    cursor.end()
    return plan


def _count(cursor: Cursor) -> int | None:
    """How many rows; None: all that are left."""
    if cursor.looking_at_op("-") or cursor.accept_one(*_BACK):
        raise CairnError(
            "cursor can only scan forward",
            hint="ask for the rows in reverse order",
            sqlstate="55000",
        )
    if cursor.accept("next"):
        return 1
    relative = cursor.accept("relative")
    forward = not relative and cursor.accept("forward")
    if not relative and cursor.accept("all"):
        return None
    token = cursor.peek()
    if token is None or token.kind != "number":
        if forward:
            return 1
        raise cursor.error()
    count = cursor.number()
    if relative and count != 1:
        raise Unsupported("FETCH RELATIVE is not supported", hint="MOVE first, then FETCH NEXT")
    if count != int(count) or count > 2**63:
        raise CairnError(f"not a count of rows: {token.text}", sqlstate="22023")
    if count == 0:
        raise Unsupported("FETCH 0 is not supported")
    return int(count)
