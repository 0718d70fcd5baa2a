"""DECIMAL as bytes that sort like the number: exact, and with one key per value.

Layout: a sign byte (1 negative, 2 zero, 3 positive), the adjusted exponent (two bytes, biased),
then the digits without trailing zeros, two to a byte, each raised by one. A negative number has
all bytes after the sign inverted and a closing 0xFF, so that memcmp gives the numeric order.
SQLite compares BLOBs by memcmp, which is the whole point.

That is the key form. The shown form has the zeros behind the last digit as well: 1.50 is the key of
1.5, a zero byte if it is positive, and a byte that says how many zeros (101 for none, up to 254).
No key ends in such a byte, and different values still sort by their numbers; but equal ones are not
equal bytes. So whatever compares, groups, sorts or hashes takes the key (`key_form`, `KEY_SQL`).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

from cairn.model.errors import InvalidText, OutOfRange

MAX_DIGITS = 38  # of a stored value; arithmetic in between may be wider
_BIAS = 0x8000
_INVERT = bytes(255 - byte for byte in range(256))
_ZERO = b"\x02"
_NO_ZEROS, _MOST_ZEROS = 101, 254 - 101
_LAST_MARK = 254
_PAIRS = tuple(f"{max(byte - 1, 0):02d}" for byte in range(256))

#: `key_form` in SQLite's own words, so that indexes and CHECKs need no function of ours.
KEY_SQL = (
    "iif(substr({0}, -1) BETWEEN x'65' AND x'FE', "
    "substr({0}, 1, length({0}) - iif(substr({0}, 1, 1) = x'03', 2, 1)), {0})"
)

# Wide enough that +, - and * of stored values never round.
CONTEXT = decimal.Context(prec=1000, rounding=decimal.ROUND_HALF_UP, Emax=16000, Emin=-16000)


def encode_decimal(value: Decimal) -> bytes:
    """`value` in its key form: equal values are equal bytes."""
    return _encoded(value)[0]


def encode_shown(value: Decimal) -> bytes:
    """`value` with the zeros behind its last digit."""
    key, zeros = _encoded(value)
    return with_zeros(key, zeros)


def with_zeros(key: bytes, zeros: int) -> bytes:
    """The shown form with so many zeros behind the last digit after the point."""
    if zeros <= 0:
        return key
    mark = _NO_ZEROS + min(zeros, _MOST_ZEROS)
    return key + (bytes((0, mark)) if key[0] == 3 else bytes((mark,)))


def key_form(data: bytes) -> bytes:
    """Without the zeros: what equal values have in common."""
    if not _NO_ZEROS <= data[-1] <= _LAST_MARK:
        return data
    return data[:-2] if data[0] == 3 else data[:-1]


def _encoded(value: Decimal) -> tuple[bytes, int]:
    """The key, and how many zeros follow its last digit after the point."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise OutOfRange(f"{value} is not a finite DECIMAL")
    end = len(digits)
    while end and digits[end - 1] == 0:
        end -= 1
    start = 0
    while start < end and digits[start] == 0:
        start += 1
    scale = max(-exponent, 0)
    if start == end:
        return _ZERO, scale
    zeros = scale - max(end - len(digits) - exponent, 0)
    adjusted = exponent + len(digits) - start - 1
    if not -_BIAS <= adjusted < _BIAS:
        raise OutOfRange("value overflows numeric format")
    body = bytearray((adjusted + _BIAS).to_bytes(2, "big"))
    for at in range(start, end, 2):
        low = digits[at + 1] if at + 1 < end else 0
        body.append(digits[at] * 10 + low + 1)
    if sign:
        return b"\x01" + bytes(body).translate(_INVERT) + b"\xff", zeros
    return b"\x03" + bytes(body), zeros


def decode_decimal(data: bytes) -> Decimal:
    """The number behind either form; a key has no zeros behind the last digit after the point."""
    zeros, last = 0, data[-1]
    if _NO_ZEROS <= last <= _LAST_MARK:
        zeros = last - _NO_ZEROS
        data = key_form(data)
    if data == _ZERO:
        return Decimal((0, (0,), -zeros))
    is_negative = data[0] == 1
    body = data[1:-1].translate(_INVERT) if is_negative else data[1:]
    adjusted = int.from_bytes(body[:2], "big") - _BIAS
    digits = "".join([_PAIRS[byte] for byte in body[2:]]).rstrip("0")
    exponent = adjusted - len(digits) + 1
    if exponent > 0:
        digits, exponent = digits + "0" * exponent, 0
    sign = "-" if is_negative else ""
    return Decimal(f"{sign}{digits}{'0' * zeros}E{exponent - zeros}")


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


@lru_cache(maxsize=64)
def padder(scale: int) -> Callable[[Any], Decimal]:
    """Reads a number with at least so many digits after the point."""
    step = Decimal(1).scaleb(-scale)

    def read(data: bytes) -> Decimal:
        value = decode_decimal(data)
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if exponent <= -scale:
            return value
        with suppress(decimal.InvalidOperation):  # more digits than a DECIMAL has: shown as it is
            return value.quantize(step, context=CONTEXT)
        return value

    return read
