"""Regular expressions as functions: regexp_replace, regexp_match, regexp_split_to_array."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from cairn.model import stops
from cairn.model.errors import InvalidParameter
from cairn.model.types.values import list_text
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.patterns import regexp
from cairn.sql.functions.splitting import check_parts
from cairn.sql.functions.texts import check_length

_CHECKED = 500  # matches between two looks at whether somebody wants an end
_GROUP = re.compile(r"\\(\\|&|\d)")


@lru_cache(maxsize=256)
def regexp_flags(flags: str) -> tuple[str, int]:
    """(flags of the expression, how many to replace; 0: all)."""
    for flag in flags:
        if flag not in "gicmnpswx":
            raise InvalidParameter(f'invalid regular expression option: "{flag}"')
    return flags.replace("g", ""), 0 if "g" in flags else 1


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidParameter(f'invalid value for parameter "{name}": {value}')


def _plain_flags(flags: str) -> str:
    if "g" in flags:
        raise InvalidParameter('this function does not support the "global" option')
    return regexp_flags(flags)[0]


def _matches(expression: Any, text: str, start: int = 1) -> Iterator[Any]:
    """From this character on, counted from 1."""
    _at_least("start", start, 1)
    found = expression.finditer(text, start - 1) if start - 1 <= len(text) else ()
    last = (-1, -1)
    for count, match in enumerate(found):
        if count % _CHECKED == 0:
            stops.check()
        if match.span() != last:  # the binding tells an empty one at the end of the text twice
            yield match
        last = match.span()


def _nth(expression: Any, text: str, start: int, which: int) -> Any:
    _at_least("n", which, 1)
    return next(islice(_matches(expression, text, start), which - 1, None), None)


@strict
def c_regexp_replace(text: str, pattern: str, new: str, flags: str = "") -> str:
    how, count = regexp_flags(flags)
    return _replaced(text, regexp(pattern, how), new, 1, count)


@strict
def c_regexp_replace_at(
    text: str, pattern: str, new: str, start: int, which: int = 1, flags: str = ""
) -> str:
    """The match of this number from this place on; 0: all of them."""
    _at_least("n", which, 0)
    return _replaced(text, regexp(pattern, regexp_flags(flags)[0]), new, start, which)


def _replaced(text: str, expression: Any, new: str, start: int, which: int) -> str:
    groups, size = int(expression.groups), len(text)

    def put(match: Any) -> str:
        def group(mark: re.Match[str]) -> str:
            if mark[1] == "\\":
                return "\\"
            number = 0 if mark[1] == "&" else int(mark[1])
            return match[number] or "" if number <= groups else ""

        return _GROUP.sub(group, new)

    parts, at = [], 0
    for count, match in enumerate(_matches(expression, text, start), 1):
        if which in (0, count):
            found = put(match)
            parts += [text[at : match.start()], found]
            at = match.end()
            size += len(found)
            check_length(size)
        if count == which:
            break
    return "".join((*parts, text[at:]))


@strict
def a_regexp_split(text: str, pattern: str, flags: str = "") -> str:
    """`regexp_split_to_array`"""
    expression = regexp(pattern, _plain_flags(flags))
    parts: list[str] = []
    start = 0
    for match in _matches(expression, text):
        # Nothing is split off where an empty match touches the beginning, the end or the last one.
        if match.end() == match.start() and match.start() in (0, start, len(text)):
            continue
        parts.append(text[start : match.start()])
        check_parts(len(parts))
        start = match.end()
    return list_text([*parts, text[start:]])


def _groups(expression: Any, match: Any) -> str:
    return list_text(match.groups() if expression.groups else (match[0],))


@strict
def a_regexp_match(text: str, pattern: str, flags: str = "") -> str | None:
    """`regexp_match`: the groups of the first match, or all of it."""
    expression = regexp(pattern, _plain_flags(flags))
    match = expression.search(text)
    return None if match is None else _groups(expression, match)


@strict
def a_regexp_matches(text: str, pattern: str, flags: str = "") -> str:
    """`regexp_matches`: a list of such lists, of one match or of all."""
    how, count = regexp_flags(flags)
    expression = regexp(pattern, how)
    found = []
    for match in islice(_matches(expression, text), count or None):
        found.append(_groups(expression, match))
        check_parts(len(found))
    return list_text(found)


@strict
def i_regexp_count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    expression = regexp(pattern, _plain_flags(flags))
    return sum(1 for _ in _matches(expression, text, start))


@strict
def b_regexp_like(text: str, pattern: str, flags: str = "") -> int:
    stops.check()
    return int(regexp(pattern, _plain_flags(flags)).search(text) is not None)


@strict
def c_regexp_substr(
    text: str, pattern: str, start: int = 1, which: int = 1, flags: str = "", group: int = 0
) -> str | None:
    expression = regexp(pattern, _plain_flags(flags))
    _at_least("subexpr", group, 0)
    match = _nth(expression, text, start, which)
    return None if match is None or group > expression.groups else match[group]


@strict
def i_regexp_instr(
    text: str,
    pattern: str,
    start: int = 1,
    which: int = 1,
    end: int = 0,
    flags: str = "",
    group: int = 0,
) -> int:
    if end not in (0, 1):
        _at_least("endoption", -1, 0)
    expression = regexp(pattern, _plain_flags(flags))
    _at_least("subexpr", group, 0)
    match = _nth(expression, text, start, which)
    if match is None or group > expression.groups:
        return 0
    return int(match.end(group) if end else match.start(group)) + 1
