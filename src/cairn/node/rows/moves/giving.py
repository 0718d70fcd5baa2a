"""The source of a move: its master answers what the target asks, and drops the old rows later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from cairn.model.errors import NoMaster, NotOwner
from cairn.model.log.records import Vclock
from cairn.model.members.moves import END, TAKES, Amount, Mark, Move, Phase, Stamp
from cairn.model.sharding.spans import subtract
from cairn.moves.delta import Delta, MoveRefused
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.moves.pace import DELTA_BYTES, pace
from cairn.node.waiting import on_thread, until
from cairn.storage.data_db.moving_in import behind, drop_some
from cairn.storage.data_db.moving_out import MoveReader

DROP_DELAY_S = 5.0  # old rows stay so long, for whoever still reads them
APPLIED_S = 0.1  # the entry of a freeze reaches both masters at nearly the same time
T = TypeVar("T")


class DeltaRequest(msgspec.Struct, frozen=True):
    """What follows a position of the target's; with `is_begin`, only where to begin."""

    move: int
    at: Stamp = {}
    after: Mark = ()
    frozen_at: int = 0  # answer from behind this freeze
    max_bytes: int = DELTA_BYTES
    is_begin: bool = False


class Giving:
    """One for the instance."""

    def __init__(
        self,
        name: str,
        state: GlobalState,
        data: DataPlane,
        acks: Acknowledgements,
        lease: LeaseHolder,
    ) -> None:
        self._name, self._state, self._data = name, state, data
        self._acks, self._lease = acks, lease
        self._rows = _Reader(data.store.path)
        self._last = _Reader(data.store.path)  # statements wait: it waits for no other move's rows
        self._due: dict[int, float] = {}  # when the old rows of a move may go

    def close(self) -> None:
        self._rows.close()
        self._last.close()

    async def handle_delta(self, request: DeltaRequest) -> Delta:
        """Asked by the target's master."""
        move, epoch = self._checked(request)
        final: Vclock | None = None
        if request.frozen_at:
            store = self._data.store
            await until(lambda: self._knows_freeze(request), APPLIED_S, 0.001)
            final = await self._data.run(
                lambda: behind(store, move, request.frozen_at), urgent=True
            )
        if request.is_begin:
            total = await asyncio.to_thread(self._total, move)
            delta = Delta(epoch, await self.stamp_here(), (), total=total)
        else:
            reader = self._last if request.frozen_at else self._rows
            delta = await reader.run(
                lambda found: found.delta(
                    move.start, move.end, request.at, request.after, request.max_bytes, epoch
                )
            )
        if self._data.fence.is_sync:  # nothing is shown that a failover could take back
            own = delta.at.get(self._data.store.origin, (0, 0))[0]
            await self._acks.wait_safe(own, epoch)
        if self._checked(request)[1] != epoch:  # named again: rows of before may be gone
            raise NoMaster("another master was named while the rows were read", hint="try again")
        is_final = final is not None and delta.after == END and _reaches(delta.at, final)
        return msgspec.structs.replace(
            delta, is_final=is_final, is_writing=self._data.is_writing_long()
        )

    def _knows_freeze(self, request: DeltaRequest) -> bool:
        """The target may have applied it first; asking again would take longer than this."""
        move = self._state.cluster.moves.get(request.move)
        return move is None or move.frozen_at >= request.frozen_at

    def _total(self, move: Move) -> Amount | None:
        """With a reader of its own: the last records of a frozen range do not wait for this."""
        reader = MoveReader(self._data.store.path)
        try:
            return reader.total(move.start, move.end)
        finally:
            reader.close()

    def _checked(self, request: DeltaRequest) -> tuple[Move, int]:
        """Still the master, with a lease, of a replicaset that gives these buckets away."""
        move = self._state.cluster.moves.get(request.move)
        me = self._state.cluster.instances.get(self._name)
        if move is None or me is None:
            raise NotOwner(f"{self._name} does not know of this move")
        if move.source != me.replicaset_name:
            raise NotOwner(f"{me.replicaset_name} does not give these buckets away")
        if move.phase not in TAKES:
            raise MoveRefused(f"the move is {move.phase}")
        fence = self._data.fence
        if not fence.is_master or not self._lease.is_held(fence.epoch):
            raise NoMaster("this instance is not the master of its replicaset")
        return move, fence.epoch

    async def drop(self, move: Move) -> float | None:
        """The target owns the range: the old rows go, a few at a time. None: all are gone.

        Otherwise how long to wait before the next few.
        """
        delay_s = float(self._state.setting("rebalance_drop_delay", DROP_DELAY_S))
        now = asyncio.get_running_loop().time()
        due = self._due.setdefault(move.id, now + delay_s)
        if now < due:
            return due - now
        speed = pace(self._state)
        if not await self._data.run(lambda: drop_some(self._data.store, move, speed.drop_rows)):
            return None
        return speed.after_dropping(speed.drop_rows, asyncio.get_running_loop().time() - now)

    def has_rows(self, low: int, high: int) -> bool:
        """Whether all rows of these buckets are here, also of those that were just given away.

        A stream that began before a hand-over still reads the past of them.
        """
        now = asyncio.get_running_loop().time()
        me = self._state.cluster.instances.get(self._name)
        kept = [
            (move.start, move.end)
            for move in self._state.cluster.moves.values()
            if me is not None
            and move.source == me.replicaset_name
            and move.phase is Phase.COPIED
            and now < self._due.get(move.id, 0.0)
        ]
        return not subtract(((low, high),), (*self._data.fence.owned, *kept))

    async def stamp_here(self) -> Stamp:
        """The position of this instance's own file."""
        return await self._last.run(MoveReader.stamp)


class _Reader:
    """A reader that is opened when it is first needed, for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: MoveReader | None = None
        self._is_free = asyncio.Lock()

    async def run(self, work: Callable[[MoveReader], T]) -> T:
        async with self._is_free:
            if self._reader is None:
                self._reader = MoveReader(self._path)
            return await on_thread(work, self._reader)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _reaches(at: Stamp, vclock: Vclock) -> bool:
    return all(at.get(origin, (0, 0))[0] >= lsn for origin, lsn in vclock.items())
