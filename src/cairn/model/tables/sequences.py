"""Numbers that a table gives out: those of an identity column, or of a sequence.

A sequence is a global table without rows, whose one column is an identity: so it has an owner and
rights, is in backups, and its name is one of a table. Numbers are kept in steps of one; a sequence
that counts in larger steps spreads them out.
"""

from __future__ import annotations

import msgspec

from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Identity, Table
from cairn.model.types.values import ColumnType

COLUMN = "last_value"  # as PostgreSQL calls it
_HIDDEN = 1 << 40  # more than any table's id


def numbers_of(table_id: int, column: Column) -> int:
    """What a column's numbers are kept by. Those of a hidden key are apart: `setval`, `lastval` and
    RESTART IDENTITY are about the others."""
    return table_id + _HIDDEN if column.is_hidden else table_id


def all_numbers_of(table_id: int) -> tuple[int, int]:
    return table_id, table_id + _HIDDEN


def table_of(numbers: int) -> int:
    return numbers % _HIDDEN


def are_hidden(numbers: int) -> bool:
    return numbers >= _HIDDEN


class Numbering(msgspec.Struct, frozen=True):
    table: Table
    start: int
    step: int

    def kept(self, number: int, *, is_used: bool) -> int:
        """What is kept as the next one, after `setval`: the first behind it that is one of ours."""
        steps, rest = divmod(number - self.start, self.step)
        return self.start + steps + (1 if is_used or rest else 0)


def sequence_table(name: str, start: int, step: int, owner: int) -> Table:
    column = Column(COLUMN, ColumnType.INTEGER, False, identity=Identity(True, start))
    return Table(0, name, (column,), (COLUMN,), owner=owner, step=step)


def numbering_of(table: Table) -> Numbering | None:
    for column in table.shown_columns:
        if column.identity is not None:
            return Numbering(table, column.identity.start, table.step or 1)
    return None


def numbering(catalog: Catalog, name: str) -> Numbering | None:
    """By the name of a sequence, or by PostgreSQL's name for that of an identity column."""
    known = catalog.table(name)
    if known is not None:
        return numbering_of(known) if known.is_sequence else None
    for table in catalog.tables.values():
        for column in table.shown_columns:
            if column.identity is not None and f"{table.name}_{column.name}_seq" == name:
                return numbering_of(table)
    return None
