"""Who has which of our rows durably: what sync mode waits for and what the log may forget."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from cairn.model.errors import NoMaster, OutcomeUnknown
from cairn.model.moves import Stamp
from cairn.model.records import Vclock, covers
from cairn.model.topology import Instance as InstanceRow
from cairn.model.topology import Replicaset
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.replication.applier import History
from cairn.replication.relay import Subscribe

SYNC_S = 5.0
SLOW_S = 0.5  # a write that waits longer is worth a word in `cairn status`
KEEP_RECORDS = 100_000  # of each origin, for streams and for those who were away for a while
KEEP_BYTES = 256 * 1024 * 1024  # the same in bytes: a record of COPY has many rows


class AckWaiter(NamedTuple):
    """Whoever waits for a majority, for a record of the epoch in which the wait began."""

    lsn: int
    epoch: int
    future: asyncio.Future[None]
    since: float


class SyncCounting:
    """Acknowledgements of one epoch. `Replication` is built on it and brings them in."""

    data: DataPlane
    acks: dict[str, Vclock]  # subscriber uuid → what it has durably
    _name: str
    _uuid: str
    _state: GlobalState
    _history: History
    _ack_waiters: list[AckWaiter]

    def _replicaset(self) -> tuple[InstanceRow, Replicaset] | None:
        raise AssertionError("given by the class above")

    def is_sync(self) -> bool:
        return self.data.fence.is_sync

    def _acknowledge(self, request: Subscribe) -> None:
        if request.epoch != self._history.epoch:
            return  # lsns may be used again after a cut: an older ack says nothing of them
        self.acks[request.subscriber] = request.vclock
        for uuid, vclock in request.acks.items():
            if uuid != self._uuid:
                self.acks[uuid] = vclock
        self._release_acks()

    def _acked(self, name: str, origin: str) -> int:
        row = self._state.cluster.instances.get(name)
        return 0 if row is None else self.acks.get(row.uuid, {}).get(origin, 0)

    def _members(self) -> tuple[str, ...]:
        """As recorded in Raft: not those that happen to be alive (rule 10)."""
        found = self._replicaset()
        return () if found is None else found[1].members

    def safe_lsn(self) -> int:
        """The lsn of our own that a majority of the recorded members has (rule 10).

        -1: a majority has not even what earlier epochs left, and a failover could still take
        away rows that this master can read.
        """
        have = [self._standing(name) for name in self._members()]
        have.sort(reverse=True)
        return have[len(have) // 2] if have else 0

    def _standing(self, name: str) -> int:
        row = self._state.cluster.instances.get(name)
        found = self.acks.get(row.uuid, {}) if row is not None else {}
        vclock = self.data.vclock if name == self._name else found
        return vclock.get(self._uuid, 0) if covers(vclock, self._history.cut) else -1

    async def wait_readable(self, epoch: int) -> None:
        """Until nothing that a read of just now could see can be taken away by a failover."""
        try:
            await self.wait_safe(self.data.vclock.get(self._uuid, 0), epoch)
        except OutcomeUnknown as problem:
            raise NoMaster(
                "a majority of the replicaset has not confirmed the rows that were read",
                detail=problem.detail,
                hint="try again, or read with read_concern = local",
            ) from None

    async def wait_safe(self, lsn: int, epoch: int) -> None:
        """Until a majority has the record `lsn` of `epoch`; never a silent change to async."""
        if not self._is_history(lsn, epoch):
            raise self._left_out()
        if self.safe_lsn() >= lsn:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._ack_waiters.append(AckWaiter(lsn, epoch, future, loop.time()))
        try:
            async with asyncio.timeout(SYNC_S):
                await future
        except TimeoutError:
            raise OutcomeUnknown(
                "the row is durable here, but a majority of the replicaset has not confirmed it",
                detail=f"missing: {', '.join(self.missing_members(lsn))}",
                hint="look whether the row is there before trying again",
            ) from None

    def _is_history(self, lsn: int, epoch: int) -> bool:
        """Whether no cut since `epoch` has left the record out: its lsn may be another's now."""
        now = self._history
        return epoch >= now.epoch or lsn <= now.limit(self._uuid, epoch)

    def has(self, stamp: Stamp) -> bool:
        """Whether what came up to there, as far as it is history, is on this instance."""
        now, vclock = self._history, self.data.vclock
        return all(
            vclock.get(origin, 0)
            >= (lsn if epoch >= now.epoch else min(lsn, now.limit(origin, epoch)))
            for origin, (lsn, epoch) in stamp.items()
        )

    def _left_out(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "another master was named before a majority of the replicaset had confirmed the row",
            detail=f"epoch {self._history.epoch} began without it",
            hint="look whether the row is there before trying again",
        )

    def _drop_left_out(self) -> None:
        """A new epoch began: what it left out is confirmed by nobody any more."""
        for waiter in self._ack_waiters:
            if not waiter.future.done() and not self._is_history(waiter.lsn, waiter.epoch):
                waiter.future.set_exception(self._left_out())

    def tellable(self, vclock: Vclock) -> Vclock:
        """What streams may be told of `vclock`: a record that was told must not be lost."""
        if not self.is_sync() or self._uuid not in vclock:
            return vclock
        return {**vclock, self._uuid: min(vclock[self._uuid], max(self.safe_lsn(), 0))}

    def waits_for(self) -> list[str]:
        """Members without whom writes do not come to an end just now."""
        long_ago = asyncio.get_running_loop().time() - SLOW_S
        held = [waiter.lsn for waiter in self._ack_waiters if waiter.since < long_ago]
        return self.missing_members(min(held)) if held else []

    def missing_members(self, lsn: int) -> list[str]:
        return [
            name for name in self._members() if name != self._name and self._standing(name) < lsn
        ]

    def _release_acks(self) -> None:
        if not self._ack_waiters:
            return
        safe = self.safe_lsn()
        still = []
        for waiter in self._ack_waiters:
            if waiter.future.done():
                continue
            if waiter.lsn <= safe:
                waiter.future.set_result(None)
            else:
                still.append(waiter)
        self._ack_waiters = still

    def prunable(self, origin: str, lsn: int, mean_bytes: float) -> int:
        """The last lsn that need not be kept: all members have it and streams had their time.

        One record always stays: it says of which epoch this log is.
        """
        keep = min(KEEP_RECORDS, int(KEEP_BYTES / max(mean_bytes, 1.0)) + 1)
        bound = int(self._state.setting("row_log_max", 1_000_000))
        have = [self._acked(name, origin) for name in self._members() if name != self._name]
        wanted = min([lsn, *have])
        return min(max(min(wanted, lsn - keep), lsn - bound), lsn - 1)
