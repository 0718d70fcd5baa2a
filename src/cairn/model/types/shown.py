"""Stored values as people are told them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from cairn.model.types.decimals import padder
from cairn.model.types.json_text import LONG_JSON, JsonText, json_shown
from cairn.model.types.values import JSONS, ColumnType, from_physical, list_values, physical_reader


def shown_reader(type_: ColumnType, scale: int | None) -> Callable[[Any], Any] | None:
    """`physical_reader` for people: a DECIMAL with at least so many digits after the point."""
    if type_ in JSONS:
        return _shown_json
    if not scale or type_ not in (ColumnType.DECIMAL, ColumnType.DECIMALS):
        return physical_reader(type_)
    one = padder(scale)
    if type_ is ColumnType.DECIMAL:
        return one
    return lambda text: [
        None if value is None else one(value) for value in list_values(ColumnType.DECIMAL, text)
    ]


def shown_text(type_: ColumnType, value: Any) -> str:
    """A stored value in a sentence about a key."""
    found = from_physical(type_, value)
    if isinstance(found, bool):
        text = "t" if found else "f"
    elif isinstance(found, float):
        text = repr(found).removesuffix(".0")
    elif isinstance(found, datetime):
        text = found.isoformat(" ").removesuffix(":00")
    else:
        text = str(found)
    return text if len(text) <= 60 else text[:57] + "..."


def _shown_json(text: str) -> Any:
    """A long one stays as it is: to read it takes its memory many times, and everybody's time."""
    return json_shown(text) if len(text) <= LONG_JSON else JsonText(text)
