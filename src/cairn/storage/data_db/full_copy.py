"""A full copy of a replicaset's rows: read in one transaction, written piece by piece.

Pieces are blocks of rows that were encoded where they were read: neither event loop touches a row.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.log.records import Shape, Vclock
from cairn.model.tables.schema import Index, Table
from cairn.replication.applier import LogRefused
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.log_tables import PUT_BASE
from cairn.storage.data_db.row_log import COPIED_EPOCHS, newest_epochs

BLOCK_ROWS = 64  # encoded together; the size of a piece is looked at after each
OPERATIONS = 0  # instead of a table id: ids of operations that were done, which are rows as well
PROGRESS = -1  # likewise: how far buckets on their way to this replicaset are copied
_NEEDED = frozenset(("sqlite_schema", "done_operation", "move_progress"))

_encode = msgspec.msgpack.Encoder().encode
#: The time is for receivers of former versions, which count by the clock on the wall.
_READ_OPERATIONS = (
    "SELECT id, rows, CAST(strftime('%s', 'now') AS INTEGER) * 1000000, buckets FROM done_operation"
)
_decode_block = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode


class CopyHead(msgspec.Struct, frozen=True):
    """A consistent cut: where the copy stands, and the tables it holds."""

    epoch: int
    vclock: Vclock
    shapes: list[Shape]
    epochs: Vclock = {}  # of the newest record of each origin


class CopySource:
    """One full copy being read, in one read transaction. Belongs to one thread at a time."""

    def __init__(self, path: Path, head: CopyHead | None = None) -> None:
        """`head`: what the writer knows, where pages that tell it are damaged."""
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(10_000)
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # from here on
        self.head = head or self._read_head()
        shapes = self.head.shapes
        self._left = [
            (OPERATIONS, _READ_OPERATIONS),
            (PROGRESS, "SELECT move, body FROM move_progress"),
        ]
        self._left += [
            (shape.table_id, f"SELECT * FROM {shape.table.physical_name}")
            for shape in shapes
            if shape.table is not None
        ]
        self._cursor: Any = None
        self._table_id = OPERATIONS

    def _read_head(self) -> CopyHead:
        execute = self._connection.execute
        facts: dict[str, Any] = dict(execute("SELECT key, value FROM local_state"))
        shapes: list[Shape] = []
        known: list[Any] = execute("SELECT id, body FROM local_table").fetchall()
        for table_id, body in known:
            table, indexes = _decode_shape(body)
            shapes.append(Shape(table_id, table, indexes))
        return CopyHead(
            int(facts.get("last_epoch", 0)),
            dict(execute("SELECT origin, lsn FROM vclock")),
            shapes,
            newest_epochs(self._connection),
        )

    def chunk(self, max_bytes: int) -> tuple[int, list[bytes]] | None:
        """The next rows of one table, in blocks; None when all have been read."""
        while True:
            if self._cursor is None:
                if not self._left:
                    self.close()
                    return None
                self._table_id, query = self._left.pop(0)
                self._cursor = self._connection.execute(query)
            blocks: list[bytes] = []
            size = 0
            while size < max_bytes and (rows := list(islice(self._cursor, BLOCK_ROWS))):
                blocks.append(_encode(rows))
                size += len(blocks[-1])
            if blocks:
                return self._table_id, blocks
            self._cursor = None

    def close(self) -> None:
        self._connection.close()


def known_head(store: DataStore) -> CopyHead:
    """On the writer's thread, between two groups: what its file says, from memory.

    Epochs of the newest records are not known, and whoever follows is not asked for them.
    """
    shapes = [
        Shape(table_id, table, store.indexes[table_id]) for table_id, table in store.tables.items()
    ]
    return CopyHead(store.last_epoch, dict(store.vclock), shapes)


def can_be_copied(store: DataStore, damaged: Collection[str]) -> bool:
    """Whether all rows can be read. The log, indexes and what the writer knows may be damaged."""
    rows = {table.physical_name for table in store.tables.values()}
    return rows.isdisjoint(damaged) and _NEEDED.isdisjoint(damaged)


class CopyTarget:
    """A full copy being written. Until `finish`, the instance has no rows and says so."""

    def __init__(self, store: DataStore, upstream: str) -> None:
        self._store, self._upstream = store, upstream
        self.count = 0

    def begin(self, head: CopyHead) -> None:
        store = self._store
        store.must_copy()
        for table_id in list(store.tables):
            store.apply_shape(Shape(table_id, None))
        for table in ("row_log", "done_operation", "move_progress"):
            store.connection.execute(f"DELETE FROM {table}")
        store.connection.execute("UPDATE origin SET base = 0")
        try:
            for shape in head.shapes:
                store.apply_shape(Shape(shape.table_id, shape.table))
        except apsw.SQLError as problem:
            raise LogRefused(f"full copy from {self._upstream}: {problem}") from None
        finally:
            store.take_changes()
            store.reload()

    def rows(self, table_id: int, blocks: list[bytes]) -> None:
        connection = self._store.connection
        text = self._insert(table_id)
        self._store.judge(clients=False)
        try:
            with self._store.unobserved():
                for block in blocks:
                    rows = _decode_block(block)
                    connection.executemany(text, rows)
                    self.count += len(rows) if table_id > 0 else 0
        except (msgspec.DecodeError, apsw.SQLError, apsw.ConstraintError) as problem:
            raise LogRefused(f"full copy from {self._upstream}: {problem}") from None
        except (apsw.BindingsError, apsw.MismatchError, TypeError, OverflowError) as problem:
            raise LogRefused(f"full copy from {self._upstream}: {problem}") from None

    def _insert(self, table_id: int) -> str:
        if table_id == OPERATIONS:
            # Done now, for us: hours are counted by each file for itself.
            hour = self._store.operations.hour
            return f"INSERT INTO done_operation VALUES (?1, ?2, {hour}, ?4)"
        if table_id == PROGRESS:
            return "INSERT INTO move_progress VALUES (?, ?)"
        table = self._store.tables.get(table_id)
        if table is None:
            raise LogRefused(f"full copy from {self._upstream}: rows of unknown table {table_id}")
        marks = ", ".join("?" * len(table.physical_columns))
        return f"INSERT INTO {table.physical_name} VALUES ({marks})"

    def finish(self, head: CopyHead) -> None:
        """Indexes are built once, over all rows; then the instance stands where the copy does."""
        store = self._store
        for shape in head.shapes:
            if shape.table is not None:
                store.build_indexes(shape)
        store.connection.executemany(PUT_BASE, list(head.vclock.items()))
        store.put("last_epoch", head.epoch)
        epochs = {
            origin: (head.vclock.get(origin, 0), epoch) for origin, epoch in head.epochs.items()
        }
        store.put(COPIED_EPOCHS, _encode(epochs))
        store.connection.execute("DELETE FROM local_state WHERE key = 'copying'")
        store.take_changes()
        store.reload()
