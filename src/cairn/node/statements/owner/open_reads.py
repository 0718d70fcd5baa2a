"""Reads at this instance whose answers are longer than a piece: open until they are told whole.

Each has a read transaction on a connection of its own, so that its rows are those of one moment.
A thread works for it only while a piece is made. One that nobody asks any more is ended: by the
asker, with the link to it, or when nothing was asked for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cairn.model.errors import CairnError, ReadInterrupted
from cairn.model.rpc import ReadPiece, ReadRequest
from cairn.model.settings import limits
from cairn.net.link import Link
from cairn.node.statements.context import TAKEN, Taken
from cairn.node.statements.owner.fair_threads import SYSTEM, FairThreads
from cairn.storage.files.pieces import PIECE_BYTES, Encode, Encoded, Packed, Piece
from cairn.storage.merging import Merger
from cairn.storage.readers import Cancelled, Register, RowCursor, RowReader
from cairn.storage.temp_store import TempStore

MOST_OPEN = 500  # answers that are half told
IDLE_S = 600.0  # as long as an open one holds back what writes leave behind
SWEEP_S = 5.0
SPARE = 4  # connections kept for the next one
CACHE_KIB = 8_000
_NO_ROWS = msgspec.Raw(b"\x90")


class HalfTold(Protocol):
    """An answer on its way, whoever reads it."""

    epoch: int | None  # in which it began; None where that does not matter
    link: Link | None  # over which it is asked
    used_at: float

    async def take(self) -> Piece:
        """The next piece; after the last one, and after an error, the read is over."""

    def close(self) -> None: ...


class Scans(Protocol):
    """Whoever reads whole tables faster than SQLite does."""

    async def open(self, request: ReadRequest) -> HalfTold | None:
        """None: it is not for them."""


def as_told(piece: Piece, number: int, stale_s: float | None = None) -> ReadPiece:
    """`number`: there is more under it."""
    rows = piece.rows
    if isinstance(rows, Encoded):
        return ReadPiece(_NO_ROWS, stale_s, number, rows.data, len(rows))
    if isinstance(rows, Packed):
        data = b"".join(rows.parts)
        return ReadPiece(_NO_ROWS, stale_s, number, data, len(rows), is_packed=True)
    return ReadPiece(msgspec.Raw(piece.data), stale_s, number)


class OpenRead:
    """One answer on its way. It began in `epoch`; None where that does not matter."""

    def __init__(
        self,
        reads: OpenReads,
        cursor: RowCursor,
        epoch: int | None,
        most: int,
        whose: int,
        encode: tuple[Encode, ...],
        later: int,
    ) -> None:
        self._reads, self._cursor, self._whose = reads, cursor, whose
        self._most, self._later = most, later or most  # of the first piece, and of the others
        self._encode = encode  # for the client, from the second piece on
        self._is_begun = False
        self.epoch = epoch
        self.link: Link | None = None
        self.used_at = 0.0
        self._is_busy = self._is_over = False

    async def take(self) -> Piece:
        if self._is_over or self._is_busy:
            raise gone()
        self._is_busy = True
        encode, self._is_begun = self._encode if self._is_begun else (), True
        try:
            piece: Piece = await self._reads.run(
                self._whose, self._cursor.take, self._most, *encode
            )
        except BaseException:
            self._cursor.stopped.set()
            self._end()
            raise
        finally:
            self._is_busy = False
        self._most = self._later
        if piece.is_last or self._cursor.stopped.is_set():
            self._end()
        return piece

    def close(self) -> None:
        self._cursor.stopped.set()
        if not self._is_busy:
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._reads.over(self._cursor)


def _with_taken(taken: Taken, work: Callable[..., Any], *args: Any) -> Any:
    token = TAKEN.set(taken)
    try:
        return work(*args)
    finally:
        TAKEN.reset(token)


def gone() -> ReadInterrupted:
    return ReadInterrupted(
        "the rest of the answer cannot be had any more",
        detail="its owner has changed or was not asked for long",
        hint="run the statement again",
    )


def _left(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more: that it was ended, or refused, is no news for the log."""
    problem = None if future.cancelled() else future.exception()
    if problem is not None and not isinstance(problem, CairnError):
        told = {"message": "a read that nobody waits for", "exception": problem}
        asyncio.get_running_loop().call_exception_handler(told)


