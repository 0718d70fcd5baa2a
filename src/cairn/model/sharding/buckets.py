"""Where a key becomes a bucket: the only place. Server, driver and Spark all call this.

`bucket = murmur3_x86_32(seed=13, concatenated key parts) % bucket_count + 1`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import mmh3
import msgspec

from cairn.model.errors import InvalidParameter
from cairn.model.types.decimals import normalised
from cairn.model.types.time_text import clock_to_micros
from cairn.model.types.values import ColumnType, datetime_to_micros

SEED = 13
DEFAULT_BUCKET_COUNT = 3000
HASH_VERSION = 2  # how a DOUBLE is hashed in clusters made today
_NIL = b"\xc0"
_FIXEXT = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}

Encoder = Callable[[Any], bytes]
digest: Callable[[bytes, int], int] = mmh3.mmh3_32_uintdigest


# Shortest MessagePack; what is not negative is always an unsigned form.
encode_integer: Callable[[int], bytes] = msgspec.msgpack.Encoder().encode


def encode_decimal_exact(value: Decimal) -> bytes:
    """Ext type 1: scale, then packed digits, for the spelling as it is (1.50 differs from 1.5)."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidParameter(f"{value} cannot be part of a distribution key")
    text = "".join(map(str, digits)).lstrip("0") or "0"
    if text == "0" and exponent > 0:
        exponent = 0
    packed = text + ("d" if sign and text != "0" else "c")
    body = encode_integer(-exponent) + bytes.fromhex(
        packed if len(packed) % 2 == 0 else "0" + packed
    )
    size = len(body)
    if size in _FIXEXT:
        return bytes((_FIXEXT[size], 1)) + body
    return bytes((0xC7, size, 1)) + body


def _encode_decimal(value: Decimal) -> bytes:
    return encode_decimal_exact(normalised(value))


def _encode_double_v1(value: float) -> bytes:
    return struct.pack(">Bd", 0xCB, float(value) + 0.0)


def _encode_double_v2(value: float) -> bytes:
    number = float(value) + 0.0
    if number.is_integer() and -(2.0**63) <= number < 2.0**64:
        return encode_integer(int(number))
    return struct.pack(">d", number)


def _encode_datetime(value: date) -> bytes:
    seconds, micros = divmod(datetime_to_micros(value), 1_000_000)
    if micros:
        return struct.pack("<BBqihh", 0xD8, 4, seconds, micros * 1000, 0, 0)
    return struct.pack("<BBq", 0xD7, 4, seconds)


def _encode_uuid(value: UUID) -> bytes:
    return b"\xd8\x02" + value.bytes


_ENCODERS: dict[ColumnType, Encoder] = {
    ColumnType.BOOLEAN: lambda value: b"\xc3" if value else b"\xc2",
    ColumnType.INTEGER: encode_integer,
    ColumnType.UNSIGNED: encode_integer,
    ColumnType.STRING: str.encode,  # raw bytes, no header
    ColumnType.DECIMAL: _encode_decimal,
    ColumnType.UUID: _encode_uuid,
    # A date is hashed as its midnight, a time without a zone as that time in UTC.
    ColumnType.DATETIME: _encode_datetime,
    ColumnType.DATE: _encode_datetime,
    ColumnType.TIMESTAMP: _encode_datetime,
    ColumnType.TIME: lambda value: encode_integer(clock_to_micros(value)),
    ColumnType.VARBINARY: bytes,  # as those of a text
}


def encoder(type_: ColumnType, hash_version: int = HASH_VERSION) -> Encoder:
    """How a value of the type enters the hash; NULL is handled by the callers."""
    if type_ is ColumnType.DOUBLE:
        return _encode_double_v1 if hash_version == 1 else _encode_double_v2
    found = _ENCODERS.get(type_)
    if found is None:
        raise InvalidParameter(f"a column of type {type_} cannot be part of a distribution key")
    return found


def key_bytes(
    types: Sequence[ColumnType], values: Sequence[Any], hash_version: int = HASH_VERSION
) -> bytes:
    """The bytes that are hashed for a key: its parts in the order of DISTRIBUTED BY."""
    return b"".join(
        _NIL if value is None else encoder(type_, hash_version)(value)
        for type_, value in zip(types, values, strict=True)
    )


def bucket_of(
    types: Sequence[ColumnType],
    values: Sequence[Any],
    bucket_count: int = DEFAULT_BUCKET_COUNT,
    hash_version: int = HASH_VERSION,
) -> int:
    """The bucket of a key whose parts are already values of their columns' types."""
    return digest(key_bytes(types, values, hash_version), SEED) % bucket_count + 1


def bucket_function(
    types: Sequence[ColumnType],
    bucket_count: int = DEFAULT_BUCKET_COUNT,
    hash_version: int = HASH_VERSION,
) -> Callable[[Sequence[Any]], int]:
    """`bucket_of` with everything but the values fixed: the hot path of statements and drivers."""
    encoders = _encoders(types, bucket_count, hash_version)
    if len(encoders) == 1:
        only = encoders[0]

        def one(values: Sequence[Any]) -> int:
            value = values[0]
            data = _NIL if value is None else only(value)
            return digest(data, SEED) % bucket_count + 1

        return one

    def many(values: Sequence[Any]) -> int:
        data = b"".join(
            _NIL if value is None else encode(value)
            for encode, value in zip(encoders, values, strict=True)
        )
        return digest(data, SEED) % bucket_count + 1

    return many


def buckets_function(
    types: Sequence[ColumnType],
    bucket_count: int = DEFAULT_BUCKET_COUNT,
    hash_version: int = HASH_VERSION,
) -> Callable[[Sequence[Sequence[Any]]], list[int]]:
    """`bucket_function` for whole columns: one list of values per part of the key."""
    encoders = _encoders(types, bucket_count, hash_version)

    def parts(encode: Encoder, values: Sequence[Any]) -> list[bytes]:
        if None in values:
            return [_NIL if value is None else encode(value) for value in values]
        return list(map(encode, values))

    def buckets(columns: Sequence[Sequence[Any]]) -> list[int]:
        assert encoders, "rows that lie together need no hash"
        encoded = [parts(encode, values) for encode, values in zip(encoders, columns, strict=True)]
        keys = encoded[0] if len(encoded) == 1 else map(b"".join, zip(*encoded, strict=True))
        return [digest(data, SEED) % bucket_count + 1 for data in keys]

    return buckets


def _encoders(
    types: Sequence[ColumnType], bucket_count: int, hash_version: int
) -> tuple[Encoder, ...]:
    if bucket_count <= 0:
        raise InvalidParameter(
            "cannot calculate bucket id: tier has bucket_count=0 (no sharded data)"
        )
    return tuple(encoder(type_, hash_version) for type_ in types)
