"""What entries of the Raft log did to the rows of global tables, for whoever follows such a table.

The Raft log itself has no old rows and is cut after a snapshot. So each instance keeps the changes
that it has applied, in the transaction that applies them: every change is here once. It covers all
entries after `changes_from`. That moves on when old ones are pruned, and when a snapshot of the
tables takes the place of entries that were never applied here; others may still have those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.errors import BehindPosition, PositionLost
from cairn.model.log.applied import Applied
from cairn.model.members.topology import Position
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.storage.files.sqlite import open_reader

KEEP = 100_000
PRUNE_EVERY = 1_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS global_changes (
    idx INTEGER NOT NULL, n INTEGER NOT NULL, term INTEGER NOT NULL, table_id INTEGER NOT NULL,
    timestamp TEXT NOT NULL, old BLOB, new BLOB, PRIMARY KEY (idx, n)
) STRICT, WITHOUT ROWID;
"""
_INSERT = "INSERT OR REPLACE INTO global_changes VALUES (?, ?, ?, ?, ?, ?, ?)"
_FROM = "INSERT OR REPLACE INTO raft_state VALUES ('changes_from', ?)"
_NEXT = (
    "SELECT idx, n, term, timestamp, old, new FROM global_changes "
    "WHERE idx > ? AND table_id = ? ORDER BY idx, n LIMIT ?"
)
Row = tuple[Any, ...]


class GlobalChange(msgspec.Struct, frozen=True):
    """One row before and after; neither: the table was emptied."""

    position: Position
    n: int  # within its entry
    timestamp: str
    old: Row | None
    new: Row | None

    @property
    def is_truncate(self) -> bool:
        return self.old is None and self.new is None


class GlobalLog:
    """Lives on the writer's thread, beside the state machine whose changes it is shown."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._since_prune = 0
        connection.execute(_SCHEMA)
        if _fact(connection, "changes_from") is None:  # a file of an earlier version has entries
            connection.execute(_FROM, (_fact(connection, "applied") or 0,))

    def applied(self, done: Applied) -> None:
        """Keep what one applied entry has changed. Locks come and go by the thousand, and would
        push out what others follow."""
        changes = [change for change in done.changes if change.table != system.CAIRN_LOCK.id]
        if not changes:
            return
        self._connection.executemany(
            _INSERT,
            [
                (
                    done.index, n, done.term, change.table, done.timestamp,
                    _packed(change.old), _packed(change.new),
                )
                for n, change in enumerate(changes, 1)
            ],
        )  # fmt: skip
        self._since_prune += len(changes)
        if self._since_prune >= PRUNE_EVERY:
            self._since_prune = 0
            self._prune()

    def installed(self) -> None:
        """A Raft snapshot replaced the tables: what led to it is not known here."""
        self._connection.execute("DELETE FROM global_changes")
        self._connection.execute(_FROM, (_fact(self._connection, "applied") or 0,))

    def _prune(self) -> None:
        kept = number_set(self._connection, "global_log_max", KEEP)
        query = "SELECT idx FROM global_changes ORDER BY idx DESC, n DESC LIMIT 1 OFFSET ?"
        row = self._connection.execute(query, (kept,)).fetchone()
        if row is not None:
            self._connection.execute("DELETE FROM global_changes WHERE idx <= ?", row)
            self._connection.execute(_FROM, row)


def number_set(connection: apsw.Connection, name: str, default: int) -> int:
    """A setting, as it is at this position of the log."""
    query = f"SELECT c2 FROM {system.PICO_DB_CONFIG.physical_name} WHERE c0 = ? AND c1 = ''"
    row = connection.execute(query, (name,)).fetchone()
    try:
        value = None if row is None or row[0] is None else json.loads(row[0])
    except ValueError:
        value = None
    return value if isinstance(value, int) and value >= 0 else default


class GlobalLogReader:
    """One moment of the log and of the tables. On a thread of its own; `raft.db` is only read."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self.begins = int(_fact(connection, "changes_from") or 0)
        self.last = Position(
            int(_fact(connection, "applied_term") or 0), int(_fact(connection, "applied") or 0)
        )

    def changes(self, table: Table, after: int, limit: int) -> tuple[list[GlobalChange], Position]:
        """What came after a position, about `limit` changes, and how far that reaches.

        An entry is never cut in two.
        """
        self._check(after)
        found = self._read(table, after, limit + 1)
        if len(found) <= limit:
            return found, self.last
        cut = found[-1].position
        whole = [change for change in found if change.position != cut]
        if whole:
            return whole, whole[-1].position
        query = "SELECT max(n) FROM global_changes WHERE idx = ?"
        [(most,)] = self._execute(query, (cut.index,))
        entry = self._read(table, after, most)
        return [change for change in entry if change.position == cut], cut

    def rows_at(self, table: Table, at: int) -> list[Row]:
        """The rows as they were at a position: those of now, with what came since taken back."""
        self._check(at)
        before: dict[Row, Row | None] = {}
        for change in self._read(table, at, -1):
            if change.is_truncate:
                raise lost(f"{table.name} was emptied since entry {at}")
            for row, was in ((change.old, change.old), (change.new, None)):
                if row is not None:
                    before.setdefault(_key(table, row), was)
        present: list[Row] = self._execute(f"SELECT * FROM {table.physical_name}").fetchall()
        kept = [row for row in present if _key(table, row) not in before]
        return kept + [row for row in before.values() if row is not None]

    def _read(self, table: Table, after: int, limit: int) -> list[GlobalChange]:
        return [
            GlobalChange(Position(term, index), n, timestamp, _unpacked(old), _unpacked(new))
            for index, n, term, timestamp, old, new in self._execute(
                _NEXT, (after, table.id, limit)
            )
        ]

    def _check(self, position: int) -> None:
        if position < self.begins:
            raise lost(f"what is kept here begins after entry {self.begins}")
        if position > self.last.index:
            raise BehindPosition(
                f"this instance has applied {self.last.index}, the position is {position}",
                hint="ask another instance",
            )


@contextmanager
def reading(path: Path) -> Iterator[GlobalLogReader]:
    connection = open_reader(path)
    try:
        connection.execute("BEGIN")
        yield GlobalLogReader(connection)
    finally:
        connection.close()


def lost(why: str) -> PositionLost:
    return PositionLost(
        f"the position is not in the log of global tables: {why}",
        hint="start anew from a snapshot; global_log_max sets how many changes are kept",
    )


def _key(table: Table, row: Row) -> Row:
    return tuple(row[at] for at in table.key_positions)


def _fact(connection: apsw.Connection, key: str) -> Any:
    row = connection.execute("SELECT value FROM raft_state WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def _packed(row: Row | None) -> bytes | None:
    return None if row is None else msgspec.msgpack.encode(row)


def _unpacked(data: bytes | None) -> Row | None:
    return None if data is None else msgspec.msgpack.decode(data, type=tuple[Any, ...])
