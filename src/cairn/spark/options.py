"""What a user may say in `.option(…)`, checked once on the driver with one clear sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from cairn.model.errors import InvalidParameter

_READ_FROM = ("master", "replica", "any")
_CONFLICTS = ("error", "ignore", "replace")
_COMMITS = ("staged", "direct")
_KNOWN = {
    "dsn", "table", "query", "columns", "splits", "readfrom", "pushdown", "decimalscale",
    "onconflict", "commit", "writeid", "stream", "startingoffset", "maxrowspertrigger",
    "failondataloss", "snapshot", "timeout", "batchbytes", "where", "path", "checkpointlocation",
}  # fmt: skip
MAX_DECIMAL_SCALE = 38


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one read, write or stream. Pickled to every task."""

    dsn: str
    table: str | None = None
    query: str | None = None
    columns: tuple[str, ...] = ()
    splits: int = 0  # partitions per replicaset; 0: by size
    read_from: str = "master"
    pushdown: bool = False
    where: str | None = None  # SQL that the server evaluates
    decimal_scale: int = 18
    on_conflict: str = "error"
    commit: str = "staged"
    write_id: str | None = None
    batch_bytes: int = 32 * 1024 * 1024  # sorted by bucket and sent together
    stream: str | None = None
    starting_offset: str = "earliest"
    max_rows: int = 0  # of a micro-batch; 0: all there is
    fail_on_data_loss: bool = True
    snapshot: str | None = None  # "true", or a moment as JSON
    timeout_s: float = 60.0  # without a byte from the server


def read_options(given: Mapping[str, str]) -> Options:
    words = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(words) - _KNOWN)
    if unknown:
        raise InvalidParameter(f"unknown option {unknown[0]}", hint=f"known: {_names()}")
    if not words.get("dsn"):
        raise InvalidParameter(
            'option("dsn", …) is missing', hint="postgresql://user:password@host1:4327,host2/cairn"
        )
    found = Options(
        dsn=words["dsn"],
        table=words.get("table") or words.get("path"),
        query=words.get("query"),
        columns=tuple(name.strip() for name in words.get("columns", "").split(",") if name.strip()),
        splits=_integer(words, "splits", 0),
        read_from=_one_of(words, "readFrom", _READ_FROM, "master"),
        pushdown=_one_of(words, "pushdown", ("on", "off"), "off") == "on",
        where=words.get("where"),
        decimal_scale=_integer(words, "decimalScale", 18, MAX_DECIMAL_SCALE),
        on_conflict=_one_of(words, "onConflict", _CONFLICTS, "error"),
        commit=_one_of(words, "commit", _COMMITS, "staged"),
        write_id=words.get("writeid"),
        batch_bytes=_integer(words, "batchBytes", 32 * 1024 * 1024),
        stream=words.get("stream"),
        starting_offset=words.get("startingoffset", "earliest"),
        max_rows=_integer(words, "maxRowsPerTrigger", 0),
        fail_on_data_loss=_one_of(words, "failOnDataLoss", ("true", "false"), "true") == "true",
        snapshot=None if words.get("snapshot") in (None, "false") else words["snapshot"],
        timeout_s=float(_integer(words, "timeout", 60)),
    )
    if found.table is None and found.query is None and found.stream is None:
        raise InvalidParameter('say what to read: option("table", …) or option("query", …)')
    if found.table is not None and found.query is not None:
        raise InvalidParameter("table and query exclude each other")
    return found


def starting_position(text: str) -> dict[str, Any] | None:
    """`{"term": …, "index": …}` of a starting offset that names a position; None for a word."""
    if text in ("earliest", "latest", "snapshot"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidParameter(
            f"startingOffset {text} is not known", hint='earliest, latest or {"term":1,"index":2}'
        )
    return found


def _names() -> str:
    return ", ".join(sorted(_KNOWN - {"path", "checkpointlocation"}))


def _integer(words: dict[str, str], name: str, default: int, most: int = 1_000_000_000) -> int:
    text = words.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) > most:
        raise InvalidParameter(f"option {name}={text}: a number from 0 to {most}")
    return int(text)


def _one_of(words: dict[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    value = words.get(name.lower(), default).lower()
    if value not in known:
        raise InvalidParameter(f"option {name}={value}: one of {', '.join(known)}")
    return value
