"""Checks what an operation would write to a system table, before it is proposed.

An accepted entry can never be refused again, so every way to a proposal goes through `check_ops`
(in `node/consensus/proposals.py`). Rules that need a picture of the cluster are in
`topology/guard.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cairn.model.errors import CheckViolation, NotNullViolation
from cairn.model.log import ops
from cairn.model.tables.column_checks import BY_TYPE
from cairn.model.tables.schema import Table
from cairn.model.tables.system_tables import BY_ID, CHECKS, PICO_PROPERTY

#: Facts that are read as whole numbers wherever they are used.
_NUMBERS = (
    "last_raft_id",
    "last_table_id",
    "last_user_id",
    "next_schema_version",
    "global_schema_version",
    "pending_schema_version",
)


def check_ops(changes: Iterable[ops.Dml]) -> None:
    """Refuse a change of a system table that nobody could understand later."""
    for change in changes:
        table = BY_ID.get(change.table)
        if table is None:
            continue
        match change:
            case ops.Insert(row=row) | ops.Replace(row=row):
                _check_row(table, row)
            case ops.Update(key=key, changes=assigned):
                _check_key(table, key)
                for at, value in assigned:
                    _check_value(table, at, value)
            case ops.Delete(key=key):
                _check_key(table, key)


def problem_of(table: Table, at: int, value: Any) -> str | None:
    """What is wrong with the value of column number `at`; None when it may stand there."""
    if at >= len(table.columns):
        return None  # a column of a later version: its own checks are there
    column = table.columns[at]
    if value is None:
        is_key = column.name in table.primary_key
        return "null value" if is_key or not column.nullable else None
    types, general = BY_TYPE[column.type]
    if not isinstance(value, types) or isinstance(value, bool):
        return f"{_shown(value)} is no {column.type.value}"
    if not general.holds(value) or not CHECKS[table.id][at].holds(value):
        return f"{_shown(value)} is not allowed"
    return None


def mended(table: Table, row: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """A row that can be read, and what is wrong with the one that cannot.

    For rows that are there already: the instance goes on with a harmless value and says so.
    """
    found: list[Any] = []
    problems: list[str] = []
    name = "/".join(str(row[at]) for at in table.key_positions if at < len(row))
    for at, column in enumerate(table.columns):
        value = row[at] if at < len(row) else None
        problem = problem_of(table, at, value)
        if problem is not None:
            problems.append(
                f"{table.name} {name}: {column.name}: {problem}, "
                f"allowed: {CHECKS[table.id][at].words}"
            )
            value = None if column.nullable else CHECKS[table.id][at].instead
        found.append(value)
    return tuple(found), tuple(problems)


def _check_row(table: Table, row: Sequence[Any]) -> None:
    for at, value in enumerate(row):
        _check_value(table, at, value)
    if table is PICO_PROPERTY and row[0] in _NUMBERS and not str(row[1]).isdecimal():
        raise CheckViolation(f"{row[0]} of {table.name} must be a whole number")


def _check_key(table: Table, key: Sequence[Any]) -> None:
    if len(key) != len(table.primary_key):
        raise CheckViolation(f"the key of {table.name} has {len(table.primary_key)} columns")
    for at, value in zip(table.key_positions, key, strict=True):
        if not isinstance(value, BY_TYPE[table.columns[at].type][0]):
            raise CheckViolation(f"{_shown(value)} is no key of {table.name}")


def _check_value(table: Table, at: int, value: Any) -> None:
    problem = problem_of(table, at, value)
    if problem is None:
        return
    column = table.columns[at]
    kind = NotNullViolation if value is None else CheckViolation
    raise kind(
        f"{column.name} of {table.name}: {problem}", hint=f"allowed: {CHECKS[table.id][at].words}"
    )


def _shown(value: Any) -> str:
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
