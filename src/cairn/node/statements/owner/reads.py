"""Reads of rows that are here: at once, on a thread, or as an answer that is told in pieces."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from cairn.model import stops
from cairn.model.errors import NoMaster, ProtocolViolation
from cairn.model.rpc import (
    ReadMore,
    ReadPart,
    ReadPiece,
    ReadRequest,
    ReadResponse,
    SplitRequest,
    SplitResponse,
)
from cairn.model.settings import limits
from cairn.model.sharding.spans import Ranges
from cairn.net.link import Link
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.replication import Replication
from cairn.node.statements.context import Context
from cairn.node.statements.owner.encoding import rows_encoder
from cairn.node.statements.owner.fair_threads import FairThreads
from cairn.node.statements.owner.guard import LOOKS, RowGuard
from cairn.node.statements.owner.open_reads import HalfTold, OpenReads, Scans, as_told, gone
from cairn.node.statements.owner.splits import SplitRead
from cairn.storage.data_db.fence import Fence
from cairn.storage.files.pieces import Piece, Row
from cairn.storage.groups import Groups
from cairn.storage.readers import CACHE_KIB, Cancelled, RowReader, attach
from cairn.storage.sqlite_errors import translated

SCAN_THREADS, SCAN_THREADS_MOST = 4, 12  # of one user, and when several ask
SMALL_CACHE_KIB = 8_000  # of those past the first
T = TypeVar("T")


class OwnerReads:
    """`reader` is the event loop's own connection; threads have one each."""

    def __init__(
        self,
        data: DataPlane,
        lease: LeaseHolder,
        replication: Replication,
        guard: RowGuard,
        reader: RowReader,
        raft: Path,
        register: Callable[[apsw.Connection], None],
        spill_max: Callable[[], int] = lambda: limits.SPILL_BYTES,
    ) -> None:
        self._spill_max = spill_max
        self.data, self._lease, self._replication = data, lease, replication
        self._guard, self.reader = guard, reader
        self._raft, self.register = raft, register
        self._data: Path = data.store.path
        self._pool = FairThreads(SCAN_THREADS, SCAN_THREADS_MOST, "scan")
        self._readers = itertools.count()
        self._local = threading.local()
        self.scans: Scans | None = None  # given by the face that has them
        self.open_reads = OpenReads(self._data, raft, register, self._pool, spill_max)

    def close(self) -> None:
        self.open_reads.close()
        self._pool.close()
        self.reader.close()

    async def apart(self, context: Context, work: Callable[[], T]) -> T:
        """Other reading that takes long: on the threads that users share, and ended as theirs is.

        `work` asks `stops.check` now and then.
        """

        def run() -> T:
            with stops.working_until(context.cancelled.is_set):
                return work()

        async def done() -> T:
            return await self._pool.run(context.user_id, run)

        return await context.watched(done())

    def quick_read(
        self,
        where: int | Ranges | None,
        tables: dict[int, int],
        read: Callable[..., T | None],
        *args: Any,
    ) -> T | None:
        """A master's rows of one bucket or some ranges, or of global tables, without waiting.

        None: they are not here, are not to be told yet, or it takes long. The long way knows which.
        """
        if where is None:
            return read(*args)
        data, is_held = self.data, self._lease.is_held
        fence = data.fence
        if not fence.is_master or fence.is_sync or not is_held(fence.epoch):
            return None
        if not (fence.owns(where) if type(where) is int else fence.owns_all(where)):  # type: ignore[arg-type]
            return None
        have = data.versions
        for table, version in tables.items():
            if have.get(table) != version:
                return None
        found = read(*args)
        if not is_held(fence.epoch) or data.fence is not fence:
            return None
        return found

    async def read(
        self, request: ReadRequest, cancelled: Cancelled | None = None, answer_bytes: int = 0
    ) -> list[Row]:
        self._guard.check_read(request)
        epoch = self.data.fence.epoch
        most = request.opcode_max
        rows = None if most else self.reader.quick(request.sql, request.args)
        if rows is not None:
            await self._guard.check_answer(request, epoch)
            return rows
        fence = self.data.fence

        rows = await self.scan(request, cancelled, self._still(request, fence), answer_bytes)
        await self.check_told(request, epoch)
        return rows

    def still(self, request: ReadRequest) -> Callable[[], int]:
        """May it be read now? The answer says in which epoch it was, once its moment has begun:
        buckets may leave meanwhile, and come back with other rows.
        """
        self._guard.check_read(request)
        return self._still(request, self.data.fence)

    def _still(self, request: ReadRequest, fence: Fence) -> Callable[[], int]:
        """A check for the thread that reads: buckets may leave meanwhile, and the rows are those
        of its moment."""

        def check() -> int:
            if self.data.fence is not fence:
                raise NoMaster("buckets or masters moved while the read began", hint="try again")
            self._guard.check_read(request)
            return fence.epoch

        return check

    async def check_told(self, request: ReadRequest, epoch: int) -> None:
        """At the end of what was begun in `epoch`: does what was told stay?"""
        self._guard.check_versions(request)
        await self._guard.check_stays(request, epoch)

    async def scan(
        self,
        request: ReadRequest,
        cancelled: Cancelled | None,
        check: Callable[[], object],
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
            reader = RowReader(
                self._data, self._raft, self.register, cache_kib=kib, spill_max=self._spill_max
            )
            self._local.reader = reader
        return reader

    def plan_reader(self) -> apsw.Connection:
        """A connection to ask SQLite for its plans: of any statement, none of which is run."""
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        found = apsw.Connection(str(self._data), flags=flags)
        attach(found, self._raft, "raft")
        self.register(found)
        Groups(found)  # rows that are sent along are a table of theirs
        return found

    def check_text(self, request: ReadRequest) -> None:
        """A text of another instance is a SELECT and no more: asked of a connection that knows,
        before the writer's own runs it."""
        explained = f"EXPLAIN QUERY PLAN {request.sql}"
        for _ in range(LOOKS):
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

    async def first_piece(self, request: ReadRequest) -> tuple[Piece, HalfTold | None]:
        """Some rows, and where the rest comes from if there is any."""
        self._guard.check_read(request)
        fence = self.data.fence
        sql, args, most = request.sql, request.args, request.piece_bytes
        quick = None if request.opcode_max else self.reader.quick_piece(sql, args, most)
        if quick is not None:
            await self._guard.check_answer(request, fence.epoch)
            return quick, None

        check = self._still(request, fence)
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
                request.later_bytes,
                request.grouped if not request.opcode_max else "",
                request.is_packed and not request.opcode_max,
            )
        else:
            read, read.epoch = scan, epoch
        piece = await self._begun(read, request, fence, check if scan is not None else None)
        return piece, None if piece.is_last else read

    async def _begun(
        self,
        read: HalfTold,
        request: ReadRequest,
        fence: Fence,
        check: Callable[[], object] | None = None,
    ) -> Piece:
        try:
            piece = await read.take()
            if check is not None:
                check()  # its moment was between this one and when it was asked
            await self.check_told(request, fence.epoch)
        except BaseException:
            read.close()
            raise
        return piece

    async def split(self, request: SplitRequest) -> SplitRead:
        """The same for rows that are dealt out: all of them are to be fetched."""
        read = request.read
        self._guard.check_read(read)
        fence = self.data.fence
        epoch = fence.epoch if read.preference == "leader" and read.tables else None
        cursor = self.open_reads.cursor(
            read.sql, read.args, read.row_max, read.opcode_max, self._still(read, fence)
        )
        found = SplitRead(self.open_reads, cursor, request, epoch)
        await self._begun(found, read, fence)
        return found

    async def next_piece(self, read: HalfTold) -> Piece:
        return self._of_its_epoch(read, await read.take())

    def _of_its_epoch(self, read: HalfTold, piece: Piece) -> Piece:
        """In a later epoch this master may have undone rows that the read has seen."""
        if read.epoch is not None and self.data.fence.epoch != read.epoch:
            read.close()
            raise NoMaster("another master was named while the rows were read", hint="try again")
        return piece

    def handle_read(
        self, link: Link, request: ReadRequest
    ) -> ReadResponse | ReadPiece | Awaitable[ReadResponse | ReadPiece]:
        """For another instance: at once if it is quick, or later."""
        is_plain = request.preference == "leader" and not request.opcode_max
        if is_plain and request.bucket is not None:
            rows = self.quick_read(
                request.bucket, request.tables, self.reader.quick, request.sql, request.args
            )
            if rows is not None and (len(rows) <= 1 or not request.piece_bytes):
                return ReadResponse(rows)
        elif is_plain and request.ranges is not None and request.piece_bytes:
            asked, read = (request.sql, request.args, request.piece_bytes), self.reader.quick_piece
            piece = self.quick_read(request.ranges, request.tables, read, *asked)
            if piece is not None:
                return as_told(piece, 0)
        if request.piece_bytes:
            return self._handle_pieces(link, request)
        return self._handle_long_read(request)

    async def _handle_pieces(self, link: Link, request: ReadRequest) -> ReadPiece:
        piece, read = await self.first_piece(request)
        if read is not None:
            self.open_reads.keep(read, request.cursor, link)
        number = 0 if read is None else request.cursor
        return as_told(piece, number, self.stale_s(request))

    async def handle_split(self, link: Link, request: SplitRequest) -> SplitResponse:
        self.open_reads.keep(await self.split(request), request.read.cursor, link)
        return SplitResponse(self.stale_s(request.read))

    async def handle_part(self, request: ReadPart) -> ReadPiece:
        piece = await self.part(request)
        return as_told(piece, 0 if piece.is_last else request.cursor)

    async def part(self, request: ReadPart) -> Piece:
        """For whoever joins it, another instance or this one."""
        read = self.open_reads.kept(request.cursor)
        if not isinstance(read, SplitRead):
            raise gone()
        try:
            piece = self._of_its_epoch(read, await read.take_part(request.part))
        except BaseException:
            self.open_reads.drop(request.cursor)
            raise
        if read.is_told:
            self.open_reads.drop(request.cursor)
        return piece

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
