"""Local tables of rows: their shapes, and the hook that sees every change of a row.

A table looks as the last shape says; whoever applies one makes the difference itself (ADR 5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from cairn.model.log.records import RowChange, RowOp, Shape
from cairn.model.tables.schema import (
    Index,
    Table,
    create_index_sql,
    create_table_sql,
    physical_column,
)
from cairn.storage.raft_db.ddl import add_columns_sql

_OPS = {"INSERT": RowOp.INSERT, "UPDATE": RowOp.UPDATE, "DELETE": RowOp.DELETE}
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode


class RowTables:
    """What `data.db` has of rows, and what the statement that is running did to them."""

    connection: apsw.Connection

    def __init__(self) -> None:
        self._changes: list[RowChange] = []
        self.versions: dict[int, int] = {}  # replaced, never changed: readers keep what they saw

    def reload_tables(self) -> None:
        """As the open transaction sees them: after a schema change that was taken back."""
        self.tables: dict[int, Table] = {}
        self.indexes: dict[int, tuple[Index, ...]] = {}
        found: list[Any] = self.connection.execute("SELECT id, body FROM local_table").fetchall()
        for table_id, body in found:
            self.tables[table_id], self.indexes[table_id] = _decode_shape(body)
        self.versions = {table_id: table.schema_version for table_id, table in self.tables.items()}

    # --- the hook -----------------------------------------------------------------------------

    def _on_change(self, update: Any) -> None:
        name = update.table_name
        if name[0] != "t" or not name[1:].isdigit():
            return
        table = int(name[1:])
        self._changes.append(
            RowChange(
                table,
                self.versions.get(table, 0),
                _OPS[update.op],
                None if update.op == "INSERT" else tuple(update.old),
                None if update.op == "DELETE" else tuple(update.new),
            )
        )

    @contextlib.contextmanager
    def unobserved(self) -> Iterator[None]:
        """For changes that somebody has told already: the hook need not tell them again."""
        self.connection.preupdate_hook(None)
        try:
            yield
        finally:
            self.connection.preupdate_hook(self._on_change)

    def take_changes(self) -> tuple[RowChange, ...]:
        found = tuple(self._changes)
        self._changes.clear()
        return found

    def pending_changes(self) -> int:
        """Rows changed so far by the statement that is running."""
        return len(self._changes)

    def count_rows(self, since: int = 0) -> int:
        """Rows a client is told of, after the first `since` changes. REPLACE counts once, delete
        plus insert of one row too."""
        if len(self._changes) == 1:
            return 1 - since
        changes = self._changes[since:] if since else self._changes
        inserts = sum(change.op == RowOp.INSERT for change in changes)
        deletes = sum(change.op == RowOp.DELETE for change in changes)
        updates = len(changes) - inserts - deletes
        return updates + max(inserts, deletes)

    # --- shapes ---------------------------------------------------------------------------------

    def differs(self, shape: Shape) -> bool:
        have = self.tables.get(shape.table_id)
        if shape.table is None or have is None:
            return have is not shape.table
        return have.schema_version != shape.table.schema_version

    def apply_shape(self, shape: Shape) -> None:
        execute = self.connection.execute
        have, want = self.tables.get(shape.table_id), shape.table
        if want is None:
            if have is not None:
                execute(f"DROP TABLE {have.physical_name}")
                execute("DELETE FROM local_table WHERE id = ?", (have.id,))
                del self.tables[have.id]
                self.versions = {key: v for key, v in self.versions.items() if key != have.id}
                self.indexes.pop(have.id, None)
            return
        if have is None:
            execute(create_table_sql(want))
        else:
            self._match_columns(have, want)
            if shape.truncate:
                with self.unobserved():  # page by page, not row by row
                    execute(f"DELETE FROM {want.physical_name}")
        self._match_indexes(want, shape.indexes)
        body = msgspec.msgpack.encode((want, shape.indexes))
        execute("INSERT OR REPLACE INTO local_table VALUES (?, ?)", (want.id, body))
        self.tables[want.id] = want
        self.versions = {**self.versions, want.id: want.schema_version}
        self.indexes[want.id] = shape.indexes

    def _match_columns(self, have: Table, want: Table) -> None:
        """Columns are added at the end; taking one away only undoes an aborted change."""
        for text in add_columns_sql(have, want.columns[len(have.columns) :]):
            self.connection.execute(text)
        for at in range(len(want.columns), len(have.columns)):
            name = physical_column(at)
            self.connection.execute(f"ALTER TABLE {want.physical_name} DROP COLUMN {name}")

    def _match_indexes(self, table: Table, wanted: tuple[Index, ...]) -> None:
        have = {index.id: index for index in self.indexes.get(table.id, ())}
        keep = {index.id for index in wanted}
        for index in have.values():
            if index.id not in keep:
                self.connection.execute(f"DROP INDEX IF EXISTS {index.physical_name}")
        for index in wanted:
            if index.id not in have:
                self.connection.execute(create_index_sql(table, index))

    def build_indexes(self, shape: Shape) -> None:
        """After a full copy: indexes are made once, over all rows."""
        assert shape.table is not None
        for index in shape.indexes:
            self.connection.execute(create_index_sql(shape.table, index))
        body = msgspec.msgpack.encode((shape.table, shape.indexes))
        self.connection.execute(
            "INSERT OR REPLACE INTO local_table VALUES (?, ?)", (shape.table_id, body)
        )
        self.indexes[shape.table_id] = shape.indexes
