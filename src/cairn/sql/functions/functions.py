"""The functions that Cairn adds to SQLite, and `register`, which puts them on a connection.

Names begin with the type they give (i integer, d double, n decimal, s text, u uuid, t datetime,
b boolean, j json, c text function, h time of day, x bytes). An error raised here keeps its class
through apsw.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

from cairn.model.errors import CairnError, CardinalityViolation, InvalidText, OutOfRange
from cairn.model.settings import limits
from cairn.model.types.byte_text import bytes_text
from cairn.model.types.decimals import decode_decimal
from cairn.model.types.interval_text import MICROS_PER_DAY, parse_interval
from cairn.model.types.intervals import decode_interval
from cairn.model.types.sizes import Fit, checked_sizes, fitter
from cairn.model.types.time_text import clock_text, micros_to_clock
from cairn.model.types.values import (
    ColumnType,
    from_physical,
    list_text,
    micros_to_datetime,
    parse_text,
    to_physical,
)
from cairn.model.types.widths import Width
from cairn.model.unexpected import of_value
from cairn.sql.functions import (
    byte_strings,
    json_values,
    lists,
    maths,
    numbers,
    patterns,
    regexps,
    spans,
    splitting,
    texts,
    times,
    words,
    zones,
)
from cairn.sql.functions.formats import number_formats, time_formats
from cairn.sql.functions.jsonpath import json_paths
from cairn.sql.functions.numbers import strict, total
from cairn.sql.functions.words import LABELS, joined


def double_text(value: float) -> str:
    """PostgreSQL's shortest spelling: exponents from 1e+15 and below 1e-04."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0" if math.copysign(1, value) > 0 else "-0"
    mantissa, _, power = f"{value!r}".partition("e")
    magnitude = Decimal(repr(value)).adjusted()
    if power or magnitude >= 15 or magnitude < -4:
        digits = repr(value).replace("-", "", 1) if value < 0 else repr(value)
        mantissa, _, power = digits.partition("e")
        whole, _, fraction = mantissa.partition(".")
        fraction = "" if fraction == "0" else fraction
        exponent = int(power or 0) + len(whole) - 1
        body = (whole + fraction).lstrip("0")
        if not power and whole == "0":
            exponent = -(len(fraction) - len(fraction.lstrip("0")) + 1)
        body = body.rstrip("0") or "0"
        text = body[0] + ("." + body[1:] if len(body) > 1 else "") + f"e{exponent:+03d}"
        return ("-" if value < 0 else "") + text
    return mantissa.removesuffix(".0")


def datetime_text(micros: int) -> str:
    value = micros_to_datetime(micros)
    text = value.strftime("%Y-%m-%d %H:%M:%S") if value.year >= 1000 else value.isoformat(" ")[:19]
    if value.microsecond:
        text += f".{value.microsecond:06d}".rstrip("0")
    return text + "+00"


def decimal_text(data: bytes, scale: int = 0) -> str:
    """With at least so many digits after the point."""
    text = f"{decode_decimal(data):f}"
    given = len(text.partition(".")[2])
    if given >= scale:
        return text
    return text + "." * (not given) + "0" * (min(scale, 1000) - given)


def date_text(micros: int) -> str:
    return datetime_text(micros)[:10]


def timestamp_text(micros: int) -> str:
    return datetime_text(micros)[:-3]


def _parser(type_: ColumnType) -> Callable[..., Any]:
    @strict
    def parse(text: str) -> Any:
        if "_" in text and type_ in _NUMERIC:
            raise InvalidText(f'invalid input syntax for type {type_.value}: "{text}"')
        value = parse_text(type_, text)
        return to_physical(type_, value)

    return parse


_NUMERIC = (ColumnType.INTEGER, ColumnType.DOUBLE, ColumnType.DECIMAL)


_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d\d(:\d\d(\.\d+)?)?([+-]\d\d(:?\d\d)?|Z)?)?"
)


