"""Topology events, made and kept when their entry is applied, in the same transaction.

`_cairn_event` is what resuming clients, the pull call and Spark read. It covers everything after
`events_from`; older positions get a snapshot instead.
"""

from __future__ import annotations

from typing import Any

import apsw

from cairn.model.log.applied import Applied
from cairn.model.members.cluster import Cluster
from cairn.model.members.events import VERSIONS, AnyEvent, Version, encode
from cairn.model.members.topology import Position
from cairn.model.tables import system_tables as system
from cairn.model.tables.pictures import cluster_of
from cairn.model.tables.schema import Table
from cairn.storage.raft_db.global_log import number_set
from cairn.topology.changes import advanced, difference, events_of

_TABLE = system.CAIRN_EVENT.physical_name
_INSERT = f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?, ?)"
KEEP = 100_000
PRUNE_EVERY = 1_000
STORED: Version = "0.2"  # says everything that 0.1 says


class EventLog:
    """Lives on the writer's thread, beside the state machine whose changes it is shown."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cluster = read_cluster(connection)
        self._since_prune = 0

    def applied(self, done: Applied) -> None:
        """Add the events of one applied entry to it, and keep them."""
        if not done.changes:
            return
        position = Position(done.term, done.index)
        before = self._cluster
        after = advanced(before, done.changes, position)
        for version, into in zip(VERSIONS, (done.events_01, done.events_02), strict=True):
            events = events_of(
                done.changes,
                before,
                after,
                position=position,
                timestamp=done.timestamp,
                version=version,
            )
            into.extend(encode(event) for event in events)
        self._keep(position, done.timestamp, done.events_02)
        self._cluster = after  # last: an entry that is refused on the way has not happened

    def installed(self, position: Position, timestamp: str) -> tuple[list[str], list[str]]:
        """A Raft snapshot replaced the tables: the difference is told as ordinary events."""
        before, self._cluster = self._cluster, read_cluster(self._connection)
        told: list[list[str]] = []
        for version in VERSIONS:
            events: list[AnyEvent] = difference(
                before,
                self._cluster,
                position=position,
                timestamp=timestamp,
                version=version,
            )
            told.append([encode(event) for event in events])
        self._keep(position, timestamp, told[1])
        return told[0], told[1]

    def _keep(self, position: Position, timestamp: str, events: list[str]) -> None:
        if not events:
            return
        self._connection.executemany(
            _INSERT,
            [
                (position.term, position.index, n, STORED, timestamp, body)
                for n, body in enumerate(events, 1)
            ],
        )
        self._since_prune += len(events)
        if self._since_prune >= PRUNE_EVERY:
            self._since_prune = 0
            self._prune()

    def _prune(self) -> None:
        row = self._connection.execute(
            f"SELECT c0, c1 FROM {_TABLE} ORDER BY c0 DESC, c1 DESC LIMIT 1 OFFSET ?",
            (number_set(self._connection, "topology_events_max", KEEP),),
        ).fetchone()
        if row is None:
            return
        self._connection.execute(f"DELETE FROM {_TABLE} WHERE (c0, c1) <= (?, ?)", row)
        self._connection.execute(
            "INSERT OR REPLACE INTO raft_state VALUES ('events_from', ?)", (row[1],)
        )


def read_cluster(connection: apsw.Connection) -> Cluster:
    """The topology as the tables have it now, on this connection."""

    def content(table: Table) -> list[tuple[Any, ...]]:
        columns = ", ".join(table.physical_columns)
        return connection.execute(f"SELECT {columns} FROM {table.physical_name}").fetchall()

    return cluster_of(content)
