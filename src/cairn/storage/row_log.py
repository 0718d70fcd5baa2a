"""The row log and full copies: reading them for others, applying them here.

Reading uses connections of its own; applying runs on the writer's thread, through `DataStore`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.records import (
    Kind,
    Record,
    RowChange,
    RowOp,
    Shape,
    Vclock,
    record_of,
)
from cairn.model.schema import BUCKET_COLUMN, Index, Table, physical_column
from cairn.replication.applier import Damaged, History, Verdict, diverged, judge
from cairn.storage.data_store import DataStore

_READ = (
    "SELECT epoch, lsn, body FROM row_log WHERE origin = (SELECT id FROM origin WHERE uuid = ?) "
    "AND lsn > ? ORDER BY lsn LIMIT ?"
)
_OLDEST = "SELECT min(lsn) FROM row_log WHERE origin = (SELECT id FROM origin WHERE uuid = ?)"
_ALL = "SELECT o.uuid, l.epoch, l.lsn, l.body FROM row_log l JOIN origin o ON l.origin = o.id"


class LogReader:
    """Reads records for relays and streams. Belongs to one thread."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self.connection.set_busy_timeout(10_000)

    def read(self, origin: str, after: int, limit: int) -> list[Record]:
        rows: list[Any] = self.connection.execute(_READ, (origin, after, limit)).fetchall()
        return [record_of(origin, *row) for row in rows]

    def oldest(self, origin: str) -> int:
        found: Any = self.connection.execute(_OLDEST, (origin,)).fetchone()
        return found[0] or 0

    def close(self) -> None:
        self.connection.close()


# --- applying -------------------------------------------------------------------------------------


class _Writes:
    """Prepared texts for one table: each must change exactly one row."""

    def __init__(self, table: Table) -> None:
        names = table.physical_columns
        key = [BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)]
        where = " AND ".join(f"{name} = ?" for name in key)
        self.key_at = [0, *(at + 1 for at in table.key_positions)]
        self.width = len(names)
        self.insert = f"INSERT INTO {table.physical_name} VALUES ({', '.join('?' * len(names))})"
        assignments = ", ".join(f"{name} = ?" for name in names)
        self.update = f"UPDATE {table.physical_name} SET {assignments} WHERE {where}"
        self.delete = f"DELETE FROM {table.physical_name} WHERE {where}"


class Applier:
    """Puts records of other origins into the tables, on the writer's thread."""

    def __init__(self, store: DataStore) -> None:
        self._store = store
        self._writes: dict[tuple[int, int], _Writes] = {}
        self.history = History()  # the epoch that was entered, in the writer's own order

    def apply(self, records: list[Record], history: History) -> int:
        """How many were applied; stops quietly at the first that has to wait."""
        store = self._store
        history = msgspec.structs.replace(history, promised=store.promised)
        done = 0
        for record in records:
            verdict = judge(record, store.vclock, history)
            if verdict is Verdict.WAIT:
                break
            if verdict is Verdict.SKIP:
                continue
            before = store.vclock.get(record.origin, 0)
            store.connection.execute("SAVEPOINT record")
            try:
                self._apply(record)
            except BaseException:
                store.connection.execute("ROLLBACK TO record")
                store.connection.execute("RELEASE record")
                store.vclock[record.origin] = before
                raise
            finally:
                store.take_changes()
            store.connection.execute("RELEASE record")
            done += 1
        return done

    def _apply(self, record: Record) -> None:
        store = self._store
        if record.kind == Kind.DDL:
            if record.shape is None:
                raise Damaged(f"record {record.origin}:{record.lsn} has no shape")
            store.apply_shape(record.shape)
        for change in record.changes:
            self._change(record, change)
        store.keep_record(record)

    def _change(self, record: Record, change: RowChange) -> None:
        store = self._store
        table = store.tables.get(change.table)
        if table is None or table.schema_version != change.version:
            have = None if table is None else table.schema_version
            raise Damaged(
                f"record {record.origin}:{record.lsn} is for schema {change.version} of table "
                f"{change.table}, this instance has {have}"
            )
        key = (table.id, table.schema_version)
        writes = self._writes.get(key)
        if writes is None:
            writes = self._writes[key] = _Writes(table)
        execute = store.connection.execute
        if change.op == RowOp.INSERT:
            execute(writes.insert, change.new)
        elif change.op == RowOp.UPDATE:
            assert change.old is not None and change.new is not None
            old_key = [change.old[at] for at in writes.key_at]
            execute(writes.update, (*change.new, *old_key))
        else:
            assert change.old is not None
            execute(writes.delete, [change.old[at] for at in writes.key_at])
        if store.connection.changes() != 1:
            raise Damaged(
                f"record {record.origin}:{record.lsn} changed {store.connection.changes()} rows "
                f"of table {table.name} instead of one"
            )

    # --- a tail that belongs to no history ------------------------------------------------------

    def enter_epoch(self, history: History) -> list[Record] | None:
        """Put aside what goes past the cut. The records moved, or None: only a copy can help."""
        store = self._store
        self.history = history
        epochs = dict(
            store.connection.execute(
                "SELECT o.uuid, max(l.epoch) FROM row_log l JOIN origin o ON l.origin = o.id "
                "GROUP BY o.uuid"
            )
        )
        limits = diverged(store.vclock, history, epochs)
        if not limits:
            return []
        tail: list[Record] = []
        query = f"{_ALL} ORDER BY l.epoch DESC, o.uuid, l.lsn DESC"
        rows: list[Any] = store.connection.execute(query).fetchall()
        for row in rows:
            record = record_of(*row)
            if record.origin in limits and record.lsn > limits[record.origin]:
                tail.append(record)
        wanted = sum(store.vclock[origin] - limit for origin, limit in limits.items())
        if len(tail) != wanted or any(record.kind == Kind.DDL for record in tail):
            return None  # a schema change cannot be undone from its record, nor a lost one
        for record in tail:
            for change in reversed(record.changes):
                self._undo(change)
            store.set_aside(record)
        store.take_changes()
        for origin, limit in limits.items():
            store.cut_vclock(origin, limit)
        return tail

    def _undo(self, change: RowChange) -> None:
        inverse = {RowOp.INSERT: RowOp.DELETE, RowOp.DELETE: RowOp.INSERT}
        op = inverse.get(RowOp(change.op), RowOp.UPDATE)
        undone = RowChange(change.table, change.version, op, change.new, change.old)
        self._change(Record("undo", 0, 0, Kind.ROWS, 0), undone)


