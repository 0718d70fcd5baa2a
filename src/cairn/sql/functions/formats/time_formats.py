"""`to_char` of times: PostgreSQL's template patterns, in English."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from cairn.model.types.values import micros_to_datetime
from cairn.sql.functions.numbers import strict

_JULIAN = 1_721_425  # the day before 0001-01-01, which datetime.toordinal() calls 1

Make = Callable[[datetime], str]
Piece = str | tuple[Make, bool]  # text, or a field and whether its padding is left out


def _number(width: int, value: Callable[[datetime], int]) -> Make:
    return lambda time: f"{value(time):0{width}d}"


def _name(format_: str, change: Callable[[str], str], width: int = 0) -> Make:
    return lambda time: change(time.strftime(format_)).ljust(width)


def _noon(before: str, after: str) -> Make:
    return lambda time: before if time.hour < 12 else after


def _fraction(digits: int) -> Make:
    return _number(digits, lambda time: time.microsecond // 10 ** (6 - digits))


def _hour12(time: datetime) -> int:
    return time.hour % 12 or 12


_FIELDS: dict[str, Make] = {
    "YYYY": _number(4, lambda t: t.year),
    "YYY": _number(3, lambda t: t.year % 1000),
    "YY": _number(2, lambda t: t.year % 100),
    "Y": _number(1, lambda t: t.year % 10),
    "Y,YYY": lambda t: f"{t.year // 1000},{t.year % 1000:03d}",
    "IYYY": _number(4, lambda t: t.isocalendar().year),
    "IYY": _number(3, lambda t: t.isocalendar().year % 1000),
    "IY": _number(2, lambda t: t.isocalendar().year % 100),
    "I": _number(1, lambda t: t.isocalendar().year % 10),
    "IDDD": _number(3, lambda t: t.isocalendar().week * 7 + t.isoweekday() - 7),
    "IW": _number(2, lambda t: t.isocalendar().week),
    "ID": _number(1, lambda t: t.isoweekday()),
    "CC": _number(2, lambda t: (t.year + 99) // 100),
    "Q": _number(1, lambda t: (t.month + 2) // 3),
    "MM": _number(2, lambda t: t.month),
    "WW": _number(2, lambda t: (t.timetuple().tm_yday + 6) // 7),
    "W": _number(1, lambda t: (t.day + 6) // 7),
    "DDD": _number(3, lambda t: t.timetuple().tm_yday),
    "DD": _number(2, lambda t: t.day),
    "D": _number(1, lambda t: t.isoweekday() % 7 + 1),
    "J": _number(1, lambda t: t.toordinal() + _JULIAN),
    "HH24": _number(2, lambda t: t.hour),
    "HH12": _number(2, _hour12),
    "HH": _number(2, _hour12),
    "MI": _number(2, lambda t: t.minute),
    "SSSSS": _number(1, lambda t: t.hour * 3600 + t.minute * 60 + t.second),
    "SSSS": _number(1, lambda t: t.hour * 3600 + t.minute * 60 + t.second),
    "SS": _number(2, lambda t: t.second),
    "MS": _number(3, lambda t: t.microsecond // 1000),
    "US": _number(6, lambda t: t.microsecond),
    **{f"FF{digits}": _fraction(digits) for digits in range(1, 7)},
    "OF": lambda t: "+00",
    "TZH": lambda t: "+00",
    "TZM": lambda t: "00",
}
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
#: Their case is that of the result.
_CASED: dict[str, Make] = {
    "MONTH": _name("%B", str.upper, 9),
    "Month": _name("%B", str, 9),
    "month": _name("%B", str.lower, 9),
    "MON": _name("%b", str.upper),
    "Mon": _name("%b", str),
    "mon": _name("%b", str.lower),
    "DAY": _name("%A", str.upper, 9),
    "Day": _name("%A", str, 9),
    "day": _name("%A", str.lower, 9),
    "DY": _name("%a", str.upper),
    "Dy": _name("%a", str),
    "dy": _name("%a", str.lower),
    **dict.fromkeys(("AM", "PM"), _noon("AM", "PM")),
    **dict.fromkeys(("am", "pm"), _noon("am", "pm")),
    **dict.fromkeys(("A.M.", "P.M."), _noon("A.M.", "P.M.")),
    **dict.fromkeys(("a.m.", "p.m."), _noon("a.m.", "p.m.")),
    **dict.fromkeys(("BC", "AD"), lambda t: "AD"),
    **dict.fromkeys(("bc", "ad"), lambda t: "ad"),
    **dict.fromkeys(("B.C.", "A.D."), lambda t: "A.D."),
    **dict.fromkeys(("b.c.", "a.d."), lambda t: "a.d."),
    "RM": lambda t: _ROMAN[t.month - 1].ljust(4),
    "rm": lambda t: _ROMAN[t.month - 1].lower().ljust(4),
    "TZ": lambda t: "UTC",
    "tz": lambda t: "utc",
}
_WORDS = sorted((*_FIELDS, *_CASED), key=len, reverse=True)
_PIECE = re.compile(
    rf'(FM)?({"|".join(map(re.escape, _WORDS))})(th|TH)?|"((?:[^"\\]|\\.)*)"?|\\(")', re.IGNORECASE
)


@lru_cache(maxsize=256)
def pieces(pattern: str) -> tuple[tuple[str, Make | None, bool, str], ...]:
    """(text before, field, without padding, ending of an ordinal) of each field, then the rest."""
    found: list[tuple[str, Make | None, bool, str]] = []
    text, at = "", 0
    for match in _PIECE.finditer(pattern):
        text += pattern[at : match.start()]
        at = match.end()
        bare, word, ordinal, quoted, mark = match.groups()
        if word is None:  # inside of quotes a backslash lets the next letter stand for itself
            text += mark or re.sub(r"\\(.)", r"\1", quoted)
            continue
        make = _CASED.get(word) or _CASED.get(word.capitalize()) or _FIELDS[word.upper()]
        found.append((text, make, bare is not None, ordinal or ""))
        text = ""
    found.append((text + pattern[at:], None, False, ""))
    return tuple(found)


def _ordinal(number: str, like: str) -> str:
    value = int(number)
    ending = "th" if 10 < value % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return ending.upper() if like.isupper() else ending


def formatted(time: datetime, pattern: str) -> str:
    parts = []
    for text, make, bare, ordinal in pieces(pattern):
        parts.append(text)
        if make is None:
            continue
        shown = make(time)
        if bare:
            shown = shown.rstrip() if not shown.isdigit() else shown.lstrip("0") or "0"
        parts.append(shown + (_ordinal(shown, ordinal) if ordinal and shown.isdigit() else ""))
    return "".join(parts)


@strict
def c_to_char(micros: int, pattern: str) -> str:
    """Picodata takes strftime's spelling, PostgreSQL its own; a `%` tells them apart."""
    time = micros_to_datetime(micros)
    return time.strftime(pattern) if "%" in pattern else formatted(time, pattern)
