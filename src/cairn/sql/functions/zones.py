"""AT TIME ZONE: from a moment to what the clocks of a place show, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from cairn.model.errors import InvalidText
from cairn.model.types.interval_text import MICROS_PER_SECOND
from cairn.model.types.intervals import decode_interval
from cairn.model.types.values import datetime_to_micros, micros_to_datetime
from cairn.model.types.zone_names import ahead, zone_named
from cairn.sql.functions.numbers import int64, strict


def _zone(text: str) -> tzinfo:
    found = zone_named(text)
    if found is None:
        raise InvalidText(f'time zone "{text}" not recognized', sqlstate="22023")
    return found


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
    return ahead(place, local)


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
