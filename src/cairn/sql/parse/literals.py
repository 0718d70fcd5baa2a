"""Literals that become parameters, so that texts which differ in their values are understood once.

Many drivers put values into the text. To parse and plan such a text takes milliseconds; to find its
values takes microseconds. Only literals are taken whose place leaves no doubt what they are: what
is compared or calculated with behind WHERE or SET, and whole values of a row behind VALUES. All
others stay where they are, and so do numbers with a point, which would lose their zeros. A whole
number keeps its type, a text has none, as in the statement itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cairn.model.types.values import OIDS, ColumnType

MOST = 200  # of one text
LONGEST = 18  # digits and sign: what fits whatever a number may become
_INT, _OPEN = OIDS[ColumnType.INTEGER], 0
_STATEMENT = re.compile(rb"\s*(?:select|insert|update|delete)\b", re.IGNORECASE)
_STRANGE = re.compile(rb"[$\\\x00]|--|/\*")  # parameters, escapes, comments: read it as it is
_TOKEN = re.compile(
    rb"""
      (?P<text>'[^']*(?:''[^']*)*')
    | (?P<number>(?<!\.)\d+(?![\w.]))
    | (?P<quoted>"[^"]*(?:""[^"]*)*")
    | (?P<word>[A-Za-z_\x80-\xff][\w\x80-\xff]*)
    | (?P<sign>[-+*/<>=~!@\#%^&|?:]+)
    | (?P<other>\S)
    """,
    re.VERBOSE,
)
_WHERE = {b"WHERE": "terms", b"SET": "terms", b"VALUES": "rows", b"OPTION": ""}
#: As a number such a text may be refused, and the error names its place.
_ODD_NUMBER = re.compile(rb"\s*[-+]?(?:nan|inf|[\d.]+e)", re.IGNORECASE)
_COMPARED = frozenset((b"=", b"<", b">", b"<=", b">=", b"<>", b"!="))
_CALCULATED = frozenset((b"+", b"-", b"*", b"/"))


class Lifted(NamedTuple):
    text: bytes
    oids: tuple[int, ...]
    values: tuple[bytes, ...]  # as Bind has them, in text format


class _Token(NamedTuple):
    kind: str | None
    start: int
    end: int
    text: bytes


def lifted(text: bytes) -> Lifted | None:
    """None: there is nothing to gain, or something to doubt."""
    if _STATEMENT.match(text) is None or _STRANGE.search(text) is not None:
        return None
    tokens = [_Token(m.lastgroup, m.start(), m.end(), m.group()) for m in _TOKEN.finditer(text)]
    tokens.append(_Token(None, len(text), len(text), b""))
    pieces: list[bytes] = []
    oids: list[int] = []
    values: list[bytes] = []
    end = depth = 0
    where = ""  # "": nothing is taken; "rows": whole values; "terms": sides of operators
    for at, token in enumerate(tokens):
        if token.kind == "word":
            where = _WHERE.get(token.text.upper(), where)
            depth = 0 if token.text.upper() == b"VALUES" else depth
        elif token.kind == "other":
            depth += (token.text == b"(") - (token.text == b")")
        elif where and token.kind in ("text", "number"):
            start = _term(tokens, at) if where == "terms" else _value(tokens, at, depth)
            if start is None:
                continue
            if token.kind == "text":
                oid, value = _OPEN, token.text[1:-1].replace(b"''", b"'")
                if _ODD_NUMBER.match(value):
                    continue
            else:
                oid, value = _INT, text[start : token.start].strip() + token.text
                if len(value) > LONGEST:
                    continue
            oids.append(oid)
            values.append(value)
            pieces += (text[end:start], b"$%d" % len(values))
            end = token.end
    if not 0 < len(values) <= MOST:
        return None
    pieces.append(text[end:])
    return Lifted(b"".join(pieces), tuple(oids), tuple(values))


def _term(tokens: list[_Token], at: int) -> int | None:
    """Where a literal begins that an operator stands before; a sign of its own is part of it."""
    token = tokens[at]
    before = tokens[at - 1]
    if before.kind != "sign":
        return None
    operator, start = before.text, token.start
    if token.kind == "number" and operator[-1:] == b"-":
        alone = operator == b"-"
        outer = tokens[at - 2] if alone else before
        base = outer.text if alone else operator[:-1]
        if outer.kind == "sign" and base in _COMPARED | _CALCULATED:
            return before.end - 1
    if operator in _COMPARED or (token.kind == "number" and operator in _CALCULATED):
        return start
    return None


def _value(tokens: list[_Token], at: int, depth: int) -> int | None:
    """Where a literal begins that is a whole value of a row; its sign is part of it."""
    if depth != 1 or tokens[at + 1].text not in (b",", b")"):
        return None
    before, start = tokens[at - 1], tokens[at].start
    if tokens[at].kind == "number" and before.text == b"-":
        before, start = tokens[at - 2], before.start
    return start if before.text in (b",", b"(") else None
