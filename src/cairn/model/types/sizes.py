"""What `NUMERIC(10, 2)`, `VARCHAR(20)`, `TIMESTAMP(3)` and INT4 ask of a value before it is stored.

The only place: INSERT, UPDATE, COPY and Arrow all come here, with physical values.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from cairn.model.errors import InvalidTableDefinition, InvalidText, OutOfRange
from cairn.model.types.decimals import (
    CONTEXT,
    MAX_DIGITS,
    decode_decimal,
    encode_decimal,
    key_form,
)
from cairn.model.types.time_text import DAY_US
from cairn.model.types.values import ELEMENTS, ColumnType, Physical, list_text, list_values
from cairn.model.types.widths import Width

Fit = Callable[[Any], Physical]
MAX_LENGTH = 10_485_760  # PostgreSQL's
_TIMES = (ColumnType.DATETIME, ColumnType.TIMESTAMP, ColumnType.TIME)


def checked_sizes(type_: ColumnType, sizes: Sequence[int]) -> tuple[int, ...]:
    """The numbers in parentheses behind a type's name, as they are kept."""
    of = ELEMENTS.get(type_, type_)
    if of is ColumnType.DECIMAL and 1 <= len(sizes) <= 2:
        precision, scale = sizes[0], sizes[1] if len(sizes) == 2 else 0
        if not 1 <= precision <= MAX_DIGITS:
            raise _wrong(f"NUMERIC precision {precision} must be between 1 and {MAX_DIGITS}")
        if not 0 <= scale <= precision:
            raise _wrong(f"NUMERIC scale {scale} must be between 0 and precision {precision}")
        return precision, scale
    if of is ColumnType.STRING and len(sizes) == 1:
        if not 1 <= sizes[0] <= MAX_LENGTH:
            raise _wrong(f"length for type varchar must be between 1 and {MAX_LENGTH}")
        return (sizes[0],)
    if of in _TIMES and len(sizes) == 1:
        return (min(sizes[0], 6),)
    if of is ColumnType.INTEGER and sizes in ((2,), (4,)):
        return tuple(sizes)
    raise InvalidText(f"type modifier is not allowed for type {of.value}", sqlstate="42601")


def _wrong(message: str) -> InvalidTableDefinition:
    return InvalidTableDefinition(message, sqlstate="22023")


@lru_cache(maxsize=1024)
def fitter(type_: ColumnType, sizes: tuple[int, ...], keeps_zeros: bool = False) -> Fit | None:
    """Rounds or refuses a value of a column; None: there is nothing to ask."""
    if type_ is ColumnType.DECIMAL and not sizes:
        return None if keeps_zeros else lambda data: None if data is None else key_form(data)
    if not sizes:
        return None
    if type_ in ELEMENTS:
        return _each(ELEMENTS[type_], sizes)
    if type_ is ColumnType.DECIMAL:
        return _number(*sizes)
    if type_ is ColumnType.STRING:
        return _text(*sizes)
    if type_ is ColumnType.INTEGER:
        return Width(sizes[0]).check
    return _clock(*sizes) if type_ is ColumnType.TIME else _time(*sizes)


def _number(precision: int, scale: int) -> Fit:
    step = Decimal(1).scaleb(-scale)
    limit = Decimal(10) ** (precision - scale)

    def fit(data: bytes | None) -> bytes | None:
        if data is None:
            return None
        value = decode_decimal(data).quantize(step, decimal.ROUND_HALF_UP, CONTEXT)
        if abs(value) >= limit:
            raise OutOfRange(
                "numeric field overflow",
                detail=f"A field with precision {precision}, scale {scale} must round to an "
                f"absolute value less than 10^{precision - scale}.",
            )
        return encode_decimal(value)

    return fit


def _text(length: int) -> Fit:
    def fit(text: str | None) -> str | None:
        if text is None or len(text) <= length:
            return text
        if text[length:].strip(" "):
            raise InvalidText(
                f"value too long for type character varying({length})", sqlstate="22001"
            )
        return text[:length]  # only blanks were too many: PostgreSQL cuts them off too

    return fit


def _time(digits: int) -> Fit:
    size = int(10 ** (6 - digits))

    def fit(micros: int | None) -> int | None:
        if micros is None:
            return None
        away = (abs(micros) + size // 2) // size * size
        return away if micros >= 0 else -away

    return fit


def _clock(digits: int) -> Fit:
    rounded = _time(digits)

    def fit(micros: int | None) -> Physical:
        found = rounded(micros)
        if isinstance(found, int) and found >= DAY_US:
            raise OutOfRange("time out of range: it rounds to 24:00:00", sqlstate="22008")
        return found

    return fit


def _each(of: ColumnType, sizes: tuple[int, ...]) -> Fit:
    one = fitter(of, sizes)
    assert one is not None

    def fit(text: str | None) -> str | None:
        return None if text is None else list_text(one(value) for value in list_values(of, text))

    return fit
