"""Arithmetic as PostgreSQL does it, on physical values: checked integers, exact DECIMAL, DOUBLE.

SQLite's own operators turn an overflow into a REAL and a division by zero into NULL; these raise.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from functools import wraps
from typing import Any

from cairn.model.errors import DivisionByZero, OutOfRange, UndefinedFunction
from cairn.model.types.decimals import (
    CONTEXT,
    checked,
    decode_decimal,
    encode_decimal,
    encode_shown,
    key_form,
)
from cairn.model.types.values import INT64_MAX, INT64_MIN
from cairn.model.unexpected import of_value

_MIN_SIGNIFICANT = 16  # digits that a quotient has at least, as in PostgreSQL
_MAX_SCALE = 1000
_MAX_RESULT_DIGITS = 131_072  # PostgreSQL's bound on digits before the point
_HALF_AWAY = decimal.ROUND_HALF_UP


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL in, NULL out; and any other input gives a value or an error of ours."""

    @wraps(function)
    def call(*args: Any) -> Any:
        if None in args:
            return None
        try:
            return function(*args)
        except Exception as problem:
            raise of_value(problem, function.__name__) from None

    return call


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a function that takes NULL: it too gives a value or an error of ours."""

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as problem:
            raise of_value(problem, function.__name__) from None

    return call


def known_by_name(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """For a function whose arguments nobody has looked at: any number of them, of any type."""

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
            raise UndefinedFunction(
                f"function {name} does not take these arguments",
                hint="look at their number and types",
            ) from None
        except Exception as problem:
            raise of_value(problem, name) from None

    return call


def int64(value: int) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise OutOfRange("integer out of range")


@strict
def i_add(a: int, b: int) -> int:
    return int64(a + b)


@strict
def i_sub(a: int, b: int) -> int:
    return int64(a - b)


@strict
def i_mul(a: int, b: int) -> int:
    return int64(a * b)


@strict
def i_div(a: int, b: int) -> int:
    if b == 0:
        raise DivisionByZero()
    quotient = abs(a) // abs(b)
    return int64(quotient if (a < 0) == (b < 0) else -quotient)


@strict
def i_mod(a: int, b: int) -> int:
    if b == 0:
        raise DivisionByZero()
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


@strict
def i_neg(a: int) -> int:
    return int64(-a)


@strict
def i_abs(a: int) -> int:
    return int64(abs(a))


# --- DOUBLE ---------------------------------------------------------------------------------------


def _float(value: float, *inputs: float) -> float:
    """The result, unless it left what DOUBLE can hold while its inputs had not."""
    if math.isinf(value) and not any(math.isinf(each) for each in inputs):
        raise OutOfRange("value out of range: overflow")
    if math.isnan(value):
        raise OutOfRange("NaN is not a value here", hint="DOUBLE has no NaN in Cairn")
    return value


@strict
def d_add(a: float, b: float) -> float:
    return _float(a + b, a, b)


@strict
def d_sub(a: float, b: float) -> float:
    return _float(a - b, a, b)


@strict
def d_mul(a: float, b: float) -> float:
    result = _float(a * b, a, b)
    if result == 0.0 and a != 0.0 and b != 0.0:
        raise OutOfRange("value out of range: underflow")
    return result


@strict
def d_div(a: float, b: float) -> float:
    if b == 0.0:
        raise DivisionByZero()
    return _float(a / b, a, b)


@strict
def d_of_n(data: bytes) -> float:
    return _float(float(decode_decimal(data)))


@strict
def i_of_d(value: float) -> int:
    if math.isinf(value) or not -9.3e18 < value < 9.3e18:
        raise OutOfRange("integer out of range")
    return int64(round(value))


@strict
def d_round(value: float) -> float:
    return float(round(value)) if math.isfinite(value) else value


@strict
def d_floor(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


@strict
def d_ceil(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


@strict
def d_trunc(value: float) -> float:
    return float(math.trunc(value)) if math.isfinite(value) else value


@strict
def d_sqrt(value: float) -> float:
    if value < 0:
        raise OutOfRange("cannot take square root of a negative number", sqlstate="2201F")
    return math.sqrt(value)


@strict
def d_power(a: float, b: float) -> float:
    if a == 0 and b < 0:
        raise OutOfRange("zero raised to a negative power is undefined", sqlstate="2201F")
    if a < 0 and not b.is_integer():
        raise OutOfRange(
            "a negative number raised to a non-integer power yields a complex result",
            sqlstate="2201F",
        )
    try:
        return float(a**b)
    except OverflowError:
        raise OutOfRange("value out of range: overflow") from None


# --- DECIMAL --------------------------------------------------------------------------------------


def _encode(value: Decimal, form: Callable[[Decimal], bytes] = encode_decimal) -> bytes:
    if value.adjusted() >= _MAX_RESULT_DIGITS // 16:
        raise OutOfRange("value overflows numeric format")
    return form(value)


def _keeping(name: str, operation: Callable[..., Decimal]) -> Callable[..., Any]:
    """The function for operands of which only the values tell the scale (`sql/zeros.py`)."""

    @strict
    def function(*args: bytes) -> bytes:
        return _encode(operation(*map(decode_decimal, args)), encode_shown)

    function.__name__ = name
    return function


z_add = _keeping("z_add", CONTEXT.add)
z_sub = _keeping("z_sub", CONTEXT.subtract)
z_mul = _keeping("z_mul", CONTEXT.multiply)
z_neg = _keeping("z_neg", Decimal.copy_negate)
z_abs = _keeping("z_abs", Decimal.copy_abs)


@strict
def z_mod(a: bytes, b: bytes) -> bytes:
    return _encode(_remainder(decode_decimal(a), decode_decimal(b)), encode_shown)


@strict
def n_padded(data: bytes, scale: int) -> bytes:
    """With at least so many digits after the point."""
    value = decode_decimal(data)
    return data if _scale(value) >= scale else encode_shown(rounded(value, min(scale, _MAX_SCALE)))


@strict
def i_scale(data: bytes) -> int:
    """`scale`: digits after the point."""
    return _scale(decode_decimal(data))


@strict
def i_min_scale(data: bytes) -> int:
    return _scale(decode_decimal(key_form(data)))


@strict
def n_key(data: bytes) -> bytes:
    return key_form(data)


@strict
def n_add(a: bytes, b: bytes) -> bytes:
    return _encode(CONTEXT.add(decode_decimal(a), decode_decimal(b)))


@strict
def n_sub(a: bytes, b: bytes) -> bytes:
    return _encode(CONTEXT.subtract(decode_decimal(a), decode_decimal(b)))


@strict
def n_mul(a: bytes, b: bytes) -> bytes:
    return _encode(CONTEXT.multiply(decode_decimal(a), decode_decimal(b)))


def _group(value: Decimal) -> tuple[int, int]:
    """Weight and value of the first base-10000 digit, which PostgreSQL's rule looks at."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(value.copy_abs().scaleb(-4 * weight, CONTEXT))


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def rounded(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), rounding=_HALF_AWAY, context=CONTEXT)


