"""DECIMAL as bytes that sort like the number: exact, canonical, one spelling per value.

Layout: a sign byte (1 negative, 2 zero, 3 positive), the adjusted exponent (two bytes, biased),
then the digits without trailing zeros, two to a byte, each raised by one. A negative number has
all bytes after the sign inverted and a closing 0xFF, so that memcmp gives the numeric order.
SQLite compares BLOBs by memcmp, which is the whole point.
"""

from __future__ import annotations

import decimal
from decimal import Decimal

from cairn.model.errors import InvalidText, OutOfRange

MAX_DIGITS = 38  # of a stored value; arithmetic in between may be wider
_BIAS = 0x8000
_INVERT = bytes(255 - byte for byte in range(256))
_ZERO = b"\x02"

# Wide enough that +, - and * of stored values never round.
CONTEXT = decimal.Context(prec=1000, rounding=decimal.ROUND_HALF_UP, Emax=16000, Emin=-16000)


def encode_decimal(value: Decimal) -> bytes:
    """`value` in its canonical, order-preserving form."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise OutOfRange(f"{value} is not a finite DECIMAL")
    end = len(digits)
    while end and digits[end - 1] == 0:
        end -= 1
    start = 0
    while start < end and digits[start] == 0:
        start += 1
    if start == end:
        return _ZERO
    adjusted = exponent + len(digits) - start - 1
    body = bytearray((adjusted + _BIAS).to_bytes(2, "big"))
    for at in range(start, end, 2):
        low = digits[at + 1] if at + 1 < end else 0
        body.append(digits[at] * 10 + low + 1)
    if sign:
        return b"\x01" + bytes(body).translate(_INVERT) + b"\xff"
    return b"\x03" + bytes(body)


def decode_decimal(data: bytes) -> Decimal:
    """The number behind `encode_decimal`'s bytes, without trailing zeros after the point."""
    if data == _ZERO:
        return Decimal(0)
    sign = 1 if data[0] == 1 else 0
    body = data[1:-1].translate(_INVERT) if sign else data[1:]
    adjusted = int.from_bytes(body[:2], "big") - _BIAS
    digits = "".join(f"{byte - 1:02d}" for byte in body[2:]).rstrip("0")
    exponent = adjusted - len(digits) + 1
    if exponent > 0:
        digits, exponent = digits + "0" * exponent, 0
    return Decimal((sign, tuple(map(int, digits)), exponent))


def normalised(value: Decimal) -> Decimal:
    """Without trailing zeros after the point and without a positive exponent: 1.50 → 1.5."""
    return decode_decimal(encode_decimal(value))


def parse_decimal(text: str) -> Decimal:
    """A DECIMAL from its text, or a refusal that quotes it."""
    try:
        if "_" in text or not text.isascii():  # numbers to Python, not to SQL
            raise decimal.InvalidOperation
        value = Decimal(text.strip())
    except decimal.InvalidOperation:
        raise InvalidText(f'invalid input syntax for type decimal: "{text}"') from None
    return checked(value)


def checked(value: Decimal) -> Decimal:
    """`value` if it fits a column: finite, at most 38 digits."""
    if not value.is_finite():
        raise OutOfRange(f"{value} is not a finite DECIMAL", hint="DECIMAL has no NaN or infinity")
    short = normalised(value)
    exponent = short.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = -exponent
    whole = max(short.adjusted() + 1, 0)
    if whole + max(scale, 0) > MAX_DIGITS + 1 or len(short.as_tuple().digits) > MAX_DIGITS:
        raise OutOfRange(
            f"decimal {value} has more than {MAX_DIGITS} digits", hint="round it before storing"
        )
    return value
