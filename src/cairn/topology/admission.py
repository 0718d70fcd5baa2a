"""Who may join, and as what: the leader's side of `raft_join`, decided from one picture (sans-IO).

A refusal is a sentence that tells an administrator what to change. Joining twice with the same
uuid gives the same place: a crash in the middle of a join is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from cairn.model.errors import JoinRefused
from cairn.model.log.ops import Dml, Insert, Replace
from cairn.model.log.ranges import KeyRange, whole_table
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import (
    ConnectionType,
    Grade,
    Instance,
    Replicaset,
    ReplicasetState,
    State,
    Tier,
)
from cairn.model.rpc import JoinRequest
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")

#: A join reads all of these, so it conflicts with any change of them.
RANGES: tuple[KeyRange, ...] = tuple(
    whole_table(table.id)
    for table in (
        system.PICO_INSTANCE,
        system.PICO_PEER_ADDRESS,
        system.PICO_TIER,
        system.PICO_REPLICASET,
    )
)


class HasJoined(JoinRefused):
    """A member with this uuid is known; `detail` is its name."""


class Admission(msgspec.Struct, frozen=True):
    """The newcomer's row, and the entry that admits it; no ops when it was admitted before."""

    instance: Instance
    ops: tuple[Dml, ...] = ()


def admit(request: JoinRequest, cluster: Cluster, new_uuid: Callable[[], str]) -> Admission:
    """The place of a newcomer, or a refusal that says why."""
    _check_cluster(request, cluster)
    known = cluster.by_uuid(request.instance_uuid)
    if known is not None:
        return Admission(_same_as_before(request, known))
    tier = cluster.tiers.get(request.tier)
    if tier is None:
        have = ", ".join(sorted(cluster.tiers))
        raise JoinRefused(f'tier "{request.tier}" doesn\'t exist; this cluster has: {have}')
    _check_failure_domain(request, cluster)
    replicaset, is_new = _choose_replicaset(request, cluster, tier, new_uuid)
    name = _choose_name(request, cluster, replicaset.name)
    instance = Instance(
        name=name,
        uuid=request.instance_uuid,
        raft_id=cluster.last_raft_id + 1,
        replicaset_name=replicaset.name,
        replicaset_uuid=replicaset.uuid,
        current_state=State(Grade.OFFLINE),
        target_state=State(Grade.OFFLINE),
        failure_domain=request.failure_domain,
        tier=tier.name,
        version=request.version,
    )
    if is_new:
        replicaset = msgspec.structs.replace(
            replicaset, current_master_name=name, target_master_name=name, members=(name,)
        )
    return Admission(instance, joining_ops(instance, request, replicaset if is_new else None))


def joining_ops(
    instance: Instance, request: JoinRequest, new_replicaset: Replicaset | None
) -> tuple[Dml, ...]:
    """The one entry that makes a member: replicaset first, so that events come in that order."""
    found: list[Dml] = []
    if new_replicaset is not None:
        found.append(Insert(system.PICO_REPLICASET.id, rows.replicaset_row(new_replicaset)))
    for kind, address in (
        (ConnectionType.PEER, request.advertise_address),
        (ConnectionType.PGPROTO, request.pg_address),
        (ConnectionType.HTTP, request.http_address),
    ):
        if address:
            row = (instance.raft_id, address, kind.value)
            found.append(Replace(system.PICO_PEER_ADDRESS.id, row))
    found.append(Insert(system.PICO_INSTANCE.id, rows.instance_row(instance)))
    found.append(Replace(system.PICO_PROPERTY.id, ("last_raft_id", rows.to_json(instance.raft_id))))
    return tuple(found)


def first_replicaset(name: str, uuid: str, tier: str, master: str) -> Replicaset:
    return Replicaset(
        name=name,
        uuid=uuid,
        current_master_name=master,
        target_master_name=master,
        tier=tier,
        weight=0.0,
        weight_origin="auto",
        state=ReplicasetState.NOT_READY,
        epoch=1,
        members=(master,),
    )


def _check_cluster(request: JoinRequest, cluster: Cluster) -> None:
    ours = str(cluster.properties.get("cluster_name", ""))
    if request.cluster_id != ours:
        raise JoinRefused(
            f'cluster_name mismatch: cluster_name of the instance = "{request.cluster_id}", '
            f'cluster_name of the cluster = "{ours}"'
        )
    version = str(cluster.properties.get("cluster_version", request.version))
    if not _are_neighbours(version, request.version):
        raise JoinRefused(
            f"version {request.version} cannot join a cluster of version {version}: "
            "the same version or the next minor one is needed"
        )


