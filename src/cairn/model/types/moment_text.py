"""Dates and moments as people write them, in the spellings that PostgreSQL reads.

`2024-07-01 10:00:00+02`, `July 1, 2024 10:00 PM MST`, `Thu, 29 Feb 2024 12:00:00 +0100`,
`7/1/2024` (the month comes first), `20240701T100000Z`. What is not understood is refused: a part
that was passed over would be another moment than the one that was meant. Years before 1 cannot be
stored, and are refused.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Final

from cairn.model.types.zone_names import ahead, zone_named

_MONTHS: Final = {
    name[:size]: number
    for number, name in enumerate(
        ("january", "february", "march", "april", "may", "june", "july", "august", "september",
         "october", "november", "december"), 1,
    )
    for size in (3, len(name))
} | {"sept": 9}  # fmt: skip
_DAYS: Final = frozenset(
    (
        *("mon", "monday", "tue", "tues", "tuesday", "wed", "weds", "wednesday", "thu", "thur"),
        *("thurs", "thursday", "fri", "friday", "sat", "saturday", "sun", "sunday"),
    )
)
_IDLE: Final = frozenset(("at", "on", "ad"))
_LONGEST: Final = 128

_TOKEN: Final = re.compile(
    r"(?P<blank>[\s,]+)"
    r"|(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d*))?)?(?!\w*:)"
    r"|(?P<first>\d{1,6}|[a-z]{3,9})(?P<mark>[-/.])(?P<middle>\d{1,2}|[a-z]{3,9})(?P=mark)"
    r"(?P<last>\d{1,6})(?!\d)"
    r"|(?P<sign>[+-])(?P<zh>\d{1,2})(?::?(?P<zm>\d{2})(?::?(?P<zs>\d{2}))?)?(?!\d)"
    r"|(?P<number>\d+)(?P<rest>\.\d+)?"
    r"|(?P<half>[ap]m)(?![a-z/_])"
    r"|(?P<word>[a-z]+(?:[/_-][a-z]+)*(?:[+-]\d{1,2}(?::?\d{2})?)?)",
    re.ASCII,
)


class FieldOutOfRange(ValueError):
    """It is spelled like a moment, and there is no such one."""


def moment_of(text: str) -> datetime:
    """In UTC, which is also meant where no zone is given."""
    read = _Reader(text)
    shown = read.shown()
    try:
        return (shown - read.ahead(shown)).replace(tzinfo=UTC)
    except OverflowError:
        raise FieldOutOfRange(text) from None


def shown_in(text: str) -> datetime:
    """What a clock shows; a zone that is given is passed over, as in PostgreSQL."""
    return _Reader(text).shown()


def day_in(text: str) -> date:
    """The day as it is written: a clock that shows 24:00 does not make it the next one."""
    return _Reader(text).day()


class _Reader:
    """What was found so far, piece by piece."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._day: int | None = None
        self._month: int | None = None
        self._year: int | None = None
        self._clock: timedelta | None = None
        self._hour = 0
        self._half = ""  # am or pm
        self._zone: tzinfo | None = None
        self._is_clock_next = False  # behind a T
        word = text.strip().lower()
        self._read("1970-01-01" if word == "epoch" else word)

    def _bad(self) -> ValueError:
        return ValueError(self._text)

    def _read(self, text: str) -> None:
        if not text or len(text) > _LONGEST:
            raise self._bad()
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._bad()
            at = found.end()
            if found["blank"] is not None:
                continue
            if found["hour"] is not None:
                self._take_clock(*found.group("hour", "minute", "second", "fraction"))
            elif found["first"] is not None:
                self._take_date(found["first"], found["middle"], found["last"])
            elif found["sign"] is not None:
                self._take_offset(found)
            elif found["number"] is not None:
                self._take_number(found["number"], found["rest"])
            elif found["half"] is not None:
                if self._clock is None or self._half:
                    raise self._bad()
                self._half = found["half"]
            else:
                self._take_word(found["word"])
        if self._is_clock_next or None in (self._day, self._month, self._year):
            raise self._bad()

    # --- pieces ---

    def _take_clock(self, hour: str, minute: str, second: str | None, fraction: str | None) -> None:
        if self._clock is not None:
            raise self._bad()
        self._is_clock_next = False
        self._hour = int(hour)
        seconds = int(second or 0)
        if int(minute) > 59 or seconds > 60:
            raise FieldOutOfRange(self._text)
        micros = round(float("0." + fraction) * 1_000_000) if fraction else 0
        self._clock = timedelta(
            hours=self._hour, minutes=int(minute), seconds=seconds, microseconds=micros
        )
        if self._clock > timedelta(days=1):
            raise FieldOutOfRange(self._text)

    def _take_date(self, first: str, middle: str, last: str) -> None:
        if self._month is not None or self._day is not None or self._year is not None:
            raise self._bad()
        if first.isalpha():  # jul-01-2024
            if middle.isalpha():
                raise self._bad()
            self._set_month(first)
            self._day, self._year = int(middle), _year(last)
        elif middle.isalpha():  # 01-jul-2024, 2024-jul-01
            self._set_month(middle)
            day, year = (last, first) if len(first) > 2 else (first, last)
            self._day, self._year = int(day), _year(year)
        elif len(first) > 2:
            self._year, self._month, self._day = _year(first), int(middle), int(last)
        else:
            self._month, self._day, self._year = int(first), int(middle), _year(last)

    def _set_month(self, name: str) -> None:
        if self._month is not None or name not in _MONTHS:
            raise self._bad()
        self._month = _MONTHS[name]

    def _take_offset(self, found: re.Match[str]) -> None:
        if self._zone is not None or (self._clock is None and self._year is None):
            raise self._bad()
        offset = timedelta(
            hours=int(found["zh"]), minutes=int(found["zm"] or 0), seconds=int(found["zs"] or 0)
        )
        if int(found["zm"] or 0) > 59 or offset >= timedelta(hours=16):
            raise FieldOutOfRange(self._text)
        self._zone = timezone(-offset if found["sign"] == "-" else offset)

    def _take_number(self, digits: str, rest: str | None) -> None:
        if self._is_clock_next and len(digits) == 6:
            fraction = None if rest is None else rest[1:]
            self._take_clock(digits[:2], digits[2:4], digits[4:], fraction)
            return
        if rest is not None or self._is_clock_next:
            raise self._bad()
        if len(digits) == 8 and (self._day, self._month, self._year) == (None, None, None):
            self._year, self._month, self._day = (
                _year(digits[:4]),
                int(digits[4:6]),
                int(digits[6:]),
            )
        elif len(digits) > 2 and self._year is None and len(digits) <= 6:
            self._year = _year(digits)
        elif len(digits) <= 2 and self._day is None:
            self._day = int(digits)
        elif len(digits) <= 2 and self._year is None:
            self._year = _year(digits)
        else:
            raise self._bad()

    def _take_word(self, word: str) -> None:
        if word == "t" and not self._is_clock_next and self._clock is None:
            self._is_clock_next = True
        elif word in _MONTHS:
            self._set_month(word)
        elif word not in _DAYS and word not in _IDLE:
            zone = None if word == "bc" or self._zone is not None else zone_named(word)
            if zone is None:
                raise self._bad()
            self._zone = zone

    # --- all of it ---

    def day(self) -> date:
        assert self._year is not None and self._month is not None and self._day is not None
        self._checked_clock()
        try:
            return date(self._year, self._month, self._day)
        except (ValueError, OverflowError):
            raise FieldOutOfRange(self._text) from None

    def _checked_clock(self) -> timedelta:
        clock = self._clock or timedelta()
        if self._half:
            if self._hour > 12:
                raise FieldOutOfRange(self._text)
            is_later = self._half == "pm"
            clock += timedelta(hours=12 * (is_later - (self._hour == 12)))
        return clock

    def shown(self) -> datetime:
        day = self.day()
        try:
            return datetime(day.year, day.month, day.day) + self._checked_clock()
        except OverflowError:
            raise FieldOutOfRange(self._text) from None

    def ahead(self, shown: datetime) -> timedelta:
        return timedelta() if self._zone is None else ahead(self._zone, shown)


def _year(digits: str) -> int:
    """Of two digits: from 1970 to 2069."""
    year = int(digits)
    return year if len(digits) > 2 else year + (2000 if year < 70 else 1900)
