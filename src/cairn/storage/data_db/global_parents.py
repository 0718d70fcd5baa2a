"""Global tables beside `data.db`, as rows here name their rows: this instance's copy of them.

A transaction sees the copy as of one entry of Raft. What it finds there is there to stay until the
row is closed (`model/tables/closing.py`); and a master that has said that it sees the mark never
again looks at an older copy: its later transactions begin later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from cairn.model.errors import TableUnderDdl
from cairn.model.tables.closing import closing_key
from cairn.model.tables.schema import ForeignKey, physical_column
from cairn.model.tables.system_tables import CAIRN_CLOSING, PICO_TABLE

_MARKS = f"raft.{CAIRN_CLOSING.physical_name}"
_APPLIED = "(SELECT value FROM raft.raft_state WHERE key = 'applied')"


def has_parent(
    connection: apsw.Connection, key: ForeignKey, values: Sequence[Any], fenced_at: int
) -> bool:
    """Raises while the row is about to go, or where the copy is older than what made us master."""
    same = " AND ".join(f"{physical_column(at)} = ?" for at in key.parent_columns)
    mark = closing_key(key.parent_columns, values)
    text = (
        f"SELECT {_APPLIED}, EXISTS (SELECT 1 FROM {_MARKS} WHERE c0 = ? AND c1 = ?), "
        f"EXISTS (SELECT 1 FROM {_copy(key)} WHERE {same})"
    )
    found: Any = connection.execute(text, (key.parent, mark, *values)).fetchone()
    applied, is_closing, is_there = found
    _check_new(applied, fenced_at)
    if is_closing:
        raise _closing(key)
    return bool(is_there)


def check_open(connection: apsw.Connection, key: ForeignKey, fenced_at: int) -> None:
    """The same for many rows at once: while any row of the parent is about to go they wait."""
    text = f"SELECT {_APPLIED}, EXISTS (SELECT 1 FROM {_MARKS} WHERE c0 = ?)"
    found: Any = connection.execute(text, (key.parent,)).fetchone()
    _check_new(found[0], fenced_at)
    if found[1]:
        raise _closing(key)


def sees_marks(connection: apsw.Connection, keys: Sequence[tuple[int, str]]) -> bool:
    text = f"SELECT 1 FROM {_MARKS} WHERE c0 = ? AND c1 = ?"
    return all(connection.execute(text, key).fetchone() is not None for key in keys)


def lacking(key: ForeignKey, own: Sequence[str]) -> str:
    """A condition: the row that these columns name is not there."""
    same = " AND ".join(
        f"there.{physical_column(at)} = {name}"
        for at, name in zip(key.parent_columns, own, strict=True)
    )
    return f"NOT EXISTS (SELECT 1 FROM {_copy(key)} AS there WHERE {same})"


def parent_name(connection: apsw.Connection, key: ForeignKey) -> str:
    at = physical_column(PICO_TABLE.position("name"))
    text = f"SELECT {at} FROM raft.{PICO_TABLE.physical_name} WHERE c0 = ?"
    found: Any = connection.execute(text, (key.parent,)).fetchone()
    return str(key.parent) if found is None else str(found[0])


def _copy(key: ForeignKey) -> str:
    return f"raft.t{key.parent}"


def _check_new(applied: int | None, fenced_at: int) -> None:
    if (applied or 0) < fenced_at:
        raise TableUnderDdl("this instance became master a moment ago", hint="try again")


def _closing(key: ForeignKey) -> TableUnderDdl:
    return TableUnderDdl(
        f'a row that the foreign key "{key.name}" names is being deleted or changed',
        hint="try again when that has ended",
    )
