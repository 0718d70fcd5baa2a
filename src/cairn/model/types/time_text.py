"""Moments, and times of day, as people and PostgreSQL write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from email.utils import parsedate_to_datetime

DAY_US = 86_400_000_000

_ZONE = re.compile(r"(?<=[:\d]{5})\s*([+-]\d\d(:?\d\d)?|Z|UTC)$", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?:\d{4}-\d{1,2}-\d{1,2}[ T])?(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d*))?)?\s*(am|pm)?"
    r"\s*(?:[+-]\d\d(?::?\d\d)?|z|utc)?",
    re.IGNORECASE | re.ASCII,
)


def parse_datetime(text: str) -> datetime:
    """ISO 8601 or PostgreSQL's spelling (`2024-01-02 03:04:05+00`); UTC where no zone is given."""
    word = text.strip()
    if word.upper().endswith(" UTC"):
        word = word[:-4]
    if word[:1].isalpha() or " " in word[:4]:
        return parse_rfc2822(word)
    tail = word[-3:]
    if len(word) > 12 and tail[0] in "+-" and tail[1:].isdigit():
        word += ":00"
    value = datetime.fromisoformat(word)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """The same without a zone: one that is given is passed over, as in PostgreSQL."""
    word = text.strip()
    if word[:1].isalpha() or " " in word[:4]:
        return parse_rfc2822(word).replace(tzinfo=None)
    return datetime.fromisoformat(_ZONE.sub("", word))


def parse_rfc2822(word: str) -> datetime:
    """`Thu, 29 Feb 2024 12:00:00 +0100`, as mail and HTTP write it."""
    value = parsedate_to_datetime(word)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


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
