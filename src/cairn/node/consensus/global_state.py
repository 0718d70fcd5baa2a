"""The global tables as the event loop sees them: one reader, and pictures made from it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from cairn.governor.view import QueuedOperation
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.members.cluster import BucketKey, Cluster
from cairn.model.members.topology import Position
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.catalog_rows import CatalogRows
from cairn.model.tables.locks import Locks
from cairn.model.tables.pictures import cluster_of
from cairn.model.tables.schema import Table
from cairn.storage.files.sqlite import open_reader
from cairn.storage.raft_db.ddl import PENDING, decode_pending
from cairn.topology.changes import advanced

log = logging.getLogger("cairn.state")

_TOPOLOGY = {
    table.id
    for table in (
        system.PICO_INSTANCE,
        system.PICO_REPLICASET,
        system.PICO_PEER_ADDRESS,
        system.PICO_TIER,
        system.PICO_BUCKET,
        system.CAIRN_MOVE,
        system.PICO_PROPERTY,
    )
}


_QUEUE_COLUMNS = ", ".join(system.PICO_GOVERNOR_QUEUE.physical_columns)
_QUEUE_SEEN = 50
TOUCHED = 1_000  # changes of buckets that are remembered for those who carry on what they made


class GlobalState:
    """What is applied here. `cluster` and `catalog` are replaced, never changed in place."""

    def __init__(self, path: Path) -> None:
        self.reader = open_reader(path)
        self.cluster = Cluster()
        self.catalog = Catalog()
        self.locks = Locks()  # changed in place
        self.closing: tuple[tuple[Any, ...], ...] = ()  # rows of `_cairn_closing`
        self._touched: deque[tuple[int, frozenset[BucketKey]]] = deque(maxlen=TOUCHED)
        self._touched_from = 0  # pictures before this index were not carried on from there
        self.joined_addresses: dict[int, str] = {}
        self.joined_at = 0  # entries below this index are older than what joining told us
        self.news = asyncio.Event()  # set, and replaced, with every new picture
        self.reload(Position(0, 0))

    def close(self) -> None:
        self.reader.close()

    def rows(self, table: Table) -> list[tuple[Any, ...]]:
        columns = ", ".join(table.physical_columns)  # a newer catalogue may have more
        return self.reader.execute(f"SELECT {columns} FROM {table.physical_name}").fetchall()

    def reload(self, position: Position) -> None:
        self._read_cluster(position)
        self._catalogue = CatalogRows(self.rows)
        self._make_catalog(position)
        self.locks = Locks(self.rows(system.CAIRN_LOCK))
        self.closing = tuple(self.rows(system.CAIRN_CLOSING))

    def follow(self, done: list[Applied]) -> None:
        """Entries were applied: make new pictures of what they touched."""
        last = done[-1]
        position = Position(last.term, last.index)
        touched = {change.table for applied in done for change in applied.changes}
        if touched & _TOPOLOGY and self.cluster.problems:
            self._read_cluster(position)
        elif touched & _TOPOLOGY:
            # Only what changed is read: with many ranges of buckets all of it would be long.
            changes = (change for applied in done for change in applied.changes)
            self.cluster = advanced(self.cluster, changes, position)
            self._note_touched(done, position)
        else:
            self.cluster = msgspec.structs.replace(self.cluster, position=position)
        if self._catalogue.follow(change for applied in done for change in applied.changes):
            self._make_catalog(position)
        if system.CAIRN_LOCK.id in touched:
            self.locks.follow(change for applied in done for change in applied.changes)
        if system.CAIRN_CLOSING.id in touched:
            self.closing = tuple(self.rows(system.CAIRN_CLOSING))

    def _note_touched(self, done: list[Applied], position: Position) -> None:
        keys = frozenset(
            (row[0], row[1])
            for applied in done
            for change in applied.changes
            if change.table == system.PICO_BUCKET.id
            for row in (change.old, change.new)
            if row is not None
        )
        if keys:
            if len(self._touched) == TOUCHED:
                self._touched_from = self._touched[0][0]
            self._touched.append((position.index, keys))

    def touched_since(self, picture: Cluster) -> set[BucketKey] | None:
        """Which ranges of buckets may differ from an earlier picture; None: any of them."""
        if picture.position.index < self._touched_from:
            return None
        found: set[BucketKey] = set()
        for index, keys in reversed(self._touched):
            if index <= picture.position.index:
                break
            found |= keys
        return found

    def announce(self) -> None:
        """Whoever waits for another picture of the cluster looks again."""
        news, self.news = self.news, asyncio.Event()
        news.set()

    def is_as_on_disk(self) -> bool:
        """Whether the pictures that were carried on are those that the rows make."""
        if self.applied_on_disk() != self.cluster.position.index:
            return True  # entries are on their way: nothing to compare yet
        return self.is_as_rows_say()

    def is_as_rows_say(self) -> bool:
        fresh = CatalogRows(self.rows)
        return (
            self.cluster == cluster_of(self.rows, self.cluster.position)
            and _ordered(self.catalog) == _ordered(fresh.catalog(self.catalog.version))
            and self.key_positions == fresh.key_positions
        )

    def _read_cluster(self, position: Position) -> None:
        before = self.cluster.problems
        self.cluster = cluster_of(self.rows, position)
        self._touched.clear()
        self._touched_from = position.index + 1  # nobody has this very picture yet
        _tell(before, self.cluster.problems)

    def _make_catalog(self, position: Position) -> None:
        before = self.catalog.problems
        self.catalog = self._catalogue.catalog(position.index)
        _tell(before, self.catalog.problems)

    @property
    def key_positions(self) -> ops.KeyPositions:
        return self._catalogue.key_positions

    # --- derived ------------------------------------------------------------------------------

    def peer_addresses(self) -> dict[int, str]:
        """Where peers listen. What joining told us counts until the log has reached that entry."""
        known = self.cluster.peer_addresses()
        if self.cluster.position.index < self.joined_at:
            return {**known, **self.joined_addresses}
        return known

    def pending_ddl(self) -> ops.DdlPrepare | None:
        found = self.cluster.properties.get(PENDING)
        try:
            return None if found is None else decode_pending(json.dumps(found))
        except msgspec.MsgspecError as problem:
            log.error("%s cannot be understood: %s", PENDING, problem)
            return None

    def queue(self) -> tuple[QueuedOperation, ...]:
        """Operations that are not done, and one that is if there are no others, by id.

        What is done can be much and is of no use to the governor; nor are those far behind the
        failed ones, the upgrade and the next.
        """
        name = system.PICO_GOVERNOR_QUEUE.physical_name
        execute = self.reader.execute
        found: list[Any] = execute(
            f"SELECT {_QUEUE_COLUMNS} FROM {name} WHERE c4 <> 'done' "
            f"ORDER BY c4 <> 'failed', c5 <> 'upgrade', c0 LIMIT {_QUEUE_SEEN}"
        ).fetchall()
        found.sort()
        if not found:
            last = f"SELECT {_QUEUE_COLUMNS} FROM {name} ORDER BY c0 DESC LIMIT 1"
            found = execute(last).fetchall()
        return tuple(QueuedOperation(*row) for row in found)

    def queued(self, op_id: int) -> QueuedOperation | None:
        name = system.PICO_GOVERNOR_QUEUE.physical_name
        query = f"SELECT {_QUEUE_COLUMNS} FROM {name} WHERE c0 = ?"
        row: Any = self.reader.execute(query, (op_id,)).fetchone()
        return None if row is None else QueuedOperation(*row)

    def applied_on_disk(self) -> int:
        """What `rows` may show already, while the pictures are a moment behind."""
        query = "SELECT value FROM raft_state WHERE key = 'applied'"
        row: Any = self.reader.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    def queue_batches(self) -> tuple[set[str], int]:
        """Which batches were ever queued, and the greatest id."""
        name = system.PICO_GOVERNOR_QUEUE.physical_name
        found: list[Any] = self.reader.execute(f"SELECT DISTINCT c1 FROM {name}").fetchall()
        last: Any = self.reader.execute(f"SELECT max(c0) FROM {name}").fetchone()
        return {row[0] for row in found}, int(last[0] or 0)

    def next_number(self, table: int) -> int | None:
        """What `_cairn_sequence` has for a table; None: no number was ever taken."""
        name = system.CAIRN_SEQUENCE.physical_name
        row: Any = self.reader.execute(f"SELECT c1 FROM {name} WHERE c0 = ?", (table,)).fetchone()
        return None if row is None else int(row[0])

    def setting(self, key: str, default: Any = None) -> Any:
        """A value of another type than the default is not used: a loop would die of it."""
        value = self.catalog.setting(key)
        if value is None or (default is not None and not _is_like(value, default)):
            return default
        return value


def _ordered(catalog: Catalog) -> list[Any]:
    """Its fields, and what is in them in its order: the first of something may be chosen."""
    fields = msgspec.structs.astuple(catalog)
    return [list(field.items()) if isinstance(field, dict) else field for field in fields]


def _is_like(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or not isinstance(default, int | float):
        return isinstance(value, type(default))
    return isinstance(value, int | float) and value == value


def _tell(before: tuple[str, ...], problems: tuple[str, ...]) -> None:
    for problem in problems:
        if problem not in before:
            log.error("a row cannot be understood, a harmless value is assumed: %s", problem)
