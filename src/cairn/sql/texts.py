"""Text functions with PostgreSQL's rules: LIKE, SIMILAR TO, substring, trim, to_char, to_date."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from cairn.model.errors import CairnError, InvalidParameter, InvalidText
from cairn.model.values import datetime_to_micros
from cairn.sql.numbers import strict

_FLAGS = re.DOTALL


def _escape_char(escape: str) -> str:
    if len(escape) > 1:
        raise InvalidParameter(
            "invalid escape string",
            hint="Escape string must be empty or one character.",
            sqlstate="22025",
        )
    return escape


@lru_cache(maxsize=512)
def _like_pattern(pattern: str, escape: str, flags: int) -> re.Pattern[str]:
    _escape_char(escape)
    parts, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern):
                raise InvalidParameter(
                    "LIKE pattern must not end with escape character", sqlstate="22025"
                )
            parts.append(re.escape(pattern[at]))
        elif char == "%":
            parts.append(".*")
        elif char == "_":
            parts.append(".")
        else:
            parts.append(re.escape(char))
        at += 1
    return re.compile("".join(parts), flags | _FLAGS)


@strict
def c_like(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if _like_pattern(pattern, escape, 0).fullmatch(text) else 0


@strict
def c_ilike(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if _like_pattern(pattern, escape, re.IGNORECASE).fullmatch(text) else 0


@lru_cache(maxsize=512)
def _similar_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """SQL's regular expression in Python's spelling; `escape`+`"` marks the part to take."""
    _escape_char(escape)
    parts: list[str] = []
    at, quotes, in_class = 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if escape and char == escape and at < len(pattern):
            char = pattern[at]
            at += 1
            if char == '"':
                parts.append(")(" if quotes < 2 else "")
                quotes += 1
            else:
                parts.append(re.escape(char))
        elif in_class:
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
            parts.append(re.escape(char))
    body = "".join(parts)
    if quotes == 2:
        before, middle, after = body.split(")(")
        body = f"(?:{before.replace('.*', '.*?')})({middle})(?:{after})"
    try:
        return re.compile(f"(?:{body})", _FLAGS)
    except re.error as problem:
        raise InvalidParameter(f"invalid regular expression: {problem}", sqlstate="2201B") from None


@strict
def c_similar(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if _similar_pattern(pattern, escape).fullmatch(text) else 0


@strict
def c_substring_similar(text: str, pattern: str, escape: str) -> str | None:
    found = _similar_pattern(pattern, escape).fullmatch(text)
    if found is None:
        return None
    return str(found.group(1)) if found.re.groups else text


@lru_cache(maxsize=256)
def regexp(pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except re.error as problem:
        raise InvalidParameter(f"invalid regular expression: {problem}", sqlstate="2201B") from None


@strict
def c_substring_regexp(text: str, pattern: str) -> str | None:
    found = regexp(pattern).search(text)
    if found is None:
        return None
    return found.group(1) if found.re.groups else found.group()


@strict
def c_regexp(text: str, pattern: str) -> int:
    return 1 if regexp(pattern).search(text) else 0


@strict
def c_iregexp(text: str, pattern: str) -> int:
    return 1 if regexp(pattern, re.IGNORECASE).search(text) else 0


@strict
def c_substr(text: str, start: int, length: int | None = None) -> str:
    """From `start`, counted from 1; places before the text count too, as in PostgreSQL."""
    first = max(start - 1, 0)
    if length is None:
        return text[first:]
    if length < 0:
        raise InvalidParameter("negative substring length not allowed", sqlstate="22011")
    return text[first : max(start - 1 + length, 0)]


@strict
def c_trim(text: str, chars: str, side: str) -> str:
    if side == "leading":
        return text.lstrip(chars) if chars else text
    if side == "trailing":
        return text.rstrip(chars) if chars else text
    return text.strip(chars) if chars else text


@strict
def c_left(text: str, count: int) -> str:
    return text[:count]


@strict
def c_right(text: str, count: int) -> str:
    if count == 0:
        return ""
    return text[-count:]


@strict
def c_replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


@strict
def c_repeat(text: str, count: int) -> str:
    if count * len(text) > 1 << 28:
        raise CairnError("requested length too large", sqlstate="54000")
    return text * max(count, 0)


@strict
def c_lpad(text: str, length: int, fill: str = " ") -> str:
    return _pad(text, length, fill, left=True)


@strict
def c_rpad(text: str, length: int, fill: str = " ") -> str:
    return _pad(text, length, fill, left=False)


def _pad(text: str, length: int, fill: str, *, left: bool) -> str:
    missing = max(length, 0) - len(text)
    if missing > 1 << 28:
        raise CairnError("requested length too large", sqlstate="54000")
    if missing <= 0 or not fill:
        return text[: max(length, 0)]
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


@strict
def c_position(text: str, part: str) -> int:
    return text.find(part) + 1


def c_limit(count: int | None) -> int:
    """LIMIT or OFFSET given by a parameter: NULL is none, a negative one an error."""
    if count is None:
        return -1
    if count < 0:
        raise InvalidParameter("LIMIT must not be negative", sqlstate="2201W")
    return count


# --- dates ----------------------------------------------------------------------------------------

_FORMAT = {
    "YYYY": "%Y",
    "YY": "%y",
    "MONTH": "%B",
    "MON": "%b",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "DAY": "%A",
    "DY": "%a",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "TZ": "%Z",
}
_PIECE = re.compile("|".join(sorted(_FORMAT, key=len, reverse=True)) + '|"[^"]*"', re.IGNORECASE)


@lru_cache(maxsize=256)
def _strftime(pattern: str) -> str:
    """Picodata takes strftime's spelling, PostgreSQL its own; a `%` tells them apart."""
    if "%" in pattern:
        return pattern

    def piece(match: re.Match[str]) -> str:
        word = match.group()
        return word[1:-1] if word[0] == '"' else _FORMAT[word.upper()]

    return _PIECE.sub(piece, pattern)


@strict
def c_to_date(text: str, pattern: str) -> int:
    try:
        value = datetime.strptime(text, _strftime(pattern))
    except ValueError:
        raise InvalidText(
            f'invalid value "{text}" for the format "{pattern}"', sqlstate="22007"
        ) from None
    return datetime_to_micros(value.replace(tzinfo=value.tzinfo or UTC))


# --- JSON -----------------------------------------------------------------------------------------


def _dumps(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def c_json_path(data: str | None, *path: Any) -> str | None:
    """One step for each key; a list takes numbers from 0, or their text."""
    if data is None or None in path:
        return None
    value = json.loads(data)
    for key in path:
        if isinstance(value, dict):
            value = value.get(str(key))
        elif isinstance(value, list) and str(key).lstrip("-").isdigit():
            at = int(key)
            value = value[at] if -len(value) <= at < len(value) else None
        else:
            return None
    return _dumps(value)


def c_index(data: str | None, key: Any) -> str | None:
    """`a[1]` of an array counts from 1; `m['k']` of a map takes the key."""
    if isinstance(key, int):
        return None if key < 1 else c_json_path(data, key - 1)
    return c_json_path(data, key)
