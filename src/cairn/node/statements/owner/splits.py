"""Reads of rows that are here, dealt out by a key: each part is fetched by whoever joins it.

The rows are read once and at one moment, whoever comes for them in which order: what is read for
one part and belongs to another waits for that one (`storage/files/dealt.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from cairn.model.errors import ProtocolViolation
from cairn.model.rpc import SplitRequest
from cairn.model.sharding.parts import bucket_dealer, dealer
from cairn.net.link import Link
from cairn.node.statements.owner.open_reads import OpenReads, gone
from cairn.storage.files.dealt import Dealt
from cairn.storage.files.pieces import Piece, Row
from cairn.storage.readers import RowCursor

BATCH_ROWS, BATCH_BYTES = 64, 256 * 1024  # read between two looks at their size, at most


class SplitRead:
    """One answer in several parts."""

    def __init__(
        self, reads: OpenReads, cursor: RowCursor, request: SplitRequest, epoch: int | None
    ) -> None:
        self._reads, self._cursor, self.epoch = reads, cursor, epoch
        self._whose, self._most = request.read.user, request.read.piece_bytes
        self._width = request.width
        places, keeps_null = request.places, request.keeps_null
        if request.buckets is not None:
            self._deal = bucket_dealer(request.buckets, places, keeps_null=keeps_null)
        else:
            self._deal = dealer(request.parts, places, keeps_null=keeps_null)
        self._dealt = Dealt(reads.directory, request.parts, request.spill_max)
        self._left = set(range(request.parts))  # whose last piece is not told yet
        self._is_read = False  # all rows are dealt out
        self._step = 1
        self._turn = asyncio.Lock()
        self._lock = threading.Lock()  # a piece may still be made for somebody who is gone
        self._is_closed = False
        self.link: Link | None = None
        self.used_at = 0.0
        self._busy = 0
        self._is_over = False

    @property
    def is_told(self) -> bool:
        return not self._left

    async def take(self) -> Piece:
        """Begin: from here on its rows are those of one moment. Nothing is told yet."""
        return await self._working(self._begin)

    async def take_part(self, part: int) -> Piece:
        if self._is_over or part not in self._left:
            raise gone()
        self._busy += 1
        try:
            async with self._turn:
                if self._is_over:
                    raise gone()
                piece = await self._working(self._piece, part)
            if piece.is_last:
                self._left.discard(part)
        finally:
            self._busy -= 1
            # Whoever is the last: also one that waited for its turn, and does not any more.
            if self.is_told or (self._cursor.stopped.is_set() and not self._busy):
                self._end()
        return piece

    async def _working(self, work: Callable[..., Piece], *args: int) -> Piece:
        try:
            found: Piece = await self._reads.run(self._whose, work, *args)
        except BaseException:  # without this part the others are for nothing
            self._cursor.stopped.set()
            self._end()
            raise
        return found

    # --- on a thread ------------------------------------------------------------------------------

    def _begin(self) -> Piece:
        with self._lock:
            self._deal_out()
        return Piece([], b"", False)

    def _piece(self, part: int) -> Piece:
        with self._lock:
            if self._is_closed:
                raise gone()
            while not self._is_read and self._dealt.sizes[part] < self._most:
                self._deal_out()
            return self._dealt.take(part, self._most, is_over=self._is_read)

    def _deal_out(self) -> None:
        rows = self._cursor.rows(self._step)
        self._is_read = len(rows) < self._step
        width, deal = self._width, self._deal
        parts: dict[int | None, list[Row]] = {}
        try:
            for row in rows:
                parts.setdefault(deal(row), []).append(row[:width])
        except IndexError:
            raise ProtocolViolation("a peer's rows do not have the columns of their key") from None
        size = sum(
            self._dealt.add(part, found) for part, found in parts.items() if part is not None
        )
        self._step = max(1, min(BATCH_ROWS, BATCH_BYTES * len(rows) // max(size, 1)))

    def _forget(self) -> None:
        with self._lock:
            self._is_closed = True
            self._dealt.close()

    # --- its end ----------------------------------------------------------------------------------

    def close(self) -> None:
        self._cursor.stopped.set()
        if not self._busy:
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._reads.over(self._cursor, self._forget)
