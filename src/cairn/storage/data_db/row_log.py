"""The row log and full copies: reading them for others, applying them here.

Reading uses connections of its own; applying runs on the writer's thread, through `DataStore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from cairn.model.log.records import (
    Kind,
    Logged,
    Packed,
    Record,
    RowChange,
    RowOp,
    Vclock,
    decode_body,
    is_one_row,
    record_of,
)
from cairn.replication.applier import (
    Damaged,
    History,
    LogRefused,
    Verdict,
    diverged,
    judge,
    why_waits,
)
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.data_db.exact_changes import ExactChanges
from cairn.storage.data_db.log_tables import AFTER, AT, OF_ORIGIN, by_number
from cairn.storage.data_db.long.arriving import Arriving
from cairn.storage.data_db.moving_in import NotYet, apply_part
from cairn.storage.data_db.operations import Operations

_READ = f"SELECT epoch, lsn, body {AFTER} ORDER BY place LIMIT ?3"
_READ_OF = by_number(_READ)
_EPOCH_OF = by_number(f"SELECT epoch {AT}")
_NEWEST = f"SELECT epoch {OF_ORIGIN} ORDER BY place DESC LIMIT 1"
_MEAN_OF = by_number(
    f"SELECT avg(size) FROM (SELECT length(body) AS size {OF_ORIGIN} ORDER BY place DESC LIMIT 500)"
)
READ_BYTES = 32 << 20  # of records that are opened together
#: A tail that is longer is not undone: taking a full copy is quicker, and needs less memory.
UNDONE_BYTES = 128 << 20
_OLDEST_OF = by_number(f"SELECT lsn {OF_ORIGIN} ORDER BY place LIMIT 1")

#: What SQLite or its binding says of values that do not fit; anything else is a fault of ours or
#: of the disk, and stops the instance.
_MISFITS = (
    apsw.ConstraintError,
    apsw.SQLError,
    apsw.MismatchError,
    apsw.BindingsError,
    apsw.RangeError,
    apsw.TooBigError,
    OverflowError,
    TypeError,
    ValueError,
    IndexError,
)


class LogReader:
    """Reads records for relays and streams. Belongs to one thread."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self.connection.set_busy_timeout(10_000)
        self._numbers: dict[str, int] = {}

    def _number(self, origin: str) -> int:
        """An origin keeps its number for ever; it is known even when the list is damaged later."""
        found = self._numbers.get(origin)
        if found is None:
            query = "SELECT uuid, id FROM origin NOT INDEXED"
            self._numbers = dict(self.connection.execute(query))
            found = self._numbers.get(origin, 0)  # 0 is nobody's
        return found

    def read(self, origin: str, after: int, limit: int) -> list[Record]:
        """At least one, if there is one, then as many as fit into memory."""
        found = self.packed(origin, after, limit, READ_BYTES)
        return [record_of(origin, each.epoch, each.lsn, each.body) for each in found]

    def packed(self, origin: str, after: int, limit: int, max_bytes: int) -> list[Packed]:
        """For relays: at least one, then as many as fit; bodies stay closed."""
        found: list[Packed] = []
        size = 0
        cursor: Any = self.connection.cursor()
        place = (self._number(origin), after, limit)
        for epoch, lsn, body in cursor.execute(_READ_OF, place):
            size += len(body)
            if found and size > max_bytes:
                break
            found.append(Packed(origin, epoch, lsn, body))
        cursor.close()  # a half-read cursor would keep this connection in the past
        return found

    def mean_bytes(self, origin: str) -> float:
        """Size of the newest records, on average; only their headers are read."""
        found: Any = self.connection.execute(_MEAN_OF, (self._number(origin),)).fetchone()
        return found[0] or 0.0

    def epoch_at(self, origin: str, lsn: int) -> int:
        """0: the record is not here any more. A full copy brings none, but the epoch of its end."""
        row: Any = self.connection.execute(_EPOCH_OF, (self._number(origin), lsn)).fetchone()
        if row is not None:
            return int(row[0])
        end, epoch = copied_epochs(self.connection).get(origin, (0, 0))
        return epoch if end == lsn else 0

    def epochs_at(self, vclock: Vclock) -> Vclock:
        """The epoch of each origin's record at `vclock`, as far as it is known."""
        found = {origin: self.epoch_at(origin, lsn) for origin, lsn in vclock.items()}
        return {origin: epoch for origin, epoch in found.items() if epoch}

    def goes_past_copy(self, vclock: Vclock) -> bool:
        """Whether records came after the last full copy, or there was none."""
        copied = copied_epochs(self.connection)
        return any(lsn > copied.get(origin, (0, 0))[0] for origin, lsn in vclock.items())

    def hour(self) -> int:
        """How many hours instances have lived with this file (`operations`)."""
        return Operations(self.connection).hour

    def has_operations(self, before: int) -> bool:
        """Whether operations are remembered that were done before an hour of this file."""
        query = "SELECT 1 FROM done_operation WHERE at < ? LIMIT 1"
        return self.connection.execute(query, (before,)).fetchone() is not None

    def oldest(self, origin: str) -> int:
        found: Any = self.connection.execute(_OLDEST_OF, (self._number(origin),)).fetchone()
        return 0 if found is None else found[0]

    def close(self) -> None:
        self.connection.close()


