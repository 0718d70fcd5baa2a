"""Values out: PostgreSQL's exact text and binary for each type OID. NULL is the caller's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from fractions import Fraction
from math import inf, isinf, isnan, nextafter
from struct import Struct
from typing import Any, Final, TypeAlias

from cairn.model.types.json_text import json_bytes
from cairn.pgwire.values import numeric, oids, timestamps

Encoder: TypeAlias = Callable[[Any], bytes]

_INT2: Final = Struct("!h")
_INT4: Final = Struct("!i")
_INT8: Final = Struct("!q")
_OID: Final = Struct("!I")
_FLOAT4: Final = Struct("!f")
_FLOAT8: Final = Struct("!d")
_SPECIAL_FLOATS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def encode_text(value: str) -> bytes:
    return value.encode()


def encode_bool(value: object) -> bytes:
    return b"t" if value else b"f"


def encode_int(value: int) -> bytes:
    return b"%d" % value


def encode_float(value: float) -> bytes:
    return float_text(value).encode()


def float_text(value: float) -> str:
    """The shortest digits that read back the same, laid out as PostgreSQL does: 2, not 2.0."""
    text = repr(float(value))
    if text.endswith(".0"):
        text = text[:-2]
    elif text[-1] in "nf":
        return _SPECIAL_FLOATS[text]
    if abs(value) >= 1e15:
        return _large_float_text(value, text)
    return text


def _large_float_text(value: float, text: str) -> str:
    """Here PostgreSQL leaves plain digits before Python does, and avoids half-way digits."""
    below, above = nextafter(value, -inf), nextafter(value, inf)
    for precision in (16, 17):
        if float(text) == value and not _is_half_way(text, below, value, above):
            break
        text = f"{value:.{precision}g}"
    return _with_exponent(text)


def _with_exponent(text: str) -> str:
    """`text` as one digit, the others, and the exponent."""
    mantissa, _, given = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    integer, _, fraction = mantissa.lstrip("-").partition(".")
    exponent = int(given or 0) + len(integer) - 1
    digits = (integer + fraction).rstrip("0")
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e+{exponent:02d}"


def _is_half_way(text: str, below: float, value: float, above: float) -> bool:
    """Exactly between two floats: it reads back as `value` only by the rule of rounding ties."""
    if isinf(below) or isinf(above):
        return False
    twice, exact = 2 * Fraction(text), Fraction(value)
    return twice in (exact + Fraction(below), exact + Fraction(above))


def encode_float4(value: float) -> bytes:
    single = to_single(value)
    if isinf(single) or isnan(single):
        return encode_float(single)
    below, above = _next_singles(single)
    for precision in range(1, 10):
        text = f"{single:.{precision}g}"
        if to_single(float(text)) == single and not _is_half_way(text, below, single, above):
            break
    return _with_exponent(text).encode() if abs(single) >= 1e6 else encode_float(float(text))


def _next_singles(single: float) -> tuple[float, float]:
    (bits,) = _OID.unpack(_FLOAT4.pack(abs(single)))
    below = float(_FLOAT4.unpack(_OID.pack(max(bits - 1, 0)))[0])
    above = float(_FLOAT4.unpack(_OID.pack(bits + 1))[0])
    return (below, above) if single >= 0 else (-above, -below)


def to_single(value: float) -> float:
    """`value` as single precision has it; too large is infinite."""
    try:
        return float(_FLOAT4.unpack(_FLOAT4.pack(value))[0])
    except OverflowError:
        return inf if value > 0 else -inf


def encode_bytea(value: bytes) -> bytes:
    return b"\\x" + value.hex().encode()


def encode_any(value: object) -> bytes:
    """uuid, and a type we do not know: what Python calls it."""
    return str(value).encode()


def _binary_bool(value: object) -> bytes:
    return b"\1" if value else b"\0"


def _binary_uuid(value: uuid.UUID) -> bytes:
    return value.bytes


_TEXT_LIKE: Final = (oids.TEXT, oids.VARCHAR, oids.BPCHAR, oids.NAME, oids.CHAR, oids.UNKNOWN)

TEXT_ENCODERS: Final[dict[int, Encoder]] = {
    oids.BOOL: encode_bool,
    oids.BYTEA: encode_bytea,
    oids.INT2: encode_int,
    oids.INT4: encode_int,
    oids.INT8: encode_int,
    oids.OID: encode_int,
    oids.FLOAT4: encode_float4,
    oids.FLOAT8: encode_float,
    oids.NUMERIC: numeric.encode_text,
    oids.UUID: encode_any,
    oids.JSONB: json_bytes,
    oids.TIMESTAMPTZ: timestamps.encode_timestamptz,
    oids.TIMESTAMP: timestamps.encode_timestamp,
    oids.DATE: timestamps.encode_date,
    oids.TIME: timestamps.encode_time,
    oids.INTERVAL: timestamps.encode_interval,
    oids.JSON: json_bytes,
    **dict.fromkeys(_TEXT_LIKE, encode_text),
}

BINARY_ENCODERS: Final[dict[int, Encoder]] = {
    oids.BOOL: _binary_bool,
    oids.BYTEA: bytes,
    oids.INT2: _INT2.pack,
    oids.INT4: _INT4.pack,
    oids.INT8: _INT8.pack,
    oids.OID: _OID.pack,
    oids.FLOAT4: _FLOAT4.pack,
    oids.FLOAT8: _FLOAT8.pack,
    oids.NUMERIC: numeric.encode_binary,
    oids.UUID: _binary_uuid,
    oids.JSONB: lambda value: b"\1" + json_bytes(value),  # the version of the format
    oids.TIMESTAMPTZ: timestamps.encode_binary,
    oids.TIMESTAMP: timestamps.encode_binary,
    oids.DATE: timestamps.encode_date_binary,
    oids.TIME: timestamps.encode_time_binary,
    oids.INTERVAL: timestamps.encode_interval_binary,
    oids.JSON: json_bytes,
    **dict.fromkeys(_TEXT_LIKE, encode_text),
}
