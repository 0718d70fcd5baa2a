"""The text of a jsonpath to its tree: a grammar of few rules, read once for each text.

A node is a tuple: its kind, what it needs, and for paths the steps behind it. Predicates and values
are told apart as PostgreSQL's grammar does.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from cairn.model.errors import CairnError, LimitExceeded, Unsupported

Node = tuple[Any, ...]
MOST, DEEPEST = 10_000, 60  # characters of a path, and how deep its parts are nested
ALL = 1 << 31  # no last level
_TOKEN = re.compile(
    r"""(?P<blank>\s+|/\*.*?\*/)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<variable>\$(?:"(?:[^"\\]|\\.)*"|[^\s?%$.\[\]{}()|&!=<>@\#,*:+/\\"-]+))
    | (?P<sign>==|!=|<>|<=|>=|&&|\|\||\*\*|[-+*/%<>=!?.,$@()\[\]{}])
    | (?P<word>[^\s?%$.\[\]{}()|&!=<>@\#,*:+/\\"-]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_METHODS = ("type", "size", "abs", "floor", "ceiling", "double")
_COMPARED = {"<>": "!=", **{sign: sign for sign in ("==", "!=", "<", "<=", ">", ">=")}}
PREDICATES = frozenset(("cmp", "and", "or", "not", "unknown", "exists", "starts", "like"))


class Path(NamedTuple):
    is_strict: bool
    root: Node


def _wrong(text: str, near: str) -> CairnError:
    where = f'at or near "{near}"' if near else "at end"
    return CairnError(f"syntax error {where} of jsonpath input", sqlstate="42601")


def _string(text: str) -> str:
    def change(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "ux" and len(code) > 1:
            number = int(code.strip("ux{}"), 16)
            if number > 0x10FFFF or number == 0:
                raise CairnError("unsupported Unicode escape sequence", sqlstate="22P05")
            return chr(number)
        return _ESCAPES.get(code, code)

    made = _ESCAPE.sub(change, text[1:-1])
    return made.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(maxsize=512)
def read_path(text: str) -> Path:
    if not text:
        raise CairnError('invalid input syntax for type jsonpath: ""', sqlstate="22P02")
    if len(text) > MOST:
        raise LimitExceeded(f"a jsonpath has at most {MOST} characters")
    return _Reader(text).path()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._subscripts = self._filters = 0
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise _wrong(text, text[place])
            if found.lastgroup != "blank":
                self._tokens.append((str(found.lastgroup), found[0]))
            place = found.end()

    def path(self) -> Path:
        mode = self._word("strict", "lax")
        root = self._or()
        if self._at < len(self._tokens):
            raise self._error()
        return Path(mode == "strict", root)

    # --- tokens -----------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("", "")

    def _error(self) -> CairnError:
        return _wrong(self._text, self._peek()[1])

    def _sign(self, *signs: str) -> str:
        kind, text = self._peek()
        if kind == "sign" and text in signs:
            self._at += 1
            return text
        return ""

    def _word(self, *words: str) -> str:
        kind, text = self._peek()
        if kind == "word" and text.lower() in words:
            self._at += 1
            return text.lower()
        return ""

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._error()

    # --- predicates -------------------------------------------------------------------------------

    def _predicate(self, node: Node) -> Node:
        if node[0] not in PREDICATES:
            raise self._error()
        return node

    def _value(self, node: Node) -> Node:
        if node[0] in PREDICATES:
            raise self._error()
        return node

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise LimitExceeded("a jsonpath is nested too deeply", sqlstate="54001")
        left = self._and()
        while self._sign("||"):
            left = ("or", self._predicate(left), self._predicate(self._and()))
        self._depth -= 1
        return left

    def _and(self) -> Node:
        left = self._not()
        while self._sign("&&"):
            left = ("and", self._predicate(left), self._predicate(self._not()))
        return left

    def _not(self) -> Node:
        if not self._sign("!"):
            return self._compared()
        if self._peek() == ("sign", "("):
            self._at += 1
            inner = self._predicate(self._or())
            self._expect(")")
            return ("not", inner)
        if self._peek()[1].lower() == "exists":
            return ("not", self._compared())
        raise self._error()

    def _compared(self) -> Node:
        left = self._sum()
        if sign := self._sign(*_COMPARED):
            return ("cmp", _COMPARED[sign], self._value(left), self._value(self._sum()))
        if self._word("starts"):
            if not self._word("with"):
                raise self._error()
            kind, text = self._peek()
            self._at += 1
            if kind not in ("string", "variable"):
                self._at -= 1
                raise self._error()
            prefix = ("const", _string(text), ()) if kind == "string" else _variable(text)
            return ("starts", self._value(left), prefix)
        if self._word("like_regex"):
            return self._like(self._value(left))
        return left

    def _like(self, left: Node) -> Node:
        kind, text = self._peek()
        if kind != "string":
            raise self._error()
        self._at += 1
        flags = ""
        if self._word("flag"):
            kind, given = self._peek()
            if kind != "string":
                raise self._error()
            self._at += 1
            flags = _string(given)
        for flag in flags:
            if flag not in "ismxq":
                raise CairnError(
                    "invalid input syntax for type jsonpath",
                    detail=f'Unrecognized flag character "{flag}" in LIKE_REGEX predicate.',
                    sqlstate="42601",
                )
        if "x" in flags and "q" not in flags:
            raise Unsupported('XQuery "x" flag (expanded regular expressions) is not implemented')
        return ("like", left, _string(text), flags)

    # --- values -----------------------------------------------------------------------------------

    def _sum(self) -> Node:
        left = self._product()
        while sign := self._sign("+", "-"):
            left = ("math", sign, self._value(left), self._value(self._product()), ())
        return left

    def _product(self) -> Node:
        left = self._signed()
        while sign := self._sign("*", "/", "%"):
            left = ("math", sign, self._value(left), self._value(self._signed()), ())
        return left

    def _signed(self) -> Node:
        if sign := self._sign("+", "-"):
            self._depth += 1
            if self._depth > DEEPEST:
                raise LimitExceeded("a jsonpath is nested too deeply", sqlstate="54001")
            inner = self._value(self._signed())
            self._depth -= 1
            return ("sign", sign, inner, ())
        return self._primary()

    def _primary(self) -> Node:
        kind, text = self._peek()
        self._at += 1
        word = text.lower()
        if kind == "sign" and text == "(":
            inner = self._or()
            self._expect(")")
            if inner[0] in PREDICATES and self._peek()[1].lower() == "is":
                self._at += 1
                if not self._word("unknown"):
                    raise self._error()
                return ("unknown", inner)
            steps = self._steps()
            return ("path", inner, steps) if steps else inner
        if kind == "word" and word == "exists" and self._sign("("):
            inner = self._value(self._or())
            self._expect(")")
            return ("exists", inner)
        if kind == "sign" and text == "$":
            return ("root", None, self._steps())
        if kind == "sign" and text == "@":
            if not self._filters:
                raise CairnError("@ is not allowed in root expressions", sqlstate="42601")
            return ("item", None, self._steps())
        if kind == "variable":
            return (*_variable(text)[:2], self._steps())
        if kind == "number":
            return ("const", _number(text), self._steps())
        if kind == "string":
            return ("const", _string(text), self._steps())
        if kind == "word" and text in ("true", "false", "null"):
            value = {"true": True, "false": False, "null": None}[text]
            return ("const", value, self._steps())
        if kind == "word" and word == "last":
            if not self._subscripts:
                text = "LAST is allowed only in array subscripts"
                raise CairnError(text, sqlstate="42601")
            return ("last", None, self._steps())
        self._at -= 1
        raise self._error()

    def _steps(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while True:
            if self._sign("."):
                found.append(self._member())
            elif self._sign("["):
                found.append(self._subscript())
            elif self._sign("?"):
                self._expect("(")
                self._filters += 1
                found.append(("filter", self._predicate(self._or())))
                self._filters -= 1
                self._expect(")")
            else:
                return tuple(found)

    def _member(self) -> Node:
        kind, text = self._peek()
        self._at += 1
        if kind == "sign" and text == "*":
            return ("members",)
        if kind == "sign" and text == "**":
            return self._levels()
        if kind == "string":
            return ("key", _string(text))
        if kind == "word":
            if self._peek() == ("sign", "(") and text in (*_METHODS, "datetime", "keyvalue"):
                if text not in _METHODS:
                    raise Unsupported(f"jsonpath: .{text}() is not supported")
                self._at += 1
                self._expect(")")
                return ("method", text)
            return ("key", text)
        self._at -= 1
        raise self._error()

    def _levels(self) -> Node:
        if not self._sign("{"):
            return ("levels", 0, ALL)
        first = self._level()
        last = self._level() if self._word("to") else first
        self._expect("}")
        return ("levels", first, last)

    def _level(self) -> int:
        if self._word("last"):
            return ALL
        kind, text = self._peek()
        if kind != "number" or not text.isdigit():
            raise self._error()
        self._at += 1
        return min(int(text), ALL)

    def _subscript(self) -> Node:
        if self._sign("*"):
            self._expect("]")
            return ("items",)
        self._subscripts += 1
        parts: list[tuple[Node, Node | None]] = []
        while True:
            first = self._value(self._sum())
            parts.append((first, self._value(self._sum()) if self._word("to") else None))
            if not self._sign(","):
                break
        self._subscripts -= 1
        self._expect("]")
        return ("at", tuple(parts))


def _variable(text: str) -> Node:
    name = _string(text[1:]) if text[1] == '"' else text[1:]
    return ("variable", name, ())


def _number(text: str) -> int | Decimal:
    return int(text) if text.isdigit() and len(text) < 300 else Decimal(text)
