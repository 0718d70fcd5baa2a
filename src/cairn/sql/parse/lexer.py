"""Tokens of SQL text with their places. Ours, because statements must be told apart before parsing.

sqlglot reads only queries and row changes; everything else is read by `statements` from these.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cairn.model import stops
from cairn.model.errors import LimitExceeded, OutOfRange, SyntaxProblem
from cairn.model.settings import limits

MAX_STATEMENT_CHARS = limits.STATEMENT_CHARS


class Token(NamedTuple):
    kind: str  # word quoted string number param op
    text: str  # as written
    value: str  # folded word, unescaped string, digits of a parameter
    start: int  # offset from 0

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value in words

    def is_op(self, *ops: str) -> bool:
        return self.kind == "op" and self.text in ops


OFTEN = 0xFFF  # words between two looks at whether somebody wants an end
MAX_DIGITS = 4_000  # Python reads longer ones slowly, or not at all
MAX_TOKENS = 2_000_000  # of rows in VALUES; other statements have fewer (`compile`)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_PATTERN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<estring>[eE]'[^'\\]*(?:(?:''|\\.)[^'\\]*)*')
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<quoted>"[^"]*(?:""[^"]*)*")
    | (?P<dollar>\$(?:[A-Za-z_\u0080-\uffff][\w]*)?\$)
    | (?P<param>\$\d+)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<op>::|<>|!=|<=|>=|\|\||!~~\*|!~~|~~\*|~~|[-+*/%<>=().,;:?\[\]^~!@\#&|{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(
    r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL
)


def _unescape(match: re.Match[str]) -> str:
    body = match.group(1)
    if body[0] in "uUx" and len(body) > 1:
        return _char(int(body[1:], 16))
    if body[0] in "01234567":
        return _char(int(body, 8))
    if body in ("u", "U"):
        raise SyntaxProblem(
            "invalid Unicode escape",
            hint="Unicode escapes must be \\uXXXX or \\UXXXXXXXX.",
            sqlstate="22025",
        )
    return _ESCAPES.get(body, body)


def _char(code: int) -> str:
    if not 0 < code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise SyntaxProblem("invalid Unicode escape value", sqlstate="22025")
    return chr(code)


def _skip_comment(text: str, start: int) -> int:
    """The end of a comment that may hold others, as PostgreSQL's do."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SyntaxProblem("unterminated /* comment", position=start + 1)


def _dollar_quoted(text: str, tag: str, start: int) -> tuple[str, int]:
    begin = start + len(tag)
    end = text.find(tag, begin)
    if end < 0:
        raise SyntaxProblem("unterminated dollar-quoted string", position=start + 1)
    return text[begin:end], end + len(tag)


def tokens(text: str) -> list[Token]:
    """Everything but blanks and comments."""
    if len(text) > MAX_STATEMENT_CHARS:
        raise LimitExceeded(
            f"the statement has {len(text)} characters, more than {MAX_STATEMENT_CHARS}",
            hint="send rows with COPY or in several statements",
        )
    found: list[Token] = []
    at, end, match_at = 0, len(text), _PATTERN.match
    while at < end:
        match = match_at(text, at)
        if match is None:
            raise _no_token(text, at)
        kind, body = str(match.lastgroup), match.group()
        start, at = at, match.end()
        if kind == "blank":
            continue
        if kind == "comment":
            at = _skip_comment(text, start)
            continue
        value = body
        if kind == "word":
            value = body.lower()
        elif kind == "string":
            value = body[1:-1].replace("''", "'")
        elif kind == "estring":
            kind, value = "string", _ESCAPE.sub(_unescape, body[2:-1].replace("''", "'"))
        elif kind == "quoted":
            value = body[1:-1].replace('""', '"')
        elif kind == "param":
            value = body[1:]
        elif kind == "number" and at < end and (text[at].isalpha() or text[at] == "_"):
            raise SyntaxProblem(
                f'trailing junk after numeric literal at or near "{body}{text[at]}"',
                position=start + 1,
            )
        elif kind == "dollar":
            value, at = _dollar_quoted(text, body, start)
            kind, body = "string", text[start:at]
        if len(value) > MAX_DIGITS and value.isdigit() and kind in ("number", "param"):
            raise OutOfRange(
                f"a whole number of {len(value)} digits, of which it has at most {MAX_DIGITS}",
                hint="longer ones are texts: '…'::decimal",
                position=start + 1,
            )
        found.append(Token(kind, body, value, start))
        if len(found) & OFTEN == 0:
            stops.check()
        if len(found) > MAX_TOKENS:
            raise LimitExceeded(
                f"the statement has more than {MAX_TOKENS} words and signs",
                hint="send rows with COPY or in several statements",
            )
    return found


def _no_token(text: str, at: int) -> SyntaxProblem:
    char = text[at]
    if char == "'" or text[at : at + 2].lower() == "e'":
        return SyntaxProblem("unterminated quoted string", position=at + 1)
    if char == '"':
        return SyntaxProblem("unterminated quoted identifier", position=at + 1)
    return SyntaxProblem(f'syntax error at or near "{char}"', position=at + 1)


#: The name that `current_database()` tells; longer texts than those that people write are rows.
DATABASE, _NAMED_CHARS = "cairn", 200_000
_DATABASE_DOT = re.compile(rf'\b{DATABASE}"?\s*\.', re.IGNORECASE)


def without_database(text: str) -> str:
    """`cairn.public.t` is `public.t`: blanks stand for what is left out, so that places stay."""
    if len(text) > _NAMED_CHARS or _DATABASE_DOT.search(text) is None:
        return text
    found = tokens(text)
    for at in range(len(found) - 4):
        database, dot, _, other, name = found[at : at + 5]
        is_named = database.kind in ("word", "quoted") and database.value == DATABASE
        if is_named and dot.is_op(".") and other.is_op(".") and name.kind in ("word", "quoted"):
            is_begun = at == 0 or not found[at - 1].is_op(".")
            if is_begun:
                end = dot.start + 1
                text = text[: database.start] + " " * (end - database.start) + text[end:]
    return text


def split(text: str) -> list[str]:
    """The statements of a simple query, without the empty ones."""
    found, start = [], 0
    last: Token | None = None
    for token in tokens(text):
        if token.is_op(";"):
            if last is not None:
                found.append(text[start : token.start].strip())
            start, last = token.start + 1, None
        else:
            last = token
    if last is not None:
        found.append(text[start:].strip())
    return found


def syntax_error(token: Token | None, text: str) -> SyntaxProblem:
    if token is None:
        return SyntaxProblem("syntax error at end of input", position=len(text) + 1)
    return SyntaxProblem(f'syntax error at or near "{token.text}"', position=token.start + 1)


def plain_name(name: str) -> str:
    """Of a table or a sequence in a string: without its schema and quotes."""
    parts = [token.value for token in tokens(name) if not token.is_op(".")]
    return parts[-1] if parts else name
