"""Changes of rows that must find exactly what they are about: SQLite is content with less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from cairn.model.log.records import RowChange, RowOp
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.replication.applier import Damaged
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.packed_insert import insert_text

Place = tuple[str, int]  # origin and lsn of the record that says so
Said = tuple[str, tuple[Any, ...]]  # a change as SQLite is told of it
_MANY = 20
_NOWHERE = ("of a block", 0)  # it is in no record yet


class _Writes:
    """Prepared texts for one table: each must change exactly one row."""

    def __init__(self, table: Table) -> None:
        names = table.physical_columns
        key = [BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)]
        where = " AND ".join(f"{name} = ?" for name in key)
        self.key_at = [0, *(at + 1 for at in table.key_positions)]
        self.width = len(names)
        self.insert = insert_text(table)
        assignments = ", ".join(f"{name} = ?" for name in names)
        self.update = f"UPDATE {table.physical_name} SET {assignments} WHERE {where}"
        self.delete = f"DELETE FROM {table.physical_name} WHERE {where}"


class ExactChanges:
    """Puts what records say into the tables, on the writer's thread."""

    def __init__(self, store: DataStore) -> None:
        self._store = store
        self._writes: dict[tuple[int, int], _Writes] = {}

    def _writes_for(self, place: Place, table_id: int, version: int) -> _Writes:
        table = self._store.tables.get(table_id)
        if table is None or table.schema_version != version:
            have = "no such table" if table is None else f"schema {table.schema_version}"
            why = f"is for schema {version} of table {table_id}, this instance has {have}"
            raise Damaged(*place, why)
        key = (table_id, version)
        if key not in self._writes:
            self._writes[key] = _Writes(table)
        return self._writes[key]

    def insert_packed(self, place: Place, table_id: int, version: int, packed: msgspec.Raw) -> None:
        """Rows of a bulk or of a move: `DecodeError` when they are not what they should be."""
        self._writes_for(place, table_id, version)
        self._store.packed.insert(self._store.tables[table_id], packed)

    def changes(self, place: Place, changes: Sequence[RowChange]) -> None:
        if len(changes) < _MANY:
            for change in changes:
                self.change(place, change)
            return
        found = self._carry_out([self._said(place, change) for change in changes])
        self._check_count(place, found, len(changes), changes[0].table)

    def change(self, place: Place, change: RowChange) -> None:
        connection = self._store.connection
        connection.execute(*self._said(place, change))
        self._check_count(place, connection.changes(), 1, change.table)

    def _said(self, place: Place, change: RowChange) -> Said:
        writes = self._writes_for(place, change.table, change.version)
        old, new = change.old, change.new
        if change.op == RowOp.INSERT and new is not None:
            return writes.insert, new
        if change.op == RowOp.UPDATE and old is not None and new is not None:
            return writes.update, (*new, *(old[at] for at in writes.key_at))
        if change.op == RowOp.DELETE and old is not None:
            return writes.delete, tuple(old[at] for at in writes.key_at)
        raise Damaged(*place, f"has a change of kind {change.op} half told")

    def said(self, changes: Sequence[RowChange]) -> tuple[Said, ...]:
        """Of a statement that was taken back: for `again`."""
        return tuple(self._said(_NOWHERE, change) for change in changes)

    def again(self, said: Sequence[Said]) -> None:
        if self._carry_out(said) != len(said):
            raise Damaged(*_NOWHERE, "changes other rows than when it was tried")

    def _carry_out(self, said: Sequence[Said]) -> int:
        """In order; what is alike is one call, because there may be many. Rows changed: a key has
        one at most."""
        connection = self._store.connection
        before = connection.total_changes()
        for text, alike in groupby(said, itemgetter(0)):
            connection.executemany(text, map(itemgetter(1), alike))
        return connection.total_changes() - before

    def _check_count(self, place: Place, found: int, wanted: int, table: int) -> None:
        """SQLite is content with changing nothing; a replica is not."""
        if found != wanted:
            name = self._store.tables[table].name
            why = f"changed {found} rows of table {name} instead of {wanted}"
            raise Damaged(*place, why)