def _time_parser(type_: ColumnType, name: str) -> Callable[..., Any]:
    @strict
    def parse(text: str) -> Any:
        try:
            return to_physical(type_, parse_text(type_, text))
        except InvalidText:
            if _DATE.fullmatch(text.strip()):
                raise InvalidText(
                    f'date/time field value out of range: "{text}"', sqlstate="22008"
                ) from None
            raise InvalidText(
                f'invalid input syntax for type {name}: "{text}"', sqlstate="22007"
            ) from None

    return parse


@strict
def b_of_j(data: str) -> int:
    value = texts.read_json(data)
    if not isinstance(value, bool):
        raise InvalidText(f"cannot cast JSON {texts.short(data)} to boolean", sqlstate="22023")
    return int(value)


@strict
def s_of_j(data: str) -> str:
    """Of `a[1]` of an untyped array: a string is its content. Other JSON is cast as it is."""
    value = texts.read_json(data)
    return texts.plain_text(value) if isinstance(value, str) else data


def _number(data: str, type_: str) -> int | Decimal:
    value = texts.read_json(data)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise InvalidText(f"cannot cast JSON {texts.short(data)} to {type_}", sqlstate="22023")
    return value


@strict
def i_of_j(data: str) -> int:
    value = _number(data, "integer")
    if isinstance(value, int):
        return numbers.int64(value)
    if value.adjusted() > 19:  # digits without end, before they are counted
        raise OutOfRange("integer out of range")
    return numbers.int64(int(value.to_integral_value(ROUND_HALF_UP)))


@strict
def d_of_j(data: str) -> float:
    value = float(_number(data, "double"))
    if math.isinf(value):
        raise OutOfRange(f'"{texts.short(data)}" is out of range for type double precision')
    return value


@strict
def j_check(text: str) -> str:
    texts.check_json(text)
    return text


@strict
def a_check(text: str) -> Any:
    """A JSON array, or `{}`."""
    return to_physical(ColumnType.ARRAY, texts.read_json(text))


def store_fit(value: Any, type_: str, *sizes: int) -> Any:
    """A value as a column with sizes takes it."""
    fit = _fit_of(type_, sizes)
    return value if fit is None else fit(value)


@lru_cache(maxsize=1024)
def _fit_of(word: str, sizes: tuple[int, ...]) -> Fit | None:
    try:
        type_ = ColumnType(word)
    except ValueError:
        raise InvalidText(f'type "{word[:200]}" does not exist', sqlstate="42704") from None
    return fitter(type_, checked_sizes(type_, sizes))


def only_row(count: int, value: Any) -> Any:
    """A sub-query used as a value: NULL when empty, an error when it has two rows."""
    if count > 1:
        raise CardinalityViolation("more than one row returned by a subquery used as an expression")
    return value


def s_pack(value: Any, separator: Any) -> str | None:
    return None if value is None else json.dumps([value, separator])


class PackedConcat(texts.Gathered):
    """`string_agg(DISTINCT …)`: value and separator travel as one argument, as SQLite wants it."""

    def add(self, packed: str | None) -> None:
        if packed is not None:
            value, separator = json.loads(packed)
            if self.parts:
                self.gather(separator or "")
            self.gather(value)

    def value(self) -> str | None:
        return "".join(self.parts) if self.parts else None


class ListAgg(texts.Gathered):
    """`array_agg`: NULLs stay, no rows give NULL."""

    def add(self, value: Any) -> None:
        self.gather(value)

    def remove(self, value: Any) -> None:
        self.let_go()

    def value(self) -> str | None:
        return list_text(self.parts) if self.parts else None


def c_concat(*parts: str | None) -> str:
    return joined("", parts)


_PREFIXES = ("i_", "d_", "n_", "z_", "c_", "t_", "v_", "j_", "b_", "a_", "h_", "x_")
_MODULES = (
    *(numbers, number_formats, maths, texts, words, times, time_formats, zones),
    *(json_values, json_paths, splitting, patterns, regexps, spans, byte_strings),
)
_ROW_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for module in _MODULES
    for name, function in vars(module).items()
    if name[:2] in _PREFIXES or name.startswith("store_")
}

