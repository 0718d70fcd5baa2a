"""SASLprep (RFC 4013): the same password typed on two keyboards gives the same bytes."""

from __future__ import annotations

import stringprep as tables
import unicodedata
from collections.abc import Callable
from typing import Final

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    tables.in_table_c12,
    tables.in_table_c21_c22,
    tables.in_table_c3,
    tables.in_table_c4,
    tables.in_table_c5,
    tables.in_table_c6,
    tables.in_table_c7,
    tables.in_table_c8,
    tables.in_table_c9,
    tables.in_table_a1,
)


def saslprep(password: str) -> bytes:
    """The prepared password; as it is when it cannot be prepared, as PostgreSQL does."""
    if password.isascii():
        return password.encode()
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(map(_mapped, password)))
    if not prepared or _is_prohibited(prepared) or _mixes_directions(prepared):
        return password.encode("utf-8", "surrogatepass")
    return prepared.encode("utf-8", "surrogatepass")


def _mapped(character: str) -> str:
    if tables.in_table_b1(character):
        return ""
    return " " if tables.in_table_c12(character) else character


def _is_prohibited(text: str) -> bool:
    return any(check(character) for character in text for check in _PROHIBITED)


def _mixes_directions(text: str) -> bool:
    if not any(map(tables.in_table_d1, text)):
        return False
    ends_right_to_left = tables.in_table_d1(text[0]) and tables.in_table_d1(text[-1])
    return any(map(tables.in_table_d2, text)) or not ends_right_to_left
