"""The durable Raft log in `raft.db`: entries, hard state, configuration, snapshot position.

The writer's thread calls `write`; the core reads through `LogView`, which lives on the event
loop and shows only what is on disk. Global tables share the file (see `state_machine`), so an
append and an apply can be one transaction and one fsync.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.errors import StorageDamaged
from cairn.raft.types import (
    ConfState,
    Entry,
    HardState,
    LogCompacted,
    LogUnavailable,
    Ready,
    Snapshot,
    SnapshotMeta,
    SnapshotNotReady,
)
from cairn.storage.files.sqlite import check_file, damaged, open_writer, refused

FORMAT_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS raft_log (
    idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, type INTEGER NOT NULL,
    data BLOB NOT NULL, crc INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS raft_state (key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
"""
_INSERT = "INSERT INTO raft_log(idx, term, type, data, crc) VALUES (?, ?, ?, ?, ?)"


def _crc(term: int, index: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%d:%d" % (term, index)))


class RaftStore:
    """Everything that touches `raft.db` for the log. Belongs to one thread once it is open."""

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self.connection = open_writer(path)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute(_SCHEMA)
            if self.get("format_version") is None:
                self.put("format_version", FORMAT_VERSION)
            self.connection.execute("COMMIT")
            self._check()
        except (StorageDamaged, apsw.Error) as problem:
            self.connection.close()
            raise refused(path, problem) from None

    def close(self) -> None:
        self.connection.close()

    # --- facts kept beside the log ------------------------------------------------------------

    def get(self, key: str, default: Any = None) -> Any:
        row = self.connection.execute(
            "SELECT value FROM raft_state WHERE key = ?", (key,)
        ).fetchone()
        return default if row is None else row[0]

    def put(self, key: str, value: Any) -> None:
        self.connection.execute(
            "INSERT INTO raft_state VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )

    @property
    def hard_state(self) -> HardState:
        return HardState(self.get("term", 0), self.get("vote", 0), self.get("commit", 0))

    @property
    def conf_state(self) -> ConfState:
        data = self.get("conf_state")
        return ConfState() if data is None else msgspec.msgpack.decode(data, type=ConfState)

    @property
    def applied(self) -> tuple[int, int]:
        """(index, term) of the last entry whose effects are in the tables."""
        return self.get("applied", 0), self.get("applied_term", 0)

    @property
    def compacted(self) -> tuple[int, int]:
        return self.get("compacted_index", 0), self.get("compacted_term", 0)

    # --- writing: always inside the caller's transaction --------------------------------------

    def write(self, ready: Ready) -> None:
        """Make one Ready durable: conflicting tail cut, entries, hard state; in this order."""
        if ready.entries:
            self.append(ready.entries)
        if ready.hard_state is not None:
            self.put_hard_state(ready.hard_state)

    def append(self, entries: list[Entry]) -> None:
        self.connection.execute("DELETE FROM raft_log WHERE idx >= ?", (entries[0].index,))
        self.connection.executemany(
            _INSERT,
            [(e.index, e.term, e.type, e.data, _crc(e.term, e.index, e.data)) for e in entries],
        )

    def put_hard_state(self, state: HardState) -> None:
        self.put("term", state.term)
        self.put("vote", state.vote)
        self.put("commit", state.commit)

    def put_applied(self, index: int, term: int, conf: ConfState | None = None) -> None:
        """The configuration changes together with the applied index, never apart."""
        self.put("applied", index)
        self.put("applied_term", term)
        if conf is not None:
            self.put("conf_state", msgspec.msgpack.encode(conf))

    def install(self, meta: SnapshotMeta) -> None:
        """Replace the whole log by a snapshot's position; the tables are the caller's part."""
        self.connection.execute("DELETE FROM raft_log")
        self.put("compacted_index", meta.index)
        self.put("compacted_term", meta.term)
        self.put_applied(meta.index, meta.term, meta.conf)

    def compact(self, index: int) -> None:
        """Forget entries up to and including `index`, which must be applied."""
        row = self.connection.execute(
            "SELECT term FROM raft_log WHERE idx = ?", (index,)
        ).fetchone()
        if row is None:
            return
        self.connection.execute("DELETE FROM raft_log WHERE idx <= ?", (index,))
        self.put("compacted_index", index)
        self.put("compacted_term", row[0])

    # --- reading at start ---------------------------------------------------------------------

    def load(self) -> list[Entry]:
        """Every entry that is kept, oldest first."""
        rows = self.connection.execute("SELECT term, idx, type, data FROM raft_log ORDER BY idx")
        return [Entry(*row) for row in rows]

    def _check(self) -> None:
        """Contradictions that a sound history cannot contain."""
        version = self.get("format_version")
        if version != FORMAT_VERSION:
            raise StorageDamaged(  # it is whole, and needs another program
                f"{self.path.name} has format version {version}, this program reads "
                f"{FORMAT_VERSION}",
                detail=str(self.path),
                hint="start it with the version that wrote it",
            )
        expected, compacted_term = self.compacted
        last_term = compacted_term
        query = "SELECT idx, term, data, crc FROM raft_log ORDER BY idx"
        for index, term, data, crc in self.connection.execute(query):
            expected += 1
            if index != expected:
                raise damaged(self.path, f"log entry {expected} is missing")
            if crc != _crc(term, index, data):
                raise damaged(self.path, f"log entry {index} has a wrong checksum")
            if term < last_term:
                raise damaged(self.path, f"log entry {index} has a falling term")
            last_term = term
        state = self.hard_state
        applied = self.applied[0]
        if state.commit > expected or applied > expected:
            raise damaged(
                self.path,
                f"commit {state.commit} and applied {applied} point past the last entry {expected}",
            )
        if last_term > state.term:
            raise damaged(self.path, f"term {state.term} is behind the log's {last_term}")


class LogView:
    """What the core may read, on the event loop: a mirror of the durable log in memory.

    Compaction bounds it. `written` is called when the disk has confirmed, never before.
    """

    def __init__(
        self,
        store: RaftStore,
        make_snapshot: Callable[[], Snapshot | None] = lambda: None,
    ) -> None:
        self._hard_state = store.hard_state
        self._conf_state = store.conf_state
        self._base, self._base_term = store.compacted
        self._entries = store.load()
        self.bytes = sum(len(entry.data) for entry in self._entries)
        self.make_snapshot = make_snapshot

    def initial_state(self) -> tuple[HardState, ConfState]:
        return self._hard_state, self._conf_state

    def first_index(self) -> int:
        return self._base + 1

    def last_index(self) -> int:
        return self._base + len(self._entries)

    def term(self, index: int) -> int:
        if index == self._base:
            return self._base_term
        if index < self._base:
            raise LogCompacted(index)
        if index > self.last_index():
            raise LogUnavailable(index)
        return self._entries[index - self._base - 1].term

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        if low <= self._base:
            raise LogCompacted(low)
        if high > self.last_index() + 1:
            raise LogUnavailable(high)
        found: list[Entry] = []
        size = 0
        for entry in self._entries[low - self._base - 1 : high - self._base - 1]:
            size += len(entry.data)
            if found and size > max_bytes:
                break
            found.append(entry)
        return found

    def snapshot(self) -> Snapshot:
        made = self.make_snapshot()
        if made is None:
            raise SnapshotNotReady
        return made

    def written(self, entries: list[Entry]) -> None:
        """The disk has these; they replace whatever stood at their indexes."""
        if not entries:
            return
        at = entries[0].index - self._base - 1
        if at < 0:  # an install or a compaction has passed them meanwhile
            entries = entries[-at:]
            at = 0
        self.bytes += sum(len(entry.data) for entry in entries)
        self.bytes -= sum(len(entry.data) for entry in self._entries[at:])
        self._entries[at:] = entries

    def installed(self, meta: SnapshotMeta) -> None:
        self._base, self._base_term, self._entries, self.bytes = meta.index, meta.term, [], 0

    def compacted(self, index: int) -> None:
        if index <= self._base:
            return
        term = self.term(index)
        dropped = self._entries[: index - self._base]
        self.bytes -= sum(len(entry.data) for entry in dropped)
        del self._entries[: index - self._base]
        self._base, self._base_term = index, term
