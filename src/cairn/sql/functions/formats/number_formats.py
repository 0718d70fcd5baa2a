"""`to_char` of numbers, as PostgreSQL's patterns say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

from cairn.model.errors import InvalidText, Unsupported
from cairn.model.types.decimals import decode_decimal
from cairn.sql.functions.numbers import strict

_PART = re.compile(r'(?i)fm|sg|pl|mi|pr|sp|eeee|th|rn|"(?:[^"\\]|\\.)*"?|\\"|.', re.DOTALL)


@dataclass
class _Pattern:
    """Digits before and after the point, what stands between them, and where the sign goes."""

    parts: list[tuple[str, str]] = field(default_factory=list)  # (kind, text)
    whole: int = 0
    fraction: int = 0
    zero_from: int | None = None  # the first place that is shown as 0
    fills: bool = True  # FM: no blanks, no zeros that are not asked for
    sign: str = ""  # S MI PL SG PR
    shift: int = 0  # V: so many digits more


@lru_cache(500)
def _pattern(text: str) -> _Pattern:
    found, is_after, is_shifted = _Pattern(), False, False
    for match in _PART.finditer(text):
        word = match[0]
        upper = word.upper()
        if upper == "FM":
            found.fills = False
        elif upper in ("0", "9"):
            if is_shifted:
                found.shift += 1
            if is_after:
                found.fraction += 1
            else:
                found.whole += 1
            if upper == "0":
                place = found.whole + found.fraction - 1
                found.zero_from = place if found.zero_from is None else found.zero_from
                if is_after:
                    found.zero_from = min(found.zero_from, found.whole)
            found.parts.append(("digit", upper))
        elif upper in (".", "D"):
            if is_after or is_shifted:
                raise InvalidText("multiple decimal points", sqlstate="42601")
            is_after = True
            found.parts.append(("point", "."))
        elif upper in (",", "G"):
            found.parts.append(("group", ","))
        elif upper == "V":
            if is_after:
                raise InvalidText('cannot use "V" and decimal point together', sqlstate="42601")
            is_shifted = True
        elif upper in ("S", "MI", "PL", "SG", "PR"):
            if found.sign:
                raise InvalidText(f'cannot use "{upper}" twice', sqlstate="42601")
            found.sign = upper
            found.parts.append(("sign", upper))
        elif upper in ("EEEE", "TH", "RN", "L", "B", "C", "SP"):
            raise Unsupported(f'the pattern "{word}" of to_char is not supported')
        else:
            if word[0] == '"':
                inner = word[1:-1] if word.endswith('"') and word[1:] else word[1:]
                word = re.sub(r"\\(.)", r"\1", inner)
            shown = '"' if word == '\\"' else word
            found.parts.append(("text", shown))
    return found


@strict
def c_of_number(data: bytes, text: str) -> str:
    return _formatted(decode_decimal(data), text)


@strict
def c_of_double(value: float, text: str) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidText("to_char of this number is not supported", sqlstate="22003")
    return _formatted(Decimal(repr(value)), text)


def _formatted(value: Decimal, text: str) -> str:
    pattern = _pattern(text)
    if not text:
        return ""
    value = value.scaleb(pattern.shift)
    rounded = value.quantize(Decimal(1).scaleb(-pattern.fraction), ROUND_HALF_UP)
    is_negative = rounded.is_signed() and (rounded != 0 or value != 0)
    whole, _, fraction = f"{abs(rounded):f}".partition(".")
    whole = "" if whole == "0" and pattern.whole != 1 else whole
    whole = "" if whole == "0" and pattern.fraction else whole
    if len(whole) > pattern.whole or (pattern.fraction and not pattern.whole):
        fraction, whole = "#" * pattern.fraction, "#" * pattern.whole
    digits = whole.rjust(pattern.whole) + fraction
    return _laid_out(pattern, digits, is_negative=is_negative, is_zero=not whole)


def _laid_out(pattern: _Pattern, digits: str, *, is_negative: bool, is_zero: bool) -> str:
    shown: list[str] = []
    first = len(digits) - len(digits[: pattern.whole].lstrip() + digits[pattern.whole :])
    start = first if pattern.zero_from is None else min(first, pattern.zero_from)
    if is_zero and pattern.zero_from is None and not pattern.fraction and pattern.whole:
        start = pattern.whole - 1  # a bare 0 is shown
        digits = digits[:start] + "0" + digits[start + 1 :]
    last = len(digits)
    if not pattern.fills:  # zeros at the end are dropped, down to the last 0 of the pattern
        kept = _last_zero(pattern)
        while last > max(pattern.whole, kept) and digits[last - 1] == "0":
            last -= 1
    if not pattern.fills and is_zero and last == pattern.whole == start and pattern.whole:
        start = pattern.whole - 1
        digits = digits[:start] + "0" + digits[start + 1 :]
    at, sign_at = 0, None
    for kind, text in pattern.parts:
        if kind == "digit":
            if at < start:
                shown.append(" " if pattern.fills else "")
            else:
                if sign_at is None:
                    sign_at = len(shown)
                if at < last:
                    shown.append(digits[at] if digits[at] != " " else "0")
            at += 1
        elif kind == "group":
            is_shown = at > start
            shown.append("," if is_shown else (" " if pattern.fills else ""))
        elif kind == "point":
            if sign_at is None:
                sign_at = len(shown)
            shown.append(text if pattern.fraction or "#" in digits else "")
        elif kind == "sign":
            shown.append("\0")
        else:
            shown.append(text)
    return _signed(pattern, shown, sign_at or 0, is_negative=is_negative)


def _last_zero(pattern: _Pattern) -> int:
    """The place after the last 0 of the pattern."""
    found = at = 0
    for kind, text in pattern.parts:
        if kind == "digit":
            at += 1
            found = at if text == "0" else found
    return found


def _signed(pattern: _Pattern, shown: list[str], first: int, *, is_negative: bool) -> str:
    blank = " " if pattern.fills else ""
    sign = pattern.sign
    if not sign:
        shown.insert(first, "-" if is_negative else blank)
        # Blanks that stand for missing digits come before the sign.
        return "".join(shown)
    place = shown.index("\0")
    words = {
        "MI": "-" if is_negative else blank,
        "PL": blank if is_negative else "+",
        "SG": "-" if is_negative else "+",
        "S": "-" if is_negative else "+",
        "PR": "",
    }
    if sign == "S" and place < first:  # it stands right before the first digit
        shown.insert(first, words["S"])
        shown[place] = ""
        return "".join(shown)
    shown[place] = words[sign]
    if sign == "PR":
        shown.insert(first, "<" if is_negative else blank)
        shown.append(">" if is_negative else blank)
    elif sign == "PL" and is_negative:
        shown.insert(first, "-")
    elif sign == "PL":
        shown.insert(first, blank)
    return "".join(shown)
