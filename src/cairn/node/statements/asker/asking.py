"""Asking one replicaset for rows: its master or a replica, here or one hop away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from cairn.model.errors import NotOwner, Unreachable
from cairn.model.rpc import ReadRequest, ReadResponse, SplitRequest, SplitResponse
from cairn.net import spans
from cairn.node.statements.asker.measuring import opened, size_of
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.asker.streams import READ_S, Part, PartAway, PartHere, rows_of
from cairn.node.statements.context import Context
from cairn.storage.files.pieces import Rows

_CURSOR_BITS = 40
_CURSORS = 1 << _CURSOR_BITS
Told = tuple[Rows, Part | None]  # some rows of one owner, and where the rest comes from


class SplitPart(PartAway):
    """A read whose rows others fetch; it is open until they have them all, or it is closed."""

    def __init__(self, owners: Owners, target: int, number: int, replicaset: str) -> None:
        super().__init__(owners.peers, target, number)
        self._owners, self.replicaset = owners, replicaset
        self.owner = (target, number)

    async def take(self, context: Context) -> Rows:
        raise AssertionError("these rows are for others")

    def close(self) -> None:
        if self.owner[0] == self._owners.raft_id:
            self._owners.execution.reads.open_reads.drop(self.owner[1])
        else:
            super().close()


class Asking:
    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._cursors = owners.first_cursor  # numbers by which owners know our longer reads

    async def open_at(self, replicaset: str, request: ReadRequest, context: Context) -> Told:
        if context.overlay is not None and context.overlay.is_at(replicaset):
            return await context.overlay.read(request), None

        def ask(target: int) -> Awaitable[Told]:
            return self._open_from(target, replicaset, request, context)

        return await self._of_reader(replicaset, request.preference, ask)

    async def split_at(self, replicaset: str, request: SplitRequest, context: Context) -> Told:
        """Rows that are dealt out there: none of them is told here."""

        def ask(target: int) -> Awaitable[Told]:
            return self._split_from(target, replicaset, request, context)

        return await self._of_reader(replicaset, request.read.preference, ask)

    async def _of_reader(
        self, replicaset: str, preference: str, ask: Callable[[int], Awaitable[Told]]
    ) -> Told:
        target = self._owners.routes.reader(replicaset, preference, self._owners.raft_id)
        try:
            return await ask(target)
        except NotOwner:
            if preference != "any" or target == self._owners.routes.master(replicaset):
                raise
        # A replica may know of a hand-over before it has the rows; the master has them.
        return await ask(self._owners.routes.master(replicaset))

    def next_cursor(self) -> int:
        """A number that no other read of any instance has, nor had in a former life: whoever joins
        a part for that one may not have noticed yet that nobody wants it any more."""
        self._cursors = (self._cursors + 1) % _CURSORS
        return self._owners.raft_id << _CURSOR_BITS | self._cursors

    async def _open_from(
        self, target: int, replicaset: str, request: ReadRequest, context: Context
    ) -> Told:
        if context.stage is None:
            return await self._ask(target, replicaset, request, context)
        work = context.stage.at(
            self._owners.name_of(target), replicaset, is_here=target == self._owners.raft_id
        )
        if context.stage.sends and not work.is_here:
            work.came(0, size_of(request.args[-context.stage.sends :]))
        return await opened(work, self._ask(target, replicaset, request, context))

    async def _ask(
        self, target: int, replicaset: str, request: ReadRequest, context: Context
    ) -> Told:
        if target == self._owners.raft_id:
            with spans.part("read here"):
                return await self._open_here(request, context)
        self._owners.forwarded += 1
        context.travelled.hops += 1
        part: PartAway | None = None
        if request.piece_bytes:
            number = self.next_cursor()
            request = msgspec.structs.replace(request, cursor=number)
            part = PartAway(self._owners.peers, target, number)
        try:
            answer = await self._owners.peers.call(
                target,
                "read_rows",
                request,
                ReadResponse,
                context.left_s(READ_S),
                must_end=True,
            )
        except BaseException as problem:
            if part is not None and not isinstance(problem, NotOwner):
                part.close()  # its answer may be on the way
            if isinstance(problem, Unreachable):  # a read may be asked again, of whoever follows
                raise self._owners.no_answer(replicaset, target, problem) from None
            raise
        context.told.came(answer.stale_s)
        return rows_of(answer), part if answer.cursor else None

    async def _split_from(
        self, target: int, replicaset: str, request: SplitRequest, context: Context
    ) -> Told:
        number = self.next_cursor()
        read = msgspec.structs.replace(request.read, cursor=number)
        request = msgspec.structs.replace(request, read=read)
        part = SplitPart(self._owners, target, number, replicaset)
        if target == self._owners.raft_id:
            self._owners.local += 1
            reads = self._owners.execution.reads
            reads.open_reads.keep(await reads.split(request), number, None)
            context.told.came(reads.stale_s(read))
            return [], part
        self._owners.forwarded += 1
        context.travelled.hops += 1
        left_s = context.left_s(READ_S)
        try:
            answer = await self._owners.peers.call(
                target, "split_rows", request, SplitResponse, left_s, must_end=True
            )
        except BaseException as problem:
            if not isinstance(problem, NotOwner):
                part.close()  # its answer may be on the way
            if isinstance(problem, Unreachable):
                raise self._owners.no_answer(replicaset, target, problem) from None
            raise
        context.told.came(answer.stale_s)
        return [], part

    async def _open_here(self, request: ReadRequest, context: Context) -> Told:
        self._owners.local += 1
        if not request.piece_bytes:
            rows = await self._owners.execution.reads.read(request, context.cancelled)
            context.told.came(self._owners.execution.reads.stale_s(request))
            return rows, None
        piece, read = await self._owners.execution.reads.first_piece(request)
        context.told.came(self._owners.execution.reads.stale_s(request))
        return piece.rows, None if read is None else PartHere(self._owners.execution, read)
