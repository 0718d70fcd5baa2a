"""What only this instance knows, as SQL sees it: routes, links, traffic, rows put aside.

These tables are rebuilt from what the runners know, never the other way. They are written through
the writer of `raft.db`, without waiting for the disk, and only when they have changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import apsw

from cairn.model.log.records import Record, RowChange, RowOp, record_of
from cairn.model.members.moves import MoveSeen
from cairn.model.rpc import GovernorStatus
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Table
from cairn.model.types.values import from_physical
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import LinkStatus, Traffic
from cairn.node.rows.mesh import Table as Routes
from cairn.node.runtime import Runtime, timestamp
from cairn.storage.files.checksums import is_damage, noticed
from cairn.storage.files.groups import Job
from cairn.storage.files.writer import Disk
from cairn.storage.raft_db.raft_store import RaftStore

MAX_LEADERS = 10_000  # terms kept
MAX_DIVERGED = 10_000  # records shown; `data.db` keeps all of them
_OPS = {RowOp.INSERT: "insert", RowOp.UPDATE: "update", RowOp.DELETE: "delete"}
Rows = list[tuple[Any, ...]]


class LocalTables:
    def __init__(
        self,
        name: str,
        store: RaftStore,
        disk: Disk,
        state: GlobalState,
        data: DataPlane,
        runtime: Runtime,
    ) -> None:
        self._name, self._store, self._disk, self._state = name, store, disk, state
        self._data, self._runtime = data, runtime
        self._written: dict[int, Rows] = {}

    def _put(self, table: Table, rows: Rows) -> None:
        if self._written.get(table.id) == rows:
            return
        self._written[table.id] = rows

        def write() -> None:
            marks = ", ".join("?" * len(table.columns))
            execute = self._store.connection
            execute.execute(f"DELETE FROM {table.physical_name}")
            execute.executemany(f"INSERT INTO {table.physical_name} VALUES ({marks})", rows)

        self._disk.submit(Job(write, lambda _: None, must_sync=False))

    def write_governor(self, status: GovernorStatus) -> None:
        row = (
            self._name,
            status.step,
            status.subject,
            "; ".join(status.blocked_by),
            status.since,
            status.next_retry_s,
            status.last_error,
            status.steps_done,
        )
        self._put(system.GOVERNOR_STATUS, [row])

    def write_leader(self, term: int, raft_id: int) -> None:
        """A leader is known: kept for good, because no later table tells of it."""
        row = self._state.cluster.by_raft_id(raft_id)  # None: not told to us yet
        kept = (term, raft_id, None if row is None else row.name, timestamp(self._runtime))
        table = system.CAIRN_LEADER.physical_name

        def write() -> None:
            execute = self._store.connection.execute
            execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?)", kept)
            execute(
                f"DELETE FROM {table} WHERE c0 <= (SELECT c0 FROM {table} ORDER BY c0 DESC "
                "LIMIT 1 OFFSET ?)",
                (MAX_LEADERS,),
            )

        self._disk.submit(Job(write, lambda _: None, must_sync=False))

    def write_routes(self, routes: Routes) -> None:
        rows: Rows = [
            (UUID(subscriber).bytes, UUID(source).bytes, UUID(via).bytes, depth)
            for subscriber, source, via, depth in routes
        ]
        self._put(system.ROUTING, rows)

    def write_links(
        self, links_in: dict[str, LinkStatus], sent_out: dict[str, dict[str, Traffic]]
    ) -> None:
        """Once a second, with the heartbeat."""
        names = self._names()
        now = self._runtime.boot_clock()
        links: Rows = []
        traffic: Rows = []
        for uuid, link in sorted(links_in.items()):
            lag_s = 0.0 if link.lag_rows == 0 and link.state == "follow" else link.lag_s(now)
            links.append(
                (
                    link.upstream,
                    link.state,
                    link.problem,
                    link.lag_rows,
                    None if lag_s is None else round(lag_s, 1),
                    link.records,
                    link.twice,
                    link.bytes,
                )
            )
            for origin, seen in sorted(link.origins.items()):
                who = names.get(uuid, uuid), names.get(origin, origin)
                traffic.append(("in", *who, seen.records, seen.bytes, seen.twice))
        for subscriber, origins in sorted(sent_out.items()):
            for origin, sent in sorted(origins.items()):
                who = names.get(subscriber, subscriber), names.get(origin, origin)
                traffic.append(("out", *who, sent.records, sent.bytes, 0))
        self._put(system.CAIRN_LINK, links)
        self._put(system.CAIRN_TRAFFIC, traffic)

    def write_rebalance(self, moves: Iterable[MoveSeen]) -> None:
        rows: Rows = [
            (
                each.tier,
                each.start,
                each.end,
                each.source,
                each.target,
                each.phase,
                each.id,
                each.attempt,
                each.rows,
                each.rows_to_do,
                each.bytes,
                each.bytes_to_do,
                each.rows_per_s,
                each.eta_s,
                each.records_behind,
                each.waits_for,
            )
            for each in moves
        ]
        self._put(system.CAIRN_REBALANCE, rows)

    def _names(self) -> dict[str, str]:
        return {row.uuid: row.name for row in self._state.cluster.instances.values()}

    # --- what belongs to no history ---------------------------------------------------------------

    def write_diverged(self) -> None:
        """At start, and whenever records were put aside."""
        names = self._names()
        rows: Rows = []
        for record in _read_diverged(str(self._data.store.path)):
            who = names.get(record.origin, record.origin), record.epoch, record.lsn
            for at, change in enumerate(record.changes):
                rows.append((*who, at, *self._told(change)))
            if record.shape is not None:
                shape = record.shape
                name = shape.table.name if shape.table is not None else f"table {shape.table_id}"
                rows.append((*who, 0, "schema", name, "{}", None, None))
        self._put(system.CAIRN_DIVERGED, rows)

    def _told(self, change: RowChange) -> tuple[Any, ...]:
        """op, table, key, old, new of one change."""
        local = self._data.store.tables
        table = local.get(change.table) or self._state.catalog.table_by_id(change.table)
        old, new = (_as_json(table, row) for row in (change.old, change.new))
        present = new if new is not None else old
        key = {} if table is None or present is None else {c: present[c] for c in table.primary_key}
        return (
            _OPS.get(RowOp(change.op), "?"),
            f"table {change.table}" if table is None else table.name,
            _text(key),
            None if old is None else _text(old),
            None if new is None else _text(new),
        )


def _read_diverged(path: str) -> list[Record]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        query = (
            "SELECT origin, epoch, lsn, body FROM _cairn_diverged "
            "ORDER BY epoch DESC, origin, lsn DESC LIMIT ?"
        )
        rows: list[Any] = connection.execute(query, (MAX_DIVERGED,)).fetchall()
    except apsw.Error as problem:
        if not is_damage(problem):
            raise
        noticed()  # what it tells to people keeps no instance from its start
        return []
    finally:
        connection.close()
    return [record_of(*row) for row in rows]


def _as_json(table: Table | None, stored: tuple[Any, ...] | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    if table is None:  # dropped since: the columns have no names any more
        return {f"c{at}": value for at, value in enumerate(stored[1:])}
    columns = zip(table.columns, stored[1:], strict=False)
    return {column.name: from_physical(column.type, value) for column, value in columns}


def _text(values: dict[str, Any]) -> str:
    def plain(value: Any) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    return json.dumps(values, ensure_ascii=False, default=plain)
