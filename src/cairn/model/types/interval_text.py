"""Intervals as people write them: `1 year 2 mons 3 days 04:05:06`, `2 weeks ago`, `P1DT2H`."""

from __future__ import annotations

import re
from decimal import Decimal

from cairn.model.errors import InvalidText
from cairn.model.types.intervals import Interval

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
SMALL_UNITS = {
    "microseconds": 1,
    "milliseconds": 1000,
    "second": MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "hour": 3600 * MICROS_PER_SECOND,
    "day": MICROS_PER_DAY,
}
#: Other words for the same unit, as PostgreSQL takes them.
_UNITS = {
    **dict.fromkeys(("microsecond", "us", "usec", "usecs"), "microseconds"),
    **dict.fromkeys(("millisecond", "ms", "msec", "msecs"), "milliseconds"),
    **dict.fromkeys(("seconds", "sec", "secs", "s"), "second"),
    **dict.fromkeys(("minutes", "min", "mins", "m"), "minute"),
    **dict.fromkeys(("hours", "hr", "hrs", "h"), "hour"),
    **dict.fromkeys(("days", "d"), "day"),
    **dict.fromkeys(("weeks", "w"), "week"),
    **dict.fromkeys(("months", "mon", "mons"), "month"),
    **dict.fromkeys(("years", "yr", "yrs", "y"), "year"),
    **dict.fromkeys(("decades",), "decade"),
    **dict.fromkeys(("centuries",), "century"),
    **dict.fromkeys(("millennia", "millenniums"), "millennium"),
}
YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_YEARS_MONTHS = re.compile(r"([+-]?)(\d+)-(\d+)(?![\d-])")
_PART = re.compile(
    r"([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?|([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([a-zA-Z]*)"
)
_CLOCK = re.compile(r"[+-]?\d+:\d\d")
_ISO = re.compile(
    r"P(?=.)([+-]?[\d.]+Y)?([+-]?[\d.]+M)?([+-]?[\d.]+W)?([+-]?[\d.]+D)?"
    r"(T([+-]?[\d.]+H)?([+-]?[\d.]+M)?([+-]?[\d.]+S)?)?",
    re.IGNORECASE,
)


def unit_of(word: str) -> str:
    plain = word.strip().lower()
    return _UNITS.get(plain, plain)


def parse_interval(text: str) -> Interval:
    """Units that are given twice add up; a bare number is seconds, before a clock it is days."""
    body, sign = text.strip(), 1
    if not body or len(body) > 200 or not body.isascii():
        raise _wrong(text)
    if body.lower().endswith(" ago"):
        body, sign = body[:-4].rstrip(), -1
    if _ISO.fullmatch(body):
        body = _spelled_out(body)
    months, days, micros = Decimal(0), Decimal(0), Decimal(0)
    at = 0
    while at < len(body):
        if (match := _YEARS_MONTHS.match(body, at)) is not None:
            both = int(match[2]) * 12 + int(match[3])
            months += -both if match[1] == "-" else both
            at = _next(body, match.end())
            continue
        match = _PART.match(body, at)
        if match is None:
            raise _wrong(text)
        minus, hours, minutes, seconds, number, word = match.groups()
        at = _next(body, match.end())
        if number is None:
            clock = int(hours) * 3600 + int(minutes) * 60 + Decimal(seconds or 0)
            micros += clock * MICROS_PER_SECOND * (-1 if minus == "-" else 1)
            continue
        if not word and at < len(body) and _CLOCK.match(body, at) is None:
            raise _wrong(text)
        unit, size = unit_of(word or ("second" if at == len(body) else "day")), Decimal(number)
        if unit in YEARS:
            months += round(size * 12 * YEARS[unit])
        elif unit == "month":
            months += int(size)
            days += (size - int(size)) * 30
        elif unit in ("week", "day"):
            days += size * (7 if unit == "week" else 1)
        elif unit in SMALL_UNITS:
            micros += size * SMALL_UNITS[unit]
        else:
            raise _wrong(text)
    whole = int(days)
    micros += (days - whole) * MICROS_PER_DAY
    return Interval(sign * int(months), sign * whole, sign * round(micros))


def _next(body: str, at: int) -> int:
    """Where the next part begins."""
    while at < len(body) and body[at] in " ,":
        at += 1
    return at


def _wrong(text: str) -> InvalidText:
    return InvalidText(f'invalid input syntax for type interval: "{text[:200]}"', sqlstate="22007")


def _spelled_out(text: str) -> str:
    """`P1Y2M3DT4H5M6S` in words."""
    date, _, clock = text[1:].upper().partition("T")
    for letter, unit in (("Y", "year"), ("M", "mon"), ("W", "week"), ("D", "day")):
        date = date.replace(letter, f" {unit} ", 1)
    for letter, unit in (("H", "hour"), ("M", "min"), ("S", "sec")):
        clock = clock.replace(letter, f" {unit}* ", 1)
    return f"{date} {clock}".replace("*", "").strip()