class OpenReads:
    def __init__(
        self,
        data: Path,
        raft: Path,
        register: Register,
        pool: FairThreads,
        spill_max: Callable[[], int] = lambda: limits.SPILL_BYTES,
    ) -> None:
        self._data, self._raft, self._register, self._pool = data, raft, register, pool
        self._spill_max = spill_max
        self._spare: list[RowReader] = []
        self._mergers: list[Merger] = []
        self._open: dict[int, HalfTold] = {}  # asked by other instances, by their numbers
        self._sweep: asyncio.TimerHandle | None = None
        self.count = 0  # of all that are open

    @property
    def directory(self) -> Path:
        """Where temporary files go."""
        return self._raft.parent

    def close(self) -> None:
        for each in self._open.values():
            each.close()
        self._open.clear()
        if self._sweep is not None:
            self._sweep.cancel()

    async def run(self, whose: int, work: Callable[..., Any], *args: Any) -> Any:
        """On a thread. Whoever stops waiting leaves it to its end: the connection is in use."""
        if (taken := TAKEN.get()) is not None:
            work = partial(_with_taken, taken, work)
        running = self._pool.run(whose, work, *args)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_left)
            raise

    # --- rows of this instance --------------------------------------------------------------------

    def open(
        self,
        sql: str,
        args: Sequence[Any],
        row_max: int,
        opcode_max: int,
        epoch: int | None,
        check: Callable[[], object],
        most: int = PIECE_BYTES,
        whose: int = SYSTEM,
        encode: tuple[Encode, ...] = (),
        later: int = 0,
        grouped: str = "",
        is_packed: bool = False,
    ) -> OpenRead:
        cursor = self.cursor(sql, args, row_max, opcode_max, check, grouped, is_packed)
        return OpenRead(self, cursor, epoch, most, whose, encode, later)

    def cursor(
        self,
        sql: str,
        args: Sequence[Any],
        row_max: int,
        opcode_max: int,
        check: Callable[[], object],
        grouped: str = "",
        is_packed: bool = False,
    ) -> RowCursor:
        """Whoever has it says when it is `over`."""
        if self.count >= MOST_OPEN:
            raise CairnError(
                f"{self.count} answers are being read from this instance already",
                hint="close cursors that are not read to their end, or try again later",
                sqlstate="53400",
            )
        self.count += 1
        reader = self._spare.pop() if self._spare else self._reader()
        return RowCursor(
            reader, sql, args, row_max, opcode_max, Cancelled(), check, grouped, is_packed
        )

    def _reader(self) -> RowReader:
        return RowReader(
            self._data,
            self._raft,
            self._register,
            cache_kib=CACHE_KIB,
            spill_max=self._spill_max,
        )

    def over(self, cursor: RowCursor, *also: Callable[[], None]) -> None:
        self.count -= 1
        self.later(lambda: self._give_back(cursor, *also))

    def later(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the instance is ending
            self._pool.submit(SYSTEM, work)

    def _give_back(self, cursor: RowCursor, *also: Callable[[], None]) -> None:
        reader = cursor.reader
        try:
            cursor.end()
            for each in also:
                each()
        except Exception:
            reader.close()
            return
        if len(self._spare) < SPARE:
            self._spare.append(reader)
        else:
            reader.close()

    # --- for other instances ----------------------------------------------------------------------

    def keep(self, read: HalfTold, number: int, link: Link | None) -> None:
        """Under the number by which the asker calls it; without a link it is this instance."""
        self.drop(number)
        self._open[number] = read
        read.link, read.used_at = link, asyncio.get_running_loop().time()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look)

    def kept(self, number: int) -> HalfTold:
        found = self._open.get(number)
        if found is None:
            raise gone()
        found.used_at = asyncio.get_running_loop().time()
        return found

    def drop(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            found.close()

    def _look(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        old = loop.time() - IDLE_S
        for number, read in list(self._open.items()):
            if read.used_at < old or (read.link is not None and not read.link.is_open):
                self.drop(number)
        if self._open:
            self._sweep = loop.call_later(SWEEP_S, self._look)

    def temp_store(self) -> TempStore:
        """For the temporary tables of a session. On a thread of the pool."""
        return TempStore(self.directory, self._register)

    # --- merging ----------------------------------------------------------------------------------

    def merger(self) -> Merger:
        """On a thread of the pool."""
        try:
            return self._mergers.pop()
        except IndexError:
            return Merger(self._raft, self._register)

    def give_back(self, merger: Merger) -> None:
        """On a thread of the pool."""
        try:
            merger.end()
        except Exception:
            merger.close()
            return
        if merger.has_spilled or len(self._mergers) >= SPARE:
            merger.close()
        else:
            self._mergers.append(merger)
