"""Operations that were done, by their ids: repeated, they are not done again.

They are remembered for a time that is counted in hours which instances have lived with this file:
a clock on the wall may be set forward by days, and an id that is forgotten too soon is done twice.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from cairn.model.log.records import Operation
from cairn.model.sharding.spans import Ranges, merged, without

SCHEMA = """
CREATE TABLE IF NOT EXISTS done_operation (
    id TEXT PRIMARY KEY, rows INTEGER NOT NULL, at INTEGER NOT NULL, buckets BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS done_operation_at ON done_operation (at);
"""
_HOUR = "SELECT value FROM local_state WHERE key = 'hour'"
_decode_ranges = msgspec.msgpack.Decoder(Ranges).decode


class Operations:
    """What the open transaction of the writer knows of them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def find(self, operation: str) -> Operation | None:
        """What was carried out before under this id; None: nothing."""
        query = "SELECT rows, buckets FROM done_operation WHERE id = ?"
        row: Any = self._connection.execute(query, (operation,)).fetchone()
        if row is None:
            return None
        return Operation(operation, row[0], None if row[1] is None else _decode_ranges(row[1]))

    def keep(self, done: Operation) -> None:
        """Added to what is known of it: its buckets may have come here one by one."""
        before = self.find(done.id)
        rows, buckets = done.rows, done.buckets
        if before is not None and before.buckets is not None and buckets is not None:
            rows, buckets = before.rows + rows, merged((*before.buckets, *buckets))
        packed = None if buckets is None else msgspec.msgpack.encode(buckets)
        self._connection.execute(
            "INSERT OR REPLACE INTO done_operation VALUES (?, ?, ?, ?)",
            (done.id, rows, self.hour, packed),
        )

    def undo(self, undone: Operation) -> None:
        """Of its buckets only: for others it may have been done by a record that stays."""
        known = self.find(undone.id)
        left: Ranges = ()
        if known is not None and known.buckets is not None and undone.buckets is not None:
            left = known.buckets
            for low, high in undone.buckets:
                left = without(left, low, high)
        if known is None or not left:
            self._connection.execute("DELETE FROM done_operation WHERE id = ?", (undone.id,))
        else:
            self._connection.execute(
                "UPDATE done_operation SET rows = ?, buckets = ? WHERE id = ?",
                (known.rows - undone.rows, msgspec.msgpack.encode(left), undone.id),
            )

    def forget_buckets(self, start: int, end: int) -> None:
        """These buckets are emptied: what was done in them is somebody else's to know."""
        query = "SELECT id, rows, buckets FROM done_operation WHERE buckets IS NOT NULL"
        found: list[Any] = self._connection.execute(query).fetchall()
        for name, rows, packed in found:
            known = _decode_ranges(packed)
            left = without(known, start, end)
            if not left:
                self._connection.execute("DELETE FROM done_operation WHERE id = ?", (name,))
            elif left != known:
                self._connection.execute(
                    "UPDATE done_operation SET rows = ?, buckets = ? WHERE id = ?",
                    (rows, msgspec.msgpack.encode(left), name),
                )

    # --- time -----------------------------------------------------------------------------------

    @property
    def hour(self) -> int:
        """How many hours were lived with this file."""
        found: Any = self._connection.execute(_HOUR).fetchone()
        return 0 if found is None else int(found[0])

    def next_hour(self) -> None:
        """Another one was lived. A later number is of the clock on the wall, as former versions
        wrote it, and counts as now."""
        hour = self.hour
        self._connection.execute("UPDATE done_operation SET at = ? WHERE at > ?", (hour, hour))
        self._connection.execute(
            "INSERT OR REPLACE INTO local_state VALUES ('hour', ?)", (hour + 1,)
        )

    def forget(self, before: int) -> int:
        """Those that were done before an hour of ours, some of them at once."""
        self._connection.execute(
            "DELETE FROM done_operation WHERE id IN ("
            "SELECT id FROM done_operation WHERE at < ? ORDER BY at LIMIT ?)",
            (before, 10_000),
        )
        return self._connection.changes()
