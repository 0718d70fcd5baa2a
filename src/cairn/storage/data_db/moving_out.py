"""Rows of a range of buckets that leave: deltas, each read in one transaction at the source."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.log.records import Kind, Operation, RowChange, Vclock, record_of
from cairn.model.members.moves import END, Amount, DoneIn, Mark, Stamp
from cairn.model.sharding.spans import Ranges, intersection, of_buckets
from cairn.model.tables.schema import BUCKET_COLUMN, Index, Table
from cairn.moves.delta import Delta, MoveMustRestart, Rows, cut
from cairn.storage.data_db.log_tables import AFTER, AT
from cairn.storage.data_db.moving_in import key_columns, key_places
from cairn.storage.data_db.packed_read import Found, PackedRead
from cairn.storage.data_db.row_log import newest_epochs

ROWS_MAX = 4_000  # of one delta: bounds how long the target's writer is busy with it
COUNT_S = 3.0  # a range that cannot be counted in this time is moved without
_decode_shape = msgspec.msgpack.Decoder(tuple[Table, tuple[Index, ...]]).decode
_decode_ranges = msgspec.msgpack.Decoder(Ranges).decode
#: Bytes as `PackedRead` counts them, in SQL.
_SIZE = "CASE WHEN typeof({0}) IN ('text', 'blob') THEN octet_length({0}) ELSE 8 END"
_AFTER = f"SELECT epoch, lsn, body {AFTER} ORDER BY place"
_AT = f"SELECT epoch {AT}"


class MoveReader:
    """The source's side. Belongs to one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(10_000)
        self._packed = PackedRead(self._connection)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """All that is read in it is of one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # not after a damaged page
                self._connection.execute("COMMIT")

    def stamp(self) -> Stamp:
        """Where this instance's rows stand now."""
        with self._moment():
            return self._stamp(self._vclock())

    def first_of(self, ranges: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
        """The first of these ranges that has rows here."""
        with self._moment():
            names = [table.physical_name for table in self._tables().values()]
            for found in ranges:
                for name in names:
                    query = f"SELECT 1 FROM {name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ? LIMIT 1"
                    if self._connection.execute(query, found).fetchone() is not None:
                        return found
        return None

    def total(self, start: int, end: int) -> Amount | None:
        """All rows of a range and their bytes, as deltas count them; None: there are too many."""
        limit = time.monotonic() + COUNT_S
        self._connection.set_progress_handler(lambda: time.monotonic() > limit, 10_000)
        count = size = 0
        try:
            with self._moment():
                for table in self._tables().values():
                    sizes = " + ".join(_SIZE.format(name) for name in table.physical_columns)
                    row: Any = self._connection.execute(
                        f"SELECT count(*), coalesce(sum({sizes}), 0) FROM {table.physical_name} "
                        f"WHERE {BUCKET_COLUMN} BETWEEN ? AND ?",
                        (start, end),
                    ).fetchone()
                    count, size = count + row[0], size + row[1]
        except apsw.InterruptError:
            return None
        finally:
            self._connection.set_progress_handler(None)
        return count, size

    def delta(
        self, start: int, end: int, at: Stamp, after: Mark, max_bytes: int, epoch: int
    ) -> Delta:
        """What follows (`at`, `after`), all of it of one moment."""
        with self._moment():
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
        operations: list[DoneIn] = []
        size, is_whole, earlier = 0, True, 0
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
                ranges = _done_in(record.operation, mine, start, end)
                if ranges:
                    operations.append((record.operation.id, earlier + len(mine), ranges))
            earlier = earlier + len(mine) if record.more else 0
        rows: Rows = ()
        size_of_rows = 0
        if is_whole:
            position = self._stamp(vclock)
            if after == ():
                operations += self._done(start, end)
            rows, after, size_of_rows = self._rows(tables, start, end, after, max_bytes - size)
        return Delta(
            epoch=epoch,
            at=position,
            after=after,
            changes=tuple(changes),
            rows=rows,
            operations=tuple(operations),
            tables={number: table.schema_version for number, table in tables.items()},
            lag=sum(lsn - position.get(origin, (0, 0))[0] for origin, lsn in vclock.items()),
            bytes=size_of_rows,
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

    def _done(self, start: int, end: int) -> list[DoneIn]:
        """Operations that were done here, as far as they concern buckets of the move."""
        found = []
        query = "SELECT id, rows, buckets FROM done_operation WHERE buckets IS NOT NULL"
        for name, count, packed in self._connection.execute(query):
            ranges = intersection(_decode_ranges(packed), ((start, end),))
            if ranges:
                found.append((name, count, ranges))
        return found

    # --- rows -----------------------------------------------------------------------------------

    def _tables(self) -> dict[int, Table]:
        rows: list[Any] = self._connection.execute("SELECT id, body FROM local_table").fetchall()
        return {number: _decode_shape(body)[0] for number, body in sorted(rows)}

    def _rows(
        self, tables: dict[int, Table], start: int, end: int, after: Mark, max_bytes: int
    ) -> tuple[Rows, Mark, int]:
        rows: list[tuple[int, int, msgspec.Raw]] = []
        count = size = 0
        if after == END:
            return (), END, 0
        for number, table in sorted(tables.items()):
            if after and number < after[0]:  # type: ignore[operator]
                continue
            found = self._from(table, start, end, after, (ROWS_MAX - count, max_bytes - size))
            if found.rows:
                rows.append((number, table.schema_version, msgspec.Raw(found.packed)))
                count, size = count + found.rows, size + found.size
                if count >= ROWS_MAX or size > max_bytes:
                    key = (found.last[at] for at in key_places(table))
                    return tuple(rows), (number, *key), size
            after = (number + 1,)
        return tuple(rows), END, size

    def _from(
        self, table: Table, start: int, end: int, after: Mark, most: tuple[int, int]
    ) -> Found:
        """The next rows of one table, as many as may come."""
        columns = key_columns(table)
        order = ", ".join(columns)
        text = f"SELECT * FROM {table.physical_name} WHERE {BUCKET_COLUMN} BETWEEN ? AND ?"
        args: list[object] = [start, end]
        if len(after) > 1 and after[0] == table.id:
            text += f" AND ({order}) > ({', '.join('?' * len(columns))})"
            args += after[1:]
        width = len(table.physical_columns)
        return self._packed.read(f"{text} ORDER BY {order}", args, width, *most)


def _done_in(operation: Operation, mine: list[RowChange], start: int, end: int) -> Ranges:
    """Where it was done, as far as it moves: also in buckets whose rows are not copied yet, or
    where it found nothing to change.
    """
    if operation.buckets is None:  # a version before did not tell
        return of_buckets(_bucket(change) for change in mine)
    return intersection(operation.buckets, ((start, end),))


def _bucket(change: RowChange) -> int:
    row = change.new if change.new is not None else change.old
    assert row is not None
    bucket: int = row[0]
    return bucket