#: Every scalar function: SQLite calls it by this name, constant folding calls it directly.
SCALARS: dict[str, Callable[..., Any]] = {
    **_ROW_FUNCTIONS,
    "b_parse": _parser(ColumnType.BOOLEAN),
    "i_parse": _parser(ColumnType.INTEGER),
    "d_parse": _parser(ColumnType.DOUBLE),
    "n_parse": _parser(ColumnType.DECIMAL),
    "u_parse": _parser(ColumnType.UUID),
    "t_parse": _time_parser(ColumnType.DATETIME, "timestamp with time zone"),
    "m_parse": _time_parser(ColumnType.TIMESTAMP, "timestamp"),
    "y_parse": _time_parser(ColumnType.DATE, "date"),
    "v_parse": strict(lambda text: to_physical(ColumnType.INTERVAL, parse_interval(text))),
    "x_parse": _parser(ColumnType.VARBINARY),
    "store_fit": store_fit,
    "i_fit": strict(lambda value, size: Width(size).check(value) if size in (2, 4) else value),
    **LABELS,
    "j_check": j_check,
    "a_check": a_check,
    "s_of_b": strict(lambda value: "true" if value else "false"),
    "s_of_i": strict(str),
    "s_of_d": strict(double_text),
    "s_of_n": strict(decimal_text),
    "s_of_u": strict(lambda data: str(from_physical(ColumnType.UUID, data))),
    "s_of_t": strict(datetime_text),
    "s_of_m": strict(timestamp_text),
    "s_of_y": strict(date_text),
    "s_of_v": strict(lambda data: str(decode_interval(data))),
    "s_of_h": strict(lambda micros: clock_text(micros_to_clock(micros))),
    "s_of_x": strict(bytes_text),
    "s_of_j": s_of_j,
    "b_of_j": b_of_j,
    "i_of_j": i_of_j,
    "d_of_j": d_of_j,
    "n_of_j": strict(lambda data: to_physical(ColumnType.DECIMAL, _number(data, "numeric"))),
    "d_of_i": strict(float),
    "b_of_i": strict(lambda value: 1 if value else 0),
    "i_of_b": strict(int),
    "t_date": strict(lambda micros: numbers.int64(micros - micros % MICROS_PER_DAY)),
    "only_row": only_row,
    "s_pack": s_pack,
    "c_lower": strict(str.lower),
    "c_upper": strict(str.upper),
    "c_length": strict(len),
    "c_reverse": strict(lambda text: text[::-1]),
    "c_concat": c_concat,
}
SCALARS["j_list"] = json_values.list_writer(SCALARS)
SCALARS.update(lists.scalars(SCALARS))
SCALARS = {  # `strict` is total as well
    name: function if hasattr(function, "__wrapped__") else total(function)
    for name, function in SCALARS.items()
}


#: Those whose work is what their arguments say: never done while others wait for the event loop.
HEAVY = frozenset({"a_series", "a_times", "c_repeat", "c_lpad", "c_rpad"})
#: The same with those whose work grows with the text that they are given.
HEAVY_ON_ROWS = HEAVY | {
    *("c_replace", "c_regexp_replace", "c_translate"),
    *("a_split", "a_regexp_split", "a_regexp_matches", "i_regexp_count", "c_format"),
    *("c_regexp_replace_at",),
}


#: Characters of an argument from which on a call is not made on one of the instance's threads.
GIANT = 400_000
#: Those that only copy a text or a part of it, and those that are given none.
_LIGHT = frozenset(
    (
        *("c_left", "c_right", "c_substr", "c_overlay", "c_ascii", "c_starts_with", "c_position"),
        *("c_concat", "c_concat_ws", "c_length", "c_octets", "c_bits", "c_limit"),
        *("a_cat", "a_append", "a_prepend", "j_array", "j_object", "j_bool", "only_row"),
        *("c_hex", "c_chr", "a_series", "a_times", "t_date", "b_of_i", "i_of_b", "d_of_i"),
        *(f"s_of_{letter}" for letter in "bidnutmyvh"),
    )
)
_OF_NUMBERS = frozenset(module.__name__ for module in (numbers, maths, times, time_formats, spans))
_WORKS_ON_TEXTS = frozenset(
    name for name, function in SCALARS.items() if function.__module__ not in _OF_NUMBERS
) - _LIGHT | {"c_lower", "c_upper", "c_to_char", "d_percentile", "i_mode"}
#: The value of a function of this name, called with these arguments: here or elsewhere.
Apart = Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]


