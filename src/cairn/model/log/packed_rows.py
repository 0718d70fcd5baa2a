"""Rows in bulk as bytes: one list of MessagePack, as records of the row log have it.

A row is a list: its bucket, then the table's columns in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cairn.model.sharding.spans import Ranges, contains

Buffer = bytes | memoryview | msgspec.Raw
HEAD = 5  # bytes that say how many rows follow, as all lists made here begin
_HEADS = {0xDC: 3, 0xDD: HEAD}  # one for those up to 15 that msgspec makes
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_encode = msgspec.msgpack.Encoder().encode


class PackedRows:
    """Rows of one table in the order of their buckets."""

    def __init__(
        self, data: bytes, buckets: Sequence[int], counts: Sequence[int], starts: Sequence[int]
    ) -> None:
        """`starts`: where each bucket's rows begin behind the head, and where all end."""
        self._data, self.buckets = data, buckets
        self._at = {bucket: at for at, bucket in enumerate(buckets)}
        self._counts, self._starts = counts, starts
        self.total = sum(counts)

    def of(self, buckets: Sequence[int]) -> bytes:
        """The rows of these buckets."""
        if len(buckets) == len(self.buckets):
            return self._data
        places = sorted(self._at[bucket] for bucket in buckets)
        starts, rows = self._starts, memoryview(self._data)[HEAD:]
        parts = [rows[starts[at] : starts[at + 1]] for at in places]
        return as_list(parts, sum(self._counts[at] for at in places))


def head_of(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def as_list(rows: Sequence[Buffer], count: int) -> bytes:
    """Packed rows, one behind the other, as one list."""
    return b"".join((head_of(count), *rows))


def split_head(packed: Buffer) -> tuple[memoryview, int]:
    """The rows without the list's head, and how many it says they are."""
    view = memoryview(packed)
    if not view:
        return view, 0
    head = _HEADS.get(view[0], 1)
    if head == 1:
        return view[1:], view[0] & 15
    return view[head:], int.from_bytes(view[1:head], "big")


def unpacked(packed: Buffer) -> list[tuple[Any, ...]]:
    """Raises `msgspec.DecodeError` for bytes that are no such list."""
    return _decode(packed) if packed else []


def only_of(packed: bytes, ranges: Ranges) -> bytes:
    """Only those rows whose bucket is in some ranges."""
    rows = [_encode(row) for row in unpacked(packed) if contains(ranges, row[0])]
    return as_list(rows, len(rows)) if packed else b""
