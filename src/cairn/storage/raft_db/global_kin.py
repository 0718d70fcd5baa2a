"""Foreign keys towards global tables, where their rows change: when an entry is applied.

Every instance judges an entry alike, at its end. A row that is named goes only with its mark in
`_cairn_closing`, which the same entry takes back: whoever set it has asked all masters, and nobody
can begin to name a closed row. While a foreign key is being made, nothing of its parent goes.
Between global tables the rows of both are here, and are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from cairn.model.errors import ForeignKeyViolation, TableUnderDdl
from cairn.model.log.applied import Change
from cairn.model.tables.closing import closing_key
from cairn.model.tables.schema import ForeignKey, Table, physical_column
from cairn.model.tables.system_tables import CAIRN_CLOSING
from cairn.model.tables.violations import not_there, still_named

Values = tuple[Any, ...]


class GlobalKin:
    """`pending` is a table as the schema change that is under way makes it."""

    def __init__(self, tables: Mapping[int, Table], pending: Table | None) -> None:
        self._tables = tables
        self._children: dict[int, list[tuple[ForeignKey, Table]]] = {}  # by parent
        for child in self._tables.values():
            for key in child.foreign_keys:
                if key.is_global:
                    self._children.setdefault(key.parent, []).append((key, child))
        known = set() if pending is None else self._keys_of(pending.id)
        keys = () if pending is None else pending.foreign_keys
        self._coming = {key.parent for key in keys if key.is_global and key not in known}

    def _keys_of(self, table: int) -> set[ForeignKey]:
        found = self._tables.get(table)
        return set() if found is None else set(found.foreign_keys)

    def check(self, connection: apsw.Connection, changes: Sequence[Change]) -> None:
        """Raises if an entry that did this leaves rows that name nothing."""
        if not (self._children or self._coming):
            return
        opened = {
            (change.old[0], change.old[1])
            for change in changes
            if change.table == CAIRN_CLOSING.id and change.old is not None and change.new is None
        }
        for change in changes:
            table = self._tables.get(change.table)
            if table is None:
                continue
            if change.table in self._coming and change.old is not None:
                raise TableUnderDdl(f"a foreign key towards table {table.name} is being made")
            for key, child, old in self._lost(change):
                if _finds(connection, table, key.parent_columns, old):
                    continue
                self._check_free(connection, key, child, old, opened)
            self._check_named(connection, table, change)

    def _lost(self, change: Change) -> Iterator[tuple[ForeignKey, Table, Values]]:
        for key, child in self._children.get(change.table, ()):
            if change.old is None:
                continue
            old = tuple(change.old[at] for at in key.parent_columns)
            if None not in old:
                yield key, child, old

    def _check_free(
        self,
        connection: apsw.Connection,
        key: ForeignKey,
        child: Table,
        old: Values,
        opened: set[tuple[int, str]],
    ) -> None:
        if child.is_global:
            if _finds(connection, child, key.columns, old):
                raise still_named(key, child, self._tables[key.parent], old)
        elif (key.parent, closing_key(key.parent_columns, old)) not in opened:
            raise TableUnderDdl(
                f"rows of table {child.name} may name this one of {self._tables[key.parent].name}"
            )

    def _check_named(self, connection: apsw.Connection, table: Table, change: Change) -> None:
        for key in table.foreign_keys:
            parent = self._tables.get(key.parent)
            if change.new is None or parent is None or not table.is_global:
                continue
            new = tuple(change.new[at] for at in key.columns)
            if None in new or _finds(connection, parent, key.parent_columns, new):
                continue
            own = tuple(change.new[at] for at in table.key_positions)
            if _finds(connection, table, (*table.key_positions, *key.columns), (*own, *new)):
                raise not_there(key, table, parent.name, new)

    def check_rows(self, connection: apsw.Connection, table: Table) -> None:
        """Of a global table that gets foreign keys: whether its rows keep them."""
        known = self._keys_of(table.id)
        for key in table.foreign_keys:
            parent = table if key.parent == table.id else self._tables.get(key.parent)
            if parent is None or key in known:
                continue
            own = [f"c.{physical_column(at)}" for at in key.columns]
            theirs = [f"p.{physical_column(at)}" for at in key.parent_columns]
            same = " AND ".join(f"{a} = {b}" for a, b in zip(theirs, own, strict=True))
            given = " AND ".join(f"{name} IS NOT NULL" for name in own)
            found: Any = connection.execute(
                f"SELECT {', '.join(own)} FROM {table.physical_name} AS c WHERE {given} AND NOT "
                f"EXISTS (SELECT 1 FROM {parent.physical_name} AS p WHERE {same}) LIMIT 1"
            ).fetchone()
            if found is not None:
                raise not_there(key, table, parent.name, found)

    def check_gone(self, table: Table) -> None:
        """A TRUNCATE or DROP of a table: nobody looks who names its rows."""
        children = [child for _, child in self._children.get(table.id, ()) if child.id != table.id]
        if children:
            name = children[0].name
            raise ForeignKeyViolation(
                f'rows of table "{name}" may name those of table "{table.name}"',
                hint=f'drop the foreign key of "{name}" first',
            )


def _finds(
    connection: apsw.Connection, table: Table, columns: Sequence[int], values: Values
) -> bool:
    where = " AND ".join(f"{physical_column(at)} = ?" for at in columns)
    text = f"SELECT 1 FROM {table.physical_name} WHERE {where} LIMIT 1"
    return connection.execute(text, values).fetchone() is not None
