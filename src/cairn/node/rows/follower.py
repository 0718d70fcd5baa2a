"""Follows the upstreams: pulls their records, has them applied, and by the next pull acknowledges.

One task follows each upstream (all other members by default). `node/rows/mesh.py` says which
origins are taken from which of them, so that no row crosses to an instance twice. A pull carries
the durable vclock: it acknowledges all before it, and a broken link resumes by itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NoMaster, StorageDamaged, TimedOut
from cairn.model.log.records import are_quick, covers
from cairn.model.rpc import Empty, ReplicatedRequest, VclockRequest, VclockResponse
from cairn.net.peers import Peers
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.acknowledgements import Acknowledgements
from cairn.node.rows.ballots import Ballots, only
from cairn.node.rows.copies import Copies
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.links import KnownEpochs, LinkStatus
from cairn.node.rows.mesh import Mesh
from cairn.node.rows.place import Place
from cairn.node.runtime import Runtime, spawn
from cairn.node.waiting import signalled, until
from cairn.replication.applier import (
    CutForgotten,
    LogRefused,
    NotHistory,
    OtherHistory,
    check_origins,
)
from cairn.replication.relay import LogTooShort, Rows, Subscribe
from cairn.storage.data_db.row_log import LogReader

log = logging.getLogger("cairn.replication")

PULL_S = 0.5  # how long a relay holds a pull without news: also the heartbeat
CALL_S = 5.0
BATCH = 500
REFUSED_PAUSE_S = 5.0
WAIT_S = 0.1
TOO_SHORT_S = 3.0  # the log of one that is no master: others may have what it has forgotten
DAMAGED_PAUSES_S = (1.0, 60.0)  # the first, and the longest: a copy reads everything once more
NEVER_S = 1e6  # how stale a replica is that has never had everything


class Follower:
    def __init__(
        self,
        place: Place,
        data: DataPlane,
        reader: LogReader,
        runner: RaftRunner,
        peers: Peers,
        runtime: Runtime,
        acks: Acknowledgements,
        mesh: Mesh,
        ballots: Ballots,
        copies: Copies,
    ) -> None:
        self._place, self._data, self._reader = place, data, reader
        self._runner, self._peers, self._runtime = runner, peers, runtime
        self._acks, self._mesh, self._ballots, self._copies = acks, mesh, ballots, copies
        self.links: dict[str, LinkStatus] = {}  # by upstream uuid
        self._epochs = KnownEpochs(reader.epochs_at)
        self._wake = asyncio.Event()
        self._epoch_begun = asyncio.Event()  # another one for each

    def follow(self, *, is_new_epoch: bool) -> None:
        """Entries were applied."""
        if is_new_epoch:
            self._epochs.forget()  # after a cut the same lsn may be another record
            self._epoch_begun.set()
            self._epoch_begun = asyncio.Event()
        self._wake.set()

    async def run(self) -> None:
        """Keep one task for each upstream that the replication graph gives us."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                wanted = {row.uuid: row for row in self._mesh.upstreams()}
                for uuid in [uuid for uuid in tasks if uuid not in wanted]:
                    tasks.pop(uuid).cancel()
                    self._lost(uuid)
                    self.links.pop(uuid, None)
                for uuid, row in wanted.items():
                    if uuid not in tasks or tasks[uuid].done():
                        tasks[uuid] = spawn(self._follow(row.name, uuid), f"follow {row.name}")
                self._wake.clear()
                await signalled(self._wake, 1.0)
        finally:
            for task in tasks.values():
                task.cancel()

    async def _follow(self, name: str, uuid: str) -> None:
        link = self.links.setdefault(uuid, LinkStatus(upstream=name))
        pause_s, longest_s = DAMAGED_PAUSES_S
        short_since: float | None = None
        while True:
            try:
                await self._place.entered.wait()
                await self._pull(name, uuid, link)
                pause_s, link.damaged_since, short_since = DAMAGED_PAUSES_S[0], None, None
            except LogTooShort as problem:
                link.state, link.problem = "off", str(problem)
                now = asyncio.get_running_loop().time()
                short_since = now if short_since is None else short_since
                if self._place.is_master(name) or now - short_since > TOO_SHORT_S:
                    log.warning("%s: %s", name, problem)
                    self._place.must_copy = True
                    self._wake.set()
                await asyncio.sleep(0.2)
            except CutForgotten as problem:
                self._stopped(link, uuid, problem)
                self._place.must_copy = True
                await asyncio.sleep(0.2)
            except OtherHistory as problem:
                self._stopped(link, uuid, problem)
                if self._place.is_master(name):
                    await self._start_anew(name, problem.origin)
                else:
                    await asyncio.sleep(1.0)
            except (LogRefused, msgspec.DecodeError) as problem:
                self._stopped(link, uuid, problem)
                await asyncio.sleep(REFUSED_PAUSE_S)
            except StorageDamaged as problem:
                self._stopped(link, uuid, problem)
                if link.damaged_since is None:
                    link.damaged_since = asyncio.get_running_loop().time()
                if await signalled(self._epoch_begun, pause_s):
                    pause_s = DAMAGED_PAUSES_S[0]
                else:
                    pause_s = min(2 * pause_s, longest_s)
            except CairnError as problem:
                link.state, link.problem = "off", str(problem)
                self._lost(uuid)
                await asyncio.sleep(0.1)

    def _lost(self, uuid: str) -> None:
        self._ballots.lost(uuid)
        self._mesh.lost(uuid)

    async def _start_anew(self, master: str, origin: str) -> None:
        epoch = self._reader.epochs_at(self._data.vclock).get(origin, 0)
        await self._place.start_anew(master, origin, epoch)

    def _stopped(self, link: LinkStatus, uuid: str, problem: Exception) -> None:
        """What came must not be applied. The governor is told with the next heartbeat."""
        if link.problem != str(problem):
            log.error("stopped following %s: %s", link.upstream, problem)
        link.state, link.problem = "stopped", str(problem)
        self._lost(uuid)

    async def _pull(self, name: str, uuid: str, link: LinkStatus) -> None:
        found = self._place.replicaset()
        row = self._place.state.cluster.instances.get(name)
        if found is None or row is None:
            raise NoMaster(f"{name} is no member any more")
        if self._place.must_copy and self._place.is_master(name):
            await self._copies.take_from(row, found[1], link)
            self._epochs.forget()
            self._wake.set()  # it may be no upstream otherwise
            return  # the next pull begins with a fresh look at where we stand
        if uuid not in self._ballots.known:
            await self._ballots.ask(row, found[1], link)
        if self._place.must_copy:  # from the master; what others have goes on from there
            link.state, link.problem = "off", "a full copy comes first"
            await asyncio.sleep(WAIT_S)
            return
        # From here to the question nothing may come in between: it acknowledges what is here, and
        # in an epoch that has begun but was not entered that may be a tail.
        await self._place.entered.wait()
        taken = self._mesh.origins_at(uuid)
        vclock, asked_at = dict(self._data.vclock), self._runtime.boot_clock()
        request = Subscribe(
            self._place.uuid,
            found[1].uuid,
            vclock,
            taken if link.knows_lists else (),
            BATCH,
            PULL_S,
            self._acks.vclocks,
            self._place.history.epoch,
            self._mesh.seen_of(uuid),
            self._epochs.at(vclock),
            self._place.applier.arriving.upto,
        )
        answer = await self._peers.call(row.raft_id, "subscribe", request, Rows, CALL_S)
        check_origins(answer.records, request.origins, self._place.uuid)
        if not link.knows_lists:
            answer = only(answer, taken)
        self._mesh.heard(uuid, answer)
        waits_for = await self._apply(request, answer, link) if answer.records else None
        link.state, link.problem = "follow", waits_for
        link.compared(self._data.vclock, answer.vclock, asked_at)

    async def _apply(self, request: Subscribe, answer: Rows, link: LinkStatus) -> str | None:
        """What the records wait for, if none of them could be applied."""
        applier, waits_for = self._place.applier, None
        # The last record of a long statement may be short.
        is_quick = are_quick(answer.records) and not applier.arriving.upto
        link.took(answer.records)
        try:
            # Judged by the epoch that the writer has entered when it gets there, not by today's.
            done = await self._data.run(
                lambda: applier.apply(answer.records, applier.history),
                quick=is_quick,
            )
            link.dropped(done.known)
            applied, waits_for = done.applied, done.waits_for
        except LogRefused as problem:
            now = self._place.history.epoch
            is_behind = isinstance(problem, NotHistory) and answer.entered < now
            if request.epoch == now and not is_behind:
                raise
            applied = 0  # a new epoch came between question and answer: ask again
        if not applied:
            await asyncio.sleep(0.02)  # it has to wait for Raft or for the rest of an epoch
        return None if applied else waits_for

    def view(self) -> list[dict[str, Any]]:
        """The links for `cairn status`."""
        now = self._runtime.boot_clock()
        return [
            {
                "upstream": link.upstream,
                "state": link.state,
                "problem": link.problem,
                "lag_rows": link.lag_rows,
                "lag_s": link.lag_s(now),
                "records": link.records,
                "twice": link.twice,
                "bytes": link.bytes,
            }
            for _, link in sorted(self.links.items())
        ]

    def barred_s(self, upstream: str) -> float:
        """For how long a damaged page has kept us from following the upstream with this uuid.

        Where a copy has brought us and nothing came since, another one would bring us no further.
        """
        link = self.links.get(upstream)
        if link is None or link.damaged_since is None:
            return 0.0
        if not self._reader.goes_past_copy(self._data.vclock):
            return 0.0
        return asyncio.get_running_loop().time() - link.damaged_since

    def stale_s(self) -> float | None:
        """Seconds since this replica last had everything; None for a master, who always has."""
        found = self._place.replicaset()
        if found is None or found[1].current_master_name == self._place.name:
            return None
        master = self._place.state.cluster.instances.get(found[1].current_master_name)
        link = self.links.get(master.uuid) if master is not None else None
        lag_s = None if link is None else link.lag_s(self._runtime.boot_clock())
        return NEVER_S if lag_s is None else lag_s

    async def caught_up(self, request: ReplicatedRequest) -> Empty:
        """Answered once this instance has all rows that its master had when asked."""
        await self._runner.wait_applied(request.index, request.timeout_s)
        await self._place.entered.wait()
        found = self._place.replicaset()
        if found is None:
            raise NoMaster("this instance is in no replicaset yet")
        master = self._place.state.cluster.master_of(found[1].name)
        if master is None and self._place.name not in found[1].members:
            raise NoMaster(
                f"{found[1].name} has no master to take rows from; "
                f"{', '.join(found[1].members) or 'nobody'} has them"
            )
        if master is None or master.name == self._place.name:
            return Empty()
        body = VclockRequest(0, request.timeout_s)
        there = await self._peers.call(
            master.raft_id, "vclock", body, VclockResponse, request.timeout_s
        )

        def is_equal() -> bool:
            return not self._place.must_copy and covers(self._data.vclock, there.vclock)

        def is_barred() -> bool:  # by a damaged page: to wait would not help
            link = self.links.get(master.uuid)
            return link is not None and link.damaged_since is not None

        if not await until(lambda: is_equal() or is_barred(), request.timeout_s) or not is_equal():
            link = self.links.get(master.uuid, LinkStatus())
            why = link.problem or f"{link.lag_rows} behind"
            raise TimedOut(f"waiting for rows of {master.name}: {why}")
        return Empty()
