"""What the governor looks at: the topology at one position, and Raft's configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, Instance, Position, Replicaset
from cairn.model.tables.locks import Locks


class QueuedOperation(msgspec.Struct, frozen=True):
    """A row of `_pico_governor_queue`."""

    id: int
    batch_id: str
    op: str
    op_format: str = "sql"
    status: str = "pending"  # pending | done | failed
    kind: str = "custom"  # upgrade | custom
    description: str = ""
    status_description: str | None = None
    owner: int | None = None  # None: the cluster itself


class ClusterView(msgspec.Struct, frozen=True):
    """Taken on the leader, from applied entries only. A plan made from it loses to any change."""

    cluster: Cluster
    leader: int  # raft_id of the acting leader: the one that is planning
    voters: frozenset[int]
    learners: frozenset[int]
    is_joint: bool = False
    silent: frozenset[int] = frozenset()  # members that the leader has not heard of for a while
    sharded_tiers: frozenset[str] = frozenset()  # tiers that have at least one sharded table
    waiting: frozenset[tuple[str, str]] = frozenset()  # (step, subject) that failed and back off
    pending_ddl: ops.DdlPrepare | None = None
    has_queue: bool = True  # whether the catalogue knows `_pico_governor_queue`
    queue: tuple[QueuedOperation, ...] = ()  # in id order
    upgrade: tuple[QueuedOperation, ...] = ()  # batches of versions not yet in the catalogue
    stopped_links: tuple[str, ...] = ()  # what instances say of upstreams they cannot follow
    damaged: frozenset[str] = frozenset()  # instances whose rows are partly lost or wrong
    locks: Locks = msgspec.field(default_factory=Locks)
    closing: tuple[tuple[Any, ...], ...] = ()  # rows of `_cairn_closing`
    keeps_locks: frozenset[int] = frozenset()  # raft_ids that may still count on their locks
    version: str = ""  # of the catalogue, once the present upgrade is through

    @property
    def position(self) -> Position:
        return self.cluster.position

    def instances(self) -> list[Instance]:
        """By raft_id: the order in which subjects are taken."""
        return sorted(self.cluster.instances.values(), key=lambda instance: instance.raft_id)

    def replicasets(self) -> list[Replicaset]:
        return sorted(self.cluster.replicasets.values(), key=lambda replicaset: replicaset.name)

    def can_vote(self, instance: Instance) -> bool:
        tier = self.cluster.tiers.get(instance.tier)
        return tier is None or tier.can_vote

    def is_steady(self, instance: Instance) -> bool:
        """Online and meant to stay so."""
        return (
            instance.current_state.grade is Grade.ONLINE
            and instance.target_state.grade is Grade.ONLINE
            and instance.current_state.incarnation == instance.target_state.incarnation
        )

    def is_rising(self, instance: Instance) -> bool:
        """On its way to Online, or there."""
        return instance.target_state.grade is Grade.ONLINE

    def may_respond(self, instance: Instance) -> bool:
        """Worth asking: not known to be gone. One that shall leave while it comes up is there."""
        now = instance.current_state.grade
        return now is not Grade.EXPELLED and (
            now is not Grade.OFFLINE or instance.target_state.grade is Grade.ONLINE
        )

    def in_raft(self, instance: Instance) -> bool:
        return instance.raft_id in self.voters or instance.raft_id in self.learners
