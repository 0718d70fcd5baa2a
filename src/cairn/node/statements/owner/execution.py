"""Running fragments where their rows are: reads with a lease, writes through the writer.

A read as the master checks its lease before and after; a write is checked by the writer inside
its transaction and once more after the commit.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from cairn.model import stops
from cairn.model.errors import (
    CairnError,
    CasRetry,
    NoMaster,
    NotOwner,
    OutcomeUnknown,
    ProtocolViolation,
    QueryCanceled,
    TableUnderDdl,
)
from cairn.model.log.records import Operation
from cairn.model.members.moves import Move
from cairn.model.rpc import (
    BlockResponse,
    ReadMore,
    ReadPiece,
    ReadRequest,
    ReadResponse,
    WriteRequest,
    WriteResponse,
)
from cairn.model.settings import limits
from cairn.model.sharding.spans import contains, merged, of_buckets, subtract
from cairn.net.link import Link
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.moves.moving import Moving
from cairn.node.rows.replication import Replication
from cairn.node.runtime import spawn
from cairn.node.statements.context import ASKED
from cairn.node.statements.ending import Ticket, to_its_end
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.node.statements.owner.fair_threads import FairThreads
from cairn.node.statements.owner.open_reads import HalfTold, OpenReads, Scans, as_told
from cairn.node.statements.owner.write_kinds import WriteKind, WriteKinds
from cairn.sql.functions.functions import HEAVY_ON_ROWS
from cairn.sql.render.constraints import row_query, translate
from cairn.sql.render.slots import with_ranges
from cairn.storage.data_db.data_store import DataStore, Fence
from cairn.storage.files.pieces import Piece, Row
from cairn.storage.files.spill import remove_left
from cairn.storage.files.writer import Disk, Job
from cairn.storage.raft_db.state_machine import constraint_error
from cairn.storage.readers import CACHE_KIB, Cancelled, RowReader, Steps, attach, translated

SCAN_THREADS, SCAN_THREADS_MOST = 4, 12  # of one user, and when several ask
SMALL_CACHE_KIB = 8_000  # of those past the first
LOOKS = 100
QUICK_BYTES = 65_536  # a longer value is not written on the event loop
PROBED_ROWS = 1000  # of a statement that failed, looked at again for its error
_SIZED = (str, bytes)
T = TypeVar("T")
Answer = WriteResponse | BlockResponse
Done = Callable[[WriteResponse | CairnError], None]


class Execution:
    """This instance's own rows. The coordinator calls it directly or through a peer."""

    def __init__(
        self,
        state: GlobalState,
        data: DataPlane,
        lease: LeaseHolder,
        replication: Replication,
        moving: Moving,
        raft: Path,
        raft_disk: Disk,
        register: Callable[[apsw.Connection], None],
    ) -> None:
        self._state, self.data, self._lease = state, data, lease
        self._replication, self._moving = replication, moving
        self._raft, self._register = raft, register
        self._data: Path = data.store.path
        self.reader = RowReader(
            self._data, raft, register, heavy=HEAVY_ON_ROWS, value_bytes=limits.QUICK_VALUE_BYTES
        )
        register(data.store.connection)
        self.reader.stand_between(data.share_with(lambda: self.reader.count), raft_disk)
        self._kinds = WriteKinds(self._data, raft, register)
        self._pool = FairThreads(SCAN_THREADS, SCAN_THREADS_MOST, "scan")
        self._readers = itertools.count()
        self._local = threading.local()
        self.scans: Scans | None = None  # given by the face that has them
        self.open_reads = OpenReads(self._data, raft, register, self._pool)
        remove_left(raft.parent)
        self._fence: Fence | None = None  # for which `_coming` was made
        self._coming: list[Move] = []  # handed over to us, and not here yet as far as is known

    def close(self) -> None:
        self.open_reads.close()
        self._pool.close()
        self.reader.close()
        self._kinds.close()

    # --- reading --------------------------------------------------------------------------------

    def check_read(self, request: ReadRequest) -> None:
        """May this instance answer it now?"""
        self._check_versions(request)
        fence = self.data.fence
        if request.bucket is not None and not fence.owns(request.bucket):
            raise NotOwner(f"bucket {request.bucket} does not belong to this replicaset")
        if request.ranges is not None and not fence.owns_all(request.ranges):
            raise NotOwner("some buckets of the read do not belong to this replicaset")
        if request.preference == "leader" and request.tables:
            self.check_lease()
        elif not fence.is_master:
            self._check_arrived(request, fence)

    def _check_arrived(self, request: ReadRequest, fence: Fence) -> None:
        """A replica hears of a hand-over by Raft, and gets the rows by the log, maybe later."""
        if fence is not self._fence:
            self._fence, self._coming = fence, self._moving.taken_over()
        if not self._coming:
            return
        has = self._replication.place.has
        self._coming = [move for move in self._coming if not has(move.target_first)]
        asked = request.ranges or ()
        if request.bucket is not None:
            asked = ((request.bucket, request.bucket),)
        for move in self._coming:
            if any(low <= move.end and high >= move.start for low, high in asked):
                raise NotOwner("the rows of these buckets are still on their way to this replica")

    def _check_versions(self, request: ReadRequest) -> None:
        have = self.data.versions
        for table, version in request.tables.items():
            if have.get(table) != version:
                raise TableUnderDdl("the table's schema is changing on this instance; try again")

    def check_lease(self) -> None:
        fence = self.data.fence
        if not fence.is_master:
            raise NoMaster(f"this instance is not the master: {fence.master} is")
        if not self._lease.is_held(fence.epoch):
            raise NoMaster("this master has lost contact with the cluster's leader")

    def quick_read(
        self, sql: str, args: Sequence[Any], bucket: int | None, tables: dict[int, int]
    ) -> list[Row] | None:
        """A master's rows of one bucket, or those of global tables, without waiting.

        None: they are not here, are not to be told yet, or it takes long. `read` knows which.
        """
        if bucket is None:
            return self.reader.quick(sql, args)
        data, is_held = self.data, self._lease.is_held
        fence = data.fence
        if not fence.is_master or fence.is_sync or not is_held(fence.epoch):
            return None
        if not fence.owns(bucket):
            return None
        have = data.versions
        for table, version in tables.items():
            if have.get(table) != version:
                return None
        rows = self.reader.quick(sql, args)
        if not is_held(fence.epoch) or data.fence is not fence:
            return None
        return rows

    async def read(
        self, request: ReadRequest, cancelled: Cancelled | None = None, answer_bytes: int = 0
    ) -> list[Row]:
        self.check_read(request)
        epoch = self.data.fence.epoch
        most = request.opcode_max
        rows = None if most else self.reader.quick(request.sql, request.args)
        if rows is not None:
            await self.check_answer(request, epoch)
            return rows
        fence = self.data.fence

        def check() -> None:
            # Buckets may leave while the rows are read: they are those of this moment.
            if self.data.fence is not fence:
                raise NoMaster("buckets or masters moved while the read began", hint="try again")
            self.check_read(request)

        rows = await self.scan(request, cancelled, check, answer_bytes)
        self._check_versions(request)
        await self._check_stays(request, epoch)
        return rows

    async def check_answer(self, request: ReadRequest, epoch: int) -> None:
        """It was read in `epoch`. Still ours, still with a lease, and what was seen stays?

        In a later epoch this master may have undone rows that the read has seen.
        """
        self.check_read(request)
        await self._check_stays(request, epoch)

    async def _check_stays(self, request: ReadRequest, epoch: int) -> None:
        if request.preference == "leader" and request.tables:
            await self._check_seen(epoch, is_local=request.is_local)

    async def _check_seen(self, epoch: int, *, is_local: bool = False) -> None:
        """What a master has seen in `epoch` is told when no failover can take it away.

        `is_local`: who asks wants what is here, whether it stays or not.
        """
        fence = self.data.fence
        if fence.epoch != epoch:
            raise NoMaster("another master was named while the rows were read", hint="try again")
        if fence.is_sync and not is_local:
            await self._replication.acks.wait_readable(self._seen_at_most(), epoch)

    def _seen_at_most(self) -> int:
        """The last lsn of our own that a read of just now may have seen.

        Asked of the file: a commit is there before the event loop hears of it.
        """
        origin = self.data.store.origin
        sql = "SELECT lsn FROM vclock WHERE origin = ?"
        for _ in range(LOOKS):  # on a busy machine even this may seem to take too long
            rows: list[Any] | None = self.reader.quick(sql, (origin,))
            if rows is not None:
                return int(rows[0][0]) if rows else 0
        raise NoMaster("what was read could not be checked in time", hint="try again")

    async def scan(
        self,
        request: ReadRequest,
        cancelled: Cancelled | None,
        check: Callable[[], None],
        answer_bytes: int = 0,
    ) -> list[Row]:
        """On a thread with a connection of its own."""
        flag = cancelled or threading.Event()
        sql, args, row_max = request.sql, request.args, request.row_max

        def work() -> list[Row]:
            reader = self.thread_reader()
            return reader.rows(sql, args, row_max, flag, request.opcode_max, check, answer_bytes)

        return await self._pool.run(request.user, work)

    async def on_thread(
        self, work: Callable[[Any], T], cancelled: Cancelled | None, whose: int
    ) -> T:
        """`work` is given how to read, on a thread with a connection of its own."""
        flag = cancelled or threading.Event()

        def run() -> T:
            reader = self.thread_reader()
            return work(lambda sql, args: reader.rows(sql, args, 0, flag))

        return await self._pool.run(whose, run)

    def thread_reader(self) -> RowReader:
        """The calling thread's own connection."""
        reader: RowReader | None = getattr(self._local, "reader", None)
        if reader is None:
            is_first = next(self._readers) < SCAN_THREADS
            kib = CACHE_KIB if is_first else SMALL_CACHE_KIB
            reader = RowReader(self._data, self._raft, self._register, cache_kib=kib)
            self._local.reader = reader
        return reader

    def plan_reader(self) -> apsw.Connection:
        """A connection to ask SQLite for its plans: of any statement, none of which is run."""
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        found = apsw.Connection(str(self._data), flags=flags)
        attach(found, self._raft, "raft")
        self._register(found)
        return found

    # --- answers of any size ----------------------------------------------------------------------

    async def first_piece(self, request: ReadRequest) -> tuple[Piece, HalfTold | None]:
        """Some rows, and where the rest comes from if there is any."""
        self.check_read(request)
        fence = self.data.fence
        sql, args, most = request.sql, request.args, request.piece_bytes
        quick = None if request.opcode_max else self.reader.quick_piece(sql, args, most)
        if quick is not None:
            await self.check_answer(request, fence.epoch)
            return quick, None

        def check() -> None:
            # Buckets may leave while the rows are read: they are those of this moment.
            if self.data.fence is not fence:
                raise NoMaster("buckets or masters moved while the read began", hint="try again")
            self.check_read(request)

        is_bound = request.preference == "leader" and bool(request.tables)
        epoch = fence.epoch if is_bound else None
        scan = None
        if self.scans is not None and request.shape is not None:
            scan = await self.scans.open(request)
        read: HalfTold
        if scan is None:
            encode = () if request.shape is None else (rows_encoder(request.shape),)
            read = self.open_reads.open(
                sql,
                args,
                request.row_max,
                request.opcode_max,
                epoch,
                check,
                most,
                request.user,
                encode,
            )
        else:
            read, read.epoch = scan, epoch
        try:
            piece = await read.take()
            if scan is not None:
                check()  # its moment was between this one and when it was asked
            self._check_versions(request)
            await self._check_stays(request, fence.epoch)
        except BaseException:
            read.close()
            raise
        return piece, None if piece.is_last else read

    async def next_piece(self, read: HalfTold) -> Piece:
        """In a later epoch this master may have undone rows that the read has seen."""
        piece = await read.take()
        if read.epoch is not None and self.data.fence.epoch != read.epoch:
            read.close()
            raise NoMaster("another master was named while the rows were read", hint="try again")
        return piece

    def handle_read(
        self, link: Link, request: ReadRequest
    ) -> ReadResponse | Awaitable[ReadResponse | ReadPiece]:
        """For another instance: at once if it is quick, or later."""
        if request.bucket is not None and request.preference == "leader" and not request.opcode_max:
            rows = self.quick_read(request.sql, request.args, request.bucket, request.tables)
            if rows is not None and (len(rows) <= 1 or not request.piece_bytes):
                return ReadResponse(rows)
        if request.piece_bytes:
            return self._handle_pieces(link, request)
        return self._handle_long_read(request)

    async def _handle_pieces(self, link: Link, request: ReadRequest) -> ReadPiece:
        piece, read = await self.first_piece(request)
        if read is not None:
            self.open_reads.keep(read, request.cursor, link)
        number = 0 if read is None else request.cursor
        return as_told(piece, number, self.stale_s(request))

    def handle_more(self, request: ReadMore) -> Awaitable[ReadPiece] | None:
        if not request.is_end:
            return self._handle_more(request.cursor)
        self.open_reads.drop(request.cursor)
        return None

    async def _handle_more(self, number: int) -> ReadPiece:
        try:
            piece = await self.next_piece(self.open_reads.kept(number))
        except BaseException:
            self.open_reads.drop(number)
            raise
        if piece.is_last:
            self.open_reads.drop(number)
        return as_told(piece, 0 if piece.is_last else number)

    def stale_s(self, request: ReadRequest) -> float | None:
        """How old the rows of this replica may be; None for those of a master."""
        if request.preference == "leader" or not request.tables:
            return None
        return self._replication.follower.stale_s()

    async def _handle_long_read(self, request: ReadRequest) -> ReadResponse:
        """When the asking instance stops waiting, the scan stops as well."""
        flag = Cancelled()
        try:
            rows = await self.read(request, flag, limits.FRAME_BYTES)
            return ReadResponse(rows, self.stale_s(request))
        except asyncio.CancelledError:
            flag.set()
            raise

    # --- writing --------------------------------------------------------------------------------

    def start_write(
        self, request: WriteRequest, callback: Done, ticket: Ticket | None = None
    ) -> None:
        """Queue a write; `callback` has its verdict after the commit and the second lease check.

        `ticket` ends one that is long, until it is committed.
        """
        data, fence = self.data, self.data.fence
        try:
            kind = self._kinds.of(request)
            is_long = _is_long(request, kind)
            if ticket is not None and not is_long:
                ticket.begin()  # over in a moment: it runs to its end
                ticket = None
        except CairnError as problem:
            callback(problem)
            return
        if _is_quick(request, kind):
            write = _OneRow(self, data.store, fence, request, kind, callback)
            data.submit_job(Job(write.run, write.done, is_quick=True))
            return
        data.submit_call(
            lambda: self._write(request, kind, False, is_long, ticket),
            lambda done: self.settle(done, fence, request.check_only, callback),
            alone=is_long,
        )

    def settle(
        self,
        done: Answer | CairnError,
        fence: Fence,
        check_only: bool,
        callback: Callable[[Any], None],
    ) -> None:
        """After the commit: is it still ours to say that it happened?"""
        if check_only:
            callback(done)
        elif isinstance(done, CairnError):
            if fence.is_sync and done.sqlstate.startswith("23"):
                # It tells of rows that are there: not before they are there to stay.
                spawn(self._confirm(done, self._seen(), fence.epoch, callback), "sync refusal")
            else:
                callback(done)
        elif not self._lease.is_held(fence.epoch):
            callback(
                OutcomeUnknown(
                    "the write was committed here while this master lost its lease",
                    hint="look whether the rows are there before trying again",
                )
            )
        elif fence.is_sync:
            lsn = done.lsn or self._seen()
            spawn(self._confirm(done, lsn, fence.epoch, callback), "sync write")
        else:
            callback(done)

    def _seen(self) -> int:
        """A statement that left no record has still seen rows: an operation that was done before,
        a row that was there already.
        """
        return self.data.vclock.get(self.data.store.origin, 0)

    async def _confirm(
        self, verdict: Answer | CairnError, lsn: int, epoch: int, callback: Callable[[Any], None]
    ) -> None:
        """Sync mode: told when a majority of the members has it, in the same epoch."""
        try:
            await self._replication.acks.wait_safe(lsn, epoch)
        except CairnError as problem:
            callback(problem)
            return
        callback(verdict)

    def start_block(
        self,
        work: Callable[[], BlockResponse],
        *,
        is_commit: bool,
        is_quick: bool,
        callback: Callable[[BlockResponse | CairnError], None],
    ) -> None:
        """Queue a block; its verdict comes the same way as that of a write."""
        fence = self.data.fence
        self.data.submit_call(
            work,
            lambda done: self.settle(done, fence, not is_commit, callback),
            alone=not is_quick,
            quick=is_quick,
            look=not is_commit,
        )

    def check_text(self, request: ReadRequest) -> None:
        """A text of another instance is a SELECT and no more: asked of a connection that knows,
        before the writer's own runs it."""
        explained = f"EXPLAIN QUERY PLAN {request.sql}"
        for _ in range(LOOKS):  # on a busy machine even this may seem to take too long
            try:
                self.reader.connection.execute(explained, request.args).fetchall()
                return
            except apsw.InterruptError:
                continue
            except apsw.AuthError as problem:
                raise translated(problem) from None
            except Exception as problem:  # a peer's words, not a fault of ours
                raise ProtocolViolation(f"a peer's statement cannot be run: {problem}") from None
        raise NoMaster("what was asked could not be checked in time", hint="try again")

    async def check_looked(self, epoch: int) -> None:
        """What a block has seen in `epoch`, and did not write: may it be told?"""
        self.check_lease()
        await self._check_seen(epoch)

    def write(
        self, request: WriteRequest, ticket: Ticket | None = None
    ) -> asyncio.Future[WriteResponse]:
        future: asyncio.Future[WriteResponse] = asyncio.get_running_loop().create_future()

        def done(result: WriteResponse | CairnError) -> None:
            if future.done():
                return
            if isinstance(result, CairnError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.start_write(request, done, ticket)
        return future

    def write_or_end(self, request: WriteRequest, stopped: Cancelled) -> Awaitable[WriteResponse]:
        """Who stops waiting ends it, and is told what became of it."""
        ticket = Ticket(stopped)
        return to_its_end(self.write(request, ticket), ticket)

    def handle_write(self, request: WriteRequest) -> Awaitable[WriteResponse]:
        """For another instance. What is short needs no task of its own."""
        try:
            is_long = _is_long(request, self._kinds.of(request))
        except CairnError:
            is_long = False
        return self.write_or_end(request, Cancelled()) if is_long else self.write(request)

    def write_row(self, request: WriteRequest, kind: WriteKind) -> WriteResponse:
        return self._write(request, kind, True, False)

    def _write(
        self,
        request: WriteRequest,
        kind: WriteKind,
        is_quick: bool,
        is_alone: bool,
        ticket: Ticket | None = None,
    ) -> WriteResponse:
        """Behind the one writer, inside the group's transaction."""
        if ticket is not None:
            ticket.begin()
            with stops.working_until(ticket.stopped.is_set):
                return self._write_until(ticket.stopped, request, kind, is_alone)
        return self._write_now(request, kind, is_quick, is_alone)

    def _write_until(
        self, stopped: Cancelled, request: WriteRequest, kind: WriteKind, is_alone: bool
    ) -> WriteResponse:
        connection, steps = self.data.store.connection, Steps(stopped, 0)
        connection.set_progress_handler(steps, steps.every)
        try:
            return self._write_now(request, kind, False, is_alone)
        finally:
            connection.set_progress_handler(None)

    def _write_now(
        self, request: WriteRequest, kind: WriteKind, is_quick: bool, is_alone: bool
    ) -> WriteResponse:
        store = self.data.store
        store.check_master()
        store.check_version(request.table, request.version)
        if request.ranges is not None:
            store.check_ranges(request.ranges)
        store.check_buckets(request.buckets)
        if request.operation is not None and (done := store.operation(request.operation)):
            left = left_of(request, done)
            if left is None:
                return WriteResponse(done.rows, 0)
            request = left
        rows: list[Row] = []
        try:
            if is_quick and kind.only_inserts and _is_plain(request):
                count, lsn = store.insert_row(request.sql, request.rows[0])
            else:
                count, lsn = store.statement(
                    lambda: _carry_out(store, request, rows), alone=is_alone
                )
        except _TakenBack as checked:
            return WriteResponse(checked.count, 0)
        except apsw.ConstraintError as problem:
            row = _refused_row(store, request, is_alone) if kind.only_inserts else None
            verdict = translate(str(problem), self._state.catalog, row)
            raise verdict or constraint_error(problem) from None
        except apsw.InterruptError:
            raise QueryCanceled(ASKED) from None
        except Exception as problem:  # its savepoint is rolled back: the group goes on without it
            raise translated(problem) from None
        return WriteResponse(count, lsn, tuple(rows)) if rows else WriteResponse(count, lsn)


def left_of(request: WriteRequest, done: Operation) -> WriteRequest | None:
    """What of an operation was not done before: buckets that came here without it, or are here
    while others came with it. None: all was done.

    A statement by ranges gets narrower ones; other rows begin with their bucket.
    """
    if done.buckets is None:
        return None
    if request.ranges is not None:
        left = subtract(request.ranges, done.buckets)
        if not left or not request.open_sql:
            return None
        text = with_ranges(request.open_sql, list(left))
        return msgspec.structs.replace(request, sql=text, ranges=left)
    left = subtract(of_buckets(request.buckets), done.buckets)
    if not left:
        return None

    def kept(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(row for row in rows if contains(left, row[0]))

    rows = kept(request.rows)
    return msgspec.structs.replace(
        request,
        rows=rows,
        buckets=tuple(bucket for bucket in request.buckets if contains(left, bucket)),
        more=tuple((sql, kept(more)) for sql, more in request.more),
        must_change=None if request.must_change is None else len(rows),
    )


def _refused_row(store: DataStore, request: WriteRequest, is_alone: bool) -> Row | None:
    """The row that could not be inserted, for an error that names its key."""
    query = row_query(request.sql)
    if query is None or request.more or len(request.rows) > PROBED_ROWS:
        return None
    found = list(request.rows)
    if len(found) > 1:  # once more, to see at which one it stops

        def probe() -> int:
            while found:
                store.connection.execute(request.sql, found[0])
                del found[0]
            raise _TakenBack(0)

        with suppress(apsw.ConstraintError, _TakenBack):
            store.statement(probe, alone=is_alone)
    return store.connection.execute(query, found[0]).fetchone() if found else None


def _is_quick(request: WriteRequest, kind: WriteKind) -> bool:
    """Whether it touches one short row by its key: short enough for the event loop."""
    if request.ranges is not None or len(request.rows) != 1 or request.more or kind.has_query:
        return False
    for value in request.rows[0]:  # a hot path: quicker than any()
        if type(value) in _SIZED and len(value) > QUICK_BYTES:
            return False
    return True


def _is_long(request: WriteRequest, kind: WriteKind) -> bool:
    return request.ranges is not None or len(request.rows) > 1000 or kind.has_query


def _is_plain(request: WriteRequest) -> bool:
    """Whether SQLite itself takes an insert back when it fails, so that no savepoint is needed."""
    return (
        request.operation is None
        and not request.check_only
        and request.must_change is None
        and not request.returning
    )


def _carry_out(store: DataStore, request: WriteRequest, told: list[Row]) -> int:
    """Rows changed; those that are wanted back are put into `told`."""
    if request.is_bulk:
        count = store.bulk_insert(request.table, request.sql, request.rows)
    else:
        for at, (sql, rows) in enumerate(((request.sql, request.rows), *request.more)):
            if request.returning and at in request.told:
                for row in rows:
                    told += store.connection.execute(sql + request.returning, row).fetchall()
            elif len(rows) == 1:
                store.connection.execute(sql, rows[0])
            elif rows:
                store.connection.executemany(sql, rows)
            if at == 0 and request.must_change not in (None, store.pending_changes()):
                raise CasRetry("a row changed between reading and writing; try again")
        count = store.count_rows()
    if request.operation is not None:
        ranges = request.ranges if request.ranges is not None else of_buckets(request.buckets)
        store.put_operation(Operation(request.operation, count, merged(ranges)))
    if request.check_only:
        raise _TakenBack(count)
    return count


class _OneRow:
    """The write of one row on its way through the writer: one small object instead of closures."""

    __slots__ = ("_callback", "_execution", "_fence", "_kind", "_request", "_store")

    def __init__(
        self,
        execution: Execution,
        store: DataStore,
        fence: Fence,
        request: WriteRequest,
        kind: WriteKind,
        callback: Done,
    ) -> None:
        self._execution, self._store, self._fence = execution, store, fence
        self._request, self._kind, self._callback = request, kind, callback

    def run(self) -> Any:
        store = self._store
        try:
            response = self._execution.write_row(self._request, self._kind)
        except CairnError as problem:
            return problem
        return response, store.last_epoch, store.vclock.copy(), store.versions

    def done(self, result: Any) -> None:
        execution = self._execution
        if isinstance(result, CairnError):
            execution.settle(result, self._fence, self._request.check_only, self._callback)
            return
        execution.data.arrived(*result[1:])
        execution.settle(result[0], self._fence, self._request.check_only, self._callback)


class _TakenBack(Exception):
    """The check round of a write is over; its savepoint is rolled back."""

    def __init__(self, count: int) -> None:
        self.count = count