COPIED_EPOCHS = "copied_epochs"  # in `local_state`
_NOT_UNDONE = (Kind.DDL, Kind.MOVE)
ENTERED_EPOCH = "entered_epoch"  # likewise: what is here was held against its cut and those before
_decode_epochs = msgspec.msgpack.Decoder(dict[str, tuple[int, int]]).decode


def copied_epochs(connection: apsw.Connection) -> dict[str, tuple[int, int]]:
    """Origin → (lsn, its epoch) as of the last full copy, which brings no log along."""
    query = "SELECT value FROM local_state WHERE key = ?"
    row: Any = connection.execute(query, (COPIED_EPOCHS,)).fetchone()
    return {} if row is None else _decode_epochs(row[0])


def newest_epochs(connection: apsw.Connection) -> Vclock:
    """The epoch of the newest record held of each origin."""
    found = {origin: epoch for origin, (_, epoch) in copied_epochs(connection).items()}
    known: list[Any] = connection.execute("SELECT uuid FROM origin NOT INDEXED").fetchall()
    for (origin,) in known:
        row: Any = connection.execute(_NEWEST, (origin,)).fetchone()
        if row is not None:
            found[origin] = row[0]
    return found


# --- applying -------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """What became of records that came: how many were applied, which were here already."""

    applied: int
    known: list[Packed]
    waits_for: str | None = None  # why those after them are not applied yet


