"""Time zones by the names that people and PostgreSQL have for them."""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

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
def zone_named(text: str) -> tzinfo | None:
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
    return None


def ahead(zone: tzinfo, shown: datetime) -> timedelta:
    """How far the clocks of the zone are ahead when they show this.

    An hour that is shown twice is the later one, one that is left out is counted on from before: in
    both cases by the clock that is less ahead.
    """
    both = (shown.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return min(each or timedelta() for each in both)
