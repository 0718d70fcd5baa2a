"""Changes of rows that must find exactly what they are about: SQLite is content with less."""

from __future__ import annotations

import msgspec

from cairn.model.log.records import RowChange, RowOp
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.replication.applier import Damaged
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.packed_insert import insert_text

Place = tuple[str, int]  # origin and lsn of the record that says so


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

    def change(self, place: Place, change: RowChange) -> None:
        writes = self._writes_for(place, change.table, change.version)
        old, new, execute = change.old, change.new, self._store.connection.execute
        if change.op == RowOp.INSERT and new is not None:
            execute(writes.insert, new)
        elif change.op == RowOp.UPDATE and old is not None and new is not None:
            execute(writes.update, (*new, *(old[at] for at in writes.key_at)))
        elif change.op == RowOp.DELETE and old is not None:
            execute(writes.delete, [old[at] for at in writes.key_at])
        else:
            raise Damaged(*place, f"has a change of kind {change.op} half told")
        self._check_count(place, self._store.connection.changes(), 1, change.table)

    def _check_count(self, place: Place, found: int, wanted: int, table: int) -> None:
        """SQLite is content with changing nothing; a replica is not."""
        if found != wanted:
            name = self._store.tables[table].name
            why = f"changed {found} rows of table {name} instead of {wanted}"
            raise Damaged(*place, why)
