"""Rows of a range of buckets that come or go: records of kind MOVE, made and repeated here.

Everything runs on the writer's thread. The master carries a part out and logs it in one
transaction; its replicas do the same when the record reaches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from cairn.model.errors import NotOwner
from cairn.model.log.records import Body, Kind, Operation, RowChange, Vclock
from cairn.model.members.moves import Amount, Mark, Move, MovePart, Stamp
from cairn.model.tables.schema import BUCKET_COLUMN, Table, physical_column
from cairn.moves.delta import Delta, MoveMustRestart, MoveRefused, Progress, Rows, adapted, fits
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.exact_changes import ExactChanges, Place


def key_places(table: Table) -> list[int]:
    """Where a physical row has its physical key: the bucket, then the primary key."""
    return [0, *(at + 1 for at in table.key_positions)]


def key_columns(table: Table) -> list[str]:
    return [BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)]


def progress_of(connection: apsw.Connection, move: int) -> Progress | None:
    query = "SELECT body FROM move_progress WHERE move = ?"
    row: Any = connection.execute(query, (move,)).fetchone()
    return None if row is None else _decode_progress(row[0])


_decode_progress = msgspec.msgpack.Decoder(Progress).decode
_encode = msgspec.msgpack.Encoder().encode


class NotYet(Exception):
    """A replica learns of a hand-over by Raft and of dropped rows by the log: Raft comes first."""


def write_part(store: DataStore, part: MovePart, changes: tuple[RowChange, ...] = ()) -> int:
    """The master's own: carried out and logged in one; the lsn of its record."""
    exact = ExactChanges(store)
    execute = store.connection.execute
    before = store.vclock.get(store.origin, 0)
    store.judge(clients=False)
    execute("SAVEPOINT move")
    try:
        with store.unobserved():
            lsn = store.log(Body(Kind.MOVE, store.now(), changes, move=part))
            apply_part(store, exact, (store.origin, lsn), part, changes)
    except BaseException:
        if store.connection.in_transaction:
            execute("ROLLBACK TO move")
            execute("RELEASE move")
            store.reload_log()
        store.vclock[store.origin] = before
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
            store.operations.forget_buckets(part.start, part.end)
            _put_progress(store, part)
        case "delta":
            for change in changes:
                exact.change(place, change)
            for table_id, version, rows in part.rows:
                exact.insert_packed(place, table_id, version, rows)
            for operation in part.operations:
                store.operations.keep(Operation(*operation))
            _put_progress(store, part)
        case "drop":
            if not store.fence.has_given(part.move):
                raise NotYet
            _delete_until(store, part)
        case "sweep":
            if part.move > store.fence.last_move:
                raise NotYet
            _delete_until(store, part)
        case "end":
            execute("DELETE FROM move_progress WHERE move = ?", (part.move,))


def _delete_until(store: DataStore, part: MovePart) -> None:
    """Rows of the range up to a key of one table."""
    table_id, key = int(part.after[0]), part.after[1:]  # type: ignore[call-overload]
    found = store.tables.get(table_id)
    if found is not None:
        columns = key_columns(found)
        store.connection.execute(
            f"DELETE FROM {found.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ? "
            f"AND ({', '.join(columns)}) <= ({', '.join('?' * len(columns))})",
            (part.start, part.end, *key),
        )


def _put_progress(store: DataStore, part: MovePart) -> None:
    progress = Progress(
        part.move,
        part.attempt,
        part.start,
        part.end,
        part.at,
        part.after,
        part.done,
        part.total,
    )
    store.connection.execute(
        "INSERT OR REPLACE INTO move_progress VALUES (?, ?)", (part.move, _encode(progress))
    )


# --- what a master does, on the writer ------------------------------------------------------------


def check_takes(store: DataStore, move: Move) -> None:
    """Still the master that takes these buckets, as of the writer's own fence."""
    store.check_master()
    if not store.fence.takes(move.id):
        raise MoveRefused("the move is over, or waits for something else")


def begin(
    store: DataStore, move: Move, attempt: int, at: Stamp, total: Amount | None = None
) -> int:
    """Empty the range, whatever an earlier attempt or an earlier owner left of it."""
    check_takes(store, move)
    part = MovePart(move.id, attempt, "empty", move.start, move.end, at, total=total)
    return write_part(store, part)


