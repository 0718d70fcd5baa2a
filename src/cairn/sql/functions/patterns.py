"""Patterns of text: LIKE, SIMILAR TO and regular expressions, all in time linear in the text.

Whoever may run a SELECT chooses the pattern, so nothing here may go back and try again: LIKE looks
for its pieces from left to right, and the others are run by RE2, which never backtracks. In return
there are no back references and no looking around; patterns and their programs have a size limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from cairn.model import stops
from cairn.model.errors import CairnError, InvalidParameter
from cairn.model.types.values import ColumnType, list_values
from cairn.sql.functions.numbers import strict

MAX_PATTERN = 20_000  # characters of a regular expression
MAX_PIECE = 1_000  # characters between two `%` of a LIKE that has a `_` among them
MAX_PROGRAM_BYTES = 4 * 1024 * 1024  # of a compiled expression and of what it remembers

Matches = Callable[[str], bool]


def check_escape(escape: str) -> str:
    if len(escape) > 1:
        raise InvalidParameter(
            "invalid escape string",
            hint="Escape string must be empty or one character.",
            sqlstate="22025",
        )
    return escape


def _too_complex(text: str) -> CairnError:
    return InvalidParameter(
        f"invalid regular expression: {text}",
        hint=f"at most {MAX_PATTERN} characters, and repeats of at most 1000",
        sqlstate="2201B",
    )


# --- LIKE -----------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def like(pattern: str, escape: str, *, ignores_case: bool = False) -> Matches:
    """Whether a whole text is like `pattern`."""
    pieces = _pieces(pattern, escape)
    if ignores_case:
        pieces = [[each and each.lower() for each in piece] for piece in pieces]
        matches = _like(pieces)
        return lambda text: matches(text.lower())
    return _like(pieces)


@strict
def b_like_each(text: str, patterns: str, ignores_case: int, is_any: int) -> int | None:
    """`LIKE ANY (list)` and `LIKE ALL (list)`: NULL where an unknown one would decide."""
    items = list_values(ColumnType.STRING, patterns)
    for each in items:
        stops.check()
        if each is not None and like(each, "\\", ignores_case=bool(ignores_case))(text) == is_any:
            return is_any
    return None if None in items else int(not is_any)


def _pieces(pattern: str, escape: str) -> list[list[str | None]]:
    """What stands between the `%`; None is one character of any kind."""
    check_escape(escape)
    pieces: list[list[str | None]] = [[]]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape:
            if at == len(pattern):
                raise InvalidParameter(
                    "LIKE pattern must not end with escape character", sqlstate="22025"
                )
            pieces[-1].append(pattern[at])
            at += 1
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if char == "_" else char)
    return pieces


def _like(pieces: list[list[str | None]]) -> Matches:
    first, *middle = [_Piece(piece) for piece in pieces]
    if not middle:
        return lambda text: len(text) == first.size and first.is_at(text, 0)
    last = middle.pop()
    inner = [piece for piece in middle if piece.size]
    for piece in inner:
        piece.check()
    least = first.size + last.size

    def matches(text: str) -> bool:
        end = len(text) - last.size
        if len(text) < least or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        at = first.size
        for piece in inner:  # the first place is as good as any: what follows has most room then
            at = piece.find(text, at, end)
            if at < 0:
                return False
            at += piece.size
        return True

    return matches


class _Piece:
    """Characters in a row, some of which may be any."""

    def __init__(self, chars: list[str | None]) -> None:
        self.size = len(chars)
        self._text = "".join(char or "" for char in chars)
        self._runs: list[tuple[int, str]] = []  # plain characters and where they stand
        self._search: Any = None
        self._has_any = None in chars
        start = 0
        for at in range(self.size + 1):
            if at == self.size or chars[at] is None:
                if at > start:
                    self._runs.append((start, "".join(map(str, chars[start:at]))))
                start = at + 1
        if self._has_any:
            body = "".join("." if char is None else re2.escape(char) for char in chars)
            self._body = body

    def check(self) -> None:
        """Compile what has to be looked for."""
        if not self._has_any:
            return
        if self.size > MAX_PIECE:
            raise InvalidParameter(
                f"a LIKE pattern has more than {MAX_PIECE} characters with _ between two %",
                sqlstate="54001",
            )
        self._search = compiled(self._body, captures=False)

    def is_at(self, text: str, at: int) -> bool:
        if not self._has_any:
            return text.startswith(self._text, at)
        return all(text.startswith(run, at + offset) for offset, run in self._runs)

    def find(self, text: str, start: int, end: int) -> int:
        if not self._has_any:
            return text.find(self._text, start, end)
        if not self._runs:  # nothing but wildcards
            return start if start + self.size <= end else -1
        found = self._search.search(text[start:end])
        return -1 if found is None else start + int(found.start())


# --- regular expressions --------------------------------------------------------------------------

_CLASSES = {
    "w": r"\pL\pN_",
    "d": r"\p{Nd}",
    "s": r"\s\pZ",
}
#: PostgreSQL's `\b` is a backspace, and no border of a word.
_OTHER_ESCAPES = {"Z": r"\z", "b": r"\x08", "B": r"\\"}
_NAMED = {
    "alpha": r"\pL",
    "digit": r"\p{Nd}",
    "alnum": r"\pL\p{Nd}",
    "upper": r"\p{Lu}",
    "lower": r"\p{Ll}",
    "space": r"\s\pZ",
}
_MODEST = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\?")
_NAMED_CLASS = re.compile(r"\[:([a-z]+):\]")


@lru_cache(maxsize=512)
def regexp(pattern: str, flags: str = "", *, captures: bool = True) -> Any:
    """A compiled expression with PostgreSQL's flags: i, n or m, p, s, w, x. Of what may match
    at a place the longest counts, unless the pattern asks for little (`.*?`)."""
    body = _in_re2(pattern, is_expanded="x" in flags)
    return compiled(
        body,
        captures=captures,
        ignores_case="i" in flags,
        stops_at_lines=_last(flags, "nmpsw") in ("n", "m", "p"),
        by_line=_last(flags, "nmpsw") in ("n", "m", "w"),
        longest=_MODEST.search(body) is None,
    )


def _last(flags: str, of: str) -> str:
    """The one that counts where several say different things."""
    return next((each for each in reversed(flags) if each in of), "")


def compiled(
    pattern: str,
    *,
    captures: bool = True,
    ignores_case: bool = False,
    stops_at_lines: bool = False,
    by_line: bool = False,
    longest: bool = False,
) -> Any:
    if len(pattern) > 8 * MAX_PATTERN:
        raise _too_complex("it is too long")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    options.never_capture = not captures
    options.case_sensitive = not ignores_case
    options.dot_nl = not stops_at_lines
    options.longest_match = longest
    try:
        return re2.compile(f"(?m){pattern}" if by_line else pattern, options)
    except re2.error as problem:
        text = problem.args[0] if problem.args else ""
        told = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        raise _too_complex(told) from None


def _in_re2(pattern: str, *, is_expanded: bool) -> str:
    """RE2's own classes are of ASCII; PostgreSQL's know all letters."""
    if len(pattern) > MAX_PATTERN:
        raise _too_complex("it is too long")
    parts: list[str] = []
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\" and at < len(pattern):
            parts.append(_escaped(pattern[at], in_class))
            at += 1
        elif in_class:
            named = _NAMED_CLASS.match(pattern, at - 1) if char == "[" else None
            if named is not None:
                parts.append(_NAMED.get(named[1], named[0]))
                at = named.end()
                continue
            in_class = char != "]"
            parts.append(r"\[" if char == "[" else char)
        elif char == "[":
            in_class = True
            parts.append(char)
            if pattern[at : at + 1] == "^":
                parts.append("^")
                at += 1
            if pattern[at : at + 1] == "]":  # a bracket that stands first is meant itself
                parts.append(r"\]")
                at += 1
        elif is_expanded and char.isspace():
            continue
        elif is_expanded and char == "#":
            end = pattern.find("\n", at)
            at = len(pattern) if end < 0 else end
        else:
            parts.append(char)
    return "".join(parts)


def _escaped(char: str, in_class: bool) -> str:
    if char in _CLASSES:
        return _CLASSES[char] if in_class else f"[{_CLASSES[char]}]"
    if char.lower() in _CLASSES and not in_class:
        return f"[^{_CLASSES[char.lower()]}]"
    return _OTHER_ESCAPES.get(char, "\\" + char)


# --- SIMILAR TO -----------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def similar(pattern: str, escape: str) -> Any:
    """SQL's regular expression in RE2's spelling; `escape`+`"` marks the part to take."""
    check_escape(escape)
    if len(pattern) > MAX_PATTERN:
        raise _too_complex("it is too long")
    parts: list[str] = []
    marks: list[int] = []  # how much of `parts` stands before each of them
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if escape and char == escape and at < len(pattern):
            char = pattern[at]
            at += 1
            if char == '"':
                marks.append(len(parts))
            else:
                parts.append(re2.escape(char))
        elif in_class:
            named = _NAMED_CLASS.match(pattern, at - 1) if char == "[" else None
            if named is not None:
                parts.append(_NAMED.get(named[1], named[0]))
                at = named.end()
                continue
            in_class = char != "]"
            parts.append("\\" + char if char in "\\[" else char)
        elif char == "[":
            in_class = True
            parts.append(char)
        elif char in "%_":
            parts.append(".*" if char == "%" else ".")
        elif char in "|*+?(){}":
            parts.append("(?:" if char == "(" else char)
        else:
            parts.append(re2.escape(char))
    if not marks:
        return compiled(f"(?:{''.join(parts)})")
    if len(marks) > 2:
        raise InvalidParameter(
            "SQL regular expression may not contain more than two escape-double-quote separators",
            sqlstate="2200C",
        )
    # What is taken is as long as it can be, so what stands around it is as short.
    first, last = marks[0], (*marks, len(parts))[1]
    before, taken, after = (
        "".join(each) for each in (parts[:first], parts[first:last], parts[last:])
    )
    return compiled(f"(?U:{before})({taken})(?U:{after})")
