"""Rows and their log in `data.db`, behind the one writer that decides.

Mastership, epoch, lease, bucket ownership and schema version are checked here, inside the
transaction that writes. Each committed statement leaves one record, or several if it changed much,
made by the preupdate hook from what SQLite really changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.errors import (
    LimitExceeded,
    NoMaster,
    NotOwner,
    TableUnderDdl,
)
from cairn.model.log.records import (
    Body,
    Bulk,
    Kind,
    Operation,
    Packed,
    Record,
    Shape,
    Vclock,
    body_of,
    encode_body,
    encode_part,
    join_rows,
    pack_rows,
)
from cairn.model.settings import limits
from cairn.model.sharding.spans import Ranges
from cairn.native.loading import POINTS, load
from cairn.native.point_inserts import RECORD_LOST, InsertRoom, PointInsert
from cairn.storage.data_db import operations
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.hidden.indexes import HiddenIndexes
from cairn.storage.data_db.log_tables import PUT_RECORD, open_log, place
from cairn.storage.data_db.packed_insert import PackedInsert
from cairn.storage.data_db.shapes import RowTables
from cairn.storage.files.sqlite import PagesDamaged, check_file, insert_many, open_writer, refused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS local_state (key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS local_table (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS _cairn_diverged (
    origin TEXT NOT NULL, epoch INTEGER NOT NULL, lsn INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (origin, epoch, lsn)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS move_progress (move INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
"""
#: Filled as rows are touched: what does not fit is read and written more than once by bulk work.
CACHE_KIB = 64 * 1024
#: A record has to fit into one message between instances.
RECORD_MAX_BYTES = limits.RECORD_BYTES
#: What is longer becomes several records.
ONE_RECORD_BYTES = 4 * limits.PART_BYTES


class RecordLost(BaseException):
    """A row is in the group's transaction without its record: the group must not be committed."""


