"""Functions of time: fields, truncation, intervals that are added. All in UTC."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from cairn.model.errors import InvalidText, OutOfRange, Unsupported
from cairn.model.values import ColumnType, datetime_to_micros, micros_to_datetime, to_physical
from cairn.sql.functions.numbers import int64, strict

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
_MILLION = Decimal(MICROS_PER_SECOND)
_SMALL = {
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
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)|([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?")


def unit_of(word: str) -> str:
    plain = word.strip().lower()
    return _UNITS.get(plain, plain)


def _unknown(word: str) -> InvalidText:
    return InvalidText(
        f'unit "{word}" not recognized for type timestamp with time zone', sqlstate="22023"
    )


def _ceiled(year: int, size: int) -> int:
    """Centuries and millennia are counted from 1: 2000 is of the 20th century."""
    return (year + size - 1) // size


def field(micros: int, word: str) -> int | Decimal:
    value, unit = micros_to_datetime(micros), unit_of(word)
    in_minute = value.second * MICROS_PER_SECOND + value.microsecond
    week = value.isocalendar()
    found: dict[str, int | Decimal] = {
        "year": value.year,
        "month": value.month,
        "day": value.day,
        "hour": value.hour,
        "minute": value.minute,
        "second": in_minute / _MILLION,
        "milliseconds": in_minute / Decimal(1000),
        "microseconds": in_minute,
        "epoch": micros / _MILLION,
        "dow": value.isoweekday() % 7,
        "isodow": value.isoweekday(),
        "doy": value.timetuple().tm_yday,
        "week": week.week,
        "isoyear": week.year,
        "quarter": (value.month + 2) // 3,
        "decade": value.year // 10,
        "century": _ceiled(value.year, 100),
        "millennium": _ceiled(value.year, 1000),
        "timezone": 0,
        "timezone_hour": 0,
        "timezone_minute": 0,
    }
    if unit not in found:
        raise _unknown(word)
    return found[unit]


@strict
def n_extract(micros: int, name: str) -> Any:
    return to_physical(ColumnType.DECIMAL, field(micros, name))


@strict
def d_part(name: str, micros: int) -> float:
    return float(field(micros, name))


@strict
def t_trunc(word: str, micros: int) -> int:
    unit = unit_of(word)
    if unit in _SMALL:
        return int64(micros - micros % _SMALL[unit])
    value = micros_to_datetime(micros).replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return datetime_to_micros(value - timedelta(days=value.weekday()))
    if unit == "month":
        return datetime_to_micros(value.replace(day=1))
    if unit == "quarter":
        return datetime_to_micros(value.replace(month=(value.month - 1) // 3 * 3 + 1, day=1))
    if unit not in _YEARS:
        raise _unknown(word)
    size = _YEARS[unit]
    year = value.year - value.year % size
    if unit in ("century", "millennium"):
        year = (_ceiled(value.year, size) - 1) * size + 1
    return datetime_to_micros(value.replace(year=max(year, 1), month=1, day=1))


@strict
def t_round(micros: int, digits: int) -> int:
    """To so many digits of a second, halves away from zero as in PostgreSQL."""
    size = 10 ** (6 - min(max(digits, 0), 6))
    half = size // 2
    away = (abs(micros) + half) // size * size
    return int64(away if micros >= 0 else -away)


@strict
def t_shift(micros: int, months: int, days: int, rest: int) -> int:
    """A time plus an interval: months first, as in PostgreSQL; the day is kept in its month."""
    try:
        value = micros_to_datetime(micros)
        if months:
            year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
            last = monthrange(year, month + 1)[1]
            value = value.replace(year=year, month=month + 1, day=min(value.day, last))
        return datetime_to_micros(value + timedelta(days=days, microseconds=rest))
    except (ValueError, OverflowError):
        raise OutOfRange("timestamp out of range", sqlstate="22008") from None


@strict
def t_of_epoch(seconds: float) -> int:
    try:
        return datetime_to_micros(micros_to_datetime(round(seconds * MICROS_PER_SECOND)))
    except (ValueError, OverflowError):
        raise OutOfRange(f'timestamp out of range: "{seconds}"', sqlstate="22008") from None


@strict
def t_made(year: int, month: int, day: int) -> int:
    try:
        return datetime_to_micros(datetime(year, month, day))
    except (ValueError, OverflowError):
        raise OutOfRange(
            f"date field value out of range: {year}-{month:02d}-{day:02d}", sqlstate="22008"
        ) from None


def parse_interval(text: str) -> tuple[int, int, int]:
    """`1 year 2 mons 3 days 04:05:06` as months, days and microseconds."""
    wrong = InvalidText(f'invalid input syntax for type interval: "{text}"', sqlstate="22007")
    body, sign = text.strip(), 1
    if len(body) > 200:
        raise wrong
    if body.lower().endswith(" ago"):
        body, sign = body[:-4].rstrip(), -1
    months, days, micros = Decimal(0), Decimal(0), Decimal(0)
    at = 0
    while at < len(body):
        match = _PART.match(body, at)
        if match is None:
            raise wrong
        number, word, minus, hours, minutes, seconds = match.groups()
        at = match.end()
        while at < len(body) and body[at] in " ,":
            at += 1
        if number is None:
            clock = int(hours) * 3600 + int(minutes) * 60 + Decimal(seconds or 0)
            micros += clock * MICROS_PER_SECOND * (-1 if minus == "-" else 1)
            continue
        unit, size = unit_of(word), Decimal(number)
        if unit in _YEARS:
            months += size * 12 * _YEARS[unit]
        elif unit in ("month", "week", "day"):
            months += size if unit == "month" else 0
            days += {"week": size * 7, "day": size}.get(unit, Decimal(0))
        elif unit in _SMALL:
            micros += size * _SMALL[unit]
        else:
            raise wrong
    if not body:
        raise wrong
    if months % 1:
        raise Unsupported("a fraction of a month in an interval is not supported")
    whole = int(days)
    micros += (days - whole) * MICROS_PER_DAY
    return sign * int(months), sign * whole, sign * round(micros)
