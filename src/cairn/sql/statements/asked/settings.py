"""`SELECT current_setting('x'), set_config('y', 'z', false)`: what only the session can answer."""

from __future__ import annotations

from cairn.sql.parse.lexer import Token
from cairn.sql.plans import AskedSetting, SessionPlan
from cairn.sql.statements.cursor import Cursor
from cairn.sql.statements.schema.common import OtherStatement

_MOST_TOKENS = 200  # of a longer text all would be looked at for nothing
_NAMES = ("current_setting", "set_config")


def asked_settings(found: list[Token], text: str) -> OtherStatement | None:
    """None: it is another statement, or more than that."""
    if len(found) > _MOST_TOKENS or not any(token.is_word(*_NAMES) for token in found):
        return None
    cursor = Cursor(found, text)
    cursor.expect("select")
    asked: list[AskedSetting] = []
    columns: list[str] = []
    while True:
        one = _one(cursor)
        if one is None:
            return None
        asked.append(one[0])
        columns.append(one[1])
        if not cursor.accept_op(","):
            break
    if cursor.peek() is not None:
        return None
    return OtherStatement(
        "SELECT 1", SessionPlan("settings", asked=tuple(asked)), columns=tuple(columns)
    )


def _one(cursor: Cursor) -> tuple[AskedSetting, str] | None:
    if cursor.accept("pg_catalog") and not cursor.accept_op("."):
        return None
    name = cursor.accept_one(*_NAMES)
    if name is None or not cursor.accept_op("("):
        return None
    given = [_literal(cursor)]
    while cursor.accept_op(","):
        given.append(_literal(cursor))
    if not cursor.accept_op(")") or None in given:
        return None
    setting, *rest = (str(each) for each in given)
    if len(given) != 3 if name == "set_config" else len(given) not in (1, 2):
        return None
    value = rest[0] if name == "set_config" else None
    is_quiet = name == "current_setting" and rest == ["true"]
    following = cursor.peek()
    is_word = following is not None and following.kind in ("word", "quoted")
    is_alias = cursor.accept("as") or (is_word and not cursor.looking_at("from"))
    is_local = name == "set_config" and rest[1].lower() in ("true", "t", "on", "yes", "1")
    return AskedSetting(setting, value, is_quiet, is_local), cursor.name() if is_alias else name


def _literal(cursor: Cursor) -> str | None:
    token = cursor.peek()
    if token is None or not (token.kind == "string" or token.is_word("true", "false")):
        return None
    return cursor.take().value
