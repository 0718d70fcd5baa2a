"""Who has which of our rows durably: what sync mode waits for and what the log may forget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from cairn.model.errors import CairnError, NoMaster, OutcomeUnknown
from cairn.model.log.records import Vclock, covers
from cairn.model.members.topology import Grade
from cairn.model.unexpected import owned
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.place import Place
from cairn.node.waiting import as_future
from cairn.replication.relay import Subscribe

SYNC_S = 5.0
PART_S = 0.5  # for each record of a long statement: to be sent, and applied with all others
LOOK_S = 0.5
SLOW_S = 0.5  # a write that waits longer is worth a word in `cairn status`
KEEP_RECORDS = 100_000  # of each origin, for streams and for those who were away for a while
KEEP_BYTES = 256 * 1024 * 1024  # the same in bytes: a record of COPY has many rows


class AckWaiter(NamedTuple):
    """Whoever waits for a majority, for a record of the epoch in which the wait began."""

    lsn: int
    epoch: int
    callback: Callable[[CairnError | None], None]
    since: float


class _Arriving(NamedTuple):
    """What a replica that has a part of a long statement has of our records, and since when."""

    upto: int
    at: float


class Acknowledgements:
    """Those of one epoch. The relay brings them in; they begin anew with every epoch."""

    def __init__(
        self, place: Place, data: DataPlane, is_linked: Callable[[int], bool] = lambda raft_id: True
    ) -> None:
        self._place, self._data, self._is_linked = place, data, is_linked
        self.vclocks: dict[str, Vclock] = {}  # subscriber uuid → what it has durably
        self._arriving: dict[str, _Arriving] = {}  # subscriber uuid → what it said last
        self._waiters: list[AckWaiter] = []  # the oldest first
        self._clock: asyncio.TimerHandle | None = None  # which rings when its time is over
        self.answered = 0  # how many were told together the last time

    def outstanding(self) -> int | None:
        """How many writes wait for a majority; None: they wait for nobody."""
        if self._data.fence.is_sync and len(self._place.members()) > 1:
            return len(self._waiters)
        return None

    def begin_anew(self) -> None:
        """A new epoch began: what it left out is confirmed by nobody any more."""
        self.vclocks.clear()
        self._arriving.clear()
        self._tell(
            lambda each: not self._is_history(each.lsn, each.epoch), lambda each: self._left_out()
        )

    def take(self, request: Subscribe) -> None:
        if request.epoch != self._place.history.epoch:
            return  # lsns may be used again after a cut: an older ack says nothing of them
        self.vclocks[request.subscriber] = request.vclock
        if request.held or self._arriving:
            self._take_held(request)
        for uuid, vclock in request.acks.items():
            # What others pass on may be older than what we were told ourselves.
            if uuid != self._place.uuid and covers(vclock, self.vclocks.get(uuid, {})):
                self.vclocks[uuid] = vclock
        self.release()

    def _take_held(self, request: Subscribe) -> None:
        """Who is sent the same again, because it could not apply it, comes no further."""
        who, origin = request.subscriber, self._place.uuid
        known, upto = self._arriving.get(who), request.held.get(origin, 0)
        if known is not None and request.vclock.get(origin, 0) >= known.upto:
            del self._arriving[who]
        if upto and (known is None or upto > known.upto):
            self._arriving[who] = _Arriving(upto, asyncio.get_running_loop().time())

    def _acked(self, name: str, origin: str) -> int:
        row = self._place.state.cluster.instances.get(name)
        return 0 if row is None else self.vclocks.get(row.uuid, {}).get(origin, 0)

    def safe_lsn(self) -> int:
        """The lsn of our own that a majority of the recorded members has.

        -1: a majority has not even what earlier epochs left, and a failover could still take
        away rows that this master can read.
        """
        have = [self._durable_at(name) for name in self._place.members()]
        have.sort(reverse=True)
        return have[len(have) // 2] if have else 0

    def _durable_at(self, name: str) -> int:
        place = self._place
        row = place.state.cluster.instances.get(name)
        found = self.vclocks.get(row.uuid, {}) if row is not None else {}
        vclock = self._data.vclock if name == place.name else found
        return vclock.get(place.uuid, 0) if covers(vclock, place.history.cut) else -1

    async def wait_readable(self, lsn: int, epoch: int) -> None:
        """Until nothing up to `lsn` that a read has seen can be taken away by a failover."""
        try:
            await self.wait_safe(lsn, epoch)
        except OutcomeUnknown as problem:
            raise NoMaster(
                "a majority of the replicaset has not confirmed the rows that were read",
                detail=problem.detail,
                hint="try again, or read with read_concern = local",
            ) from None

    async def wait_safe(self, lsn: int, epoch: int) -> None:
        """Until a majority has the record `lsn` of `epoch`; never a silent change to async."""
        safe: asyncio.Future[None] = as_future(lambda done: self.when_safe(lsn, epoch, done))
        await safe

    def when_safe(
        self, lsn: int, epoch: int, callback: Callable[[CairnError | None], None]
    ) -> None:
        """The same without a task; the callback gets None, or why nobody knows."""
        waiters = self._waiters
        if not self._is_history(lsn, epoch):
            callback(self._left_out())
        elif not (waiters and waiters[-1].lsn <= lsn) and self.safe_lsn() >= lsn:
            callback(None)  # asked once for a group: behind one who waits nobody is safe
        else:
            loop = asyncio.get_running_loop()
            self._waiters.append(AckWaiter(lsn, epoch, callback, loop.time()))
            if self._clock is None:
                self._clock = loop.call_later(SYNC_S, self._give_up)
            self._listen_to_own()

    def _give_up(self) -> None:
        """On those who have waited long enough. All wait equally long."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._tell(
            lambda each: each.since + SYNC_S <= now and not self._is_on_its_way(each.lsn, now),
            self._unconfirmed,
        )
        self._clock = None
        if self._waiters:
            at = max(self._waiters[0].since + SYNC_S, now + LOOK_S)
            self._clock = loop.call_at(at, self._give_up)

    def _is_on_its_way(self, lsn: int, now: float) -> bool:
        """Whether a majority has it, or has a part of what comes before it and goes on."""
        members = self._place.members()
        count = sum(
            self._durable_at(name) >= lsn or self._is_coming(name, lsn, now) for name in members
        )
        return count > len(members) // 2

    def _is_coming(self, name: str, lsn: int, now: float) -> bool:
        """A replica asks nothing while it applies all of a long statement. If it dies meanwhile,
        its link does; if it stands still, the cluster knows."""
        row = self._place.state.cluster.instances.get(name)
        if row is None or row.current_state.grade is not Grade.ONLINE:
            return False
        if not self._is_linked(row.raft_id):
            return False
        found = self._arriving.get(row.uuid)
        left = lsn - self._acked(name, self._place.uuid)
        return found is not None and now < found.at + SYNC_S + PART_S * left

    def _unconfirmed(self, waiter: AckWaiter) -> OutcomeUnknown:
        return OutcomeUnknown(
            "the row is durable here, but a majority of the replicaset has not confirmed it",
            detail=f"missing: {', '.join(self.missing_members(waiter.lsn))}",
            hint="look whether the row is there before trying again",
        )

    def _tell(
        self,
        is_over: Callable[[AckWaiter], bool],
        why: Callable[[AckWaiter], CairnError | None] = lambda each: None,
    ) -> None:
        """Who is told waits no more; who cannot take it keeps nobody from theirs."""
        over: list[AckWaiter] = []
        still: list[AckWaiter] = []
        for waiter in self._waiters:
            (over if is_over(waiter) else still).append(waiter)
        self._waiters = still
        self.answered = len(over) or self.answered
        for waiter in over:
            try:
                waiter.callback(why(waiter))
            except Exception as unexpected:
                owned(unexpected, "whoever waited for a majority")

    def _is_history(self, lsn: int, epoch: int) -> bool:
        """Whether no cut since `epoch` has left the record out: its lsn may be another's now."""
        now = self._place.history
        return epoch >= now.epoch or lsn <= now.limit(self._place.uuid, epoch)

    def _left_out(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "another master was named before a majority of the replicaset had confirmed the row",
            detail=f"epoch {self._place.history.epoch} began without it",
            hint="look whether the row is there before trying again",
        )

    def tellable(self, vclock: Vclock) -> Vclock:
        """What streams may be told of `vclock`: a record that was told must not be lost."""
        if not self._data.fence.is_sync or self._place.uuid not in vclock:
            return vclock
        return {
            **vclock,
            self._place.uuid: min(vclock[self._place.uuid], max(self.safe_lsn(), 0)),
        }

    def waits_for(self) -> list[str]:
        """Members without whom writes do not come to an end just now."""
        long_ago = asyncio.get_running_loop().time() - SLOW_S
        held = [waiter.lsn for waiter in self._waiters if waiter.since < long_ago]
        return self.missing_members(min(held)) if held else []

    def missing_members(self, lsn: int) -> list[str]:
        return [
            name
            for name in self._place.members()
            if name != self._place.name and self._durable_at(name) < lsn
        ]

    def release(self) -> None:
        if self._waiters:
            safe = self.safe_lsn()
            self._tell(lambda each: each.lsn <= safe)
            self._listen_to_own()

    def _listen_to_own(self) -> None:
        """Who has no replicas is asked by nobody. A read may have seen a commit that is not told
        here yet: whoever came after it would wait behind it, and others behind those, for ever.
        """
        if self._waiters and len(self._place.members()) < 2:
            self._data.when_moved(self.release)

    def prunable(self, origin: str, lsn: int, mean_bytes: float) -> int:
        """The last lsn that need not be kept: all members have it and streams had their time.

        One record always stays: it says of which epoch this log is.
        """
        keep = min(KEEP_RECORDS, int(KEEP_BYTES / max(mean_bytes, 1.0)) + 1)
        bound = int(self._place.state.setting("row_log_max", 1_000_000))
        have = [
            self._acked(name, origin) for name in self._place.members() if name != self._place.name
        ]
        wanted = min([lsn, *have])
        return min(max(min(wanted, lsn - keep), lsn - bound), lsn - 1)
