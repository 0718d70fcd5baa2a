"""numeric: PostgreSQL's text and its base-10000 binary form, to and from `decimal.Decimal`."""

from __future__ import annotations

import re
from decimal import Decimal
from struct import Struct
from typing import Final

from cairn.pgwire.values.oids import NUMERIC
from cairn.pgwire.values.problems import bad_binary, bad_text, out_of_range

_HEADER: Final = Struct("!HhHH")  # digit count, weight, sign, display scale
_POSITIVE, _NEGATIVE, _NAN, _INFINITY, _MINUS_INFINITY = 0, 0x4000, 0xC000, 0xD000, 0xF000
_MAX_SCALE: Final = 16383
_MAX_INTEGER_DIGITS: Final = 131072
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_SPECIAL: Final = {
    "nan": Decimal("NaN"),
    "infinity": Decimal("Infinity"),
    "+infinity": Decimal("Infinity"),
    "inf": Decimal("Infinity"),
    "+inf": Decimal("Infinity"),
    "-infinity": Decimal("-Infinity"),
    "-inf": Decimal("-Infinity"),
}


def decode_text(data: bytes) -> Decimal:
    text = data.decode("ascii", "replace").strip(" \t\n\r\f\v")
    if _NUMBER.fullmatch(text) is None:
        special = _SPECIAL.get(text.lower())
        if special is None:
            raise bad_text(data, NUMERIC)
        return special
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    # The limits come before any use: written out, 1e999999999 would be a gigabyte of zeros.
    if (value and value.adjusted() >= _MAX_INTEGER_DIGITS) or not -_MAX_SCALE <= exponent <= 131072:
        raise out_of_range(data, NUMERIC)
    # PostgreSQL writes 1e3 as 1000; there is no negative scale.
    return Decimal(format(value, "f")) if exponent > 0 else value


def encode_text(value: object) -> bytes:
    assert isinstance(value, Decimal | int)
    if isinstance(value, int):
        return b"%d" % value
    if value.is_finite():
        return format(value or value.copy_abs(), "f").encode()  # there is no minus zero
    if value.is_nan():
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"


def encode_binary(value: object) -> bytes:
    number = value if isinstance(value, Decimal) else Decimal(value)  # type: ignore[arg-type]
    if not number.is_finite():
        if number.is_nan():
            return _HEADER.pack(0, 0, _NAN, 0)
        sign = _INFINITY if number > 0 else _MINUS_INFINITY
        return _HEADER.pack(0, 0, sign, 32)  # a scale means nothing here; PostgreSQL sends 32
    integer, _, fraction = format(number.copy_abs(), "f").partition(".")
    # Groups of four meet at the decimal point: the integer is padded left, the fraction right.
    integer = integer.zfill(_up_to_four(len(integer)))
    digits = integer + fraction.ljust(_up_to_four(len(fraction)), "0")
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    weight = len(integer) // 4 - 1
    while groups and not groups[-1]:
        groups.pop()
    leading = next((at for at, group in enumerate(groups) if group), 0)
    groups, weight = groups[leading:], weight - leading if groups else 0
    sign = _NEGATIVE if number.is_signed() and groups else _POSITIVE
    head = _HEADER.pack(len(groups), weight, sign, len(fraction))
    return head + Struct(f"!{len(groups)}H").pack(*groups)


def _up_to_four(length: int) -> int:
    return (length + 3) // 4 * 4


def decode_binary(data: bytes) -> Decimal:
    if len(data) < 8:
        raise bad_binary(data, NUMERIC)
    count, weight, sign, scale = _HEADER.unpack_from(data)
    if sign in (_NAN, _INFINITY, _MINUS_INFINITY) and len(data) == 8 and not count:
        return Decimal({_NAN: "NaN", _INFINITY: "Infinity", _MINUS_INFINITY: "-Infinity"}[sign])
    if sign not in (_POSITIVE, _NEGATIVE) or len(data) != 8 + 2 * count or scale > _MAX_SCALE:
        raise bad_binary(data, NUMERIC)
    groups = Struct(f"!{count}H").unpack_from(data, 8)
    if any(group > 9999 for group in groups):
        raise bad_binary(data, NUMERIC)
    digits = "".join(f"{group:04d}" for group in groups)
    integer, fraction = _around_the_point(digits, 4 * (weight + 1))
    fraction = fraction[:scale].ljust(scale, "0")
    text = f"{integer or '0'}.{fraction}" if scale else integer or "0"
    value = Decimal(text)
    return value.copy_negate() if sign == _NEGATIVE and value else value


def _around_the_point(digits: str, integer_digits: int) -> tuple[str, str]:
    if integer_digits <= 0:
        return "", "0" * -integer_digits + digits
    padded = digits.ljust(integer_digits, "0")
    return padded[:integer_digits], padded[integer_digits:]
