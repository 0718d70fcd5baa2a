"""Gathered rows that go along with a fragment: to the owners of the rows that they are to meet.

They travel as one more value of the statement, a JSON text, and are a table to SQLite. So an owner
needs to know nothing of them, and whatever it does to a read it does to this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.model.types.values import SQLITE_TYPES, ColumnType, Physical

Row = Sequence[Physical]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Sent:
    """Some columns of table `m<table>`.

    With a `bucket` each row meets only rows of that one, so it goes to its owner alone; None from
    it: it meets nothing. `narrows`: owners that get no row are not asked at all.
    """

    table: int
    columns: tuple[int, ...]
    types: tuple[ColumnType, ...]
    is_set: bool = False  # equal rows count once
    bucket: Callable[[Row], int | None] | None = field(default=None, compare=False, repr=False)
    narrows: bool = False

    def clause(self, number: int) -> str:
        """The table, for WITH; its rows are the value `?number`.

        The casts change nothing: they give the columns the affinity of the tables' own, without
        which SQLite makes no index for the join. It also takes a list for short; joined with two
        more lists, of one value each, it does not.
        """
        columns = {f"x{at}": of for at, of in zip(self.columns, self._storage, strict=True)}
        if self.bucket is not None:
            columns[BUCKET_COLUMN] = "INTEGER"
        cells = (f"json_extract(j.value, '$[{at}]')" for at in range(len(columns)))
        values = (
            f"unhex({cell})" if of == "BLOB" else f"CAST({cell} AS {of})"
            for cell, of in zip(cells, columns.values(), strict=True)
        )
        lists = f"json_each(?{number}) AS j, json_each('[0]'), json_each('[0]')"
        found = f"SELECT {', '.join(values)} FROM {lists}"
        return f"m{self.table}({', '.join(columns)}) AS MATERIALIZED ({found})"

    @property
    def _storage(self) -> list[str]:
        return [SQLITE_TYPES.get(each, "TEXT") for each in self.types]

    def parcel(self, rows: Iterable[Row]) -> Parcel:
        """The rows as they travel."""
        found: dict[int | None, dict[str, None] | list[str]] = {}
        make: Callable[[], Any] = dict if self.is_set else list
        for bucket, text in self._texts(rows):
            kept = found.setdefault(bucket, make())
            if isinstance(kept, dict):
                kept[text] = None
            else:
                kept.append(text)
        return Parcel({bucket: ",".join(texts) for bucket, texts in found.items()}, self)

    def _texts(self, rows: Iterable[Row]) -> Iterator[tuple[int | None, str]]:
        blobs = [at for at, of in enumerate(self._storage) if of == "BLOB"]
        for row in rows:
            cells: list[Any] = [row[at] for at in self.columns]
            for at in blobs:  # JSON has none: they are spelled in hex
                cells[at] = cells[at].hex() if isinstance(cells[at], bytes) else cells[at]
            bucket = None
            if self.bucket is not None:
                bucket = self.bucket(row)
                if bucket is None:
                    continue
                cells.append(bucket)
            yield bucket, _encode(cells)


@dataclass(frozen=True)
class ByBucket:
    """Dealt out as the rows of a table are: those of table `m<stays>` are there already."""

    stays: int
    types: tuple[ColumnType, ...]
    bucket_count: int
    hash_version: int


@dataclass(frozen=True)
class Split:
    """How the rows of table `m<table>` are dealt out by their owners: `fragment` gives them, and
    behind its first `width` columns what of the key is none of these."""

    table: int
    fragment: Any
    width: int
    places: tuple[int, ...]  # of the key
    keeps_null: bool  # else a row whose key is NULL meets nothing, and stays where it is
    key: tuple[Any, ...] = field(default=(), compare=False, repr=False)  # for EXPLAIN
    by: ByBucket | None = None  # else by the hash of its values


@dataclass(frozen=True)
class Parcel:
    """Rows that are ready to be sent, by their bucket where they have one."""

    texts: dict[int | None, str]
    sent: Sent

    @property
    def size(self) -> int:
        return sum(len(each) + 1 for each in self.texts.values())

    @property
    def buckets(self) -> frozenset[int] | None:
        """Who has no rows of these is not asked; None: everybody is."""
        if not self.sent.narrows:
            return None
        return frozenset(each for each in self.texts if each is not None)

    def text(self, ranges: Iterable[tuple[int, int]]) -> str:
        """For the owner of these buckets."""
        if self.sent.bucket is None:
            return f"[{','.join(self.texts.values())}]"
        spans = list(ranges)
        mine = (
            text
            for bucket, text in self.texts.items()
            if bucket is not None and any(low <= bucket <= high for low, high in spans)
        )
        return f"[{','.join(mine)}]"