def _are_neighbours(cluster: str, instance: str) -> bool:
    """The same (major, minor) or the next minor."""
    try:
        ours = [int(part) for part in cluster.split(".")[:2]]
        theirs = [int(part) for part in instance.split(".")[:2]]
    except ValueError:
        return cluster == instance
    return theirs[0] == ours[0] and theirs[1] - ours[1] in (0, 1)


def _same_as_before(request: JoinRequest, known: Instance) -> Instance:
    """A join repeated after a crash: the same answer, unless it became another request."""
    uuid = known.uuid
    differs = [
        word
        for word, wanted, have in (
            ("name", request.instance_id, known.name),
            ("replicaset name", request.replicaset_id, known.replicaset_name),
            ("tier", request.tier, known.tier),
            ("failure domain", request.failure_domain, known.failure_domain),
        )
        if wanted is not None and wanted != have
    ]
    if differs:
        words = " and ".join(differs)
        raise JoinRefused(f"instance with UUID {uuid} already exists but with different {words}")
    if known.target_state.grade is not Grade.OFFLINE or known.current_state.incarnation > 0:
        raise HasJoined(
            f"{known.name} (UUID {uuid}) has joined already, and this directory has no raft.db",
            detail=known.name,
            hint="start it with the directory it had; if that file is lost: "
            f"cairn expel {known.name}, empty the directory, start it again",
        )
    return known


def _check_failure_domain(request: JoinRequest, cluster: Cluster) -> None:
    needed = {
        key
        for instance in cluster.instances.values()
        if instance.current_state.grade is not Grade.EXPELLED
        for key in instance.failure_domain
    }
    missing = needed - set(request.failure_domain)
    if missing:
        raise JoinRefused(f"missing failure domain names: {', '.join(sorted(missing))}")


def _choose_name(request: JoinRequest, cluster: Cluster, replicaset: str) -> str:
    name = request.instance_id
    if name is None:
        taken = set(cluster.instances)
        number = 1
        while f"{replicaset}_{number}" in taken:
            number += 1
        return f"{replicaset}_{number}"
    if not _NAME.fullmatch(name):
        raise JoinRefused(
            f'"{name}" is no instance name: use up to 63 letters, digits, "_", "-" and "."'
        )
    for known in cluster.replicasets.values():
        named = (known.current_master_name, known.target_master_name, *known.members)
        if name in named and name not in cluster.instances:  # left behind by an older version
            raise JoinRefused(
                f"`{name}` is still named as an instance of {known.name}, which has expelled it",
                hint="give this instance another name",
            )
    if name in cluster.instances:
        raise JoinRefused(
            f"`{name}` is already joined",
            hint="give this instance another name, or expel the old one first",
        )
    return name


def _choose_replicaset(
    request: JoinRequest, cluster: Cluster, tier: Tier, new_uuid: Callable[[], str]
) -> tuple[Replicaset, bool]:
    if request.replicaset_id is not None:
        return _named_replicaset(request.replicaset_id, cluster, tier, new_uuid)
    own = sorted(
        (r for r in cluster.replicasets.values() if r.tier == tier.name), key=lambda r: r.name
    )
    open_ones = [r for r in own if r.state is not ReplicasetState.TO_BE_EXPELLED]
    prefix = (request.instance_id or "").rpartition("_")[0]
    for replicaset in open_ones:
        if prefix and replicaset.name == prefix:
            return replicaset, False
    for replicaset in open_ones:
        members = cluster.members(replicaset.name)
        if len(members) < tier.replication_factor and not any(
            _share_a_domain(request.failure_domain, member.failure_domain) for member in members
        ):
            return replicaset, False
    number = 1
    while f"{tier.name}_{number}" in cluster.replicasets:
        number += 1
    return first_replicaset(f"{tier.name}_{number}", new_uuid(), tier.name, ""), True


def _named_replicaset(
    name: str, cluster: Cluster, tier: Tier, new_uuid: Callable[[], str]
) -> tuple[Replicaset, bool]:
    found = cluster.replicasets.get(name)
    if found is None:
        if not _NAME.fullmatch(name):
            raise JoinRefused(f'"{name}" is no replicaset name')
        return first_replicaset(name, new_uuid(), tier.name, ""), True
    if found.tier != tier.name:
        raise JoinRefused(
            f"tier mismatch: requested replicaset '{name}' is from tier '{found.tier}', "
            f"but specified tier is '{tier.name}'"
        )
    if found.state is ReplicasetState.TO_BE_EXPELLED:
        raise JoinRefused("cannot join replicaset which is being expelled")
    return found, False


def _share_a_domain(one: dict[str, str], other: dict[str, str]) -> bool:
    return any(other.get(key) == value for key, value in one.items())