#: Functions that the compiled part has too (`native/twins.h`). It asks for these by another name
#: where a value is not plain enough for it.
ALSO_IN_C = frozenset(
    (
        *("n_add", "z_add", "n_sub", "z_sub", "n_mul", "z_mul", "n_div", "n_neg", "z_neg"),
        *("n_abs", "z_abs", "n_key", "n_round", "z_round", "n_trunc", "z_trunc", "n_floor"),
        *("n_ceil", "n_padded", "n_scaled", "i_scale", "n_of_i", "i_of_n", "d_of_n", "n_of_d"),
        *("i_fit", "n_extract", "d_part", "t_trunc", "t_shift", "c_like", "c_ilike"),
        *("c_json_path", "c_json_shown", "c_index", "s_item", "i_item", "i_parse", "c_split_part"),
    )
)

_STRICT = strict(len).__code__  # all that `strict` makes have it in common


def _guarded(
    name: str, function: Callable[..., Any], apart: Apart, held: Callable[[], int]
) -> Callable[..., Any]:
    """With `strict` or `total` in the same call: one more for every row would be felt."""
    is_strict = getattr(function, "__code__", None) is _STRICT
    inner: Callable[..., Any] = function.__wrapped__  # type: ignore[attr-defined]

    def call(*args: Any) -> Any:
        if is_strict and None in args:
            return None
        for arg in args:
            if arg.__class__ is str and len(arg) > GIANT:
                texts.check_arguments(args)
                return checked(apart(name, function, args))
        try:
            return checked(inner(*args))
        except Exception as problem:
            raise of_value(problem, name) from None

    def checked(found: Any) -> Any:
        if found.__class__ is str and len(found) > GIANT and held() > limits.TEXTS_BYTES:
            raise CairnError(
                "out of memory: long texts",
                sqlstate="53200",
                hint="make fewer or shorter ones, or try again when other statements have ended",
            )
        return found

    return call


def register(
    connection: Any, apart: Apart | None = None, held: Callable[[], int] = lambda: 0
) -> None:
    """Make all functions known to an apsw connection. `apart`: where calls on giants are made;
    `held`: how much memory SQLite has."""
    for name, function in SCALARS.items():
        if apart is not None and name in _WORKS_ON_TEXTS:
            function = _guarded(name, function, apart, held)
        connection.create_scalar_function(name, function, -1, deterministic=True)
        if name in ALSO_IN_C:
            connection.create_scalar_function(f"p_{name}", function, -1, deterministic=True)
    connection.create_window_function(
        "n_sum", _window(numbers.DecimalSum, numbers.DecimalSum.remove), 1
    )
    connection.create_window_function(
        "z_sum", _window(numbers.KeepingSum, numbers.KeepingSum.remove), 1
    )
    connection.create_window_function("a_agg", _window(ListAgg, ListAgg.remove), 1)
    connection.create_window_function(
        "j_agg", _window(json_values.JsonAgg, json_values.JsonAgg.remove), 1
    )
    connection.create_window_function(
        "j_object_agg", _window(json_values.JsonObjectAgg, json_values.JsonObjectAgg.remove), 2
    )
    for name, bits in (("and", maths.BitAnd), ("or", maths.BitOr), ("xor", maths.BitXor)):
        connection.create_window_function(f"i_bit_{name}", _window(bits, bits.remove), 1)
    connection.create_aggregate_function("s_agg", _aggregate(PackedConcat), 1)


def _aggregate(cls: type[Any]) -> Callable[[], Any]:
    def factory() -> Any:
        state = cls()
        return state, lambda _, *args: state.add(*args), lambda _: state.value()

    return factory


def _window(cls: type[Any], remove: Callable[..., None]) -> Callable[[], Any]:
    def factory() -> Any:
        state = cls()
        return (
            state,
            lambda _, *args: state.add(*args),
            lambda _: state.value(),
            lambda _: state.value(),
            lambda _, *args: remove(state, *args),
        )

    return factory
