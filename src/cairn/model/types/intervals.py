"""INTERVAL: months, days and microseconds, each kept as it was given.

On disk an interval is a BLOB: how long it is (a month counts 30 days, as in PostgreSQL), then its
three parts. SQLite compares BLOBs by memcmp, so it sorts by length; two that are equally long
but spelled otherwise (`1 mon`, `30 days`) are equal in SQL, which compares `length_of` them.
"""

from __future__ import annotations

from datetime import timedelta
from struct import Struct, error
from typing import NamedTuple

from cairn.model.errors import OutOfRange

DAY_US = 86_400_000_000
_PARTS = Struct(">Qiiq")
_BIAS = 2**63


class Interval(NamedTuple):
    months: int = 0
    days: int = 0
    micros: int = 0

    def __str__(self) -> str:
        """PostgreSQL's spelling: `1 year 2 mons 3 days 04:05:06.5`."""
        years, months = divmod(abs(self.months), 12)
        sign = -1 if self.months < 0 else 1
        found: list[str] = []
        before = 0
        for count, word in ((sign * years, "year"), (sign * months, "mon"), (self.days, "day")):
            if count:
                plus = "+" if before < 0 < count else ""
                found.append(f"{plus}{count} {word}{'' if count == 1 else 's'}")
                before = count
        if self.micros or not found:
            seconds, micros = divmod(abs(self.micros), 1_000_000)
            minutes, second = divmod(seconds, 60)
            hour, minute = divmod(minutes, 60)
            mark = "-" if self.micros < 0 else "+" if before < 0 else ""
            fraction = f".{micros:06d}".rstrip("0") if micros else ""
            found.append(f"{mark}{hour:02d}:{minute:02d}:{second:02d}{fraction}")
        return " ".join(found)

    def rounded(self, digits: int) -> Interval:
        """As INTERVAL(2) asks for; halves go away from zero, as in PostgreSQL."""
        step = 10 ** max(6 - digits, 0)
        micros = (abs(self.micros) + step // 2) // step * step
        return Interval(self.months, self.days, -micros if self.micros < 0 else micros)

    @property
    def length_us(self) -> int:
        return (self.months * 30 + self.days) * DAY_US + self.micros


def of_timedelta(value: timedelta) -> Interval:
    return Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds)


def encode_interval(value: Interval) -> bytes:
    try:
        return _PARTS.pack(value.length_us + _BIAS, *value)
    except error:
        raise OutOfRange("interval out of range", sqlstate="22008") from None


def decode_interval(data: bytes) -> Interval:
    return Interval(*_PARTS.unpack(data)[1:])


def length_of(data: bytes) -> int:
    """Microseconds, by which intervals are compared."""
    return int.from_bytes(data[:8]) - _BIAS
