"""Full copies of a replicaset's rows: given piece by piece, taken when the log is too short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from cairn.model.errors import NoMaster
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.members.topology import Replicaset
from cairn.net.peers import Peers
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import LinkStatus
from cairn.node.rows.place import Place
from cairn.replication.applier import LogRefused
from cairn.storage.data_db.full_copy import CopyHead, CopySource, CopyTarget, known_head
from cairn.storage.files.checksums import is_damage

log = logging.getLogger("cairn.replication")

COPY_BYTES = 4 * 1024 * 1024  # of one piece: one commit at the other end
COPY_IDLE_S = 60.0


class CopyRequest(msgspec.Struct, frozen=True):
    """The next piece of a full copy; `copy_id` 0 begins one."""

    copy_id: int
    subscriber: str
    replicaset: str


class CopyPiece(msgspec.Struct, frozen=True):
    copy_id: int
    head: CopyHead | None = None
    table_id: int = 0
    rows: list[bytes] = []  # in blocks
    is_last: bool = False


class Copies:
    """Both ends of a full copy. The follower decides when one is needed."""

    def __init__(self, place: Place, data: DataPlane, peers: Peers) -> None:
        self._place, self._data, self._peers = place, data, peers
        #: By number: what is read, who takes it, and when it was last asked for.
        self._given: dict[int, tuple[CopySource, str, float]] = {}
        self._next_id = 1
        self._taken: CopyTarget | None = None  # the last that was begun: no other one writes

    def close(self) -> None:
        for source, _, _ in self._given.values():
            source.close()

    async def take_from(
        self, master: InstanceRow, replicaset: Replicaset, link: LinkStatus
    ) -> None:
        link.state = "copying"
        log.info("taking a full copy of %s from %s", replicaset.name, master.name)
        store, asked_in = self._data.store, self._place.history.epoch
        target = CopyTarget(store, master.name)
        piece = await self._piece(master, CopyRequest(0, self._place.uuid, replicaset.uuid))
        head, following = (
            piece.head,
            CopyRequest(piece.copy_id, self._place.uuid, replicaset.uuid),
        )
        if head is None:
            raise LogRefused(f"{master.name} began a full copy without a head")
        applier = self._place.applier

        def begin() -> None:
            """It deletes what is here: not when these rows may count for a naming, or did."""
            if store.is_complete and max(applier.history.epoch, store.promised) > asked_in:
                raise NoMaster("a new master is being named; a full copy is taken after that")
            self._taken = target
            target.begin(head)

        def check_alone() -> None:
            """A new master's copy begins while one of the old master is still on its way."""
            if self._taken is not target:
                raise NoMaster("another full copy was begun meanwhile")

        def write(piece: CopyPiece) -> None:
            check_alone()
            target.rows(piece.table_id, piece.rows)

        epoch = await self._data.run(_doing(begin, lambda: applier.history.epoch), alone=True)
        piece = await self._piece(master, following)
        while not piece.is_last:
            # The next piece is read and sent while this one is written.
            coming = asyncio.ensure_future(self._piece(master, following))
            try:
                await self._data.run(_doing(partial(write, piece)), alone=True)
                piece = await coming
            finally:
                coming.cancel()

        def finish() -> None:
            check_alone()
            if applier.history.epoch != epoch:  # this may go past the cut of the new one
                raise NoMaster("a new epoch began during the full copy; it begins anew")
            target.finish(head)

        await self._data.run(_doing(finish), alone=True)
        self._place.must_copy = False
        link.problem = None
        log.info("the full copy has %d rows and stands at %s", target.count, head.vclock)

    async def _piece(self, master: InstanceRow, request: CopyRequest) -> CopyPiece:
        return await self._peers.call(master.raft_id, "copy_rows", request, CopyPiece, 30.0)

    async def give(self, request: CopyRequest) -> CopyPiece:
        self._place.check_peer(request.replicaset, request.subscriber)
        await self._place.complete()
        now = asyncio.get_running_loop().time()
        if request.copy_id == 0:
            source = await self._opened()
            copy_id = self._next_id
            self._next_id += 1
            self._given[copy_id] = (source, request.subscriber, now)
            return CopyPiece(copy_id, head=source.head)
        given = self._given.get(request.copy_id)
        if given is None or given[1] != request.subscriber:  # numbers begin anew with each life
            raise NoMaster("this copy was given up; begin anew")
        source = given[0]
        self._given[request.copy_id] = (source, request.subscriber, now)
        try:
            chunk = await asyncio.to_thread(source.chunk, COPY_BYTES)
        except Exception:
            self._given.pop(request.copy_id, None)
            source.close()
            raise
        if chunk is None:
            del self._given[request.copy_id]
            return CopyPiece(request.copy_id, is_last=True)
        return CopyPiece(request.copy_id, table_id=chunk[0], rows=chunk[1])

    async def _opened(self) -> CopySource:
        path, store = self._data.store.path, self._data.store
        try:
            return await asyncio.to_thread(CopySource, path)
        except Exception as problem:
            if not is_damage(problem):
                raise
        # A page about the log or the tables: the writer has known it since the start.
        return await self._data.run(lambda: CopySource(path, known_head(store)), alone=True)

    def drop_idle(self) -> None:
        """Who asks no more has gone; its read transaction would keep the log of SQLite for ever."""
        now = asyncio.get_running_loop().time()
        for copy_id, (source, _, used) in list(self._given.items()):
            if now - used > COPY_IDLE_S:
                source.close()
                del self._given[copy_id]


def _doing(work: Callable[[], None], told: Callable[[], int] = lambda: 0) -> Callable[[], int]:
    def run() -> int:
        work()
        return told()

    return run
