"""Key ranges: what an operation read or wrote, so that a compare-and-swap can tell conflicts."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from cairn.model.values import Physical


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


class KeyRange(msgspec.Struct, frozen=True, array_like=True):
    """Keys of one table from `low` to `high`, both included; None is open on that side."""

    table: int
    low: bytes | None = None
    high: bytes | None = None

    def intersects(self, other: KeyRange) -> bool:
        if self.table != other.table:
            return False
        if self.high is not None and other.low is not None and self.high < other.low:
            return False
        return not (other.high is not None and self.low is not None and other.high < self.low)


def whole_table(table: int) -> KeyRange:
    return KeyRange(table)


def one_key(table: int, key: Sequence[Physical]) -> KeyRange:
    encoded = encode_key(key)
    return KeyRange(table, encoded, encoded)


class Predicate(msgspec.Struct, frozen=True, array_like=True):
    """ "Nothing in `ranges` has changed after (term, index)": the condition of a CaS."""

    index: int
    term: int
    ranges: tuple[KeyRange, ...] = ()
