"""What an instance does about news from Raft: entries applied, a snapshot, another leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.members.topology import Grade, Position
from cairn.model.tables.system_tables import PICO_DB_CONFIG, PICO_INSTANCE
from cairn.model.unexpected import owned
from cairn.net.peers import Peers
from cairn.node.consensus.global_state import GlobalState
from cairn.node.consensus.proposals import Proposer
from cairn.node.consensus.raft_runner import LOG_BYTES_MAX, LOG_ENTRIES_MAX, RaftRunner
from cairn.node.lifetime import Ending, Lifetime
from cairn.node.rows.data_plane import DataPlane
from cairn.node.rows.leases import LeaseGiver
from cairn.node.rows.local_tables import LocalTables
from cairn.node.rows.moves.moving import Moving
from cairn.node.rows.replication import Replication
from cairn.node.statements.changes.schema_changes import SchemaChanges
from cairn.node.statements.executor import Executor
from cairn.node.steering.governor_runner import GovernorRunner
from cairn.node.steering.move_driver import MoveDriver
from cairn.raft.types import Role

log = logging.getLogger("cairn.instance")


class News:
    """`on_applied` and `on_installed` are for faces, which come later."""

    def __init__(
        self,
        name: str,
        raft_id: int,
        life: Lifetime,
        state: GlobalState,
        runner: RaftRunner,
        peers: Peers,
        local: LocalTables,
        lease_giver: LeaseGiver,
        proposer: Proposer,
        schema_changes: SchemaChanges,
        executor: Executor,
        data: DataPlane,
        replication: Replication,
        moving: Moving,
        move_driver: MoveDriver,
        governor: GovernorRunner,
    ) -> None:
        self._name, self._raft_id, self._life = name, raft_id, life
        self._state, self._runner, self._peers = state, runner, peers
        self._local, self._lease_giver, self._proposer = local, lease_giver, proposer
        self._schema_changes, self._executor = schema_changes, executor
        self._data, self._replication = data, replication
        self._moving, self._move_driver, self._governor = moving, move_driver, governor
        self._offline: Set[int] = frozenset()  # raft_ids, as of the last change
        self._led_by = 0
        self.on_applied: list[Callable[[list[Applied]], None]] = []
        self.on_installed: list[Callable[[list[str], list[str]], None]] = []

    def applied(self, done: list[Applied]) -> None:
        self._state.follow(done)
        self._runner.entries_max = int(self._state.setting("raft_wal_count_max", LOG_ENTRIES_MAX))
        self._runner.bytes_max = int(self._state.setting("raft_wal_size_max", LOG_BYTES_MAX))
        self._proposer.applied(done)
        self._schema_changes.applied(done)
        self._topology_changed()
        touched = {change.table for each in done for change in each.changes}
        if PICO_DB_CONFIG.id in touched:
            self._executor.read_settings()
        if any(
            change.new is None and change.table == PICO_INSTANCE.id
            for each in done
            for change in each.changes
        ):
            self._peers.review()
        if any(isinstance(each.op, ops.DdlCommit | ops.DdlAbort) for each in done):
            self._data.reconcile()
        for listener in self.on_applied:
            try:
                listener(done)
            except Exception as problem:
                owned(problem, "a listener to applied entries")

    def installed(self, told_01: list[str], told_02: list[str]) -> None:
        position = Position(self._runner.applied_term, self._runner.applied_index)
        self._state.reload(position)
        self._proposer.installed(position.index)
        self._executor.read_settings()
        self._topology_changed()
        self._data.reconcile()
        self._peers.review()
        for listener in self.on_installed:
            try:
                listener(told_01, told_02)
            except Exception as problem:
                owned(problem, "a listener to an installed snapshot")

    def _topology_changed(self) -> None:
        self._peers.learn(self._state.peer_addresses())
        self._abandon_offline()
        self._replication.follow()
        self._data.follow(self._state.cluster)
        self._moving.follow()
        self._state.announce()
        self._move_driver.wake()
        self._governor.wake()
        row = self._state.cluster.instances.get(self._name)
        if row is not None and row.current_state.grade is Grade.EXPELLED:
            self._life.end(Ending.EXPELLED)

    def _abandon_offline(self) -> None:
        """Statements on their way to an instance that was declared Offline go elsewhere now.

        Who has just been admitted is Offline too, and was never anything else: it is coming.
        """
        offline = {
            each.raft_id: each.name
            for each in self._state.cluster.instances.values()
            if each.current_state.grade is Grade.OFFLINE and each.current_state.incarnation
        }
        for raft_id in offline.keys() - self._offline - {self._raft_id}:
            self._peers.abandon(raft_id, f"instance {offline[raft_id]} was declared Offline")
        self._offline = offline.keys()

    def role_changed(self) -> None:
        core = self._runner.core
        if self._runner.leader_id:
            if self._led_by not in (0, core.leader):
                why = f"instance {self._led_by} leads no longer"
                self._peers.abandon(self._led_by, why, if_quiet=True)
            self._led_by = core.leader
            who = "this instance" if core.role is Role.LEADER else f"instance {core.leader}"
            log.info("%s leads Raft in term %d", who, core.term)
            self._local.write_leader(core.term, core.leader)
        if core.role is Role.LEADER:
            self._lease_giver.began()
        self._governor.wake()