class Applier:
    """Puts records of other origins into the tables, on the writer's thread."""

    def __init__(self, store: DataStore) -> None:
        self._store = store
        self._exact = ExactChanges(store)
        self.arriving = Arriving(store.path.parent)
        self.history = History()  # the epoch that was entered, in the writer's own order

    def apply(self, records: Sequence[Packed], history: History) -> Taken:
        """Apply what may be; stops quietly at the first that has to wait.

        What must not be applied raises `LogRefused`; everything before it stays applied.
        """
        store = self._store
        if not store.is_complete:  # a file that is being filled: records go on from its end
            return Taken(0, [], "a full copy comes first")
        history = msgspec.structs.replace(history, promised=store.promised)
        done, known, waits_for = 0, [], None
        store.judge(clients=False)
        with store.unobserved():
            for record in records:
                verdict = judge(record, self.arriving.standing(store.vclock), history)
                if verdict is Verdict.WAIT:
                    waits_for = why_waits(record, store.vclock, history)
                    break
                if verdict is Verdict.APPLY:
                    try:
                        self._apply_whole(record)
                    except NotYet:
                        waits_for = "the hand-over of these buckets has not been applied here yet"
                        break
                    done += 1
                else:
                    known.append(record)
        return Taken(done, known, waits_for)

    def _apply_whole(self, record: Packed) -> None:
        """All of a statement or nothing of it."""
        body = _opened(record)
        if body.more:
            self.arriving.hold(record)
        elif self.arriving.goes_on(record):
            self._apply_long(record, body)
        else:
            self.arriving.forget(record.origin)
            self._apply_record(record, body)

    def _apply_long(self, last: Packed, body: Logged) -> None:
        store = self._store
        before = store.vclock.get(last.origin, 0)
        store.connection.execute("SAVEPOINT long_statement")
        try:
            for record in self.arriving.take(last.origin):
                self._apply_record(record, _opened(record))
            self._apply_record(last, body)
        except BaseException:
            if store.connection.in_transaction:
                store.connection.execute("ROLLBACK TO long_statement")
                store.connection.execute("RELEASE long_statement")
                store.reload_log()
            store.vclock[last.origin] = before
            raise
        store.connection.execute("RELEASE long_statement")

    def _apply_record(self, record: Packed, body: Logged) -> None:
        """All of a record or nothing of it."""
        store = self._store
        try:
            if is_one_row(body) and store.may_just_add(record):
                self._apply_one(record, body)
            else:
                self._apply_many(record, body)
        except msgspec.DecodeError as problem:  # of rows that are packed
            raise Damaged(record.origin, record.lsn, f"cannot be read: {problem}") from None
        except _MISFITS as problem:
            if not store.connection.in_transaction:
                raise  # the whole group was taken back
            why = f"does not fit: {type(problem).__name__}: {problem}"
            raise Damaged(record.origin, record.lsn, why) from None

    def _apply_one(self, record: Packed, body: Logged) -> None:
        """A savepoint costs more than the row: what SQLite refuses it takes back by itself, and the
        record alone is easily taken back."""
        store = self._store
        store.keep_record(record, body)
        try:
            self._exact.change((record.origin, record.lsn), body.changes[0])
        except BaseException:
            if store.connection.in_transaction:
                store.take_back_newest(record)
            raise

    def _apply_many(self, record: Packed, body: Logged) -> None:
        store = self._store
        before = store.vclock.get(record.origin, 0)
        store.connection.execute("SAVEPOINT record")
        try:
            self._apply(record, body)
        except BaseException:
            if not store.connection.in_transaction:
                raise  # a damaged page: the whole group was taken back
            store.connection.execute("ROLLBACK TO record")
            store.connection.execute("RELEASE record")
            store.vclock[record.origin] = before
            store.reload_log()
            if body.kind == Kind.DDL:
                store.reload_tables()
            raise
        store.connection.execute("RELEASE record")

    def _apply(self, record: Packed, body: Logged) -> None:
        store = self._store
        if body.kind == Kind.DDL:
            if body.shape is None:
                raise Damaged(record.origin, record.lsn, "changes the schema and has no shape")
            store.apply_shape(body.shape)
        place = (record.origin, record.lsn)
        if body.move is not None:
            apply_part(store, self._exact, place, body.move, body.changes)
        else:
            if body.bulk is not None:
                self._exact.insert_packed(place, *body.bulk)
            self._exact.changes(place, body.changes)
        store.keep_record(record, body)

    def repeat(self, record: Packed) -> None:
        """A record that is known to be history and next: a backup's, into a copy of its rows."""
        self._store.judge(clients=False)
        with self._store.unobserved():
            self._apply_whole(record)

    # --- a tail that belongs to no history ------------------------------------------------------

    def enter_epoch(self, history: History) -> list[Record] | None:
        """Put aside what goes past the cut. The records moved, or None: only a copy can help."""
        store = self._store
        self.history = history
        self.arriving.forget()
        before = int(store.get(ENTERED_EPOCH, 0))
        if history.epoch != before:
            store.put(ENTERED_EPOCH, history.epoch)
        if before and not history.knows_all_after(before) and store.vclock:
            store.must_copy()  # a cut that nobody remembers may have left out what is here
            return None
        if store.vclock.get(store.origin, 0) < history.cut.get(store.origin, 0):
            store.must_copy()  # a disk has lost records of our own, which nobody sends to us
            return None
        limits = diverged(store.vclock, history, newest_epochs(store.connection))
        if not limits:
            return []
        tail = self._set_aside(limits)
        wanted = sum(store.vclock[origin] - limit for origin, limit in limits.items())
        if len(tail) != wanted or any(record.kind in _NOT_UNDONE for record in tail):
            # Schema changes and moved buckets cannot be undone from their records, nor what is
            # lost or too long. Until the copy is
            # there, this instance must not be asked for its vclock, after a restart neither.
            store.must_copy()
            return None
        tail.sort(key=lambda record: (record.epoch, record.origin, record.lsn), reverse=True)
        store.judge(clients=False)
        store.connection.execute("SAVEPOINT tail")
        try:
            with store.unobserved():
                for record in tail:
                    self._take_back(record)
        except (LogRefused, *_MISFITS):
            store.connection.execute("ROLLBACK TO tail")
            store.must_copy()
            return None
        finally:
            if store.connection.in_transaction:
                store.connection.execute("RELEASE tail")
        for origin, limit in limits.items():
            store.cut_vclock(origin, limit)
        return tail

    def _set_aside(self, limits: Vclock) -> list[Record]:
        """What goes past these is noted; those records that may be held in memory."""
        store, tail, size = self._store, [], 0
        for origin, limit in limits.items():
            rows: Any = store.connection.cursor().execute(_READ, (origin, limit, -1))
            for epoch, lsn, body in rows:
                record = record_of(origin, epoch, lsn, body)
                store.set_aside(record)
                size += len(body)
                if size <= UNDONE_BYTES:
                    tail.append(record)
        return tail

    def put_aside(self, origin: str, epoch: int) -> int:
        """Note an epoch of an origin, of which some records are no history, before a full copy."""
        query = f"SELECT epoch, lsn, body {OF_ORIGIN} AND epoch = ?2 ORDER BY place DESC"
        rows: Any = self._store.connection.cursor().execute(query, (origin, epoch))
        count = 0
        for row in rows:
            self._store.set_aside(record_of(origin, *row))
            count += 1
        self._store.must_copy()
        return count

    def _take_back(self, record: Record) -> None:
        for change in reversed(record.changes):
            self._undo(record, change)
        self._store.forget_record(record)

    def _undo(self, record: Record, change: RowChange) -> None:
        inverse = {RowOp.INSERT: RowOp.DELETE, RowOp.DELETE: RowOp.INSERT}
        op = inverse.get(RowOp(change.op), RowOp.UPDATE)
        undone = RowChange(change.table, change.version, op, change.new, change.old)
        self._exact.change((record.origin, record.lsn), undone)


def _opened(record: Packed) -> Logged:
    try:
        return decode_body(record.body)
    except msgspec.DecodeError as problem:
        raise Damaged(record.origin, record.lsn, f"cannot be read: {problem}") from None