# --- full copies ----------------------------------------------------------------------------------


class CopyHead(msgspec.Struct, frozen=True):
    """A consistent cut: where the copy stands, and the tables it holds."""

    epoch: int
    vclock: Vclock
    shapes: list[Shape]


class CopySource:
    """One full copy being read, in one read transaction. Belongs to one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(10_000)
        self._connection.execute("BEGIN")
        execute = self._connection.execute
        facts: dict[str, Any] = dict(execute("SELECT key, value FROM local_state"))
        shapes: list[Shape] = []
        known: list[Any] = execute("SELECT id, body FROM local_table").fetchall()
        for table_id, body in known:
            table, indexes = _decode(body)
            shapes.append(Shape(table_id, table, indexes))
        self.head = CopyHead(
            int(facts.get("last_epoch", 0)),
            dict(execute("SELECT origin, lsn FROM vclock")),
            shapes,
        )
        self._left = [shape.table for shape in shapes if shape.table is not None]
        self._cursor: Any = None
        self._table: Table | None = None

    def chunk(self, limit: int) -> tuple[int, list[tuple[Any, ...]]] | None:
        """The next rows of one table; None when all have been read."""
        while True:
            if self._cursor is None:
                if not self._left:
                    self.close()
                    return None
                self._table = self._left.pop(0)
                query = f"SELECT * FROM {self._table.physical_name}"
                self._cursor = self._connection.execute(query)
            rows = []
            for row in self._cursor:
                rows.append(row)
                if len(rows) >= limit:
                    break
            if rows:
                assert self._table is not None
                return self._table.id, rows
            self._cursor = None

    def close(self) -> None:
        self._connection.close()


_decode = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode


class CopyTarget:
    """A full copy being written. Until `finish`, the instance has no rows and says so."""

    def __init__(self, store: DataStore) -> None:
        self._store = store

    def begin(self, head: CopyHead) -> None:
        store = self._store
        store.put("copying", 1)
        for table_id in list(store.tables):
            store.apply_shape(Shape(table_id, None))
        store.connection.execute("DELETE FROM row_log")
        store.connection.execute("DELETE FROM vclock")
        for shape in head.shapes:
            store.apply_shape(Shape(shape.table_id, shape.table))
        store.take_changes()
        store.reload()

    def rows(self, table_id: int, rows: list[tuple[Any, ...]]) -> None:
        table = self._store.tables[table_id]
        marks = ", ".join("?" * len(table.physical_columns))
        text = f"INSERT INTO {table.physical_name} VALUES ({marks})"
        self._store.connection.executemany(text, rows)
        self._store.take_changes()

    def finish(self, head: CopyHead) -> None:
        store = self._store
        for shape in head.shapes:
            if shape.table is not None:
                store.build_indexes(shape)
        store.connection.executemany("INSERT INTO vclock VALUES (?, ?)", list(head.vclock.items()))
        store.put("last_epoch", head.epoch)
        store.connection.execute("DELETE FROM local_state WHERE key = 'copying'")
        store.take_changes()
        store.reload()
