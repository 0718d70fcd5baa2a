"""Key ranges: what an operation read or wrote, so that a compare-and-swap can tell conflicts."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from cairn.model.types.values import Physical


def encode_key(values: Sequence[Physical]) -> bytes:
    """Bytes that sort like the key. A shorter key is a prefix of the longer ones below it."""
    return b"".join(_encode_part(value) for value in values)


def _encode_part(value: Physical) -> bytes:
    match value:
        case None:
            return b"\x01"
        case int():
            return b"\x02" + struct.pack(">Q", value + 2**63)
        case float():
            bits = struct.unpack(">Q", struct.pack(">d", value))[0]
            bits = bits ^ (2**64 - 1 if bits >> 63 else 2**63)
            return b"\x03" + struct.pack(">Q", bits)
        case str():
            return b"\x04" + value.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x00"
        case bytes():
            return b"\x05" + value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


class KeyRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Keys of one table; a bound of None is open. A whole table has two open bounds."""

    table: int | str
    low: bytes | None = None
    low_inclusive: bool = True
    high: bytes | None = None
    high_inclusive: bool = True

    @staticmethod
    def point(table: int | str, key: bytes) -> KeyRange:
        return KeyRange(table, key, True, key, True)

    def is_empty(self) -> bool:
        return _is_gap(self.low, self.low_inclusive, self.high, self.high_inclusive)

    def intersects(self, other: KeyRange) -> bool:
        """Could one key be in both?"""
        if self.table != other.table or self.is_empty() or other.is_empty():
            return False
        return not _is_gap(
            self.low, self.low_inclusive, other.high, other.high_inclusive
        ) and not _is_gap(other.low, other.low_inclusive, self.high, self.high_inclusive)


def _is_gap(low: bytes | None, low_in: bool, high: bytes | None, high_in: bool) -> bool:
    """Is there no room between `low` and `high`?"""
    if low is None:
        return high is not None and high == b"" and not high_in  # nothing is below the empty key
    if high is None:
        return False
    return low > high or (low == high and not (low_in and high_in))


def whole_table(table: int) -> KeyRange:
    return KeyRange(table)


def one_key(table: int, key: Sequence[Physical]) -> KeyRange:
    return KeyRange.point(table, encode_key(key))


def key_range(table: int, low: Sequence[Physical], high: Sequence[Physical]) -> KeyRange:
    """All keys between two, both included."""
    return KeyRange(table, encode_key(low), True, encode_key(high), True)


class Predicate(msgspec.Struct, frozen=True, array_like=True):
    """ "Nothing in `ranges` has changed after (term, index)": the condition of a CaS."""

    index: int
    term: int
    ranges: tuple[KeyRange, ...] = ()
