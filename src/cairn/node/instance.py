"""One instance after it has its place: all runners, wired to each other and to the peers."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from cairn.model import backups
from cairn.model.errors import PeerRefused
from cairn.model.members.moves import MoveReport
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.members.topology import Position
from cairn.model.rpc import (
    BlockRequest,
    CasRequest,
    ClosingRequest,
    DamageReport,
    Empty,
    ExpelRequest,
    FillIndexRequest,
    ForgetNumbers,
    IndexResponse,
    JoinRequest,
    KeepLocksRequest,
    LastWordRequest,
    LeaseRequest,
    LinkReport,
    PartJoin,
    PromiseRequest,
    ReachRequest,
    ReadMore,
    ReadPart,
    ReadRequest,
    ReplicatedRequest,
    RestartRequest,
    SchemaChangeRequest,
    SnapshotChunkRequest,
    SplitRequest,
    StatusResponse,
    UpdateInstanceRequest,
    VclockRequest,
    WaitIndexRequest,
    WriteRequest,
)
from cairn.model.unexpected import owned
from cairn.model.watched import SignalRequest, WatchRequest
from cairn.net.handshake import Identity
from cairn.net.link import Link
from cairn.net.peers import Peers
from cairn.node.beat import Beat
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.leader import Leader
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.quorum import Voters
from cairn.node.consensus.raft_runner import RaftRunner
from cairn.node.lifetime import Ending, Lifetime, Work
from cairn.node.news import News
from cairn.node.peer_calls import PeerCall, Right, handlers
from cairn.node.peer_guard import PeerGuard
from cairn.node.rows.ballots import BallotRequest
from cairn.node.rows.copies import CopyRequest
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseGiver, LeaseHolder
from cairn.node.rows.local_tables import LocalTables
from cairn.node.rows.moves.giving import DeltaRequest, Giving
from cairn.node.rows.moves.held import Held
from cairn.node.rows.moves.moving import Moving
from cairn.node.rows.opening import open_rows
from cairn.node.rows.replication import Replication
from cairn.node.rows.upkeep.backups import Backups
from cairn.node.rows.upkeep.filling import Filling
from cairn.node.rows.upkeep.health import CompareRequest, Health
from cairn.node.runtime import Runtime, timestamp
from cairn.node.statements.advisory_locks import AdvisoryLocks
from cairn.node.statements.asker.numbers import Numbers
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.asker.reading import Reads
from cairn.node.statements.asker.writing import Writes
from cairn.node.statements.blocks.asking import Blocks
from cairn.node.statements.blocks.block_owner import BlockOwner
from cairn.node.statements.changes.filled_first import FilledFirst
from cairn.node.statements.changes.schema_changes import SchemaChanges
from cairn.node.statements.changes.under_way import LetWritesEnd
from cairn.node.statements.executor import Executor
from cairn.node.statements.global_tables.global_writes import GlobalWrites
from cairn.node.statements.global_tables.parents import Parents
from cairn.node.statements.owner.calls_apart import CallsApart
from cairn.node.statements.owner.execution import Execution
from cairn.node.statements.owner.functions_here import FunctionsHere
from cairn.node.steering.backup_taker import BackupTaker
from cairn.node.steering.governor_runner import GovernorRunner
from cairn.node.steering.governor_steps import Steps
from cairn.node.steering.membership import Membership
from cairn.node.steering.move_driver import MoveDriver
from cairn.node.steering.moves_shown import MovesShown
from cairn.node.steering.queue_runner import QueueRunner
from cairn.node.steering.sentinel import Sentinel
from cairn.node.steering.witnesses import Witnesses
from cairn.node.watching.disks import Disks
from cairn.node.watching.table_sizes import TableSizes
from cairn.node.watching.watching import Watching
from cairn.pgwire.scram import make_verifier
from cairn.replication.relay import Subscribe
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files import setting_aside
from cairn.storage.files.groups import GroupOf
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

log = logging.getLogger("cairn.instance")


class Instance:
    """Everything alive in the child process but its faces. `life` says when it has to end.

    Peers are served as soon as it is made. `contacts` are addresses of peers, `also` is what peers
    could ask before. A disk that takes nothing for `hang_timeout_s` ends it.
    """

    def __init__(
        self,
        identity: Identity,
        store: RaftStore,
        peers: Peers,
        runtime: Runtime,
        *,
        contacts: list[str],
        also: tuple[PeerCall, ...],
        hang_timeout_s: float = 0.0,
    ) -> None:
        self.identity, self.store, self.peers, self.runtime = identity, store, peers, runtime
        self.name, self.raft_id = identity.instance_name, identity.raft_id
        self.machine = StateMachine(store.connection)
        self.state = GlobalState(store.path)
        addresses = msgspec.json.decode(store.get("joined_addresses", "{}"), type=dict[str, str])
        self.state.joined_addresses = {int(each): at for each, at in addresses.items()}
        self.state.joined_at = store.get("joined_at", 0)
        self.guard = PeerGuard(identity, self.state)
        index, term = store.applied
        self.state.reload(Position(term, index))
        self.life = Lifetime()
        self._make_consensus(contacts)
        self._make_rows()
        self._make_executor()
        self._make_steering()
        stalled = partial(self.life.end, Ending.STALLED)
        self.disks = Disks(self.name, self._disks, hang_timeout_s, stalled)
        self.on_close: list[Callable[[], None]] = []
        self.on_goodbye: list[Callable[[], Awaitable[None]]] = []
        self._calls = (*also, *self._peer_calls())
        calls = handlers(self._calls, self.guard.check)
        peers.serve(calls, self.guard.admit, self.watching.tracer.asked)

    def _make_consensus(self, contacts: list[str]) -> None:
        """Raft, who may propose, and leases: nothing here knows of rows."""
        store, peers, runtime = self.store, self.peers, self.runtime
        lost = partial(self.life.end, Ending.DURABILITY)
        self._raft_disk = runtime.disk(store.connection, "raft writer", lost)
        self.runner = RaftRunner(
            self.raft_id,
            store,
            self.machine,
            self._raft_disk,
            peers,
            runtime,
            on_applied=lambda done: self.news.applied(done),
            on_installed=lambda told_01, told_02: self.news.installed(told_01, told_02),
            on_role=lambda: self.news.role_changed(),
            on_broken=partial(self.life.end, Ending.RAFT),
        )
        self.voters = Voters(self.runner, peers, self.state)
        self.proposer = Proposer(self.runner, peers, self.state, runtime, self.voters)
        self.leader = Leader(
            self.state, self.runner, peers, self.voters, runtime.chance, contacts, self._call_here
        )
        self.membership = Membership(self.state, self.runner, self.proposer, runtime)
        self.lease_giver = LeaseGiver(self.state, self.runner, peers, runtime)
        self.lease = LeaseHolder(
            self.name, self.state, self.runner, peers, runtime, self.lease_giver.grant
        )

    def _make_rows(self) -> None:
        """Rows, their log, replicas, moves and backups."""
        store, peers, runtime = self.store, self.peers, self.runtime
        self.data = self._open_data()
        self.local = LocalTables(self.name, store, self._raft_disk, self.state, self.data, runtime)
        self.replication = Replication(
            self.name,
            self.identity.instance_uuid,
            self.state,
            self.runner,
            peers,
            self.data,
            runtime,
            on_diverged=self.local.write_diverged,
            on_routes=self.local.write_routes,
            on_beat=lambda: self.beat.tell(self.replication, self.health),
        )
        acks = self.replication.acks
        self.giving = Giving(self.name, self.state, self.data, acks, self.lease)
        self.moving = Moving(
            self.name,
            self.state,
            peers,
            self.data,
            Held(self.name, self.state, self.data, acks),
            self.giving,
            self.leader,
            runtime.free_bytes,
        )
        self.move_driver = MoveDriver(self.state, self.runner, self.proposer, runtime)
        self.moves_shown = MovesShown(self.state, self.leader, self.local)
        self.health = Health(
            self.replication.place,
            peers,
            self.data,
            self.replication.copies,
            store.path,
            self._repair,
            self.replication.follower.barred_s,
        )
        self.backups = Backups(self.name, self.state, self.data, runtime.free_bytes)
        self.backup_taker = BackupTaker(
            *(self.raft_id, store.path, self.state, self.runner, self.leader),
            *(peers, runtime, self.backups, self.voters),
        )
        self.beat = Beat(self.name, self.local, self.leader, self.moves_shown, self.backups)

    def _open_data(self) -> DataPlane:
        path = self.store.path.with_name("data.db")
        store = open_rows(
            *(path, self.name, self.state, timestamp(self.runtime)),
            lambda: DataStore(
                path,
                self.identity.instance_uuid,
                now_micros=lambda: int(self.runtime.wall_clock().timestamp() * 1_000_000),
                lease_held=self.lease.is_held,
                raft=self.store.path,
            ),
        )
        lost = partial(self.life.end, Ending.DURABILITY)
        disk = self.runtime.disk(store.connection, "data writer", lost, GroupOf(store))
        self._disks = {"raft.db": self._raft_disk, "data.db": disk}
        return DataPlane(self.name, store, disk, self.state, self.runner)

    def _make_executor(self) -> None:
        """All that runs statements, whether they come from clients, peers or the queue."""
        state, runner, proposer, peers = self.state, self.runner, self.proposer, self.peers
        voters, chance = self.voters, self.runtime.chance
        numbers = Numbers(self.raft_id, state, proposer, peers)
        self._calls_apart = CallsApart()
        functions = FunctionsHere(
            self.name, self.runtime.directory(), state, runner, numbers, self._calls_apart.call
        )
        self.execution = Execution(
            state,
            self.data,
            self.lease,
            self.replication,
            self.moving,
            *(self.store.path, self._raft_disk, functions.register, self.leader.catch_up),
        )
        self.filling = Filling(self.name, state, self.data, functions.register)
        self.schema_changes = SchemaChanges(
            *(state, runner, self.leader, proposer, voters, peers, chance, verifier),
            FilledFirst(self.raft_id, state, peers, self.filling.answer),
        )
        first = int(self.runtime.boot_clock() * 1e6)  # past all of the life before
        reads = Reads(Owners(self.raft_id, state, peers, voters, self.execution, first))
        self.block_owner = BlockOwner(
            *(self.name, state, self.execution, numbers, self.store.path, functions.register),
            chance.getrandbits(48),
        )
        blocks = Blocks(self.name, state, self.runtime, reads, self.block_owner)
        self.executor = Executor(
            state,
            self.runtime,
            reads,
            Writes(reads),
            GlobalWrites(
                *(reads, self.leader, proposer, voters, chance, self.schema_changes.verifier),
                Parents(self.name, reads, proposer, self.data.see_closing),
            ),
            self.schema_changes,
            numbers,
            blocks,
        )
        self.locks = AdvisoryLocks(
            *(self.name, self.raft_id, state, runner, proposer, self.leader, self.runtime),
            lambda: self.lease.is_awake,
        )

    def _make_steering(self) -> None:
        """Who watches, who governs, and what news from Raft mean to all of them."""
        store, peers, runtime = self.store, self.peers, self.runtime
        self.witnesses = Witnesses(self.name, self.state, peers)
        self.sentinel = Sentinel(
            self.name, self.state, self.runner, self.witnesses, self._update_instance
        )
        sizes = TableSizes(self.data.store.path, store.path, lambda: self.state.catalog)
        self.watching = Watching(self.name, self.raft_id, self.state, peers, sizes)
        self.queue = QueueRunner(self.state, self.runner, self.proposer, self.executor)
        steps = Steps(
            *(self.state, self.runner, self.proposer, peers),
            *(self.lease_giver, runtime, self._call_here, self.queue.run),
        )
        self.governor = GovernorRunner(steps, self.local.write_governor)
        self.news = News(
            *(self.name, self.raft_id, self.life, self.state, self.runner, peers, self.local),
            *(self.lease_giver, self.proposer, self.schema_changes, self.executor, self.data),
            *(self.replication, self.moving, self.move_driver, self.governor),
        )
        self.news.on_applied.append(self.locks.applied)
        self.news.on_installed.append(self.locks.installed)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.peers.learn(self.state.peer_addresses())
        self.replication.follow()  # a cut that was known before the end may not have been made
        self.runner.start()
        self.local.write_diverged()
        works: tuple[tuple[Work, str], ...] = (
            (self.governor.run, "governor"),
            (self.sentinel.run, "sentinel"),
            (self.lease.run, "lease"),
            (self.locks.run, "locks"),
            (self.peers.watch, "link watch"),
            (self.replication.follower.run, "replication"),
            (self.move_driver.run, "moves"),
            (self.replication.maintain, "row log upkeep"),
            (self.replication.mesh.beat, "routing heartbeat"),
            (self.health.run, "scrub"),
            (self.disks.run, "disk watch"),
        )
        for work, name in works:
            self.life.keep_up(work, name)

    def _repair(self, why: str) -> None:
        note = setting_aside.Note(why, self.data.store.promised, timestamp(self.runtime))
        setting_aside.leave_note(self.data.store.path.parent, note)
        self.life.end(Ending.REPAIR)

    def awake(self) -> None:
        """The cluster knows of this life: whatever it asks for now, no earlier one has asked."""
        self.sentinel.begin()
        self.lease.is_awake = True

    async def restart(self, request: RestartRequest) -> Empty:
        """Asked by a person: whoever runs this instance lets it leave and starts it anew."""
        row = self.row
        if row is None or request.instance_uuid != row.uuid:
            raise PeerRefused("another instance was meant")
        if request.incarnation == row.current_state.incarnation:
            self.life.restart_asked.set()
        return Empty()

    async def say_goodbye(self) -> None:
        """Before `close`: clients get the answers they wait for. Each face has its own limit."""
        for end in self.on_goodbye:
            try:
                await end()
            except Exception as problem:
                owned(problem, "the goodbye to clients")

    def shut_doors(self) -> None:
        """Nobody is answered any more: clients are told goodbye, peers are hung up on."""
        for close in (*self.on_close, self.peers.close):
            try:
                close()
            except Exception as problem:
                owned(problem, "closing a door")
        self.on_close.clear()

    def close(self) -> None:
        self.health.close()
        self.shut_doors()
        self.life.stop_runners()
        self.runner.close()
        self.execution.close()
        self._calls_apart.close()
        self._raft_disk.close()
        self.backups.close()
        self.data.close()
        self.block_owner.close()  # blocks that were queued have been run with it
        self.moving.close()
        self.giving.close()
        self.replication.close()
        self.state.close()
        self.data.store.close()
        self.store.close()

    @property
    def row(self) -> InstanceRow | None:
        return self.state.cluster.instances.get(self.name)

    async def _update_instance(self, request: UpdateInstanceRequest) -> Empty:
        return await self.leader.ask("update_instance", request, Empty, 3.0)

    # --- being asked ------------------------------------------------------------------------------

    def _peer_calls(self) -> tuple[PeerCall, ...]:
        """What peers may ask: the request's type, who answers it, and the right it takes."""
        raft, rows, admin = Right.RAFT, Right.ROWS, Right.ADMIN
        replication, data, runner = self.replication, self.data, self.runner
        reads, joins = self.execution.reads, self.executor.reads.joins
        writes_end = LetWritesEnd(runner, self.state, self.executor.reads.owners.under_way)
        return (
            PeerCall("raft", bytes, runner.handle_message, raft, sees_link=True),
            PeerCall("snapshot_chunk", SnapshotChunkRequest, self._chunk, raft, sees_link=True),
            PeerCall("raft_join", JoinRequest, self.membership.join, Right.JOIN),
            PeerCall("update_instance", UpdateInstanceRequest, self.membership.update, raft),
            PeerCall("cas", CasRequest, self.proposer.check_and_append, raft),
            PeerCall("wait_index", WaitIndexRequest, self._wait_index, raft),
            PeerCall("read_index", Empty, self._read_index, raft),
            PeerCall("lease", LeaseRequest, self.lease_giver.grant, raft),
            PeerCall("keep_locks", KeepLocksRequest, self.lease_giver.keep_locks, raft),
            PeerCall("last_word", LastWordRequest, self.lease_giver.last_word, raft),
            PeerCall("reach", ReachRequest, self.witnesses.answer, raft),
            PeerCall("promise", PromiseRequest, data.promise, raft),
            PeerCall("vclock", VclockRequest, data.position, raft),
            PeerCall("replicated", ReplicatedRequest, replication.follower.caught_up, raft),
            PeerCall("see_closing", ClosingRequest, data.see_closing, raft),
            PeerCall("apply_schema_change", SchemaChangeRequest, data.change_schema, raft),
            PeerCall("fill_index", FillIndexRequest, self.filling.answer, raft),
            PeerCall("let_writes_end", SchemaChangeRequest, writes_end.answer, raft),
            PeerCall("report_links", LinkReport, self.governor.note_links, raft),
            PeerCall("report_damage", DamageReport, self.governor.note_damage, raft),
            PeerCall("compare_rows", CompareRequest, self.health.handle_compare, rows),
            PeerCall("can_give_copy", Empty, self.health.handle_can_give, raft),
            PeerCall("report_move", MoveReport, self.move_driver.note, raft),
            PeerCall("ballot", BallotRequest, replication.ballots.answer, rows),
            PeerCall("subscribe", Subscribe, replication.relay.answer, rows),
            PeerCall("copy_rows", CopyRequest, self.health.handle_copy, rows),
            PeerCall("move_delta", DeltaRequest, self.giving.handle_delta, rows),
            PeerCall("read_rows", ReadRequest, reads.handle_read, rows, sees_link=True),
            PeerCall("read_more", ReadMore, reads.handle_more, rows),
            PeerCall("split_rows", SplitRequest, reads.handle_split, rows, sees_link=True),
            PeerCall("read_part", ReadPart, reads.handle_part, rows),
            PeerCall("join_rows", PartJoin, joins.handle, rows, sees_link=True),
            PeerCall("write_rows", WriteRequest, self.execution.writes.handle_write, rows),
            PeerCall("run_block", BlockRequest, self.block_owner.run, rows),
            PeerCall("forget_numbers", ForgetNumbers, self.executor.numbers.forget, rows),
            PeerCall("backup_hold", backups.HoldRequest, self.backups.hold, rows),
            PeerCall("backup_release", backups.CopyRequest, self.backups.release, rows),
            PeerCall("backup_piece", backups.PieceRequest, self.backups.piece, rows),
            PeerCall("backup_end", backups.CopyRequest, self.backups.end, rows),
            PeerCall("expel", ExpelRequest, self.membership.expel, admin),
            PeerCall("status", Empty, lambda _: self.status(), admin),
            PeerCall("watch", WatchRequest, self.watching.answer, admin),
            PeerCall("restart", RestartRequest, self.restart, admin),
            PeerCall("signal_session", SignalRequest, self.watching.signal, admin),
        )

    async def _call_here(self, method: str, body: Any) -> Any:
        found = next(call.answer for call in self._calls if call.name == method)(body)
        return await found if isinstance(found, Awaitable) else found

    async def _wait_index(self, request: WaitIndexRequest) -> IndexResponse:
        await self.runner.wait_applied(request.index, request.timeout_s)
        return IndexResponse(self.runner.applied_index, self.runner.applied_term)

    async def _read_index(self, _: Empty) -> IndexResponse:
        index = await self.runner.read_index(3.0)
        return IndexResponse(index, self.runner.term)

    def _chunk(self, link: Link, request: SnapshotChunkRequest) -> Any:
        asker = link.peer.raft_id if link.peer is not None else 0
        return self.runner.sender.chunk(request, asker, self.runner.ticks)

    def status(self) -> StatusResponse:
        core = self.runner.core
        return StatusResponse(
            raft_id=self.raft_id,
            name=self.name,
            term=core.term,
            leader=self.runner.leader_id,
            persisted=self.runner.persisted_index,
            committed=core.log.committed,
            applied=self.runner.applied_index,
            role=core.role.name.lower(),
            governor=msgspec.to_builtins(self.governor.status),
            voters=core.conf.voters,
            links=self.replication.follower.view(),
            waits_for=tuple(self.replication.acks.waits_for()),
            moves=self.move_driver.seen(),
            move_waits=self.move_driver.waits,
            freezes_s=tuple(self.move_driver.freezes),
            clock_s=self.runtime.wall_clock().timestamp(),
            damage=(*self.health.problems(), *self.disks.problems()),
            unreached=self.peers.unreached(),
            disk=self.watching.samples.disk(),
        )


def verifier(password: str) -> str:
    """What is kept of a password."""
    return str(make_verifier(password, salt=os.urandom(16)))
