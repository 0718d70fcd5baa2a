"""Keeps this instance's rows equal to its replicaset's: subscribes, applies, acknowledges, copies.

One task follows each upstream (a full mesh by default). `replication/routing.py` says which origins
are taken from which of them, so that no row crosses to an instance twice. A pull carries the
durable vclock: it acknowledges all before it, and a broken link resumes by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cairn.model.errors import CairnError, NoMaster, TimedOut
from cairn.model.records import Vclock, covers
from cairn.model.rpc import Empty, ReplicatedRequest, VclockRequest, VclockResponse
from cairn.model.topology import Instance as InstanceRow
from cairn.model.topology import Replicaset
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.rows.ballots import Ballot, Ballots, only
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.full_copies import FullCopies
from cairn.node.rows.links import KnownEpochs, LinkStatus, Traffic
from cairn.node.rows.sync_counting import AckWaiter
from cairn.node.runtime import Runtime, spawn
from cairn.replication.applier import (
    CutForgotten,
    History,
    LogRefused,
    NotHistory,
    OtherHistory,
    check_origins,
)
from cairn.replication.graph import edges_of
from cairn.replication.relay import LogTooShort, Rows, Subscribe
from cairn.replication.routing import Effect, Publish, Routing
from cairn.storage.full_copy import CopySource
from cairn.storage.row_log import Applier, LogReader

log = logging.getLogger("cairn.replication")

PULL_S = 0.5  # how long a relay holds a pull without news: also the heartbeat
CALL_S = 5.0
BATCH = 500
REFUSED_PAUSE_S = 5.0
MAINTAIN_S = 5.0
BEAT_S = 1.0
#: How long an operation that was done is remembered. Repeated later it would be done again; chunks
#: of a staged write, which is what is repeated, are swept after a day.
OPERATIONS_S = 7 * 24 * 3600.0
NEVER_S = 1e6  # how stale a replica is that has never had everything


class Replication(Ballots, FullCopies):
    def __init__(
        self,
        name: str,
        uuid: str,
        state: GlobalState,
        runner: RaftRunner,
        peers: Peers,
        data: DataPlane,
        runtime: Runtime,
    ) -> None:
        self._name, self._uuid = name, uuid
        self._state, self._runner, self._peers = state, runner, peers
        self.data, self._runtime = data, runtime
        self._applier = Applier(data.store)
        self._reader = LogReader(data.store.path)
        self._copies: dict[int, tuple[CopySource, float]] = {}
        self._next_copy = 1
        self._history = History()
        self._entered = asyncio.Event()
        self._entered.set()
        self._must_copy = not data.store.is_complete
        self.acks: dict[str, Vclock] = {}  # subscriber uuid → what it has durably
        self._ack_waiters: list[AckWaiter] = []
        self.links: dict[str, LinkStatus] = {}  # by upstream uuid
        incarnation = int(runtime.wall_clock().timestamp() * 1000)
        self.routing = Routing(uuid, incarnation)
        self._routes_version = incarnation  # never one that a subscriber has seen before
        self._seen_routes: dict[str, int] = {}
        self._vclocks: dict[str, Vclock] = {}  # of upstreams, as last heard
        self._ballots: dict[str, Ballot] = {}
        self._silent: set[str] = set()
        self.on_routes: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_diverged: Callable[[], None] = lambda: None
        self.relayed: dict[str, dict[str, Traffic]] = {}  # subscriber uuid → origin → what was sent
        self._answered: dict[str, float] = {}
        self._epochs = KnownEpochs(self._reader.epochs_at)
        self._wake = asyncio.Event()

    def close(self) -> None:
        self._reader.close()
        for source, _ in self._copies.values():
            source.close()

    # --- where we stand -------------------------------------------------------------------------

    def _replicaset(self) -> tuple[InstanceRow, Replicaset] | None:
        me = self._state.cluster.instances.get(self._name)
        found = self._state.cluster.replicasets.get(me.replicaset_name) if me else None
        return None if me is None or found is None else (me, found)

    def follow(self) -> None:
        """Raft has spoken: a new epoch first of all puts aside what belongs to no history."""
        found = self._replicaset()
        if found is None:
            return
        _, replicaset = found
        history = History(replicaset.epoch, replicaset.cut, replicaset.past_cuts)
        if history != self._history:
            self._history = history
            self.acks.clear()
            self._drop_left_out()
            self._epochs.forget()  # after a cut the same lsn may be another record
            self._entered.clear()
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: self._epoch_entered(history, done))
            self.data.submit(lambda: self._applier.enter_epoch(history), future, urgent=True)
        self._wake.set()
        self._release_acks()

    def _epoch_entered(self, history: History, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            log.error("the tail past the cut could not be undone: %s", done.exception())
            self._must_copy = True
        elif done.result() is None:
            log.warning("this instance diverged in what cannot be undone: it takes a full copy")
            self._must_copy = True
            self.on_diverged()
        elif done.result():
            tail = done.result()
            self.on_diverged()
            log.warning(
                "%d records past the cut of epoch %d were put aside in _cairn_diverged: %s",
                len(tail),
                history.epoch,
                ", ".join(f"{record.origin}:{record.lsn}" for record in tail[:5]),
            )
        self._entered.set()
        self._wake.set()

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

    # --- following the upstreams ----------------------------------------------------------------

    async def run(self) -> None:
        """Keep one task for each upstream that the replication graph gives us."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                wanted = {row.uuid: row for row in self._upstreams()}
                for uuid in [uuid for uuid in tasks if uuid not in wanted]:
                    tasks.pop(uuid).cancel()
                    self._lost(uuid)
                    self.links.pop(uuid, None)
                for uuid, row in wanted.items():
                    if uuid not in tasks or tasks[uuid].done():
                        tasks[uuid] = spawn(self._follow(row.name, uuid), f"follow {row.name}")
                await self._sleep(1.0)
        finally:
            for task in tasks.values():
                task.cancel()

    def _upstreams(self) -> list[InstanceRow]:
        found = self._replicaset()
        if found is None:
            return []
        members = self._state.cluster.members(found[1].name)
        text = str(self._state.setting("replication_graph", "") or "")
        graph = edges_of(text, {member.name for member in members})
        return [
            member
            for member in members
            if member.name != self._name and (graph is None or (member.name, self._name) in graph)
        ]

    async def beat(self) -> None:
        """Our heartbeat to those downstream, and an eye on the heartbeats that we hear."""
        while True:
            await asyncio.sleep(BEAT_S)
            before = self.routing.table()
            self._carry_out(self.routing.tick())
            if self.routing.table() != before:
                self.on_routes()
            self._routes_version += 1
            self.data.announce()
            self.on_beat()

    async def _follow(self, name: str, uuid: str) -> None:
        link = self.links.setdefault(uuid, LinkStatus(upstream=name))
        while True:
            try:
                await self._entered.wait()
                await self._pull(name, uuid, link)
            except LogTooShort as problem:
                if self._is_master(name):
                    log.warning("%s: %s", name, problem)
                    self._must_copy = True
                await asyncio.sleep(0.2)
            except CutForgotten as problem:
                self._stopped(link, uuid, problem)
                self._must_copy = True
                await asyncio.sleep(0.2)
            except OtherHistory as problem:
                self._stopped(link, uuid, problem)
                if self._is_master(name):
                    await self._start_anew(name, problem.origin)
                else:
                    await asyncio.sleep(1.0)
            except (LogRefused, msgspec.DecodeError) as problem:
                self._stopped(link, uuid, problem)
                await asyncio.sleep(REFUSED_PAUSE_S)
            except CairnError as problem:
                link.state, link.problem = "off", str(problem)
                self._lost(uuid)
                await asyncio.sleep(0.1)

    def _stopped(self, link: LinkStatus, uuid: str, problem: Exception) -> None:
        """What came must not be applied. The governor is told with the next heartbeat."""
        if link.problem != str(problem):
            log.error("stopped following %s: %s", link.upstream, problem)
        link.state, link.problem = "stopped", str(problem)
        self._lost(uuid)

    async def _start_anew(self, master: str, origin: str) -> None:
        """The master has another log than we: ours is put aside, its rows are taken whole."""
        epoch = self._reader.epochs_at(self.data.vclock).get(origin, 0)
        aside = await self.data.run(lambda: self._applier.put_aside(origin, epoch), alone=True)
        log.warning(
            "%d records of epoch %d of %s were noted in _cairn_diverged; a copy of %s follows",
            len(aside),
            epoch,
            origin,
            master,
        )
        self._must_copy = True
        self.on_diverged()

    def _is_master(self, name: str) -> bool:
        found = self._replicaset()
        return found is not None and found[1].current_master_name == name

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _pull(self, name: str, uuid: str, link: LinkStatus) -> None:
        found = self._replicaset()
        row = self._state.cluster.instances.get(name)
        if found is None or row is None:
            raise NoMaster(f"{name} is no member any more")
        if self._must_copy and self._is_master(name):
            await self._copy_from(row, found[1], link)
            self._epochs.forget()
            return  # the next pull begins with a fresh look at where we stand
        if uuid not in self._ballots:
            await self._ask_ballot(row, found[1], link)
        # From here to the question nothing may come in between: it acknowledges what is here, and
        # in an epoch that has begun but was not entered that may be a tail.
        await self._entered.wait()
        taken = self._origins_at(uuid)
        vclock, asked_at = dict(self.data.vclock), self._runtime.boot_clock()
        request = Subscribe(
            self._uuid,
            found[1].uuid,
            vclock,
            taken if link.knows_lists else (),
            BATCH,
            PULL_S,
            self.acks,
            0 if self._must_copy else self._history.epoch,  # what is here counts for nothing then
            self._seen_routes.get(uuid, 0),
            self._epochs.at(vclock),
        )
        answer = await self._peers.call(row.raft_id, "subscribe", request, Rows, CALL_S)
        check_origins(answer.records, request.origins, self._uuid)
        if not link.knows_lists:
            answer = only(answer, taken)
        self._heard(uuid, answer)
        waits_for = await self._apply(request, answer, link) if answer.records else None
        link.state, link.problem = "follow", waits_for
        link.compared(self.data.vclock, answer.vclock, asked_at)

    async def _apply(self, request: Subscribe, answer: Rows, link: LinkStatus) -> str | None:
        """What the records wait for, if none of them could be applied."""
        applier, waits_for = self._applier, None
        link.took(answer.records)
        try:
            # Judged by the epoch that the writer has entered when it gets there, not by today's.
            done = await self.data.run(lambda: applier.apply(answer.records, applier.history))
            link.dropped(done.known)
            applied, waits_for = done.applied, done.waits_for
        except LogRefused as problem:
            is_behind = isinstance(problem, NotHistory) and answer.entered < self._history.epoch
            if request.epoch == self._history.epoch and not is_behind:
                raise
            applied = 0  # a new epoch came between question and answer: ask again
        if not applied:
            await asyncio.sleep(0.02)  # it has to wait for Raft or for the rest of an epoch
        return None if applied else waits_for

    # --- routing --------------------------------------------------------------------------------

    def _origins_at(self, upstream: str) -> tuple[str, ...]:
        """What routing takes from this upstream, and rows of origins that nobody can reach.

        The records of a dead instance have no live path, but those who have them can give them.
        """
        taken = self.routing.origins_of(upstream)
        reached = {route.source for route in self.routing.own.routes}
        orphans = [
            origin
            for origin, lsn in self._vclocks.get(upstream, {}).items()
            if origin not in reached
            and origin not in (self._uuid, upstream)
            and lsn > self.data.vclock.get(origin, 0)
        ]
        return (*taken, *(origin for origin in orphans if origin not in taken))

    def _heard(self, uuid: str, answer: Rows) -> None:
        self._vclocks[uuid] = answer.vclock
        self._carry_out(self.routing.connected(uuid))
        if answer.routes is not None:
            self._seen_routes[uuid] = answer.routes_version
            before = self.routing.table()
            self._carry_out(self.routing.received(uuid, answer.routes))
            if self.routing.table() != before:
                self._routes_version += 1  # what we know of others goes on downstream
                self.on_routes()

    def _lost(self, uuid: str) -> None:
        self._no_ballot(uuid)
        self._vclocks.pop(uuid, None)
        self._seen_routes.pop(uuid, None)
        self._carry_out(self.routing.disconnected(uuid))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """A new list goes out with the next pull; rows are told with the next answer."""
        if any(isinstance(effect, Publish) for effect in effects):
            self._routes_version += 1
            self.data.announce()
        if effects:
            self.on_routes()

    def stale_s(self) -> float | None:
        """Seconds since this replica last had everything; None for a master, who always has."""
        found = self._replicaset()
        if found is None or found[1].current_master_name == self._name:
            return None
        master = self._state.cluster.instances.get(found[1].current_master_name)
        link = self.links.get(master.uuid) if master is not None else None
        lag_s = None if link is None else link.lag_s(self._runtime.boot_clock())
        return NEVER_S if lag_s is None else lag_s

    # --- keeping the log short ------------------------------------------------------------------

    async def maintain(self) -> None:
        """Forget records that everybody has; past the bound, even those that somebody lacks."""
        while True:
            await asyncio.sleep(MAINTAIN_S)
            self.drop_idle_copies()
            await self._forget_operations()
            for origin, lsn in list(self.data.vclock.items()):
                upto = self.prunable(origin, lsn, self._reader.mean_bytes(origin))
                if upto >= self._reader.oldest(origin) > 0:
                    await self.data.run(lambda o=origin, u=upto: self.data.store.prune(o, u))  # type: ignore[misc]

    async def _forget_operations(self) -> None:
        before = int((self._runtime.wall_clock().timestamp() - OPERATIONS_S) * 1e6)
        if self._reader.has_operations(before):
            await self.data.run(lambda: self.data.store.forget_operations(before))

    # --- what the governor asks -----------------------------------------------------------------

    async def handle_replicated(self, request: ReplicatedRequest) -> Empty:
        """Answered once this instance has all rows that its master had when asked."""
        await self._runner.wait_applied(request.index, request.timeout_s)
        await self._entered.wait()
        found = self._replicaset()
        if found is None:
            raise NoMaster("this instance is in no replicaset yet")
        master = self._state.cluster.master_of(found[1].name)
        if master is None and self._name not in found[1].members:
            raise NoMaster(
                f"{found[1].name} has no master to take rows from; "
                f"{', '.join(found[1].members) or 'nobody'} has them"
            )
        if master is None or master.name == self._name:
            return Empty()
        body = VclockRequest(0, request.timeout_s)
        there = await self._peers.call(
            master.raft_id, "vclock", body, VclockResponse, request.timeout_s
        )
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        while self._must_copy or not covers(self.data.vclock, there.vclock):
            if asyncio.get_running_loop().time() > deadline:
                link = self.links.get(master.uuid, LinkStatus())
                why = link.problem or f"{link.lag_rows} behind"
                raise TimedOut(f"waiting for rows of {master.name}: {why}")
            await asyncio.sleep(0.02)
        return Empty()
