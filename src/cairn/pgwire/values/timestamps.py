"""timestamptz, timestamp and date: PostgreSQL's ISO text and binary, as aware UTC datetimes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from struct import Struct
from typing import Final

from cairn.model.types.interval_text import parse_interval
from cairn.model.types.intervals import Interval, of_timedelta
from cairn.model.types.time_text import (
    clock_text,
    clock_to_micros,
    is_clock,
    micros_to_clock,
    parse_clock,
    parse_rfc2822,
)
from cairn.pgwire.values.oids import DATE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ
from cairn.pgwire.values.problems import bad_binary, bad_text, out_of_range

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_INT64: Final = Struct("!q")
_INT32: Final = Struct("!i")
_INTERVAL: Final = Struct("!qii")  # microseconds, days, months
_STAMP: Final = re.compile(
    r"(?P<year>[0-9]{4,5})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[Tt ]\s*(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{0,30}))?)?)?"
    r"\s*(?P<zone>[Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt]|"
    r"(?P<sign>[+-])(?P<zh>[0-9]{1,2})(?::?(?P<zm>[0-9]{2})(?::?(?P<zs>[0-9]{2}))?)?)?"
)


def decode_text(data: bytes, oid: int = TIMESTAMPTZ) -> datetime:
    """A moment; without a zone it is UTC, our only session time zone. A date is its midnight."""
    text = data.decode("ascii", "replace").strip(" \t\n\r\f\v")
    if text.lower() == "epoch":
        return _UNIX_EPOCH
    match = _STAMP.fullmatch(text)
    if match is None:
        try:
            return parse_rfc2822(text).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            raise bad_text(data, oid) from None
    try:
        moment = _moment(match, with_zone=oid == TIMESTAMPTZ)
    except (ValueError, OverflowError):
        raise out_of_range(data, oid, sqlstate="22008") from None
    return moment.replace(hour=0, minute=0, second=0, microsecond=0) if oid == DATE else moment


def _moment(match: re.Match[str], *, with_zone: bool) -> datetime:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    hour, minute = int(match["hour"] or 0), int(match["minute"] or 0)
    second = int(match["second"] or 0)
    if minute > 59 or second > 60 or hour * 3600 + minute * 60 + second > 86400:
        raise ValueError("no such time of day")
    zone = UTC
    if with_zone and match["sign"]:
        zone = _offset(match)
    # 24:00:00 and a leap second are the next day or minute, as in PostgreSQL.
    clock = timedelta(
        hours=hour, minutes=minute, seconds=second, microseconds=_microseconds(match["fraction"])
    )
    return (datetime(year, month, day, tzinfo=zone) + clock).astimezone(UTC)


def _microseconds(fraction: str | None) -> int:
    if not fraction:
        return 0
    if len(fraction) <= 6:
        return int(fraction.ljust(6, "0"))
    return round(float("0." + fraction) * 1_000_000)


def _offset(match: re.Match[str]) -> timezone:
    offset = timedelta(
        hours=int(match["zh"]), minutes=int(match["zm"] or 0), seconds=int(match["zs"] or 0)
    )
    if offset >= timedelta(hours=16):
        raise ValueError("time zone displacement out of range")
    return timezone(-offset if match["sign"] == "-" else offset)


def decode_timestamp(data: bytes) -> datetime:
    return decode_text(data, TIMESTAMP).replace(tzinfo=None)


def decode_date(data: bytes) -> date:
    return decode_text(data, DATE).date()


def encode_timestamptz(value: object) -> bytes:
    return encode_timestamp(value) + b"+00"


def encode_timestamp(value: object) -> bytes:
    assert isinstance(value, datetime)
    moment = value.replace(tzinfo=None) if value.tzinfo is UTC else _in_utc(value)
    text = moment.isoformat(" ")
    return (text.rstrip("0") if moment.microsecond else text).encode()


def _in_utc(value: datetime) -> datetime:
    """Naive, in UTC. A value without a zone is UTC already: `astimezone` would ask the machine."""
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def encode_date(value: object) -> bytes:
    assert isinstance(value, date)
    day = _in_utc(value).date() if isinstance(value, datetime) else value
    return day.isoformat().encode()


def encode_binary(value: object) -> bytes:
    assert isinstance(value, datetime)
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return _INT64.pack((moment - _EPOCH) // _MICROSECOND)


def decode_binary(data: bytes) -> datetime:
    if len(data) != 8:
        raise bad_binary(data, TIMESTAMPTZ)
    (microseconds,) = _INT64.unpack(data)
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        shown = f"{microseconds} µs since 2000-01-01"
        raise out_of_range(shown, TIMESTAMPTZ, sqlstate="22008") from None


def decode_timestamp_binary(data: bytes) -> datetime:
    return decode_binary(data).replace(tzinfo=None)


def encode_date_binary(value: object) -> bytes:
    assert isinstance(value, date)
    day = _in_utc(value).date() if isinstance(value, datetime) else value
    return _INT32.pack((day - _EPOCH.date()).days)


def decode_date_binary(data: bytes) -> date:
    if len(data) != 4:
        raise bad_binary(data, DATE)
    (days,) = _INT32.unpack(data)
    try:
        return _EPOCH.date() + timedelta(days=days)
    except OverflowError:
        raise out_of_range(f"{days} days since 2000-01-01", DATE, sqlstate="22008") from None


def _interval(value: object) -> Interval:
    found = of_timedelta(value) if isinstance(value, timedelta) else value
    assert isinstance(found, Interval)
    return found


def encode_interval(value: object) -> bytes:
    return str(_interval(value)).encode()


def encode_interval_binary(value: object) -> bytes:
    months, days, micros = _interval(value)
    return _INTERVAL.pack(micros, days, months)


def decode_interval(data: bytes) -> Interval:
    return parse_interval(data.decode("ascii", "replace"))


def decode_interval_binary(data: bytes) -> Interval:
    if len(data) != _INTERVAL.size:
        raise bad_binary(data, INTERVAL)
    micros, days, months = _INTERVAL.unpack(data)
    return Interval(months, days, micros)


def encode_time(value: object) -> bytes:
    assert isinstance(value, time)
    return clock_text(value).encode()


def encode_time_binary(value: object) -> bytes:
    assert isinstance(value, time)
    return _INT64.pack(clock_to_micros(value))


def decode_time(data: bytes) -> time:
    text = data.decode("ascii", "replace")
    try:
        return parse_clock(text)
    except ValueError:
        if is_clock(text):
            raise out_of_range(data, TIME, sqlstate="22008") from None
        raise bad_text(data, TIME) from None


def decode_time_binary(data: bytes) -> time:
    if len(data) != 8:
        raise bad_binary(data, TIME)
    (micros,) = _INT64.unpack(data)
    try:
        return micros_to_clock(micros)
    except ValueError:
        raise out_of_range(f"{micros} µs of a day", TIME, sqlstate="22008") from None
