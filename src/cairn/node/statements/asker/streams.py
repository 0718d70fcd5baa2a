"""Answers that are longer than a piece, at the instance that asks: told as they are taken.

From each owner one piece is on its way while the one before is used: whoever reads slowly makes
the owners wait, and nobody holds more than a little.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from sys import getsizeof
from time import perf_counter
from typing import Any, Protocol

import msgspec

from cairn.model import stops
from cairn.model.errors import (
    CairnError,
    LimitExceeded,
    NoMaster,
    NotOwner,
    QueryCanceled,
    ReadInterrupted,
    TableUnderDdl,
    Unreachable,
)
from cairn.model.rpc import ReadMore, ReadResponse
from cairn.model.settings import limits
from cairn.net.peers import Peers
from cairn.node.statements.context import ASKED, Context
from cairn.node.statements.owner.execution import Execution
from cairn.node.statements.owner.open_reads import HalfTold, OpenReads
from cairn.storage.files.pieces import (
    PIECE_BYTES,
    Encode,
    Encoded,
    Packed,
    Piece,
    Row,
    Rows,
    plain,
    too_many,
)
from cairn.storage.merging import Merger
from cairn.storage.readers import Cancelled

READ_S = 30.0
HELD_BYTES = 8 * PIECE_BYTES  # of all owners together, about
LEAST_PIECE = 64 * 1024
_CHANGED = (NotOwner, NoMaster, TableUnderDdl, Unreachable)


def piece_bytes(owners: int) -> int:
    return max(min(PIECE_BYTES, HELD_BYTES // max(owners, 1)), LEAST_PIECE)


class Stream(Protocol):
    """The rest of an answer."""

    async def next(self, context: Context) -> Rows | None:
        """More rows; None at the end. Encoded ones only where that was asked for."""

    def close(self) -> None:
        """Nobody wants the rest: the owners stop."""


class Part(Protocol):
    """The rest of what one owner has to tell."""

    @property
    def is_over(self) -> bool: ...

    async def take(self, context: Context) -> Rows: ...

    def close(self) -> None: ...


class PartHere:
    def __init__(self, execution: Execution, read: HalfTold) -> None:
        self._execution, self._read = execution, read
        self.is_over = False

    async def take(self, context: Context) -> Rows:
        piece = await self._execution.reads.next_piece(self._read)
        self.is_over = piece.is_last
        return piece.rows

    def close(self) -> None:
        self._read.close()


class PartAway:
    def __init__(self, peers: Peers, target: int, number: int) -> None:
        self._peers, self._target, self._number = peers, target, number
        self.is_over = False

    async def take(self, context: Context) -> Rows:
        left_s = context.left_s(READ_S)
        request = ReadMore(self._number)
        answer = await self._peers.call(
            self._target, "read_more", request, ReadResponse, left_s, must_end=True
        )
        self.is_over = not answer.cursor
        return rows_of(answer)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            link = self._peers.link_now(self._target)
            if link is not None:
                link.tell("read_more", msgspec.msgpack.encode(ReadMore(self._number, True)))


def rows_of(answer: ReadResponse) -> Rows:
    if answer.is_packed:
        return Packed(answer.count, [answer.encoded])
    return Encoded(answer.count, answer.encoded) if answer.encoded else answer.rows


class Gathered:
    """The rows of all owners, in the order in which they come."""

    def __init__(
        self, parts: Sequence[Part], row_max: int, count: int, here: Sequence[Rows] = ()
    ) -> None:
        self._parts, self._here = list(parts), list(here)  # owners, and what they told already
        self._row_max, self._count = row_max, count
        self._coming: dict[asyncio.Task[Rows], Part] = {}

    async def next(self, context: Context) -> Rows | None:
        if self._here:
            return self._here.pop()
        if not self._coming:
            for part in self._parts:
                if not part.is_over:
                    self._ask(part, context)
        while self._coming:
            done, _ = await asyncio.wait(self._coming, return_when=asyncio.FIRST_COMPLETED)
            task = next(each for each in self._coming if each in done)  # a set has any order
            part = self._coming.pop(task)
            try:
                rows = task.result()
            except CairnError as problem:
                self.close()
                if isinstance(problem, _CHANGED):
                    raise _interrupted(problem) from None
                raise
            if not part.is_over:
                self._ask(part, context)
            self._count += len(rows)
            if 0 < self._row_max < self._count:
                self.close()
                raise too_many(self._row_max)
            if rows:
                return rows
        self._parts.clear()
        return None

    def _ask(self, part: Part, context: Context) -> None:
        task = asyncio.get_running_loop().create_task(part.take(context))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._coming[task] = part

    def close(self) -> None:
        for task in self._coming:
            task.cancel()
        for part in self._parts:
            part.close()
        self._coming.clear()
        self._parts.clear()
        self._here.clear()


def _interrupted(problem: CairnError) -> ReadInterrupted:
    return ReadInterrupted(
        "the rest of the answer cannot be had any more",
        detail=problem.message,
        hint="rows or masters moved while the answer was told: run the statement again",
    )


class First:
    """At most so many rows of another stream."""

    def __init__(self, stream: Stream, left: int) -> None:
        self._stream, self._left = stream, left

    async def next(self, context: Context) -> Rows | None:
        rows = await self._stream.next(context) if self._left else None
        if rows is None:
            return None
        found = plain(rows)[: self._left]
        self._left -= len(found)
        if not self._left:
            self.close()
        return found

    def close(self) -> None:
        self._stream.close()


class Merge:
    """A merger at work: its tables are filled, then its rows are told."""

    def __init__(self, reads: OpenReads, context: Context, *encode: Encode) -> None:
        self._reads, self._stage, self._whose = reads, context.stage, context.user_id
        self._encode = encode  # for the client, from the second piece on
        self._stopped = Cancelled()
        self._merger: Merger | None = None
        self._work: list[Callable[[Merger], Any]] = []  # for the next time on a thread
        self._is_over = False
        self._lock = threading.Lock()  # work may go on for somebody who is gone
        self._is_given_back = False  # the merger is somebody else's by now

    def begin(self, opcode_max: int, spill_max: int) -> None:
        self._work = [lambda merger: merger.begin(self._stopped, opcode_max, spill_max)]

    async def table(
        self, storage: Sequence[str], rows: Rows, more: Stream | None, context: Context
    ) -> None:
        """The next table: rows that are here, and what is still to come."""
        self._work.append(lambda merger: merger.table(storage, rows))
        if more is None:
            return
        try:
            while part := await more.next(context):
                await self._after(partial(_add, part))
        finally:
            more.close()

    def index(self, table: int, columns: Sequence[int]) -> None:
        self._work.append(lambda merger: merger.index(table, columns))

    async def start(
        self, sql: str, args: Sequence[Any], most: int = PIECE_BYTES, *, is_foreign: bool = False
    ) -> Piece:
        """The first rows of the statement over all tables."""
        self._work.append(lambda merger: merger.start(sql, args, is_foreign=is_foreign))
        piece: Piece = await self._after(lambda merger: merger.take(most))
        return piece

    async def answer(self, sql: str, args: Sequence[Any]) -> tuple[list[Row], Merge | None]:
        """The first rows of the statement, and itself for the rest; closed where there is none."""
        piece = await self.start(sql, args)
        if not piece.is_last:
            return plain(piece.rows), self
        self.close()
        return plain(piece.rows), None

    async def _after(self, work: Callable[[Merger], Any]) -> Any:
        """After what has been put off until something has to wait for it."""
        before, self._work = self._work, []
        return await self.run(*before, work)

    async def run(self, *work: Callable[[Merger], Any]) -> Any:
        """One after the other on a thread; what the last one gave."""
        begun = 0.0 if self._stage is None else perf_counter()
        try:
            found = await self._reads.run(self._whose, self._run, work)
        except BaseException:
            self.close()
            raise
        if self._stage is not None:
            self._stage.merge_s += perf_counter() - begun
            if isinstance(found, Piece):
                self._stage.merged_rows = (self._stage.merged_rows or 0) + len(found.rows)
        return found

    def _run(self, work: Sequence[Callable[[Merger], Any]]) -> Any:
        found: Any = None
        with self._lock:
            if self._is_given_back:  # it waited for a thread longer than its asker for the answer
                raise QueryCanceled(ASKED)
            if self._merger is None:
                self._merger = self._reads.merger()
            with self._merger.lock, stops.working_until(self._stopped.is_set):
                for each in work:
                    found = each(self._merger)
        return found

    async def next(self, context: Context) -> Rows | None:
        if self._is_over:
            return None
        piece: Piece = await self.run(lambda merger: merger.take(PIECE_BYTES, *self._encode))
        if piece.is_last:
            self.close()
        return piece.rows or None

    def close(self) -> None:
        self._stopped.set()
        if not self._is_over:
            self._is_over = True
            self._reads.later(self._give_back)

    def _give_back(self) -> None:
        with self._lock:
            self._is_given_back = True
        if self._merger is not None:
            self._reads.give_back(self._merger)


def _add(rows: Rows, merger: Merger) -> None:
    merger.add(rows)


async def all_of(rows: list[Row], more: Stream | None, context: Context) -> list[Row]:
    """For whoever needs all rows at once, as far as they can be held."""
    if more is None:
        return rows
    found, size = list(rows), _size(rows)
    try:
        while part := await more.next(context):
            found += plain(part)
            size += _size(plain(part))
            if size > limits.ANSWER_BYTES:
                raise LimitExceeded(
                    f"the answer is larger than {limits.ANSWER_BYTES >> 20} MiB",
                    hint="narrow the query, or change rows in several statements",
                )
    finally:
        more.close()
    return found


def _size(rows: Sequence[Row]) -> int:
    return len(rows) * (getsizeof(rows[-1]) + sum(map(getsizeof, rows[-1]))) if rows else 0
