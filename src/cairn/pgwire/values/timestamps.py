"""timestamptz, timestamp and date: PostgreSQL's ISO text and binary, as aware UTC datetimes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from struct import Struct
from typing import Final

from cairn.model.types.interval_text import parse_interval
from cairn.model.types.intervals import Interval, of_timedelta
from cairn.model.types.moment_text import FieldOutOfRange
from cairn.model.types.time_text import (
    clock_text,
    clock_to_micros,
    is_clock,
    micros_to_clock,
    parse_clock,
    parse_date,
    parse_datetime,
    parse_timestamp,
)
from cairn.pgwire.values.oids import DATE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ
from cairn.pgwire.values.problems import bad_binary, bad_text, out_of_range

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_INT64: Final = Struct("!q")
_INT32: Final = Struct("!i")
_INTERVAL: Final = Struct("!qii")  # microseconds, days, months


def decode_text(data: bytes, oid: int = TIMESTAMPTZ) -> datetime:
    """A moment; without a zone it is UTC, our only session time zone. A date is its midnight."""
    text = data.decode("ascii", "replace").strip(" \t\n\r\f\v")
    try:
        if oid == TIMESTAMPTZ:
            return parse_datetime(text)
        if oid == DATE:
            return datetime.combine(parse_date(text), time(), UTC)
        return parse_timestamp(text).replace(tzinfo=UTC)
    except FieldOutOfRange:
        raise out_of_range(data, oid, sqlstate="22008") from None
    except ValueError:
        raise bad_text(data, oid) from None


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
