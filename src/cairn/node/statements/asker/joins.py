"""One part of a join, at any instance: rows are fetched from where they were dealt out, and joined.

Whoever asked for it takes the answer in pieces, as from an owner (`owner/open_reads.py`). What it
needs ends with it: by the asker, with the link to it, or with its last piece.
"""

from __future__ import annotations

import asyncio

import msgspec

from cairn.model.rpc import Fetched, PartJoin, PartJoinedPiece, ReadPart, ReadResponse
from cairn.net.link import Link
from cairn.node.statements.asker.measuring import size_of
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.asker.streams import READ_S, Gathered, Merge
from cairn.node.statements.context import Context
from cairn.storage.files.pieces import Piece, Row, Rows

_decode = msgspec.msgpack.Decoder(list[tuple[object, ...]]).decode


class Fetching:
    """The rows of one part that one owner dealt out."""

    def __init__(self, owners: Owners, owner: tuple[int, int], part: int, *, sized: bool) -> None:
        self._owners, self._part, self._sized = owners, part, sized
        self.owner, self._number = owner
        self.rows = self.bytes = 0
        self.is_over = False

    async def take(self, context: Context) -> Rows:
        request = ReadPart(self._number, self._part)
        rows: list[Row]
        if self.owner == self._owners.raft_id:
            piece = await self._owners.execution.reads.part(request)
            self.is_over, rows = piece.is_last, _decode(piece.data)
        else:
            left_s = context.left_s(READ_S)
            answer = await self._owners.peers.call(
                self.owner, "read_part", request, ReadResponse, left_s, must_end=True
            )
            self.is_over, rows = not answer.cursor, answer.rows
            self.bytes += size_of(rows) if self._sized and rows else 0
        self.rows += len(rows)
        return rows

    def close(self) -> None:
        """Whoever dealt the rows out is told by the asker."""


class Joined:
    """The answer on its way."""

    epoch: int | None = None
    link: Link | None = None
    used_at = 0.0

    def __init__(self, merge: Merge, most: int) -> None:
        self._merge, self._most = merge, most

    async def take(self) -> Piece:
        piece: Piece = await self._merge.run(lambda merger: merger.take(self._most))
        if piece.is_last:
            self._merge.close()
        return piece

    def close(self) -> None:
        self._merge.close()


class Joins:
    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def handle(self, link: Link, request: PartJoin) -> PartJoinedPiece:
        """For another instance."""
        piece, fetched, rest = await self.join(request)
        if rest is not None:
            self._owners.execution.reads.open_reads.keep(rest, request.cursor, link)
        number = 0 if rest is None else request.cursor
        return PartJoinedPiece(msgspec.Raw(piece.data), cursor=number, fetched=fetched)

    async def join(self, request: PartJoin) -> tuple[Piece, tuple[Fetched, ...], Joined | None]:
        """The first rows, what had to be fetched for them, and where the rest comes from."""
        context = Context(
            user_id=request.user,
            deadline=asyncio.get_running_loop().time() + request.timeout_s,
        )
        merge = Merge(self._owners.execution.reads.open_reads, context)
        merge.begin(request.opcode_max, request.spill_max)
        fetched: list[Fetched] = []
        try:
            for at, table in enumerate(request.tables):
                parts = [
                    Fetching(self._owners, owner, request.part, sized=request.is_measured)
                    for owner in table.owners
                ]
                more = Gathered(parts, request.row_max, 0) if parts else None
                await merge.table([""] * table.width, table.rows, more, context)
                fetched += [(at, each.owner, each.rows, each.bytes) for each in parts]
            piece = await merge.start(
                request.sql, request.args, request.piece_bytes, is_foreign=True
            )
        except BaseException:
            merge.close()
            raise
        if not piece.is_last:
            return piece, tuple(fetched), Joined(merge, request.piece_bytes)
        merge.close()
        return piece, tuple(fetched), None
