"""Intervals, times and times of day put together and taken apart: date_bin, make_interval."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from cairn.model.errors import InvalidText, OutOfRange, Unsupported
from cairn.model.types.decimals import decode_decimal
from cairn.model.types.interval_text import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    SMALL_UNITS,
    YEARS,
    unit_of,
)
from cairn.model.types.intervals import Interval, decode_interval, encode_interval
from cairn.model.types.sizes import fitter
from cairn.model.types.time_text import clock_to_micros, is_clock, parse_clock
from cairn.model.types.values import ColumnType, datetime_to_micros
from cairn.sql.functions.numbers import int64, strict
from cairn.sql.functions.times import field as field_of
from cairn.sql.functions.times import v_extract

_HOUR, _MINUTE = SMALL_UNITS["hour"], SMALL_UNITS["minute"]


@strict
def v_of_parts(months: int, days: int, micros: int) -> bytes:
    return encode_interval(Interval(months, days, micros))


@strict
def v_months(data: bytes) -> int:
    return decode_interval(data).months


@strict
def v_days(data: bytes) -> int:
    return decode_interval(data).days


@strict
def v_clock(data: bytes) -> int:
    return decode_interval(data).micros


def _carried(big: int, small: int, size: int) -> tuple[int, int]:
    """What is whole of the smaller unit goes to the larger one; both get the same sign."""
    whole = abs(small) // size * (1 if small >= 0 else -1)
    big, small = big + whole, small - whole * size
    if big > 0 > small:
        return big - 1, small + size
    if big < 0 < small:
        return big + 1, small - size
    return big, small


@strict
def v_justify_days(data: bytes) -> bytes:
    value = decode_interval(data)
    months, days = _carried(value.months, value.days, 30)
    return encode_interval(Interval(months, days, value.micros))


@strict
def v_justify_hours(data: bytes) -> bytes:
    value = decode_interval(data)
    days, micros = _carried(value.days, value.micros, MICROS_PER_DAY)
    return encode_interval(Interval(value.months, days, micros))


@strict
def v_justify_interval(data: bytes) -> bytes:
    value = decode_interval(data)
    days, micros = _carried(value.days, value.micros, MICROS_PER_DAY)
    months, days = _carried(value.months, days, 30)
    if months > 0 > micros or (months == 0 and days > 0 > micros):
        days, micros = days - 1, micros + MICROS_PER_DAY
    elif months < 0 < micros or (months == 0 and days < 0 < micros):
        days, micros = days + 1, micros - MICROS_PER_DAY
    months, days = _carried(months, days, 30)
    return encode_interval(Interval(months, days, micros))


@strict
def d_part_of_interval(word: str, data: bytes) -> float:
    found: bytes = v_extract(data, word)
    return float(decode_decimal(found))


@strict
def v_trunc(word: str, data: bytes) -> bytes:
    """`date_trunc` of an interval: nothing smaller than the unit is left."""
    value, unit = decode_interval(data), unit_of(word)
    if unit in SMALL_UNITS and unit != "day":
        size = SMALL_UNITS[unit]
        return encode_interval(value._replace(micros=int(value.micros / size) * size))
    if unit == "day":
        return encode_interval(value._replace(micros=0))
    months = {"month": 1, "quarter": 3, **{name: 12 * size for name, size in YEARS.items()}}
    if unit not in months:
        raise InvalidText(f'unit "{word}" not supported for type interval', sqlstate="0A000")
    return encode_interval(Interval(int(value.months / months[unit]) * months[unit], 0, 0))


@strict
def b_finite(value: int | bytes) -> int:
    """`isfinite`: no time here is without an end."""
    return 1


@strict
def t_binned(stride: bytes, micros: int, origin: int) -> int:
    """`date_bin`: the beginning of the stretch that a time is in, counted from `origin`."""
    value = decode_interval(stride)
    if value.months:
        raise InvalidText(
            "timestamps cannot be binned into intervals containing months or years",
            sqlstate="0A000",
        )
    size = value.days * MICROS_PER_DAY + value.micros
    if size <= 0:
        raise OutOfRange("stride must be greater than zero", sqlstate="22008")
    return int64(micros - (micros - origin) % size)


def b_overlaps(
    start: int | None, end: int | None, other: int | None, last: int | None
) -> int | None:
    """Each stretch has its beginning and not its end; NULL where one that is not known decides."""
    start, end = _sorted_ends(start, end)
    other, last = _sorted_ends(other, last)
    if start is None or other is None:
        return None
    if start == other:
        return None if end is None or last is None else 1
    before, after, stop = (last, start, end) if start > other else (end, other, last)
    if before is None:
        return None
    if after < before:
        return 1
    return None if stop is None else 0


def _sorted_ends(a: int | None, b: int | None) -> tuple[int | None, int | None]:
    if a is None or b is None:
        return (b, None) if a is None else (a, None)
    return min(a, b), max(a, b)


@strict
def t_made_at(year: int, month: int, day: int, hour: int, minute: int, seconds: float) -> int:
    """`make_timestamp`"""
    try:
        if not 0 <= seconds <= 60 or not 0 <= minute < 60 or not 0 <= hour < 24:
            raise ValueError
        micros = (hour * 60 + minute) * _MINUTE + round(seconds * MICROS_PER_SECOND)
        return int64(datetime_to_micros(datetime(year, month, day)) + micros)
    except (ValueError, OverflowError):
        raise OutOfRange("date/time field value out of range", sqlstate="22008") from None


@strict
def v_made(
    years: int,
    months: int = 0,
    weeks: int = 0,
    days: int = 0,
    hours: int = 0,
    minutes: int = 0,
    seconds: float = 0.0,
) -> bytes:
    """`make_interval`"""
    micros = hours * _HOUR + minutes * _MINUTE + round(seconds * MICROS_PER_SECOND)
    return encode_interval(Interval(years * 12 + months, weeks * 7 + days, micros))


_FIELD = re.compile(
    r"(FM)?(YYYY|YYY|YY|Y,YYY|Y|CC|MM|MON(?:TH)?|DDD|DD|DAY|DY|Q|WW|W|HH24|HH12|HH|MI|SSSS|SS|MS|US"
    r"|FF[1-6]|AM|PM|ID|D|BC|AD|RM|J|IY{0,3}|IW)|\"([^\"]*)\"",
    re.IGNORECASE,
)
_WIDTHS = {"YYYY": 4, "YYY": 3, "Y": 1, "DDD": 3, "MS": 3, "US": 6, "Q": 1, "W": 1, "SSSS": 1}
_WIDTHS |= {f"FF{digits}": digits for digits in range(1, 7)}
_NAMED = ("MON", "MONTH", "DAY", "DY", "ID", "D", "BC", "AD")


@strict
def c_of_interval(data: bytes, pattern: str) -> str:
    """`to_char` of an interval: its parts as they are kept, none of them carried over."""
    value = decode_interval(data)
    sign, clock = (-1 if value.micros < 0 else 1), abs(value.micros)
    hours, years = clock // _HOUR, int(value.months / 12)
    months, days = value.months - years * 12, value.months * 30 + value.days
    micros = sign * (clock % MICROS_PER_SECOND)
    found = {
        "YYYY": years,
        "YYY": int(math.fmod(years, 1000)),
        "YY": int(math.fmod(years, 100)),
        "Y": int(math.fmod(years, 10)),
        "CC": int(years / 100),
        "MM": months,
        "Q": int((months - 1) / 3) + 1,
        "DDD": days,
        "WW": int((days - 1) / 7) + 1,
        "W": int((value.days - 1) / 7) + 1,
        "DD": value.days,
        "HH24": sign * hours,
        "HH12": sign * (hours % 12 or 12),
        "HH": sign * (hours % 12 or 12),
        "MI": sign * (clock // _MINUTE % 60),
        "SS": sign * (clock // MICROS_PER_SECOND % 60),
        "SSSS": sign * (clock // MICROS_PER_SECOND),
        "MS": sign * (clock % MICROS_PER_SECOND // 1000),
        "US": micros,
        **{f"FF{digits}": int(micros / 10 ** (6 - digits)) for digits in range(1, 7)},
    }

    def put(field: re.Match[str]) -> str:
        bare, word, quoted = field.groups()
        if word is None:
            return str(quoted)
        if word.upper() in ("AM", "PM"):  # AM, whichever of the two was asked for
            noon = "am" if hours % 24 < 12 else "pm"
            return noon if word.islower() else noon.upper()
        if word.upper() in _NAMED:
            raise InvalidText(
                "invalid format specification for an interval value", sqlstate="22007"
            )
        if word.upper() in ("RM", "J", "IW") or word[0] in "iI":
            raise Unsupported(f'the pattern "{word}" of to_char is not supported of an interval')
        if word.upper() == "Y,YYY":
            return f"{int(years / 1000)},{abs(years) % 1000:03d}"
        if word.upper() == "Q" and not months:
            return ""
        number, width = found[word.upper()], _WIDTHS.get(word.upper(), 2)
        width = 1 if bare else width
        has_sign = number < 0 and word.upper() != "DD"  # PostgreSQL counts it among the two there
        return f"{number:0{width + has_sign}d}"

    return _FIELD.sub(put, pattern)


# --- times of day: microseconds since midnight ----------------------------------------------------


@strict
def h_parse(text: str) -> int:
    try:
        return clock_to_micros(parse_clock(text))
    except ValueError:
        if is_clock(text):
            raise InvalidText(
                f'date/time field value out of range: "{text[:100]}"', sqlstate="22008"
            ) from None
        raise InvalidText(
            f'invalid input syntax for type time: "{text[:100]}"', sqlstate="22007"
        ) from None


@strict
def h_of_m(micros: int) -> int:
    return micros % MICROS_PER_DAY


@strict
def h_of_v(data: bytes) -> int:
    return decode_interval(data).micros % MICROS_PER_DAY


@strict
def v_of_h(micros: int) -> bytes:
    return encode_interval(Interval(0, 0, micros))


@strict
def h_plus(micros: int, size: bytes) -> int:
    """Round the clock; whole days and months change nothing, as in PostgreSQL."""
    return (micros + decode_interval(size).micros) % MICROS_PER_DAY


@strict
def h_minus(micros: int, size: bytes) -> int:
    return (micros - decode_interval(size).micros) % MICROS_PER_DAY


@strict
def h_round(micros: int, digits: int) -> int:
    fit = fitter(ColumnType.TIME, (min(max(digits, 0), 6),))
    return int(fit(micros) or 0) if fit is not None else micros


@strict
def h_made(hour: int, minute: int, second: float) -> int:
    micros = (hour * 60 + minute) * 60 * MICROS_PER_SECOND + round(second * MICROS_PER_SECOND)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and micros < MICROS_PER_DAY):
        shown = f"{hour}:{minute:02d}:{second:g}"
        raise OutOfRange(f"time field value out of range: {shown}", sqlstate="22008")
    return micros


_OF_CLOCK = ("hour", "minute", "second", "milliseconds", "microseconds", "epoch")


@strict
def n_extract_clock(micros: int, word: str) -> Any:
    if unit_of(word) not in _OF_CLOCK:
        field_of(micros, word)  # a word that no time knows
        raise Unsupported(f'unit "{word}" not supported for type time without time zone')
    return v_extract(v_of_h(micros), word)


@strict
def d_part_of_clock(word: str, micros: int) -> float:
    return float(decode_decimal(n_extract_clock(micros, word)))
