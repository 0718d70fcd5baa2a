"""JSON that came as a text and stays one."""

from __future__ import annotations

import json
from typing import Any

LONG_JSON = 400_000  # characters that are looked at and stay a text


class JsonText(str):
    """Somebody has looked at it: its values would take many times its memory."""

    __slots__ = ()


def read_json(text: str) -> Any:
    """What Python does not read, a number of thousands of digits or great depth, stays a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return JsonText(text)


def shown_json(text: str) -> Any:
    """A long one stays as it is: to read it takes its memory many times, and everybody's time."""
    return read_json(text) if len(text) <= LONG_JSON else JsonText(text)
