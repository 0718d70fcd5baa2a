"""Passwords inside statements: found, and replaced by what a server keeps instead of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from cairn.model.errors import CairnError
from cairn.sql.parse.lexer import Token, tokens

#: As PostgreSQL keeps it in pg_authid, and takes it in place of a password.
_VERIFIER = re.compile(r"SCRAM-SHA-256\$\d{1,9}:[\w+/=]+\$[\w+/=]+:[\w+/=]+")


def is_verifier(password: str) -> bool:
    """Whether this is no password but the SCRAM verifier of one."""
    return _VERIFIER.fullmatch(password) is not None


def password_in(text: str) -> Token | None:
    """The literal behind PASSWORD in CREATE USER or ALTER USER."""
    try:
        found = tokens(text)
    except CairnError:
        return None  # it will be refused for what it is
    if len(found) < 2 or not found[0].is_word("create", "alter"):
        return None
    if not found[1].is_word("user", "role"):
        return None
    for word, value in pairwise(found):
        if word.is_word("password") and value.kind == "string":
            return value
    return None


def without_secrets(text: str) -> str:
    """As it may be shown to others: whatever could be a password, or stands beside one, is not."""
    lowered = text.lower()
    if "password" not in lowered and "scram-" not in lowered:
        return text
    try:
        found = tokens(text)
    except CairnError:
        return "(a statement with a password that cannot be read)"
    for token in reversed([each for each in found if each.kind == "string"]):
        text = f"{text[: token.start]}'***'{text[token.start + len(token.text) :]}"
    return text


def with_password_hidden(text: str, hide: Callable[[str], str]) -> str:
    """The same statement with the verifier of its password, if it has one in clear."""
    token = password_in(text)
    if token is None or is_verifier(token.value):
        return text
    end = token.start + len(token.text)
    return f"{text[: token.start]}'{hide(token.value)}'{text[end:]}"
