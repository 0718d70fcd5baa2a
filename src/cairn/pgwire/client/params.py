"""Python values as Bind parameters. They travel beside the statement, never inside it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from cairn.model.errors import InvalidParameter
from cairn.model.types.intervals import Interval
from cairn.pgwire.messages import INT32
from cairn.pgwire.values import oids
from cairn.pgwire.values.formats import text_encoder

_NULL: Final = b"\xff\xff\xff\xff"
_OIDS: Final[dict[type, int]] = {
    bool: oids.BOOL,
    int: oids.INT8,
    float: oids.FLOAT8,
    Decimal: oids.NUMERIC,
    bytes: oids.BYTEA,
    uuid.UUID: oids.UUID,
    datetime: oids.TIMESTAMPTZ,
    date: oids.DATE,
    time: oids.TIME,
    timedelta: oids.INTERVAL,
    Interval: oids.INTERVAL,
    dict: oids.JSON,
}
_ARRAYS: Final = {element: array for array, element in oids.ARRAY_ELEMENTS.items()}


def guess_oid(value: Any) -> int:
    """The type to declare for `value` when the server has not told one; 0 lets it choose."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return oids.NUMERIC
    if isinstance(value, list):
        first = next((each for each in value if each is not None), None)
        return oids.TEXT_ARRAY if isinstance(first, str) else _ARRAYS.get(guess_oid(first), 0)
    return _OIDS.get(type(value), oids.INFER)


def param_formats(values: Sequence[Any], declared: Sequence[int] | None) -> list[int]:
    """Bytes go as they are where the server wants bytes: as text they are twice as long. None: all
    are text.
    """
    formats = [int(_is_binary(*each)) for each in zip(values, declared or (), strict=False)]
    return formats if any(formats) else []


def _is_binary(value: Any, declared: int) -> bool:
    return type(value) is bytes and declared == oids.BYTEA


def encode_params(values: Sequence[Any], declared: Sequence[int] | None = None) -> list[bytes]:
    """Length and text of each value, or its bytes (`param_formats`). `declared` are the types the
    server told, if it did.
    """
    if declared is not None and len(values) != len(declared):
        raise InvalidParameter(f"{len(declared)} parameters are needed, {len(values)} were given")
    return [
        _encode(number, value, declared[number - 1] if declared is not None else oids.INFER)
        for number, value in enumerate(values, 1)
    ]


def _encode(number: int, value: Any, declared: int) -> bytes:
    if value is None:
        return _NULL
    if isinstance(value, str) and declared not in (oids.JSON, oids.JSONB):
        text = value.encode("utf-8", "surrogatepass")
    elif _is_binary(value, declared):
        text = value
    else:
        text = _text(number, value, declared)
    return INT32.pack(len(text)) + text


def _text(number: int, value: Any, declared: int) -> bytes:
    """As text every number fits every numeric type: the server reads it as what it wants."""
    oid = guess_oid(value)
    if declared in (oids.JSON, oids.JSONB) or (
        isinstance(value, list) and declared in oids.ARRAY_ELEMENTS
    ):
        oid = declared
    if not oid:
        raise InvalidParameter(f"parameter ${number} is a {type(value).__name__}: not a SQL type")
    try:
        return text_encoder(oid)(value)
    except (TypeError, ValueError, AttributeError, AssertionError) as problem:
        raise InvalidParameter(f"parameter ${number} cannot be sent: {problem}") from None
