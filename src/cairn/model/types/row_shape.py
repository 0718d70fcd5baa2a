"""How the rows of an answer are told, for who writes a client's messages where they are read."""

from __future__ import annotations

import msgspec

from cairn.model.types.values import OIDS, ColumnType
from cairn.model.types.widths import Width


class RowShape(msgspec.Struct, frozen=True):
    """Columns of an answer as its client wants them: types, digits of decimals, format codes.

    Besides PostgreSQL's codes 0 and 1 there are 2 and 4: binary, whole numbers of so many bytes.
    """

    types: tuple[ColumnType, ...]
    scales: tuple[int | None, ...]
    formats: tuple[int, ...]
    is_copy: bool = False  # CopyData instead of DataRow: what is inside is the same

    def __post_init__(self) -> None:
        are_known = {*self.formats} <= {0, 1, 2, 4}
        if not are_known or {len(self.scales), len(self.formats)} != {len(self.types)}:
            raise ValueError("a type, a scale and a format code for each column")

    @property
    def label(self) -> int:
        """The letter of the messages."""
        return ord("d" if self.is_copy else "D")


def oid_as(type_: ColumnType, code: int) -> int:
    """PostgreSQL's number of the type that a column with this format code is told as."""
    return OIDS[type_] if code <= 1 else Width(code).oid(type_)
