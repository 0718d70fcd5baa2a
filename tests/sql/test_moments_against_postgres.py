"""Moments in many spellings: what is read is what PostgreSQL reads, or it is refused.

`CAIRN_MOMENTS=20000 CAIRN_SQL_SEED=… pytest` makes up more of them.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from cairn.model.errors import CairnError
from cairn.model.types.values import ColumnType, parse_text

from .postgres import report

pytestmark = pytest.mark.clients
psycopg = pytest.importorskip("psycopg")

MOMENTS = int(os.environ.get("CAIRN_MOMENTS", "1500"))
SEED = int(os.environ.get("CAIRN_SQL_SEED", "20261119"))
TYPES = {
    "timestamptz": ColumnType.DATETIME,
    "timestamp": ColumnType.TIMESTAMP,
    "date": ColumnType.DATE,
}
DATES = (
    *(
        "2024-07-01",
        "2024-7-1",
        "20240701",
        "July 1, 2024",
        "1 July 2024",
        "Jul 1 2024",
        "0097-02-16",
    ),
    *("1-Jul-2024", "Jul-01-2024", "2024-Jul-01", "7/1/2024", "07/13/24", "1/2/99", "2024/7/1"),
    *("Mon Jul 1 2024", "Mon, 1 Jul 2024", "2024 July 1", "29 Feb 2023", "2024-02-29", "13/1/2024"),
    *("2024.07.01", "July 2024", "7-1-2024", "99-01-08", "2024-13-01", "1 2024", "Sept 3 70", ""),
    *("Monday 2024-07-01", "2024-06-31", "5 5 Jul 2024", "Jul Aug 2024", "2024-1"),
)
CLOCKS = (
    *(
        "",
        " 10:00",
        "T10:00:00",
        " 10:51:14.5",
        " 10:00 PM",
        " 10:00:00 am",
        " 12:00 AM",
        " 12:30 pm",
    ),
    *(" 24:00", " 24:00:01", " 23:59:60", " 10:60", " 13:00 pm", "T100000", "t10:00", " 9:05:07"),
    *(" 10:00:00.1234567", " 10:00 10:00", " at 10:00", " 0:00 am", "T"),
)
ZONES = (
    *(
        "",
        "Z",
        " Z",
        "+02",
        " +02",
        "+02:30",
        "-0330",
        "+5",
        " UTC",
        " GMT",
        " EST",
        " PST",
        " mst",
    ),
    *(
        " America/New_York",
        " europe/berlin",
        " Asia/Kolkata",
        " PST-03:00",
        " GMT+4",
        " foo",
        " BC",
    ),
    *("+15:59", "+16", "+02:75", " EST EDT", " Etc/GMT+5", " AD", "+02 EST", " MSK", " CEST"),
)


def _text(rng: random.Random) -> str:
    day, clock, zone = rng.choice(DATES), rng.choice(CLOCKS), rng.choice(ZONES)
    if rng.random() < 0.2:  # the year behind the clock, as ctime has it
        return f"Wed Jul {rng.randint(1, 31)}{clock}{zone} 2001"
    if rng.random() < 0.1:
        return f"{clock.strip()} {day}{zone}"
    return f"{day}{clock}{zone}"


def _theirs(postgres: Any, type_: str, text: str) -> Any:
    """What it is as text, or None: refused, or of years that cannot be stored."""
    try:
        row = postgres.execute(f"SELECT %s::{type_}::text", (text,)).fetchone()
    except psycopg.Error:
        return None
    return None if row[0].endswith("BC") or len(row[0].partition("-")[0]) > 4 else row[0]


def _ours(type_: str, text: str) -> Any:
    try:
        value = parse_text(TYPES[type_], text)
    except CairnError:
        return None
    if isinstance(value, datetime):
        shown = value.replace(tzinfo=None).isoformat(" ")
        shown = shown.rstrip("0") if value.microsecond else shown
        return shown + ("+00" if value.tzinfo is UTC else "")
    return value.isoformat()


def test_a_moment_is_what_postgresql_reads(postgres: Any) -> None:
    """Who of the two refuses a text is no matter, as long as what people write is read."""
    print(f"seed {SEED}, {MOMENTS} texts")
    rng, problems = random.Random(SEED), []
    read = refused = 0
    postgres.execute("SET timezone = 'UTC'")
    for _ in range(MOMENTS):
        text, type_ = _text(rng), rng.choice(list(TYPES))
        ours, theirs = _ours(type_, text), _theirs(postgres, type_, text)
        read += theirs is not None
        refused += ours is None and theirs is not None
        if None not in (ours, theirs) and ours != theirs:
            problems.append(f"{text!r}::{type_}\n    ours: {ours}\n    PostgreSQL: {theirs}")
    report(problems)
    assert refused < read / 20
