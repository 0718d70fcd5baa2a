"""Texts taken apart into lists, and put together from values: string_to_array, format."""

from __future__ import annotations

import re
from typing import Any

from cairn.model.errors import InvalidParameter, LimitExceeded
from cairn.model.types.values import list_text
from cairn.sql.functions.numbers import strict
from cairn.sql.functions.texts import check_length
from cairn.sql.functions.words import c_quote_ident, c_quote_literal

MAX_PARTS = 250_000  # in one go: nothing ends it before it is done
_FIELD = re.compile(r"%(?:(\d+)\$)?(-?\d*)(.?)", re.DOTALL)


def a_split(text: str | None, delimiter: str | None, null: str | None = None) -> str | None:
    """`string_to_array`: without a delimiter each character is a part."""
    if text is None:
        return None
    if delimiter is None:
        check_parts(len(text))
        parts = list(text)
    else:
        check_parts(text.count(delimiter) if delimiter else 1)
        parts = [] if not text else text.split(delimiter) if delimiter else [text]
    return list_text(None if null is not None and part == null else part for part in parts)


def check_parts(count: int) -> None:
    if count > MAX_PARTS:
        raise LimitExceeded(f"a text is split into at most {MAX_PARTS} parts")


@strict
def c_hex(value: int) -> str:
    return f"{value & 0xFFFFFFFFFFFFFFFF:x}"


def c_format(pattern: str | None, *values: str | None) -> str | None:
    """`format`: %s, %I, %L, with a place and a width."""
    if pattern is None:
        return None
    at, size = 0, len(pattern)

    def put(field: re.Match[str]) -> str:
        nonlocal at, size
        place, width, kind = field.groups()
        if kind == "%" and not place and not width:
            return "%"
        if kind not in ("s", "I", "L"):
            raise InvalidParameter(f'unrecognized format() type specifier "{kind}"')
        at = int(place) if place else at + 1
        if not 1 <= at <= len(values):
            raise InvalidParameter("too few arguments for format()")
        found = _shown(values[at - 1], kind)
        wanted = int(width) if width not in ("", "-") else 0
        size += max(abs(wanted), len(found))
        check_length(size)
        return found.ljust(-wanted) if wanted < 0 else found.rjust(wanted)

    return _FIELD.sub(put, pattern)


def _shown(value: Any, kind: str) -> str:
    if kind == "I":
        if value is None:
            raise InvalidParameter(
                "null values cannot be formatted as an SQL identifier", sqlstate="22004"
            )
        return str(c_quote_ident(value))
    if kind == "L":
        return "NULL" if value is None else str(c_quote_literal(value))
    return "" if value is None else str(value)
