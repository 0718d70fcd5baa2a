"""Functions of time: fields, truncation, intervals that are added. All in UTC."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from cairn.model.errors import DivisionByZero, InvalidText, OutOfRange, Unsupported
from cairn.model.types.interval_text import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    SMALL_UNITS,
    YEARS,
    unit_of,
)
from cairn.model.types.intervals import Interval, decode_interval, encode_interval, length_of
from cairn.model.types.values import ColumnType, datetime_to_micros, micros_to_datetime, to_physical
from cairn.sql.functions.numbers import int64, strict


def _unknown(word: str) -> InvalidText:
    return InvalidText(
        f'unit "{word}" not recognized for type timestamp with time zone', sqlstate="22023"
    )


def _ceiled(year: int, size: int) -> int:
    """Centuries and millennia are counted from 1: 2000 is of the 20th century."""
    return (year + size - 1) // size


def _parts(count: int, digits: int) -> Decimal:
    """So many parts of one, with that many digits after the point, as PostgreSQL shows them."""
    return Decimal(count).scaleb(-digits)


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
        "second": _parts(in_minute, 6),
        "milliseconds": _parts(in_minute, 3),
        "microseconds": in_minute,
        "epoch": _parts(micros, 6),
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
    if unit in SMALL_UNITS:
        return int64(micros - micros % SMALL_UNITS[unit])
    value = micros_to_datetime(micros).replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return datetime_to_micros(value - timedelta(days=value.weekday()))
    if unit == "month":
        return datetime_to_micros(value.replace(day=1))
    if unit == "quarter":
        return datetime_to_micros(value.replace(month=(value.month - 1) // 3 * 3 + 1, day=1))
    if unit not in YEARS:
        raise _unknown(word)
    size = YEARS[unit]
    year = value.year - value.year % size
    if unit in ("century", "millennium"):
        year = (_ceiled(value.year, size) - 1) * size + 1
    if year < 1:
        raise OutOfRange("timestamp out of range", sqlstate="22008")
    return datetime_to_micros(value.replace(year=year, month=1, day=1))


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


# --- intervals ------------------------------------------------------------------------------------


def _scaled(value: Interval, scale: Callable[[int], float]) -> bytes:
    """Times or by a number, in PostgreSQL's steps: what is left of a month goes to the days, of a
    day to the clock. It rounds in between, to six digits, and so it is done here."""
    try:
        months, days = scale(value.months), scale(value.days)
        whole_months, whole_days = int(months), int(days)
        more_days = round((months - whole_months) * 30, 6)
        seconds = round((days - whole_days + more_days - int(more_days)) * 86_400, 6)
        if abs(seconds) >= 86_400:
            carried = int(seconds / 86_400)
            whole_days, seconds = whole_days + carried, seconds - carried * 86_400
        micros = round(scale(value.micros) + seconds * MICROS_PER_SECOND)
        return encode_interval(Interval(whole_months, whole_days + int(more_days), micros))
    except (ValueError, OverflowError):  # of what is no number, or has no end
        raise OutOfRange("interval out of range", sqlstate="22008") from None


@strict
def t_plus(micros: int, data: bytes) -> Any:
    return t_shift(micros, *decode_interval(data))


@strict
def t_minus(micros: int, data: bytes) -> Any:
    return t_shift(micros, *(-part for part in decode_interval(data)))


@strict
def v_between(later: int, earlier: int) -> bytes:
    """The difference of two times: days and hours, never months."""
    size = later - earlier
    days = abs(size) // MICROS_PER_DAY * (1 if size >= 0 else -1)
    return encode_interval(Interval(0, days, size - days * MICROS_PER_DAY))


@strict
def v_of_days(later: int, earlier: int) -> int:
    return (later - earlier) // MICROS_PER_DAY


@strict
def v_add(a: bytes, b: bytes) -> bytes:
    pairs = zip(decode_interval(a), decode_interval(b), strict=True)
    return encode_interval(Interval(*(x + y for x, y in pairs)))


@strict
def v_neg(a: bytes) -> bytes:
    return encode_interval(Interval(*(-part for part in decode_interval(a))))


@strict
def v_mul(a: bytes, factor: float) -> bytes:
    return _scaled(decode_interval(a), lambda part: part * factor)


@strict
def v_div(a: bytes, divisor: float) -> bytes:
    if divisor == 0:
        raise DivisionByZero()
    return _scaled(decode_interval(a), lambda part: part / divisor)


@strict
def v_length(a: bytes) -> int:
    """By which intervals are compared."""
    return length_of(a)


@strict
def v_extract(a: bytes, word: str) -> Any:
    value, unit = decode_interval(a), unit_of(word)
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    clock, is_late = abs(value.micros), -1 if value.micros < 0 else 1
    minute = clock % (60 * MICROS_PER_SECOND)
    days = Decimal(years) * Decimal("365.25") * sign + months * sign * 30 + value.days
    found: dict[str, int | Decimal] = {
        "year": sign * years,
        "month": sign * months,
        "day": value.days,
        "hour": is_late * (clock // SMALL_UNITS["hour"]),
        "minute": is_late * (clock // SMALL_UNITS["minute"] % 60),
        "second": _parts(is_late * minute, 6),
        "milliseconds": _parts(is_late * minute, 3),
        "microseconds": is_late * minute,
        "epoch": days * 86_400 + _parts(value.micros, 6),
        "quarter": sign * (months // 3) + 1,
        "decade": sign * (years // 10),
        "century": sign * (years // 100),
        "millennium": sign * (years // 1000),
    }
    if unit not in found:
        field(0, word)  # a word that no time knows
        raise Unsupported(f'unit "{word}" not supported for type interval')
    return to_physical(ColumnType.DECIMAL, found[unit])


@strict
def v_age(later: int, earlier: int) -> bytes:
    """`age`: years, months and days as a calendar counts them."""
    if later < earlier:
        turned = decode_interval(v_age(earlier, later))
        return encode_interval(Interval(*(-part for part in turned)))
    a, b = micros_to_datetime(later), micros_to_datetime(earlier)
    months = (a.year - b.year) * 12 + a.month - b.month
    days = a.day - b.day
    rest = (later % MICROS_PER_DAY) - (earlier % MICROS_PER_DAY)
    if rest < 0:
        rest, days = rest + MICROS_PER_DAY, days - 1
    if days < 0:
        days, months = days + monthrange(b.year, b.month)[1], months - 1
    return encode_interval(Interval(months, days, rest))
