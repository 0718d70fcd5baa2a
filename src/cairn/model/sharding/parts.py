"""Rows dealt out by the hash of some of their values: equal values always to the same part.

What is equal is what SQLite takes for equal in values as they are stored: numbers by their value,
texts and bytes by their bytes. Owners of both sides of a join have to agree, so nothing here may
depend on the process: Python's own hash of numbers does not, that of texts does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Annotated
from zlib import crc32

import msgspec

from cairn.model.sharding.buckets import bucket_function
from cairn.model.types.values import ColumnType, Physical, physical_reader

Deal = Callable[[Sequence[Physical]], int | None]  # None: the row meets nothing
_MIX = 0x9E3779B97F4A7C15  # of 2**64 by the golden ratio: keys in a row are spread


def _hashed(value: Physical) -> int:
    if isinstance(value, str):
        return crc32(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return crc32(value)
    return hash(value) if value is not None else 0


class ByBuckets(msgspec.Struct, frozen=True):
    """The part of a row is whoever owns the bucket of its key; `starts` are sorted."""

    types: tuple[ColumnType, ...]
    bucket_count: int
    hash_version: int
    starts: tuple[int, ...]
    parts: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]

    def __post_init__(self) -> None:
        if not self.starts or len(self.starts) != len(self.parts) or self.bucket_count < 1:
            raise ValueError("a part for each range of buckets")
        if not all(type_.is_key for type_ in self.types):
            raise ValueError("types that keys may have")


def bucket_dealer(by: ByBuckets, places: Sequence[int], *, keeps_null: bool) -> Deal:
    hashed = bucket_function(by.types, by.bucket_count, by.hash_version)
    values = [(at, physical_reader(type_)) for at, type_ in zip(places, by.types, strict=True)]
    starts, parts = by.starts, by.parts

    def deal(row: Sequence[Physical]) -> int | None:
        if not keeps_null and any(row[at] is None for at in places):
            return None
        try:
            key = [
                row[at] if read is None or row[at] is None else read(row[at]) for at, read in values
            ]
        except (ValueError, OverflowError):  # a time that no table can have as a key
            return parts[0]
        return parts[bisect_right(starts, hashed(key)) - 1]

    return deal


def dealer(parts: int, places: Sequence[int], *, keeps_null: bool) -> Deal:
    """The part of a row by its values at `places`; rows with NULL there are kept together."""
    if len(places) == 1:
        only = places[0]

        def one(row: Sequence[Physical]) -> int | None:
            value = row[only]
            if value is None and not keeps_null:
                return None
            return (_hashed(value) * _MIX >> 32 & 0xFFFFFFFF) % parts

        return one

    def many(row: Sequence[Physical]) -> int | None:
        found = 0
        for at in places:
            value = row[at]
            if value is None and not keeps_null:
                return None
            found = (found * 31 + _hashed(value)) * _MIX & 0xFFFFFFFFFFFFFFFF
        return (found >> 32) % parts

    return many
