"""Moments, and times of day, as people and PostgreSQL write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time

from cairn.model.types.moment_text import FieldOutOfRange, day_in, moment_of, shown_in

DAY_US = 86_400_000_000

_PLAIN = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:[+-](?:0\d|1[0-5])(?::\d\d)?|Z)?)?",
    re.ASCII,
)
_CLOCK = re.compile(
    r"(?:\d{4}-\d{1,2}-\d{1,2}[ T])?(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d*))?)?\s*(am|pm)?"
    r"\s*(?:[+-]\d\d(?::?\d\d)?|z|utc)?",
    re.IGNORECASE | re.ASCII,
)


def parse_datetime(text: str) -> datetime:
    """A moment; UTC where no zone is given."""
    value = _plain(text)
    if value is None:
        return moment_of(text)
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise FieldOutOfRange(text) from None


def parse_timestamp(text: str) -> datetime:
    """The same without a zone: one that is given is passed over, as in PostgreSQL."""
    value = _plain(text)
    return shown_in(text) if value is None else value.replace(tzinfo=None)


def parse_date(text: str) -> date:
    value = _plain(text)
    return day_in(text) if value is None else value.date()


def _plain(text: str) -> datetime | None:
    """The usual spelling, quickly."""
    if _PLAIN.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # there may be such a day: 24:00 is that of the next one
        return None


def is_clock(text: str) -> bool:
    """Whether it is spelled like a time of day, there may be no such one."""
    return _CLOCK.fullmatch(text.strip()) is not None


def parse_clock(text: str) -> time:
    """`10:30`, `10:30:00.5`, `4:05 PM`; a date and a zone are passed over, as in PostgreSQL."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[5]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + 12 * (match[5].lower() == "pm")
    time(hour, minute, second)  # each part in its range
    digits = match[4] or ""
    rest = int((digits + "000000")[:6]) + (digits[6:7] >= "5")
    return micros_to_clock(((hour * 60 + minute) * 60 + second) * 1_000_000 + rest)


def micros_to_clock(micros: int) -> time:
    """So long after midnight; ValueError for what is no time of a day."""
    seconds, rest = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, rest)


def clock_to_micros(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def clock_text(value: time) -> str:
    """As PostgreSQL shows it: no zeros behind the last digit."""
    text = value.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if value.microsecond else text