class DataStore(RowTables):
    """Everything that touches `data.db` for writing. Lives on the writer's thread."""

    def __init__(
        self,
        path: Path,
        origin: str,
        *,
        now_micros: Callable[[], int],
        lease_held: Callable[[int], bool] = lambda epoch: True,
        register: Callable[[apsw.Connection], None] = lambda connection: None,
        raft: Path | None = None,
    ) -> None:
        self.damage = ""  # what was found wrong with the file when it was opened
        self.is_read = True  # whether it was looked at whole
        try:
            self.is_read = check_file(path)
        except PagesDamaged as problem:
            self.damage = problem.message
        self.path, self.origin = path, origin
        self.now, self.lease_held = now_micros, lease_held
        self.connection = open_writer(path)
        self._inserts: InsertRoom | None = None
        try:
            self.packed = PackedInsert(self.connection)
            if load(self.connection, POINTS):
                self._inserts = InsertRoom(self.connection, PUT_RECORD)
            self.connection.pragma("cache_size", -CACHE_KIB)
            register(self.connection)
            self.operations = operations.Operations(self.connection)
            if raft is not None:  # statements that change rows may read global tables
                self.connection.execute(f"ATTACH 'file:{raft}?mode=ro' AS raft")
            self.connection.execute(_SCHEMA + operations.SCHEMA)
            open_log(self.connection)
            self.hidden = HiddenIndexes(self.connection, takes_packed=self.packed.is_there)
            self.hidden.forget_left()
            super().__init__(path.parent)
            self.reload()
        except apsw.Error as problem:
            self.close()
            raise refused(path, problem) from None
        self.fence = self.newest = Fence()
        self.connection.preupdate_hook(self._on_change)

    def close(self) -> None:
        if self._inserts is not None:
            self._inserts.close()
        self.connection.close()

    def reload(self) -> None:
        """Learn the local tables, the vclock and the promise from disk."""
        self.touched.all()
        self.reload_tables()
        self.vclock: Vclock = dict(self.connection.execute("SELECT origin, lsn FROM vclock"))
        self.reload_log()
        self.promised = int(self.get("promised_epoch", 0))

    def reload_log(self) -> None:
        """As the open transaction sees it, when records were taken back: a number of an origin that
        no row has must not be used, nor an epoch be known that nobody would find after a restart.
        """
        query = "SELECT uuid, id FROM origin NOT INDEXED"
        self._origins: dict[str, int] = dict(self.connection.execute(query))
        self.last_epoch = int(self.get("last_epoch", 0))

    def get(self, key: str, default: Any = None) -> Any:
        row = self.connection.execute(
            "SELECT value FROM local_state WHERE key = ?", (key,)
        ).fetchone()
        return default if row is None else row[0]

    def put(self, key: str, value: Any) -> None:
        self.connection.execute("INSERT OR REPLACE INTO local_state VALUES (?, ?)", (key, value))

    # --- checks inside the transaction ----------------------------------------------------------

    def check_master(self) -> None:
        fence = self.fence
        if not fence.is_master:
            raise NoMaster(
                "this instance is not the master of its replicaset",
                detail=f"master: {fence.master or 'none'}, epoch {fence.epoch}",
            )
        if self.promised > fence.epoch:
            raise NoMaster(f"a newer master is being named: epoch {self.promised} was promised")
        if not self.lease_held(fence.epoch):
            raise NoMaster(
                "this master has lost contact with the cluster's leader",
                hint="the statement was not executed; try again",
            )

    def check_write(
        self, table: int, version: int, buckets: Iterable[int], ranges: Ranges | None
    ) -> None:
        """All that guards a client's write, in the transaction that makes it."""
        self.check_master()
        self.check_version(table, version)
        if ranges is not None:
            self.check_ranges(ranges)
        self.check_buckets(buckets)

    def check_buckets(self, buckets: Iterable[int]) -> None:
        # The newest fence is on its way here. It counts for what it takes away: the lease may
        # have been granted to it, and not to what was known before.
        fence, newest = self.fence, self.newest
        for bucket in buckets:
            if not fence.owns(bucket) or (newest is not fence and not newest.owns(bucket)):
                raise NotOwner(
                    f"bucket {bucket} does not belong to this replicaset",
                    detail=f"as of epoch {self.fence.epoch}, master {self.fence.master}",
                )

    def check_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        if not (self.fence.owns_all(ranges) and self.newest.owns_all(ranges)):
            raise NotOwner(
                "some buckets of the statement do not belong to this replicaset",
                detail=f"as of epoch {self.fence.epoch}, master {self.fence.master}",
            )

    def check_version(self, table: int, version: int) -> None:
        have = self.versions.get(table)
        if have != version:
            raise TableUnderDdl(
                f"the table is changing: this instance has schema {have}, "
                f"the statement was planned for {version}",
                hint="try again",
            )

    # --- writing --------------------------------------------------------------------------------

    def insert_row(self, table: int, sql: str, row: Sequence[Any]) -> tuple[int, int]:
        """One short new row. SQLite takes a failed one back by itself: no savepoint is needed."""
        if self.kin.names(table):
            return self.statement(lambda: self.insert_one(sql, row), brief=True)
        self._changes.clear()
        self.judge(clients=True)
        self.connection.execute(sql, row)
        if not self._changes:
            return 0, 0
        try:
            return 1, self.log(Body(Kind.ROWS, self.now(), self.take_changes()))
        except Exception as problem:
            if not self.connection.in_transaction:
                raise  # the row is gone as well
            raise RecordLost from problem

    def insert_asked(
        self, table: int, bucket: int, what: PointInsert, data: bytes, at: int
    ) -> tuple[int, int] | None:
        """The same in C, from a request whose parameters begin at `at`. None: nothing was done, and
        Python has to do it."""
        if self.kin.names(table) or any(each.computed for each in self.indexes.get(table, ())):
            return None
        origin, epoch = self.origin, self.fence.epoch
        number = self._origins.get(origin)
        if number is None or epoch != self.last_epoch or self._inserts is None:
            return None  # more has to be written than a row and a record
        self.judge(clients=True)
        lsn = self.vclock.get(origin, 0) + 1
        hook = self.connection.preupdate_hook
        hook(None)  # the record is made there
        try:
            count = self._inserts.insert(what, data, at, place(number, lsn), epoch, self.now())
        finally:
            hook(self._on_change)
        if count == 1:
            self.vclock[origin] = lsn
            self.touched.row(table, bucket)
            return 1, lsn
        if count == 0:
            return 0, 0
        if not self.connection.in_transaction:
            raise apsw.exception_for(what.plan.state)
        if count == RECORD_LOST:
            raise RecordLost
        return None

    def statement(
        self,
        run: Callable[[], int],
        *,
        alone: bool = False,
        brief: bool = False,
    ) -> tuple[int, int]:
        """One statement, whole or not at all: rows changed, and the lsn of its record (0: none).

        A savepoint makes SQLite copy every page that is touched; the only statement of its
        transaction (`alone`) is taken back with that instead. `brief`: it runs on the event loop,
        and is taken back with `TooLongHere` if it meets a long row.
        """
        self._begin_statement()
        before = self.vclock.get(self.origin, 0)
        if not alone:
            self.connection.execute("SAVEPOINT statement")
        try:
            count = self.briefly(lambda: self.whole(run)) if brief else self.whole(run)
            lsn = self._log_statement()
        except BaseException:
            if self.connection.in_transaction:
                self._take_back(alone)
                self.reload_log()
            self._gathered.clear()
            if self.vclock.get(self.origin, 0) != before:
                self.vclock[self.origin] = before
            raise
        if not alone:
            self.connection.execute("RELEASE statement")
        return count, lsn

    def _begin_statement(self) -> None:
        self._gathered.clear()
        self._operation: Operation | None = None
        self._bulk: Bulk | None = None
        self.judge(clients=True)

    def look(self, run: Callable[[], int], *, alone: bool, brief: bool) -> None:
        """A statement that is taken back: it leaves no record, and what is checked at COMMIT is not
        checked."""
        self._begin_statement()
        if not alone:
            self.connection.execute("SAVEPOINT statement")
        try:
            self.briefly(run) if brief else run()
        finally:
            if self.connection.in_transaction:
                self._take_back(alone)
            self._gathered.clear()

    def _take_back(self, alone: bool) -> None:
        if alone:
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN IMMEDIATE")  # for whoever ends the transaction
        else:
            self.connection.execute("ROLLBACK TO statement")
            self.connection.execute("RELEASE statement")

    def _log_statement(self) -> int:
        gathered, now = self._gathered, self.now()
        body = Body(Kind.ROWS, now, tuple(self._changes), None, self._operation, self._bulk)
        data = encode_body(body)
        if not gathered.is_long and (len(data) <= ONE_RECORD_BYTES or len(self._changes) < 2):
            gathered.clear()
            return self.log(body, data)
        if len(data) > ONE_RECORD_BYTES:
            gathered.pack(len(data))
            data = encode_body(msgspec.structs.replace(body, changes=()))
        for part in gathered.parts():
            self._put(encode_part(now, part))
        gathered.clear()
        self.touched.all()
        return self._put(data)

    def log(self, body: Body, data: bytes | None = None) -> int:
        """`data`: the body, if it is encoded already."""
        is_empty = not body.changes and body.operation is None and body.bulk is None
        if is_empty and body.kind == Kind.ROWS:
            return 0
        lsn = self._put(data or encode_body(body))
        if body.kind == Kind.ROWS and body.bulk is None:
            self.touched.rows(body.changes)
        else:
            self.touched.all()
        return lsn

    def _put(self, data: bytes) -> int:
        lsn = self.vclock.get(self.origin, 0) + 1
        epoch = self.fence.epoch
        number = self._origins.get(self.origin) or self.origin_id(self.origin)
        if len(data) > RECORD_MAX_BYTES:
            raise LimitExceeded(
                f"the statement changes {len(data) >> 20} MiB, which its replicas cannot be told "
                f"at once (at most {RECORD_MAX_BYTES >> 20})",
                hint="change fewer rows at a time, or use TRUNCATE or COPY",
            )
        self.connection.execute(PUT_RECORD, (place(number, lsn), epoch, data))
        self._advance(self.origin, epoch, lsn)
        return lsn

    def origin_id(self, uuid: str) -> int:
        """The small number under which an origin's records are kept here."""
        found = self._origins.get(uuid)
        if found is None:
            self.connection.execute("INSERT INTO origin(uuid) VALUES (?)", (uuid,))
            found = self._origins[uuid] = self.connection.last_insert_rowid()
        return found

    def _advance(self, origin: str, epoch: int, lsn: int) -> None:
        self.vclock[origin] = lsn
        if epoch != self.last_epoch:
            self.last_epoch = epoch
            self.put("last_epoch", epoch)

    def bulk_insert(self, table: int, sql: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Many plain inserts: what they change is what they are, the hook need not tell."""
        if self.kin.names(table):
            if self._names_in_bulk(table):
                return self.packed_insert(table, pack_rows(rows))
            self.connection.executemany(sql, rows)  # the hook tells which rows are named
            return len(rows)
        packed: list[bytes] = []
        with self.unobserved():
            insert_many(self.connection, sql, rows, lambda block: packed.append(pack_rows(block)))
        self._bulk = (table, self.versions.get(table, 0), join_rows(packed, len(rows)))
        return len(rows)

    def packed_insert(self, table: int, packed: bytes) -> int:
        """The same with rows that are packed already."""
        is_long = len(packed) > limits.RECORD_BYTES // 2  # the hook makes several records of it
        if is_long or (self.kin.names(table) and not self._names_in_bulk(table)):
            return self.packed.insert(self.tables[table], packed)
        with self.unobserved():
            count = self.packed.insert(self.tables[table], packed)
        self.packed.check_named(self.kin, self.tables[table], packed, self.fenced_at)
        self._bulk = (table, self.versions.get(table, 0), msgspec.Raw(packed))
        return count

    def _names_in_bulk(self, table: int) -> bool:
        """Whether one question finds new rows that name nobody: not where that waits for more."""
        is_deferred = any(key.is_deferred for key in self.tables[table].foreign_keys)
        return not is_deferred and self.packed.is_in_c(self.tables[table])

    def operation(self, operation: str) -> Operation | None:
        """What was carried out before under this id; None: nothing."""
        return self.operations.find(operation)

    def put_operation(self, operation: Operation) -> None:
        """In the same transaction and the same record as its rows: replicas know it too."""
        self._operation = operation
        self.operations.keep(operation)

    def failed(self) -> None:
        """The group was rolled back: what memory says of it is not so."""
        self.reload()

    # --- schema ---------------------------------------------------------------------------------

    def reshape(self, shape: Shape) -> bool:
        """Make a table look as it shall and leave a record, in one transaction."""
        if not self.differs(shape):
            return False  # done before: a repeated request changes nothing
        self.apply_shape(shape)
        self._changes.clear()
        self.log(Body(Kind.DDL, self.now(), shape=shape))
        return True

    # --- epochs ---------------------------------------------------------------------------------

    def promise(self, epoch: int) -> tuple[int, Vclock]:
        """Acknowledge nothing older than `epoch` from now on; durable when the group commits."""
        if epoch > self.promised:
            self.promised = epoch
            self.put("promised_epoch", epoch)
        return self.last_epoch, dict(self.vclock)

    def position(self) -> tuple[int, Vclock]:
        return self.last_epoch, dict(self.vclock)

    def begin_empty(self, promised: int, diverged: Sequence[tuple[Any, ...]]) -> None:
        """A new file in the place of a damaged one; promises that were given are kept."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.must_copy()
        self.promise(promised)
        self.connection.executemany(
            "INSERT OR REPLACE INTO _cairn_diverged VALUES (?, ?, ?, ?)", diverged
        )
        self.connection.execute("COMMIT")

    def must_copy(self) -> None:
        """What is here is not the replicaset's rows; ended by a full copy."""
        self.put("copying", 1)

    @property
    def is_complete(self) -> bool:
        return not self.get("copying")

    def prune(self, origin: str, upto: int, limit: int = 20_000) -> int:
        """Forget records of an origin up to an lsn, at most `limit` of them at once."""
        number = self.origin_id(origin)
        first = place(number, 0)
        query = (
            "SELECT max(place) FROM (SELECT place FROM row_log WHERE place > ? AND place <= ? "
            "ORDER BY place LIMIT ?)"
        )
        found: Any = self.connection.execute(query, (first, place(number, upto), limit)).fetchone()
        last = found[0]
        if last is None:
            return 0
        # The newest may be among them, and the vclock does not go back.
        self.connection.execute("UPDATE origin SET base = ? WHERE id = ?", (last - first, number))
        self.connection.execute("DELETE FROM row_log WHERE place > ? AND place <= ?", (first, last))
        return self.connection.changes()

    # --- records of others ----------------------------------------------------------------------

    def keep_record(self, record: Packed, body: Body) -> None:
        """A record of another origin, applied in this transaction: part of our log from now on."""
        self.touched.all()
        if body.operation is not None:
            self.operations.keep(body.operation)
        number = self.origin_id(record.origin)
        row = (place(number, record.lsn), record.epoch, record.body)
        self.connection.execute(PUT_RECORD, row)
        self._advance(record.origin, record.epoch, record.lsn)

    def may_just_add(self, record: Packed) -> bool:
        """Whether keeping a record writes nothing but the record."""
        return record.origin in self._origins and record.epoch == self.last_epoch

    def take_back_newest(self, record: Packed) -> None:
        """A record that was just added, and nothing else."""
        where = (place(self._origins[record.origin], record.lsn),)
        self.connection.execute("DELETE FROM row_log WHERE place = ?", where)
        self.vclock[record.origin] = record.lsn - 1

    def set_aside(self, record: Record) -> None:
        """Note a record that belongs to no history in `_cairn_diverged`; nothing is lost."""
        self.connection.execute(
            "INSERT OR REPLACE INTO _cairn_diverged VALUES (?, ?, ?, ?)",
            (record.origin, record.epoch, record.lsn, encode_body(body_of(record))),
        )

    def forget_record(self, record: Record) -> None:
        """Its rows were taken back: neither the log nor the list of done operations has it."""
        self.touched.all()
        if record.operation is not None:
            self.operations.undo(record.operation)
        self.connection.execute(
            "DELETE FROM row_log WHERE place = ?",
            (place(self.origin_id(record.origin), record.lsn),),
        )

    def cut_vclock(self, origin: str, lsn: int) -> None:
        """Its records after `lsn` were forgotten."""
        self.vclock[origin] = lsn
