"""Statements that only scan: some columns of one table, all rows of some buckets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.sharding.spans import Ranges
from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.pgwire.copy import CopyFormat

ENOUGH = 20_000  # rows that are worth another process
SAMPLED = 2_000
#: What the planner makes of `SELECT columns FROM table [WHERE bucket_id …]`.
_SCAN = re.compile(
    r"SELECT (?P<columns>r\d+\.\w+ AS x\d+(?:, r\d+\.\w+ AS x\d+)*) "
    r"FROM (?P<table>t\d+) AS (?P<alias>r\d+) WHERE (?P<condition>.+)"
)
_COLUMN = re.compile(r"r\d+\.(\w+) AS x\d+")


class LinesAsked(msgspec.Struct, frozen=True):
    """What the options of a COPY say of its lines."""

    fmt: CopyFormat
    options: dict[str, str]
    scales: tuple[int | None, ...] = ()  # digits after the point that each DECIMAL is shown with


class Scan:
    """A statement that only scans: which columns of which table, under what condition."""

    def __init__(self, match: re.Match[str]) -> None:
        self.columns: list[str] = _COLUMN.findall(match["columns"])
        self.table, self.alias, self.condition = match["table"], match["alias"], match["condition"]

    @classmethod
    def of(cls, sql: str, args: Sequence[Any]) -> Scan | None:
        """None where there is more to it than buckets."""
        match = None if args else _SCAN.fullmatch(sql)
        if match is None:
            return None
        bucket = re.escape(f"{match['alias']}.{BUCKET_COLUMN}")
        # Nothing is given back: else every number could be read in all its parts, in turn.
        words = rf"(?:{bucket}|BETWEEN|AND|OR|IN|likely|\d++|<=|>=|=|[(), +])*+"
        return cls(match) if re.fullmatch(words, match["condition"]) else None

    @property
    def sample(self) -> str:
        """How many rows there are, up to `ENOUGH`."""
        inner = f"SELECT 1 FROM {self.table} AS {self.alias} WHERE {self.condition} LIMIT {ENOUGH}"
        return f"SELECT count(*) FROM ({inner})"

    @property
    def first_rows(self) -> str:
        """The last bucket of the first `SAMPLED` rows, and how many there are."""
        bucket = f"{self.alias}.{BUCKET_COLUMN}"
        inner = f"SELECT {bucket} AS b FROM {self.table} AS {self.alias} WHERE {self.condition} "
        return f"SELECT max(b), count(*) FROM ({inner}ORDER BY {bucket} LIMIT {SAMPLED})"

    @staticmethod
    def guess(last: int | None, count: int, ranges: Ranges) -> int:
        """How many rows there are in all, if buckets have about as many as the first ones."""
        if last is None or count < SAMPLED:
            return count
        seen = sum(max(0, min(high, last) - low + 1) for low, high in ranges)
        return count * sum(high - low + 1 for low, high in ranges) // max(seen, 1)
