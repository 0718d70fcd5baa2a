"""JSON that came as a text and stays one."""

from __future__ import annotations

LONG_JSON = 400_000  # characters that are looked at and stay a text


class JsonText(str):
    """Somebody has looked at it: its values would take many times its memory."""

    __slots__ = ()
