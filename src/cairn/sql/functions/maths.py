"""More functions of numbers: bits, logarithms, angles."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import groupby
from typing import Any

from cairn.model.errors import DivisionByZero, InvalidParameter, OutOfRange
from cairn.model.types.decimals import decode_decimal, encode_decimal, encode_shown
from cairn.model.types.values import INT64_MAX, ColumnType, list_text, list_values
from cairn.sql.functions.numbers import divide, i_mul, rounded, strict

MOST_FACTORS = 500


def _signed(value: int) -> int:
    """The lowest 64 bits as a signed number."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@strict
def i_and(a: int, b: int) -> int:
    return a & b


@strict
def i_or(a: int, b: int) -> int:
    return a | b


@strict
def i_xor(a: int, b: int) -> int:
    return a ^ b


@strict
def i_not(a: int) -> int:
    return ~a


@strict
def i_shl(a: int, b: int) -> int:
    return _signed(a << (b & 63))


@strict
def i_shr(a: int, b: int) -> int:
    return a >> (b & 63)


@strict
def n_quotient(a: bytes, b: bytes) -> bytes:
    """`div`: the whole part of a quotient, not of one that was rounded before."""
    left, right = decode_decimal(a), decode_decimal(b)
    if not right:
        raise DivisionByZero()
    with localcontext() as context:
        context.prec = 400  # more than a quotient of two decimals has before the point
        return encode_decimal(left // right)


def n_spread(
    total: bytes | None, squares: bytes | None, count: int | None, name: str
) -> bytes | None:
    """Variance or deviation from the sums of values and of their squares."""
    one_less = name not in ("var_pop", "stddev_pop")
    if not count or total is None or squares is None or (one_less and count < 2):
        return None
    with localcontext() as context:
        context.prec = 100
        value, square = decode_decimal(total), decode_decimal(squares)
        spread = divide(count * square - value * value, Decimal(count * (count - one_less)))
        if name.startswith("stddev"):  # with as many digits as the quotient has
            exponent = spread.as_tuple().exponent
            digits = -exponent if isinstance(exponent, int) else 0
            spread = rounded(max(spread, Decimal(0)).sqrt(), max(digits, 0))
        return encode_shown(spread)


def n_spread_of(text: str | None, name: str) -> bytes | None:
    """The same from a list of all values."""
    found = [] if text is None else list_values(ColumnType.DECIMAL, text)
    values = [decode_decimal(each) for each in found if isinstance(each, bytes)]
    with localcontext() as context:
        context.prec = 100
        total = sum(values, Decimal(0))
        squares = sum((each * each for each in values), Decimal(0))
    return n_spread(encode_shown(total), encode_shown(squares), len(values), name)


def d_regression(
    name: str,
    count: int | None,
    y: bytes | None,
    x: bytes | None,
    yy: bytes | None,
    xx: bytes | None,
    xy: bytes | None,
) -> float | None:
    """What the sums of pairs, of their squares and of their products say about a straight line."""
    if not count or y is None or x is None or yy is None or xx is None or xy is None:
        return None
    with localcontext() as context:
        context.prec = 100
        n, sum_y, sum_x = Decimal(count), decode_decimal(y), decode_decimal(x)
        # Times n: without a quotient, what does not spread is exactly nothing.
        n_yy = n * decode_decimal(yy) - sum_y * sum_y
        n_xx = n * decode_decimal(xx) - sum_x * sum_x
        n_xy = n * decode_decimal(xy) - sum_x * sum_y
        try:
            line = _of_line(name, n, (sum_y, sum_x), n_yy, n_xx, n_xy)
        except ArithmeticError:
            raise OutOfRange("value out of range: overflow") from None
    found = None if line is None else float(line)
    if found is not None and math.isinf(found):
        raise OutOfRange("value out of range: overflow")
    return found


def _of_line(
    name: str, n: Decimal, sums: tuple[Decimal, Decimal], yy: Decimal, xx: Decimal, xy: Decimal
) -> Decimal | None:
    sum_y, sum_x = sums
    match name:
        case "regr_avgy" | "regr_avgx":
            return (sum_y if name == "regr_avgy" else sum_x) / n
        case "regr_syy" | "regr_sxx" | "regr_sxy":
            return {"regr_syy": yy, "regr_sxx": xx, "regr_sxy": xy}[name] / n
        case "covar_pop":
            return xy / n / n
        case "covar_samp":
            return None if n < 2 else xy / n / (n - 1)
        case "corr":
            return None if not xx or not yy else xy / (xx * yy).sqrt()
        case "regr_r2":
            return None if not xx else Decimal(1) if not yy else xy * xy / (xx * yy)
        case "regr_slope":
            return None if not xx else xy / xx
        case "regr_intercept":
            return None if not xx else (sum_y - sum_x * xy / xx) / n
    raise InvalidParameter(f"{name} is no function of pairs")


class BitsAgg:
    """`bit_and`, `bit_or` and `bit_xor` of 64 bits: how often each is set, for frames that move."""

    def __init__(self) -> None:
        self.count, self.ones = 0, [0] * 64

    def add(self, value: int | None) -> None:
        self._note(value, 1)

    def remove(self, value: int | None) -> None:
        self._note(value, -1)

    def _note(self, value: int | None, more: int) -> None:
        if value is None:
            return
        self.count += more
        left = value & 0xFFFF_FFFF_FFFF_FFFF
        while left:
            lowest = left & -left
            self.ones[lowest.bit_length() - 1] += more
            left ^= lowest

    def _made(self, is_set: Callable[[int], bool]) -> int | None:
        if not self.count:
            return None
        return _signed(sum(1 << at for at, ones in enumerate(self.ones) if is_set(ones)))


class BitAnd(BitsAgg):
    def value(self) -> int | None:
        return self._made(lambda ones: ones == self.count)


class BitOr(BitsAgg):
    def value(self) -> int | None:
        return self._made(bool)


class BitXor(BitsAgg):
    def value(self) -> int | None:
        return self._made(lambda ones: ones % 2 == 1)


@strict
def n_factorial(value: int) -> bytes:
    if value < 0:
        raise OutOfRange("factorial of a negative number is undefined")
    if value > MOST_FACTORS:
        raise OutOfRange("value overflows numeric format")
    return encode_decimal(Decimal(math.factorial(value)))


@strict
def d_percentile(text: str, part: float) -> float | None:
    """`percentile_cont` of values in order: between two of them in proportion."""
    values = [
        each for each in list_values(ColumnType.DOUBLE, text) if isinstance(each, float | int)
    ]
    _check_part(part)
    if not values:
        return None
    place = part * (len(values) - 1)
    low = values[math.floor(place)]
    high = values[math.ceil(place)]
    return float(low if low == high else low + (place - math.floor(place)) * (high - low))


@strict
def a_percentiles(text: str, parts: str) -> str | None:
    """The same for several parts at once."""
    found = [
        None if part is None else d_percentile(text, float(part))
        for part in list_values(ColumnType.DOUBLE, parts)
    ]
    return list_text(found)


@strict
def a_percentile_places(count: int, parts: str) -> str:
    """The places of `percentile_disc`."""
    found = list_values(ColumnType.DOUBLE, parts)
    return list_text([None if part is None else i_percentile(count, float(part)) for part in found])


@strict
def i_percentile(count: int, part: float) -> int:
    """`percentile_disc`: the place of the first value that is at least so far."""
    _check_part(part)
    return max(math.ceil(part * count), 1)


def _check_part(part: float) -> None:
    if not 0 <= part <= 1:
        raise OutOfRange(f"percentile value {part:g} is not between 0 and 1")


@strict
def i_mode(text: str) -> int:
    """The place of the most frequent of values in order, the first of several."""
    best = at = 0
    most = 0
    for _, group in groupby(json.loads(text)):
        size = len(list(group))
        if size > most:
            most, best = size, at
        at += size
    return best + 1


@strict
def i_gcd(a: int, b: int) -> int:
    found = math.gcd(a, b)
    if found > INT64_MAX:
        raise OutOfRange("integer out of range")
    return found


@strict
def i_lcm(a: int, b: int) -> int:
    common = math.gcd(a, b)
    return int(i_mul(abs(a) // common, abs(b))) if common else 0


def _finite(name: str, function: Callable[[float], float]) -> Callable[..., float]:
    @strict
    def call(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            raise OutOfRange("value out of range: overflow") from None
        except ValueError:
            raise OutOfRange("input is out of range") from None

    call.__name__ = name
    return call


def _positive(function: Callable[[float], float]) -> Callable[[float], float]:
    def call(value: float) -> float:
        if value <= 0:
            what = "zero" if value == 0 else "a negative number"
            raise InvalidParameter(f"cannot take logarithm of {what}", sqlstate="2201E")
        return function(value)

    return call


_DEGREE = 0.0174532925199432957692


d_exp = _finite("d_exp", math.exp)
d_ln = _finite("d_ln", _positive(math.log))
d_log = _finite("d_log", _positive(math.log10))
d_sin = _finite("d_sin", math.sin)
d_cos = _finite("d_cos", math.cos)
d_tan = _finite("d_tan", math.tan)
d_cot = _finite("d_cot", lambda value: 1 / math.tan(value) if value else math.inf)
d_asin = _finite("d_asin", math.asin)
d_acos = _finite("d_acos", math.acos)
d_atan = _finite("d_atan", math.atan)
d_cbrt = _finite("d_cbrt", math.cbrt)
d_degrees = _finite("d_degrees", lambda value: value / _DEGREE)
d_radians = _finite("d_radians", lambda value: value * _DEGREE)
d_sinh = _finite("d_sinh", math.sinh)
d_cosh = _finite("d_cosh", math.cosh)
d_tanh = _finite("d_tanh", math.tanh)


@strict
def d_atan2(a: float, b: float) -> float:
    return math.atan2(a, b)


@strict
def d_log_of(base: float, value: float) -> float:
    """`log(base, value)`"""
    bottom = float(d_ln(base))
    if not bottom:
        raise DivisionByZero("division by zero")
    found = float(d_ln(value)) / bottom
    if math.isnan(found):
        raise OutOfRange("input is out of range")
    return found


@strict
def i_bucket(value: float, low: float, high: float, count: int) -> int:
    """`width_bucket`: in which of `count` equal parts; 0 before them, one more behind them."""
    return _bucket(value, low, high, count)


@strict
def i_bucket_of(value: bytes, low: bytes, high: bytes, count: int) -> int:
    return _bucket(decode_decimal(value), decode_decimal(low), decode_decimal(high), count)


def _bucket(value: Any, low: Any, high: Any, count: int) -> int:
    if not 0 < count < 1 << 31:
        raise InvalidParameter("count must be greater than zero, and an int4", sqlstate="2201G")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidParameter("lower and upper bounds must be finite", sqlstate="2201G")
    if low == high:
        raise InvalidParameter("lower bound cannot equal upper bound", sqlstate="2201G")
    if low > high:
        value, low, high = -value, -low, -high
    if value < low:
        return 0
    return (
        count + 1
        if value >= high
        else int(count * ((value / 2 - low / 2) / (high / 2 - low / 2))) + 1
    )


def d_pi() -> float:
    return math.pi
