"""JSON as a text and as values. Its numbers are decimals: a double would lose 1.10 its zero."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

LONG_JSON = 400_000  # characters that are looked at and stay a text
_MOST_DIGITS = 1000  # that a number is written with, before its exponent is shown


class JsonText(str):
    """Somebody has looked at it: its values would take many times its memory."""

    __slots__ = ()


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        raise ValueError(f"number out of range: {text[:50]}") from None


_decode = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


def json_value(text: str) -> Any:
    """ValueError: it is no JSON, or Python cannot hold it: a number of thousands of digits."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # it is stricter about escapes
        return json.loads(text, parse_float=_number, parse_constant=_no_constant)


def json_parsed(text: str) -> Any:
    """The same of what somebody wrote: what Python cannot hold stays a text."""
    try:
        return json_value(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        msgspec.json.decode(text, type=msgspec.Raw)
        return JsonText(text)


def json_shown(text: str) -> Any:
    """The value for whoever asked; JSON's own null stays a text, for it is not NULL. So does what
    cannot be read."""
    try:
        value = json_value(text)
    except (ValueError, RecursionError):
        return JsonText(text)
    return _NULL if value is None else value


_NULL = JsonText("null")


def _no_constant(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are Python's


def json_bytes(value: Any) -> bytes:
    """UnicodeEncodeError: an escape stood for no character."""
    return str(value).encode() if isinstance(value, JsonText) else _encode(value)


def json_text(value: Any) -> str:
    if isinstance(value, Decimal) and abs(value.adjusted()) < _MOST_DIGITS:
        return f"{value:f}"
    return json_bytes(value).decode()
