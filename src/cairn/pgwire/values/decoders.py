"""Values in: what clients may send for each type OID, in text and binary. NULL is the caller's."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from math import isinf
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec

from cairn.model.types.byte_text import parse_bytes, unescaped
from cairn.model.types.json_text import JsonText
from cairn.pgwire.values import numeric, oids, timestamps
from cairn.pgwire.values.encoders import to_single
from cairn.pgwire.values.problems import bad_binary, bad_text, bad_utf8, out_of_range

Decoder: TypeAlias = Callable[[bytes], Any]

_BLANKS: Final = b" \t\n\r\f\v"
_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_FLOAT: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_ZERO: Final = re.compile(rb"[+-]?[0.]*[1-9]")
_FLOAT_WORDS: Final = {b"nan", b"inf", b"+inf", b"-inf", b"infinity", b"+infinity", b"-infinity"}
_UUID: Final = re.compile(rb"(\{)?((?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4})(?(1)\})")
_TRUE: Final = frozenset(b"t tr tru true y ye yes on 1".split())
_FALSE: Final = frozenset(b"f fa fal fals false n no of off 0".split())
_INT_RANGES: Final = {
    oids.INT2: (-(1 << 15), 1 << 15),
    oids.INT4: (-(1 << 31), 1 << 31),
    oids.INT8: (-(1 << 63), 1 << 63),
    oids.OID: (0, 1 << 32),
}


def decode_string(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        raise bad_utf8(data, problem.start) from None
    if "\0" in text:
        raise bad_utf8(data, data.index(0))
    return text


def _decode_bool(data: bytes) -> bool:
    word = data.strip(_BLANKS).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise bad_text(data, oids.BOOL)


def _integer_decoder(oid: int) -> Decoder:
    low, high = _INT_RANGES[oid]

    def decode(data: bytes) -> int:
        if len(data) < 40 and data.isdigit():
            value = int(data)
        else:
            trimmed = data.strip(_BLANKS)
            if _INTEGER.fullmatch(trimmed) is None:
                raise bad_text(data, oid)
            if len(trimmed) > 4000:  # Python refuses such numbers in its own words
                raise out_of_range(data, oid)
            value = int(trimmed)
        if not low <= value < high:
            raise out_of_range(data, oid)
        return value

    return decode


def _float_decoder(oid: int) -> Decoder:
    def decode(data: bytes) -> float:
        trimmed = data.strip(_BLANKS)
        if _FLOAT.fullmatch(trimmed) is None:
            if trimmed.lower() not in _FLOAT_WORDS:
                raise bad_text(data, oid)
            return float(trimmed)
        value = to_single(float(trimmed)) if oid == oids.FLOAT4 else float(trimmed)
        if isinf(value) or (not value and _NOT_ZERO.match(trimmed)):
            raise out_of_range(data, oid)
        return value

    return decode


def _decode_uuid(data: bytes) -> uuid.UUID:
    match = _UUID.fullmatch(data)
    if match is None:
        raise bad_text(data, oids.UUID)
    return uuid.UUID(match[2].decode())


def _decode_json(data: bytes) -> JsonText:
    """Of a parameter: the server stores it as it is, and need not know its values."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return JsonText(data, "utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_text(data, oids.JSON) from None


def decode_whole_json(data: bytes) -> Any:
    """Of a row: a client wants its values, however long it is."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_text(data, oids.JSON) from None


def _decode_bytea(data: bytes) -> bytes:
    try:
        return parse_bytes(data.decode("ascii")) if data.startswith(b"\\x") else unescaped(data)
    except ValueError:
        raise bad_text(data, oids.BYTEA) from None


def _fixed_decoder(oid: int, code: str) -> Decoder:
    """Binary values of one struct code: the size is all that can be wrong."""
    struct = Struct(code)
    size, unpack = struct.size, struct.unpack

    def decode(data: bytes) -> Any:
        if len(data) != size:
            raise bad_binary(data, oid)
        return unpack(data)[0]

    return decode


def _binary_bool(data: bytes) -> bool:
    if len(data) != 1:
        raise bad_binary(data, oids.BOOL)
    return data != b"\0"


def _binary_uuid(data: bytes) -> uuid.UUID:
    if len(data) != 16:
        raise bad_binary(data, oids.UUID)
    return uuid.UUID(bytes=data)


def _binary_jsonb(data: bytes) -> JsonText:
    if data[:1] != b"\1":
        raise bad_binary(data, oids.JSONB)
    return _decode_json(data[1:])


_TEXT_LIKE: Final = (
    oids.INFER,
    oids.TEXT,
    oids.VARCHAR,
    oids.BPCHAR,
    oids.NAME,
    oids.CHAR,
    oids.UNKNOWN,
)

TEXT_DECODERS: Final[dict[int, Decoder]] = {
    oids.BOOL: _decode_bool,
    oids.BYTEA: _decode_bytea,
    **{oid: _integer_decoder(oid) for oid in _INT_RANGES},
    oids.FLOAT4: _float_decoder(oids.FLOAT4),
    oids.FLOAT8: _float_decoder(oids.FLOAT8),
    oids.NUMERIC: numeric.decode_text,
    oids.UUID: _decode_uuid,
    oids.TIMESTAMPTZ: timestamps.decode_text,
    oids.TIMESTAMP: timestamps.decode_timestamp,
    oids.DATE: timestamps.decode_date,
    oids.TIME: timestamps.decode_time,
    oids.INTERVAL: timestamps.decode_interval,
    oids.JSON: _decode_json,
    oids.JSONB: _decode_json,
    **dict.fromkeys(_TEXT_LIKE, decode_string),
}

BINARY_DECODERS: Final[dict[int, Decoder]] = {
    oids.BOOL: _binary_bool,
    oids.BYTEA: bytes,
    oids.INT2: _fixed_decoder(oids.INT2, "!h"),
    oids.INT4: _fixed_decoder(oids.INT4, "!i"),
    oids.INT8: _fixed_decoder(oids.INT8, "!q"),
    oids.OID: _fixed_decoder(oids.OID, "!I"),
    oids.FLOAT4: _fixed_decoder(oids.FLOAT4, "!f"),
    oids.FLOAT8: _fixed_decoder(oids.FLOAT8, "!d"),
    oids.NUMERIC: numeric.decode_binary,
    oids.UUID: _binary_uuid,
    oids.JSONB: _binary_jsonb,
    oids.TIMESTAMPTZ: timestamps.decode_binary,
    oids.TIMESTAMP: timestamps.decode_timestamp_binary,
    oids.DATE: timestamps.decode_date_binary,
    oids.TIME: timestamps.decode_time_binary,
    oids.INTERVAL: timestamps.decode_interval_binary,
    oids.JSON: _decode_json,
    **dict.fromkeys(_TEXT_LIKE, decode_string),
}