def divide(a: Decimal, b: Decimal) -> Decimal:
    """PostgreSQL's quotient: at least 16 significant digits, the last one rounded half away."""
    if not b:
        raise DivisionByZero()
    weight_a, first_a = _group(a)
    weight_b, first_b = _group(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = max(_MIN_SIGNIFICANT - weight * 4, _scale(a), _scale(b), 0)
    return rounded(CONTEXT.divide(a, b), min(scale, _MAX_SCALE))


@strict
def n_div(a: bytes, b: bytes) -> bytes:
    return _encode(divide(decode_decimal(a), decode_decimal(b)), encode_shown)


def _remainder(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise DivisionByZero()
    return CONTEXT.remainder(a, b)


@strict
def n_mod(a: bytes, b: bytes) -> bytes:
    return _encode(_remainder(decode_decimal(a), decode_decimal(b)))


@strict
def n_neg(a: bytes) -> bytes:
    return encode_decimal(decode_decimal(a).copy_negate())


@strict
def n_abs(a: bytes) -> bytes:
    return encode_decimal(decode_decimal(a).copy_abs())


@strict
def n_of_i(value: int) -> bytes:
    return encode_decimal(Decimal(value))


@strict
def n_of_d(value: float) -> bytes:
    if math.isinf(value):
        raise OutOfRange("cannot convert infinity to numeric", sqlstate="0A000")
    return encode_decimal(Decimal(f"{value:.15g}"))


@strict
def i_of_n(data: bytes) -> int:
    return int64(int(rounded(decode_decimal(data), 0)))


@strict
def n_round(data: bytes, places: int = 0) -> bytes:
    return _encode(_to_places(data, places, _HALF_AWAY))


@strict
def z_round(data: bytes, places: int) -> bytes:
    return _encode(_to_places(data, places, _HALF_AWAY), encode_shown)


def _to_places(data: bytes, places: int, rounding: str) -> Decimal:
    unit = Decimal(1).scaleb(-max(min(places, _MAX_SCALE), -_MAX_SCALE))
    return decode_decimal(data).quantize(unit, rounding=rounding, context=CONTEXT)


@strict
def n_floor(data: bytes) -> bytes:
    return _encode(decode_decimal(data).to_integral_value(decimal.ROUND_FLOOR, CONTEXT))


@strict
def n_ceil(data: bytes) -> bytes:
    return _encode(decode_decimal(data).to_integral_value(decimal.ROUND_CEILING, CONTEXT))


@strict
def n_trunc(data: bytes, places: int = 0) -> bytes:
    return _encode(_to_places(data, places, decimal.ROUND_DOWN))


@strict
def z_trunc(data: bytes, places: int) -> bytes:
    return _encode(_to_places(data, places, decimal.ROUND_DOWN), encode_shown)


@strict
def n_scaled(data: bytes, precision: int, scale: int) -> bytes:
    """`CAST(… AS DECIMAL(precision, scale))` in an expression."""
    value = rounded(decode_decimal(data), scale)
    if value and value.adjusted() >= precision - scale:
        raise OutOfRange(
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {scale} must round to an absolute "
            f"value less than 10^{precision - scale}.",
        )
    return encode_decimal(value)


@strict
def n_sign(data: bytes) -> bytes:
    value = decode_decimal(data)
    return encode_decimal(Decimal((value > 0) - (value < 0)))


# --- what a column takes --------------------------------------------------------------------------


@strict
def store_n(data: bytes) -> bytes:
    checked(decode_decimal(data))
    return key_form(data)


@strict
def store_z(data: bytes) -> bytes:
    """Into a column that keeps zeros."""
    checked(decode_decimal(data))
    return data


@strict
def store_u(value: int) -> int:
    if value < 0:
        raise OutOfRange(
            f'value "{value}" is out of range for type unsigned', hint="UNSIGNED is 0 to 2^63-1"
        )
    return value


# --- sums -----------------------------------------------------------------------------------------


def n_sum2(high: int | None, low: int | None) -> bytes | None:
    """The sum of integers from the sums of their halves: exact, and made by SQLite's own sum()."""
    if high is None or low is None:
        return None
    return encode_decimal(Decimal((high << 32) + low))


def n_avg2(high: int | None, low: int | None, count: int | None) -> bytes | None:
    if high is None or low is None or not count:
        return None
    return encode_shown(divide(Decimal((high << 32) + low), Decimal(count)))


def n_avg(total: bytes | None, count: int | None) -> bytes | None:
    if total is None or not count:
        return None
    return encode_shown(divide(decode_decimal(total), Decimal(count)))


def d_avg(total: float | None, count: int | None) -> float | None:
    return None if total is None or not count else total / count


class DecimalSum:
    """`sum` of DECIMAL; a window function as well, hence `remove`."""

    def __init__(self) -> None:
        self.total, self.count = Decimal(0), 0

    def add(self, data: bytes | None) -> None:
        if data is not None:
            self.total = CONTEXT.add(self.total, decode_decimal(data))
            self.count += 1

    def remove(self, data: bytes | None) -> None:
        if data is not None:
            self.total = CONTEXT.subtract(self.total, decode_decimal(data))
            self.count -= 1

    def value(self) -> bytes | None:
        return _encode(self.total) if self.count else None


class KeepingSum(DecimalSum):
    """With as many digits after the point as the longest of the numbers that are in it."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: dict[int, int] = {}  # to how many of them have it

    def add(self, data: bytes | None) -> None:
        if data is not None:
            super().add(data)
            scale = _scale(decode_decimal(data))
            self.scales[scale] = self.scales.get(scale, 0) + 1

    def remove(self, data: bytes | None) -> None:
        """A frame moved on: zeros of a number that left it are not shown any more."""
        if data is None:
            return
        super().remove(data)
        scale = _scale(decode_decimal(data))
        self.scales[scale] -= 1
        if not self.scales[scale]:
            del self.scales[scale]
            self.total = rounded(self.total, max(self.scales, default=0))

    def value(self) -> bytes | None:
        return _encode(self.total, encode_shown) if self.count else None
