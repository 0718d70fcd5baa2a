"""Rows of a range of buckets on their way: read at the source, written at the target.

Reading uses a connection of its own, one read transaction per delta. Writing runs on the writer's
thread; what it does goes into the row log as one record of kind MOVE, and replicas do the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.moves import END, Mark, MovePart, Stamp
from cairn.model.records import Body, Kind, RowChange, Vclock, record_of
from cairn.model.schema import BUCKET_COLUMN, Index, Table, physical_column
from cairn.moves.delta import Delta, MoveMustRestart, Progress, cut
from cairn.storage.data_store import DataStore
from cairn.storage.row_log import Applier, newest_epochs

ROWS_MAX = 2_000  # of one delta: bounds how long the target's writer is busy with it
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode
_decode_ranges = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...]).decode
_AFTER = (
    "SELECT epoch, lsn, body FROM row_log WHERE origin = (SELECT id FROM origin WHERE uuid = ?) "
    "AND lsn > ? ORDER BY lsn"
)
_AT = (
    "SELECT epoch FROM row_log WHERE origin = (SELECT id FROM origin WHERE uuid = ?) AND lsn = ?"
)


def key_places(table: Table) -> list[int]:
    """Where a physical row has its physical key: the bucket, then the primary key."""
    return [0, *(at + 1 for at in table.key_positions)]


def key_columns(table: Table) -> list[str]:
    return [BUCKET_COLUMN, *(physical_column(at) for at in table.key_positions)]


class MoveReader:
    """The source's side. Belongs to one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(10_000)

    def close(self) -> None:
        self._connection.close()

    def stamp(self) -> Stamp:
        """Where this instance's rows stand now."""
        with self._connection:
            return self._stamp(self._vclock())

    def delta(
        self, start: int, end: int, at: Stamp, after: Mark, max_bytes: int, epoch: int
    ) -> Delta:
        """What follows (`at`, `after`), all of it of one moment."""
        with self._connection:
            return self._delta(start, end, at, after, max_bytes, epoch)

    def _delta(
        self, start: int, end: int, at: Stamp, after: Mark, max_bytes: int, epoch: int
    ) -> Delta:
        vclock = self._vclock()
        tables = self._tables()
        keys = {number: key_places(table) for number, table in tables.items()}
        self._check_history(at, vclock)
        position = dict(at)
        changes: list[RowChange] = []
        operations: list[tuple[str, int, tuple[tuple[int, int], ...]]] = []
        size, is_whole = 0, True
        for record_epoch, origin, lsn, body in self._records(at, vclock):
            if size > max_bytes:
                is_whole = False
                break
            size += len(body)
            position[origin] = (lsn, record_epoch)
            record = record_of(origin, record_epoch, lsn, body)
            if record.kind != Kind.ROWS:
                continue
            mine = cut(record.changes, keys, start, end, after)
            changes += mine
            if record.operation is not None:
                touched = sorted({_bucket(change) for change in mine})
                ranges = tuple((bucket, bucket) for bucket in touched)
                operations.append((record.operation[0], len(mine), ranges))
        rows: list[tuple[int, int, list[tuple[object, ...]]]] = []
        if is_whole:
            position = self._stamp(vclock)
            if after == ():
                operations += self._done(start, end)
            rows, after = self._rows(tables, start, end, after, max_bytes - size)
        return Delta(
            epoch=epoch,
            at=position,
            after=after,
            changes=tuple(changes),
            rows=tuple(rows),
            operations=tuple(operations),
            tables={number: table.schema_version for number, table in tables.items()},
            lag=sum(lsn - position.get(origin, (0, 0))[0] for origin, lsn in vclock.items()),
        )

    # --- the log --------------------------------------------------------------------------------

    def _vclock(self) -> Vclock:
        return dict(self._connection.execute("SELECT origin, lsn FROM vclock"))

    def _stamp(self, vclock: Vclock) -> Stamp:
        epochs = newest_epochs(self._connection)
        return {origin: (lsn, epochs.get(origin, 0)) for origin, lsn in vclock.items()}

    def _check_history(self, at: Stamp, vclock: Vclock) -> None:
        """What the target has must be ours, and everything since must still be in the log."""
        known = self._stamp(vclock)
        for origin, (lsn, epoch) in at.items():
            if known.get(origin) == (lsn, epoch):
                continue  # nothing came since
            row: Any = self._connection.execute(_AT, (origin, lsn)).fetchone()
            if lsn and (row is None or row[0] != epoch):
                raise MoveMustRestart(
                    f"the source no longer has record {lsn} of {origin} as of epoch {epoch}"
                )
        for origin, lsn in vclock.items():
            first = at.get(origin, (0, 0))[0] + 1
            if lsn >= first and self._missing(origin, first):
                raise MoveMustRestart(f"the source's log of {origin} no longer has record {first}")

    def _missing(self, origin: str, lsn: int) -> bool:
        return self._connection.execute(_AT, (origin, lsn)).fetchone() is None

    def _records(self, at: Stamp, vclock: Vclock) -> Iterator[tuple[int, str, int, bytes]]:
        """In the order in which they were made: inside an epoch there is one writer."""

        def of(origin: str, after: int) -> Iterator[tuple[int, str, int, bytes]]:
            for epoch, lsn, body in self._connection.cursor().execute(_AFTER, (origin, after)):
                yield epoch, origin, lsn, body

        sources = [
            of(origin, at.get(origin, (0, 0))[0])
            for origin, lsn in vclock.items()
            if lsn > at.get(origin, (0, 0))[0]
        ]
        return heapq.merge(*sources, key=lambda record: (record[0], record[1], record[2]))

    def _done(self, start: int, end: int) -> list[tuple[str, int, tuple[tuple[int, int], ...]]]:
        """Operations that were done here, as far as they concern buckets of the move."""
        found = []
        query = "SELECT id, rows, buckets FROM done_operation WHERE buckets IS NOT NULL"
        for name, count, packed in self._connection.execute(query):
            ranges = tuple(
                (max(low, start), min(high, end))
                for low, high in _decode_ranges(packed)
                if low <= end and high >= start
            )
            if ranges:
                found.append((name, count, ranges))
        return found

    # --- rows -----------------------------------------------------------------------------------

    def _tables(self) -> dict[int, Table]:
        rows: list[Any] = self._connection.execute("SELECT id, body FROM local_table").fetchall()
        return {number: _decode_shape(body)[0] for number, body in sorted(rows)}

    def _rows(
        self, tables: dict[int, Table], start: int, end: int, after: Mark, max_bytes: int
    ) -> tuple[list[tuple[int, int, list[tuple[object, ...]]]], Mark]:
        found: list[tuple[int, int, list[tuple[object, ...]]]] = []
        count = size = 0
        if after == END:
            return [], END
        for number, table in sorted(tables.items()):
            if after and number < after[0]:  # type: ignore[operator]
                continue
            mine: list[tuple[object, ...]] = []
            places = key_places(table)
            for row in self._from(table, start, end, after):
                mine.append(row)
                size += _bytes_of(row)
                after = (number, *(row[at] for at in places))
                if len(mine) + count >= ROWS_MAX or size > max_bytes:
                    found.append((number, table.schema_version, mine))
                    return found, after
            if mine:
                found.append((number, table.schema_version, mine))
                count += len(mine)
            after = (number + 1,)
        return found, END

    def _from(self, table: Table, start: int, end: int, after: Mark) -> Iterator[Any]:
        columns = key_columns(table)
        order = ", ".join(columns)
        text = f"SELECT * FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ?"
        args: list[object] = [start, end]
        if len(after) > 1 and after[0] == table.id:
            text += f" AND ({order}) > ({', '.join('?' * len(columns))})"
            args += after[1:]
        return iter(self._connection.cursor().execute(f"{text} ORDER BY {order}", args))


def _bucket(change: RowChange) -> int:
    row = change.new if change.new is not None else change.old
    assert row is not None
    bucket: int = row[0]
    return bucket


def _bytes_of(row: Sequence[object]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)


# --- writing --------------------------------------------------------------------------------------


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


def write_part(store: DataStore, part: MovePart, changes: tuple[RowChange, ...] = ()) -> int:
    """The master's own: carried out and logged in one; the lsn of its record."""
    applier = Applier(store)
    execute = store.connection.execute
    before = dict(store.vclock)
    execute("SAVEPOINT move")
    try:
        with store.unobserved():
            lsn = store.log(Body(Kind.MOVE, store.now(), changes, move=part))
            apply_part(store, applier, store.origin, lsn, part, changes)
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
    applier: Applier,
    origin: str,
    lsn: int,
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
                applier.change(origin, lsn, change)
            for table_id, version, rows in part.rows:
                applier.insert_all(origin, lsn, table_id, version, rows)
            for operation in part.operations:
                store.keep_operation(*operation)
            _put_progress(store, part)
        case "drop":
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
