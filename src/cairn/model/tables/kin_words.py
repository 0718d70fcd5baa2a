"""What is said of rows that name one which is not there, in PostgreSQL's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.model.errors import ForeignKeyViolation
from cairn.model.tables.schema import ForeignKey, Table
from cairn.model.types.shown import shown_text


class ParentNotSeen(ForeignKeyViolation):
    """It is not in this instance's copy of a global table; a newer one may have it."""


def not_there(
    key: ForeignKey, child: Table, parent: str, values: Sequence[Any], *, in_copy: bool = False
) -> ForeignKeyViolation:
    """`in_copy`: of a global table, as this instance has it."""
    kind = ParentNotSeen if in_copy else ForeignKeyViolation
    return kind(
        f'insert or update on table "{child.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key {_shown(child, key.columns, values)} is not present in table "{parent}".',
    )


def still_named(
    key: ForeignKey, child: Table, parent: Table, values: Sequence[Any]
) -> ForeignKeyViolation:
    return ForeignKeyViolation(
        f'update or delete on table "{parent.name}" violates foreign key constraint '
        f'"{key.name}" on table "{child.name}"',
        detail=f"Key {_shown(parent, key.parent_columns, values)} is still referenced from "
        f'table "{child.name}".',
    )


def _shown(table: Table, columns: Sequence[int], values: Sequence[Any]) -> str:
    names = ", ".join(table.columns[at].name for at in columns)
    pairs = zip(columns, values, strict=True)
    shown = ", ".join(shown_text(table.columns[at].type, value) for at, value in pairs)
    return f"({names})=({shown})"
