"""Names and texts as SQL writes them."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name, whatever is in it."""
    return '"' + str(name).replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, whatever is in it."""
    return "'" + str(text).replace("'", "''") + "'"
