"""Rows of a range of buckets that come or go: records of kind MOVE, made and repeated here.

Everything runs on the writer's thread. The master carries a part out and logs it in one
transaction; its replicas do the same when the record reaches them.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from cairn.model.moves import Mark, MovePart
from cairn.model.records import Body, Kind, Operation, RowChange
from cairn.model.schema import BUCKET_COLUMN, Table, physical_column
from cairn.moves.delta import Progress
from cairn.storage.data_store import DataStore
from cairn.storage.exact_changes import ExactChanges, Place


def key_places(table: Table) -> list[int]:
    """Where a physical row has its physical key: the bucket, then the primary key."""
    return [0, *(at + 1 for at in table.key_positions)]


def key_columns(table: Table) -> list[str]:
    return [BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)]


def progress_of(connection: apsw.Connection, move: int) -> Progress | None:
    query = "SELECT body FROM move_progress WHERE move = ?"
    row: Any = connection.execute(query, (move,)).fetchone()
    return None if row is None else _decode_progress(row[0])


def moves_of(connection: apsw.Connection) -> list[Progress]:
    """Everything that is on its way to this replicaset, or was given up and not cleaned."""
    rows: list[Any] = connection.execute("SELECT body FROM move_progress").fetchall()
    return [_decode_progress(row[0]) for row in rows]


_decode_progress = msgspec.msgpack.Decoder(Progress).decode
_encode = msgspec.msgpack.Encoder().encode


class NotYet(Exception):
    """A replica learns of a hand-over by Raft and of dropped rows by the log: Raft comes first."""


def write_part(store: DataStore, part: MovePart, changes: tuple[RowChange, ...] = ()) -> int:
    """The master's own: carried out and logged in one; the lsn of its record."""
    exact = ExactChanges(store)
    execute = store.connection.execute
    before = dict(store.vclock)
    execute("SAVEPOINT move")
    try:
        with store.unobserved():
            lsn = store.log(Body(Kind.MOVE, store.now(), changes, move=part))
            apply_part(store, exact, (store.origin, lsn), part, changes)
    except BaseException:
        if store.connection.in_transaction:
            execute("ROLLBACK TO move")
            execute("RELEASE move")
        store.vclock = before
        raise
    execute("RELEASE move")
    return lsn


def apply_part(
    store: DataStore,
    exact: ExactChanges,
    place: Place,
    part: MovePart,
    changes: tuple[RowChange, ...],
) -> None:
    """What a record of kind MOVE does, at the master that made it and at its replicas."""
    execute = store.connection.execute
    match part.action:
        case "empty":
            for table in store.tables.values():
                execute(
                    f"DELETE FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ?",
                    (part.start, part.end),
                )
            store.forget_buckets(part.start, part.end)
            _put_progress(store, part)
        case "delta":
            for change in changes:
                exact.change(place, change)
            for table_id, version, rows in part.rows:
                exact.insert_all(place, table_id, version, rows)
            for operation in part.operations:
                store.keep_operation(Operation(*operation), store.now())
            _put_progress(store, part)
        case "drop":
            if store.fence.touches(part.start, part.end):
                raise NotYet
            table_id, key = int(part.after[0]), part.after[1:]  # type: ignore[call-overload]
            found = store.tables.get(table_id)
            if found is not None:
                columns = key_columns(found)
                execute(
                    f"DELETE FROM {found.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ? "
                    f"AND ({', '.join(columns)}) <= ({', '.join('?' * len(columns))})",
                    (part.start, part.end, *key),
                )
        case "end":
            execute("DELETE FROM move_progress WHERE move = ?", (part.move,))


def _put_progress(store: DataStore, part: MovePart) -> None:
    progress = Progress(part.move, part.attempt, part.start, part.end, part.at, part.after)
    store.connection.execute(
        "INSERT OR REPLACE INTO move_progress VALUES (?, ?)", (part.move, _encode(progress))
    )


def next_drop(store: DataStore, start: int, end: int, limit: int) -> tuple[Table, Mark] | None:
    """Up to which key the next few old rows reach; None: there are none left."""
    for table in sorted(store.tables.values(), key=lambda each: each.id):
        columns = ", ".join(key_columns(table))
        rows: list[Any] = store.connection.execute(
            f"SELECT {columns} FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ? "
            f"ORDER BY {columns} LIMIT ?",
            (start, end, limit),
        ).fetchall()
        if rows:
            return table, (table.id, *rows[-1])
    return None