def take(
    store: DataStore, move: Move, known: Progress, delta: Delta, truncated: Mapping[int, int]
) -> int:
    """Only what continues what is on disk, and only while the move goes on.

    `truncated` has the tables of the catalogue, and the version of the last TRUNCATE of each.
    """
    check_takes(store, move)
    present = progress_of(store.connection, move.id)
    if not fits(present, move.id, known.attempt, known.at, known.after):
        raise MoveRefused("a delta that does not continue what is here")
    changes, rows = _as_here(store, delta, truncated)
    part = MovePart(
        move.id,
        known.attempt,
        "delta",
        move.start,
        move.end,
        delta.at,
        delta.after,
        rows,
        delta.operations,
        (known.done[0] + delta.count, known.done[1] + delta.bytes),
        known.total,
    )
    try:
        return write_part(store, part, changes)
    except apsw.ConstraintError as problem:
        # What was done before a unique index was made need not fit it; the rows of now do.
        raise MoveMustRestart(f"older changes do not fit the table as it is: {problem}") from None
    except msgspec.DecodeError as problem:
        raise MoveRefused(str(problem)) from None


def _as_here(
    store: DataStore, delta: Delta, truncated: Mapping[int, int]
) -> tuple[tuple[RowChange, ...], Rows]:
    """Rows and changes as the tables here are; raises while a schema change is half made."""
    for number, version in delta.tables.items():
        if number in truncated and store.versions.get(number) != version:
            raise MoveRefused("a schema change is half made; waiting for it")
    changes = []
    for change in delta.changes:
        if change.table not in truncated:
            continue  # dropped: nothing of it is taken
        found = adapted(change, store.tables[change.table], truncated[change.table])
        if found is not None:
            changes.append(found)
    return tuple(changes), tuple(each for each in delta.rows if each[0] in truncated)


def behind(store: DataStore, move: Move, frozen_at: int) -> Vclock:
    """The writer's own fence has the freeze, so nothing of the range can follow this position."""
    store.check_master()
    if (move.id, frozen_at) not in store.fence.frozen:
        raise MoveRefused("the freeze has not been applied here yet")
    return store.position()[1]


def drop_some(store: DataStore, move: Move, limit: int) -> int:
    """Some of the old rows of a range that was handed over; 0: nothing was left."""
    store.check_master()
    if store.fence.touches(move.start, move.end):
        raise NotOwner("these buckets are still ours here")
    found = _next_drop(store, move.start, move.end, limit)
    if found is None:
        return 0
    return write_part(store, MovePart(move.id, 0, "drop", move.start, move.end, {}, found))


def sweep_some(store: DataStore, start: int, end: int, limit: int) -> int:
    """Some of the rows that no move remembers, of buckets that others own; 0: nothing was left.

    The newest move that is known here goes with the record: replicas do it when they know of it.
    """
    store.check_master()
    if store.fence.touches(start, end):
        raise NotOwner("some of these buckets are ours")
    if any(low <= end and high >= start for _, low, high in store.fence.incoming):
        raise NotOwner("some of these buckets are on their way to us")
    found = _next_drop(store, start, end, limit)
    if found is None:
        return 0
    return write_part(store, MovePart(store.fence.last_move, 0, "sweep", start, end, {}, found))


def _next_drop(store: DataStore, start: int, end: int, limit: int) -> Mark | None:
    """Up to which key the next few old rows reach; None: there are none left."""
    for table in sorted(store.tables.values(), key=lambda each: each.id):
        columns = key_columns(table)
        text = f"SELECT {', '.join(columns)} FROM {table.physical_name} "
        text += f"WHERE {BUCKET_COLUMN} BETWEEN ? AND ? ORDER BY "
        ends = (
            (f"{', '.join(columns)} LIMIT 1 OFFSET {limit - 1}"),
            (f"{', '.join(f'{name} DESC' for name in columns)} LIMIT 1"),  # all that are left
        )
        for last in ends:
            row: Any = store.connection.execute(text + last, (start, end)).fetchone()
            if row is not None:
                return (table.id, *row)
    return None
