"""Whole numbers that are declared with two or four bytes: what fits, and what clients are told.

Inside expressions a whole number has 64 bits, whatever its column says: the width is a rule about
storing, and a promise to clients about columns that are told as they are.
"""

from __future__ import annotations

import enum

from cairn.model.errors import OutOfRange
from cairn.model.types.values import ColumnType

WHOLES = (ColumnType.INTEGER, ColumnType.INTEGERS)


class Width(enum.Enum):
    """In bytes. Those of eight are no rule at all."""

    TWO = 2
    FOUR = 4

    @property
    def shown(self) -> str:
        return "smallint" if self is Width.TWO else "integer"

    def takes(self, value: int) -> bool:
        return -self._end <= value < self._end

    def check(self, value: int | None) -> int | None:
        if value is not None and not self.takes(value):
            raise OutOfRange(f"{self.shown} out of range")
        return value

    @property
    def _end(self) -> int:
        return 1 << 15 if self is Width.TWO else 1 << 31

    def oid(self, type_: ColumnType) -> int:
        """PostgreSQL's number of the type, or of a list of it."""
        if type_ is ColumnType.INTEGERS:
            return 1005 if self is Width.TWO else 1007
        return 21 if self is Width.TWO else 23


#: What the names of PostgreSQL mean; INT and INTEGER are as wide as `default_int_size` says.
WORDS = {
    **dict.fromkeys(("int2", "smallint", "smallserial", "serial2"), Width.TWO),
    **dict.fromkeys(("int4", "serial4"), Width.FOUR),
}
USUAL_WORDS = ("int", "integer", "serial")


def width_of_word(word: str, usual: int) -> Width | None:
    """Of a type's name; `usual`: bytes of one that says nothing about them."""
    if word in USUAL_WORDS and usual == Width.FOUR.value:
        return Width.FOUR
    return WORDS.get(word)


def width_of(type_: ColumnType, sizes: tuple[int, ...]) -> Width | None:
    """Of a column's type with its sizes."""
    return Width(sizes[0]) if sizes and type_ in WHOLES else None


def shown_whole(type_: ColumnType, width: Width | None) -> str:
    """As clients are told the type of whole numbers, or of a list of them."""
    name = "bigint" if width is None else width.shown
    return name if type_ is ColumnType.INTEGER else f"{name}[]"


def wider(widths: list[Width | None]) -> Width | None:
    """The one that takes the values of all; None: only 64 bits do."""
    found = [each for each in widths if each is not None]
    if not found or len(found) < len(widths):
        return None
    return max(found, key=lambda each: each.value)
