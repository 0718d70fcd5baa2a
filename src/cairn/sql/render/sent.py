"""Gathered rows that go along with a fragment: to the owners of the rows that they are to meet.

They travel as one more value of the statement, packed, and are a table to SQLite: `packed_rows`. So
an owner needs to know nothing of them, and whatever it does to a read it does to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from cairn.model.tables.schema import BUCKET_COLUMN
from cairn.model.types.values import SQLITE_TYPES, ColumnType, Physical

Row = Sequence[Physical]
_encode = msgspec.msgpack.Encoder().encode


class Rows(Protocol):
    """Rows that are packed already, and may be looked at."""

    @property
    def parts(self) -> list[bytes]: ...

    def unpacked(self) -> Iterable[Row]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Sent:
    """Some columns of table `m<table>`.

    With a `bucket` each row meets only rows of that one, so it goes to its owner alone; None from
    it: it meets nothing. `narrows`: owners that get no row are not asked at all.
    """

    table: int
    columns: tuple[int, ...]
    types: tuple[ColumnType, ...]
    width: int  # of the whole table
    is_set: bool = False  # equal rows count once
    bucket: Callable[[Row], int | None] | None = field(default=None, compare=False, repr=False)
    narrows: bool = False

    @property
    def _goes_as_it_is(self) -> bool:
        """All columns of it: what is packed need not be looked at."""
        return self.bucket is None and not self.is_set

    def clause(self, number: int) -> str:
        """The table, for WITH; its rows are the value `?number`.

        The casts change nothing: they give the columns the affinity of the tables' own, without
        which SQLite makes no index for the join.
        """
        storage = [SQLITE_TYPES.get(each, "TEXT") for each in self.types]
        columns = {f"x{at}": of for at, of in zip(self.columns, storage, strict=True)}
        if self.bucket is not None:
            columns[BUCKET_COLUMN] = "INTEGER"
        as_it_is = self._goes_as_it_is
        places = self.columns if as_it_is else range(len(columns))
        values = (
            f"c{at}" if of == "BLOB" else f"CAST(c{at} AS {of})"
            for at, of in zip(places, columns.values(), strict=True)
        )
        width = self.width if as_it_is else len(columns)
        found = f"SELECT {', '.join(values)} FROM packed_rows(?{number}, {width})"
        return f"m{self.table}({', '.join(columns)}) AS MATERIALIZED ({found})"

    def parcel(self, rows: Iterable[Row] | Rows) -> Parcel:
        """The rows as they travel."""
        if not isinstance(rows, Iterable):
            if self._goes_as_it_is:
                return Parcel({None: b"".join(rows.parts)}, self, len(rows))
            rows = rows.unpacked()
        if self._goes_as_it_is:
            whole = [*map(_encode, rows)]
            return Parcel({None: b"".join(whole)}, self, len(whole))
        found: dict[int | None, dict[bytes, None] | list[bytes]] = {}
        make: Callable[[], Any] = dict if self.is_set else list
        for bucket, packed in self._packed(rows):
            kept = found.setdefault(bucket, make())
            if isinstance(kept, dict):
                kept[packed] = None
            else:
                kept.append(packed)
        count = sum(map(len, found.values()))
        return Parcel({bucket: b"".join(each) for bucket, each in found.items()}, self, count)

    def _packed(self, rows: Iterable[Row]) -> Iterator[tuple[int | None, bytes]]:
        for row in rows:
            cells: list[Any] = [row[at] for at in self.columns]
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

    packed: dict[int | None, bytes]
    sent: Sent
    count: int  # of rows

    @property
    def size(self) -> int:
        return sum(map(len, self.packed.values()))

    @property
    def buckets(self) -> frozenset[int] | None:
        """Who has no rows of these is not asked; None: everybody is."""
        if not self.sent.narrows:
            return None
        return frozenset(each for each in self.packed if each is not None)

    def of(self, ranges: Iterable[tuple[int, int]]) -> bytes:
        """For the owner of these buckets."""
        if self.sent.bucket is None:
            return b"".join(self.packed.values())
        spans = list(ranges)
        return b"".join(
            rows
            for bucket, rows in self.packed.items()
            if bucket is not None and any(low <= bucket <= high for low, high in spans)
        )
