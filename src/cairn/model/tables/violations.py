"""What is said of rows that a rule of their table refuses: in words, and by names for drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.model.errors import (
    About,
    CheckViolation,
    ForeignKeyViolation,
    NotNullViolation,
    UniqueViolation,
)
from cairn.model.tables.schema import Check, ForeignKey, Table
from cairn.model.types.shown import shown_text


class ParentNotSeen(ForeignKeyViolation):
    """It is not in this instance's copy of a global table; a newer one may have it."""


def null_value(table: Table, column: str) -> NotNullViolation:
    return NotNullViolation(
        f'null value in column "{column}" of relation "{table.name}" violates not-null constraint',
        about=About(table.name, column),
    )


def not_unique(table: Table, index: str, detail: str | None) -> UniqueViolation:
    return UniqueViolation(
        f'Duplicate key exists in unique index "{index}" in space "{table.name}"',
        detail=detail,
        about=About(table.name, constraint=index),
    )


def check_failed(table: Table, check: Check) -> CheckViolation:
    return CheckViolation(
        f'new row for relation "{table.name}" violates check constraint "{check.name}"',
        detail=f"CHECK ({check.text})",
        about=About(table.name, constraint=check.name),
    )


def not_there(
    key: ForeignKey, child: Table, parent: str, values: Sequence[Any], *, in_copy: bool = False
) -> ForeignKeyViolation:
    """`in_copy`: of a global table, as this instance has it."""
    kind = ParentNotSeen if in_copy else ForeignKeyViolation
    return kind(
        f'insert or update on table "{child.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key {_shown(child, key.columns, values)} is not present in table "{parent}".',
        about=About(child.name, constraint=key.name),
    )


def still_named(
    key: ForeignKey, child: Table, parent: Table, values: Sequence[Any]
) -> ForeignKeyViolation:
    return ForeignKeyViolation(
        f'update or delete on table "{parent.name}" violates foreign key constraint '
        f'"{key.name}" on table "{child.name}"',
        detail=f"Key {_shown(parent, key.parent_columns, values)} is still referenced from "
        f'table "{child.name}".',
        about=About(child.name, constraint=key.name),
    )


def _shown(table: Table, columns: Sequence[int], values: Sequence[Any]) -> str:
    names = ", ".join(table.columns[at].name for at in columns)
    pairs = zip(columns, values, strict=True)
    shown = ", ".join(shown_text(table.columns[at].type, value) for at, value in pairs)
    return f"({names})=({shown})"
