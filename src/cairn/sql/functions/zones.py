"""AT TIME ZONE: from a moment to what the clocks of a place show, and back."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from cairn.model.errors import InvalidText
from cairn.model.types.interval_text import MICROS_PER_SECOND
from cairn.model.types.intervals import decode_interval
from cairn.model.types.values import datetime_to_micros, micros_to_datetime
from cairn.sql.functions.numbers import int64, strict

#: Hours east of Greenwich of the abbreviations that PostgreSQL knows by default, the usual ones.
_ABBREVIATIONS = {
    **dict.fromkeys(("utc", "gmt", "z", "zulu", "ut", "wet"), 0),
    **dict.fromkeys(("cet", "met", "bst", "west"), 1),
    **dict.fromkeys(("cest", "eet", "mest", "sast", "ist"), 2),
    **dict.fromkeys(("eest", "msk", "idt"), 3),
    "jst": 9,
    "kst": 9,
    "aest": 10,
    "nzst": 12,
    "ast": -4,
    "edt": -4,
    "est": -5,
    "cdt": -5,
    "cst": -6,
    "mdt": -6,
    "mst": -7,
    "pdt": -7,
    "pst": -8,
    "akst": -9,
    "hst": -10,
}
#: As POSIX writes it, which PostgreSQL follows: `+3` and `X+3` are west of Greenwich.
_POSIX = re.compile(r"(?:[a-z]{3,}|<[^<>]+>)?([+-]?)(\d{1,2})(?::?([0-5]\d))?")


@lru_cache(1)
def _names() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones()}


@lru_cache(200)
def _zone(text: str) -> tzinfo:
    word = text.strip().lower()
    if word in _ABBREVIATIONS:
        return timezone(timedelta(hours=_ABBREVIATIONS[word]))
    if word in _names():
        return zoneinfo.ZoneInfo(_names()[word])
    found = _POSIX.fullmatch(word)
    if found is not None and int(found[2]) <= 24:
        away = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        if away < timedelta(hours=24):
            return timezone(away if found[1] == "-" else -away)
    raise InvalidText(f'time zone "{text}" not recognized', sqlstate="22023")


def _away(zone: str | bytes, local: datetime | None, moment: datetime | None) -> timedelta:
    """How far the clocks of the zone are ahead, at a moment or when they show `local`."""
    if isinstance(zone, bytes):
        size = decode_interval(zone)
        if size.months or size.days:
            raise InvalidText(
                f'interval time zone "{size}" must not include months or days', sqlstate="22023"
            )
        return timedelta(microseconds=size.micros - size.micros % MICROS_PER_SECOND)
    place = _zone(zone)
    if moment is not None:
        return moment.astimezone(place).utcoffset() or timedelta()
    assert local is not None
    # An hour that is shown twice is the later one, one that is left out is counted on from before:
    # in both cases by the clock that is less ahead.
    both = (local.replace(tzinfo=place, fold=fold).utcoffset() for fold in (0, 1))
    return min(each or timedelta() for each in both)


def _moved(micros: int, away: timedelta, sign: int) -> int:
    found = int64(micros + sign * (away // timedelta(microseconds=1)))
    micros_to_datetime(found)  # years 1 to 9999
    return found


@strict
def t_clock(zone: str | bytes, micros: int) -> int:
    """What the clocks there show at a moment."""
    return _moved(micros, _away(zone, None, micros_to_datetime(micros)), 1)


@strict
def t_moment(zone: str | bytes, micros: int) -> int:
    """The moment at which the clocks there show this."""
    shown = micros_to_datetime(micros).replace(tzinfo=None)
    return _moved(micros, _away(zone, shown, None), -1)


@strict
def t_trunc_in(unit: str, micros: int, zone: str) -> int:
    """`date_trunc` by the clocks of a zone."""
    from cairn.sql.functions.times import t_trunc

    return int(t_moment(zone, t_trunc(unit, t_clock(zone, micros))))


assert datetime_to_micros(datetime(1970, 1, 1, tzinfo=UTC)) == 0
