"""Rows dealt out by the hash of some of their values: equal values always to the same part.

What is equal is what SQLite takes for equal in values as they are stored: numbers by their value,
texts and bytes by their bytes. Owners of both sides of a join have to agree, so nothing here may
depend on the process: Python's own hash of numbers does not, that of texts does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from cairn.model.types.values import Physical

Deal = Callable[[Sequence[Physical]], int | None]  # None: the row meets nothing
_MIX = 0x9E3779B97F4A7C15  # of 2**64 by the golden ratio: keys in a row are spread


def _hashed(value: Physical) -> int:
    if isinstance(value, str):
        return crc32(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return crc32(value)
    return hash(value) if value is not None else 0


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
