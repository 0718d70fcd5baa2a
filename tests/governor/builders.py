"""Small clusters for the governor's tests, and a world in which its actions take effect."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.governor.actions import (
    Action,
    ApplySchemaChange,
    ChangeVoters,
    ConfigureReplication,
    HandOverLeadership,
    Idle,
    Propose,
    SealAndName,
    SwitchMaster,
    SyncRaft,
)
from cairn.governor.plan import plan
from cairn.governor.rules.rising import raised
from cairn.governor.view import ClusterView
from cairn.model.log import ops
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import (
    Grade,
    Instance,
    Position,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.node.steering.membership import next_target
from cairn.topology.guard import picture_after


def instance(
    name: str,
    raft_id: int,
    current: State = State(Grade.ONLINE, 1),  # noqa: B008
    target: State | None = None,
    *,
    replicaset: str = "r1",
    domain: dict[str, str] | None = None,
    reason: str = "",
    tier: str = "default",
) -> Instance:
    return Instance(
        name=name,
        uuid=f"uuid-{name}",
        raft_id=raft_id,
        replicaset_name=replicaset,
        replicaset_uuid=f"uuid-{replicaset}",
        current_state=current,
        target_state=target or current,
        failure_domain=domain or {},
        tier=tier,
        version="0.1.0",
        target_state_reason=reason,
    )


def replicaset(name: str, master: str, members: tuple[str, ...], **fields: Any) -> Replicaset:
    made = Replicaset(
        name=name,
        uuid=f"uuid-{name}",
        current_master_name=master,
        target_master_name=master,
        tier="default",
        weight=1.0,
        weight_origin="auto",
        state=ReplicasetState.READY,
        epoch=1,
        members=members,
    )
    return msgspec.structs.replace(made, **fields)


def view_of(
    *instances: Instance,
    leader: int = 1,
    voters: set[int] | None = None,
    learners: set[int] | None = None,
    factor: int = 1,
    sharded: bool = True,
    sets: tuple[Replicaset, ...] = (),
) -> ClusterView:
    by_set: dict[str, list[str]] = {}
    for each in instances:
        by_set.setdefault(each.replicaset_name, []).append(each.name)
    known = {each.name: each for each in sets}
    for name, members in by_set.items():
        known.setdefault(name, replicaset(name, members[0], tuple(members)))
    ids = {each.raft_id for each in instances}
    cluster = Cluster(
        position=Position(2, 10),
        instances={each.name: each for each in instances},
        replicasets=known,
        tiers={"default": Tier("default", factor, is_default=True)},
        properties={"last_raft_id": max(ids, default=0), "cluster_version": "0.1.0"},
    )
    chosen = ids if voters is None else voters
    return ClusterView(
        cluster=cluster,
        leader=leader,
        voters=frozenset(chosen),
        learners=frozenset(ids - chosen if learners is None else learners),
        sharded_tiers=frozenset({"default"}) if sharded else frozenset(),
    )


class World:
    """Applies what the governor decides, as a cluster would; `dead` ones answer nothing."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.dead: set[str] = set()
        self.steps: list[str] = []

    @property
    def cluster(self) -> Cluster:
        return self.view.cluster

    def put(self, **fields: Any) -> None:
        self.view = msgspec.structs.replace(self.view, **fields)

    def apply(self, *found: ops.Dml) -> None:
        position = Position(2, self.cluster.position.index + 1)
        after = picture_after(self.cluster, found)
        self.put(cluster=msgspec.structs.replace(after, position=position))

    def set_target(self, name: str, grade: Grade, reason: str = "") -> None:
        row = self.cluster.instances[name]
        changed = msgspec.structs.replace(
            row, target_state=next_target(row, grade), target_state_reason=reason
        )
        self.apply(ops.Replace(system.PICO_INSTANCE.id, rows.instance_row(changed)))

    def step(self) -> Action:
        """Plan once and carry it out; a subject that cannot answer backs off."""
        action = plan(self.view)
        self.steps.append(f"{action.step}: {action.subject}")
        ok = self._carry_out(action)
        if not ok:
            waiting = self.view.waiting | {(action.step, action.subject)}
            self.put(waiting=waiting)
        return action

    def _carry_out(self, action: Action) -> bool:
        match action:
            case Idle():
                return True
            case Propose(ops=found):
                self.apply(*found)
            case ChangeVoters():
                voters = (self.view.voters | set(action.add_voters)) - set(action.add_learners)
                learners = (self.view.learners | set(action.add_learners)) - voters
                gone = set(action.remove)
                self.put(voters=frozenset(voters - gone), learners=frozenset(learners - gone))
            case HandOverLeadership(to=to):
                self.put(leader=to)
            case SyncRaft(instances=names):
                return self._raise(names, Grade.RAFT_SYNCED, action.step)
            case ConfigureReplication(instances=names):
                return self._raise(names, Grade.REPLICATED, action.step)
            case SwitchMaster(old=old, heir=heir):
                if {old, heir} & self.dead:
                    return False
                self._name(action.replicaset, heir)
            case SealAndName(members=members, needed=needed):
                alive = [name for name in members if name not in self.dead]
                if len(alive) < needed or not alive:
                    return False
                self._name(action.replicaset, alive[0])
            case ApplySchemaChange():
                self.put(pending_ddl=None)
        return True

    def _raise(self, names: tuple[str, ...], grade: Grade, step: str) -> bool:
        alive = [name for name in names if name not in self.dead]
        self.apply(*(raised(self.cluster.instances[name], grade) for name in alive))
        silent = {(step, name) for name in names if name in self.dead}
        self.put(waiting=self.view.waiting | silent)
        return True

    def _name(self, name: str, master: str) -> None:
        row = self.cluster.replicasets[name]
        named = msgspec.structs.replace(
            row, current_master_name=master, target_master_name=master, epoch=row.epoch + 1
        )
        self.apply(ops.Replace(system.PICO_REPLICASET.id, rows.replicaset_row(named)))

    def settle(self, limit: int = 200) -> list[str]:
        """Until the governor is idle; the steps it took. More than `limit` of them is a bug."""
        for _ in range(limit):
            if isinstance(self.step(), Idle):
                return self.steps
        raise AssertionError(f"not idle after {limit} steps: {self.steps[-10:]}")
