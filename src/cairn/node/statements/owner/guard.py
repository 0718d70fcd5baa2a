"""May this instance answer a read, and may what it has seen be told?

A master's read checks its lease before the rows are read and once more after. In sync mode rows
are told when no failover can take them away. Every way to read rows comes through here.
"""

from __future__ import annotations

from typing import Any

from cairn.model.errors import NoMaster, NotOwner, TableUnderDdl
from cairn.model.members.moves import Move
from cairn.model.rpc import ReadRequest
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseHolder
from cairn.node.rows.moves.moving import Moving
from cairn.node.rows.replication import Replication
from cairn.storage.data_db.fence import Fence
from cairn.storage.readers import RowReader

LOOKS = 100  # at something short: on a busy machine even that may seem to take too long


class RowGuard:
    """`reader` is the event loop's own connection."""

    def __init__(
        self,
        data: DataPlane,
        lease: LeaseHolder,
        replication: Replication,
        moving: Moving,
        reader: RowReader,
    ) -> None:
        self.data, self._lease, self._reader = data, lease, reader
        self._replication, self._moving = replication, moving
        self._fence: Fence | None = None  # for which `_coming` was made
        self._coming: list[Move] = []  # handed over to us, and not here yet as far as is known

    def check_read(self, request: ReadRequest) -> None:
        """May this instance answer it now?"""
        self.check_versions(request)
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

    def check_versions(self, request: ReadRequest) -> None:
        have = self.data.versions
        for table, version in request.tables.items():
            if have.get(table) != version:
                raise TableUnderDdl("the table's schema is changing on this instance; try again")

    def check_lease(self, epoch: int | None = None) -> None:
        """`epoch` is the one in which work began: named again, a master has another history."""
        fence = self.data.fence
        if not fence.is_master:
            raise NoMaster(f"this instance is not the master: {fence.master} is")
        if epoch is not None and fence.epoch != epoch:
            raise NoMaster("another master was named meanwhile", hint="try again")
        if not self._lease.is_held(fence.epoch):
            raise NoMaster("this master has lost contact with the cluster's leader")

    async def check_answer(self, request: ReadRequest, epoch: int) -> None:
        """It was read in `epoch`. Still ours, still with a lease, and what was seen stays?

        In a later epoch this master may have undone rows that the read has seen.
        """
        self.check_read(request)
        await self.check_stays(request, epoch)

    async def check_stays(self, request: ReadRequest, epoch: int) -> None:
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

    async def check_looked(self, epoch: int) -> None:
        """What a block has seen in `epoch`, and did not write: may it be told?"""
        self.check_lease()
        await self._check_seen(epoch)

    def may_tell_looked(self, epoch: int) -> bool:
        """The same in this turn; False: it has to be waited for."""
        self.check_lease(epoch)
        return not self.data.fence.is_sync

    def _seen_at_most(self) -> int:
        """The last lsn of our own that a read of just now may have seen.

        Asked of the file: a commit is there before the event loop hears of it.
        """
        origin = self.data.store.origin
        sql = "SELECT lsn FROM vclock WHERE origin = ?"
        for _ in range(LOOKS):
            rows: list[Any] | None = self._reader.at_once(sql, (origin,))
            if rows is not None:
                return int(rows[0][0]) if rows else 0
        raise NoMaster("what was read could not be checked in time", hint="try again")
