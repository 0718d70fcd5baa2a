"""`CALL cairn_…(…)`: what an administrator asks of the cluster itself, over an ordinary connection.

These are no SQL functions: they take their time, and some go to the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

import cairn
from cairn.model.errors import (
    AccessDenied,
    CairnError,
    InvalidParameter,
    TimedOut,
    UndefinedFunction,
)
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import ConnectionType, Grade
from cairn.model.members.topology import Instance as InstanceRow
from cairn.model.rpc import Empty, ExpelRequest, ExpelResponse, RestartRequest, StatusResponse
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.system_tables import PICO_INSTANCE
from cairn.node.steering.clocks import clock_problem
from cairn.node.waiting import until
from cairn.node.watching.activity import Asker
from cairn.server.caller import Caller
from cairn.server.calls import (
    backup,
    bulk,
    global_bulk,
    global_changes,
    rebalance,
    restoring,
    row_changes,
    settling,
    staged_checks,
    tiers,
)
from cairn.server.calls.arguments import arguments
from cairn.server.face import PgFace
from cairn.sql.plans import CallPlan

STATUS_S = 1.5
RESTART_S = 3.0


async def call(caller: Caller, plan: CallPlan, values: Sequence[Any]) -> Any:
    """The answer of a call, as a JSON value."""
    name = plan.procedure
    if not name.startswith("cairn_"):
        raise UndefinedFunction(f"procedure {name} does not exist")
    function = CALLS.get(name)
    if function is None:
        raise UndefinedFunction(
            f"procedure {name} does not exist", hint=f"known: {', '.join(sorted(CALLS))}"
        )
    needs_admin, work = function
    if needs_admin and not caller.catalog.allows(caller.context.user_id, "alter", "universe", 0):
        raise AccessDenied(f"Execute access to {name} is denied for user '{caller.context.user}'")
    return await work(caller, *arguments(name, work, plan.arguments, values))


async def _status(caller: Caller) -> Any:
    check_looking(caller.catalog, caller.context.user_id, caller.context.user)
    return await cluster_status(caller.face)


def check_looking(catalog: Catalog, user_id: int, user: str) -> None:
    """The topology is for whoever may read it, by whatever way: at first that is everybody."""
    if not catalog.allows(user_id, "read", "table", PICO_INSTANCE.id):
        raise AccessDenied(
            f"Read access to space '{PICO_INSTANCE.name}' is denied for user '{user}'"
        )


async def cluster_status(face: PgFace) -> dict[str, Any]:
    """Everything `cairn status --json` prints."""
    instance, cluster = face.instance, face.cluster
    leader = instance.runner.leader_id
    said = await _ask_all(face)
    chief = said.get(leader) or instance.status()
    governor = dict(chief.governor)
    return {
        "cluster": {
            "name": cluster.properties.get("cluster_name"),
            "uuid": cluster.cluster_uuid,
            "version": cluster.properties.get("cluster_version", cairn.__version__),
        },
        "raft": {
            "leader": getattr(cluster.by_raft_id(leader), "name", None),
            "term": chief.term,
            "index": chief.applied,
            "voters": [
                row.name for voter in chief.voters if (row := cluster.by_raft_id(voter)) is not None
            ],
        },
        "governor": governor,
        "automatic_failover": instance.state.setting("automatic_failover", True),
        "moves": [msgspec.to_builtins(move) for move in chief.moves if move.id is not None],
        "problems": _problems(face, said),
        "tiers": [msgspec.to_builtins(tier) for tier in cluster.tiers.values()],
        "replicasets": [_replicaset(cluster, name) for name in sorted(cluster.replicasets)],
        "instances": [
            {
                **_instance(cluster, name, chief, said.get(cluster.instances[name].raft_id)),
                "answers": cluster.instances[name].raft_id in said,
            }
            for name in sorted(cluster.instances)
        ],
    }


def _problems(face: PgFace, said: dict[int, StatusResponse]) -> list[str]:
    """What is wrong and not the governor's to mend."""
    instance = face.instance
    found = [f"{line}; write a good value with UPDATE" for line in face.cluster.problems]
    found += face.catalog.problems
    lost = instance.voters.no_quorum()
    if lost is not None:
        found.append(lost.sentence)
    now = instance.runtime.wall_clock().timestamp()
    clocks = [
        clock_problem(each.name, each.clock_s - now)
        for each in said.values()
        if each.clock_s is not None and each.raft_id != instance.raft_id
    ]
    found += sorted(line for each in said.values() for line in each.damage)
    found += _wrong_addresses(face.cluster, said)
    return found + sorted(filter(None, clocks))


def _wrong_addresses(cluster: Cluster, said: dict[int, StatusResponse]) -> list[str]:
    """Whoever lives and cannot be called is asked over links of its own, as long as they last."""
    by: dict[tuple[str, str], list[str]] = {}
    for each in said.values():
        for raft_id, address in each.unreached.items():
            row = cluster.by_raft_id(raft_id)
            if row is not None and row.current_state.grade is Grade.ONLINE:
                by.setdefault((row.name, address), []).append(each.name)
    return [
        f"{', '.join(sorted(names))} cannot connect to {name} at {address}: there are only the "
        f"links that {name} made; start it with an --advertise where others reach it"
        for (name, address), names in sorted(by.items())
    ]


async def _ask_all(face: PgFace) -> dict[int, StatusResponse]:
    """What each instance says of itself; the silent ones are simply missing."""
    instance = face.instance

    async def one(raft_id: int) -> StatusResponse | None:
        if raft_id == instance.raft_id:
            return instance.status()
        try:
            return await instance.peers.call(raft_id, "status", Empty(), StatusResponse, STATUS_S)
        except CairnError:
            return None

    ids = [
        row.raft_id
        for row in face.cluster.instances.values()
        if row.target_state.grade is Grade.ONLINE or row.raft_id == instance.raft_id
    ]
    answers = await asyncio.gather(*(one(raft_id) for raft_id in ids))
    return {
        raft_id: answer for raft_id, answer in zip(ids, answers, strict=True) if answer is not None
    }


def _replicaset(cluster: Any, name: str) -> dict[str, Any]:
    row = cluster.replicasets[name]
    return {
        "name": name,
        "uuid": row.uuid,
        "tier": row.tier,
        "master": row.current_master_name,
        "target_master": row.target_master_name,
        "epoch": row.epoch,
        "weight": row.weight,
        "state": row.state.value,
        "members": list(row.members),
        "buckets": sum(bucket.end - bucket.start + 1 for bucket in cluster.owned(name)),
    }


def _instance(
    cluster: Any, name: str, chief: StatusResponse, said: StatusResponse | None
) -> dict[str, Any]:
    row = cluster.instances[name]
    return {
        "name": name,
        "uuid": row.uuid,
        "raft_id": row.raft_id,
        "replicaset": row.replicaset_name,
        "tier": row.tier,
        "current_state": str(row.current_state),
        "target_state": str(row.target_state),
        "target_state_reason": row.target_state_reason,
        "failure_domain": row.failure_domain,
        "addresses": {
            "peer": cluster.address(row.raft_id, ConnectionType.PEER),
            "pg": cluster.address(row.raft_id, ConnectionType.PGPROTO),
            "http": cluster.address(row.raft_id, ConnectionType.HTTP),
        },
        "voter": row.raft_id in chief.voters,
        "leader": row.raft_id == chief.raft_id and chief.role == "leader",
        "lag": None if said is None else max(chief.applied - said.applied, 0),
        "lag_rows": None if said is None else _lag_rows(cluster, row, said),
        "links": [] if said is None else said.links,
        "waits_for": [] if said is None else list(said.waits_for),
        "persisted": None if said is None else said.persisted,
        "committed": None if said is None else said.committed,
        "applied": None if said is None else said.applied,
        "disk": None if said is None else said.disk,
    }


def _lag_rows(cluster: Any, row: InstanceRow, said: StatusResponse) -> int | None:
    """Records of the row log that a replica lacks; a master lacks none."""
    master = cluster.replicasets[row.replicaset_name].current_master_name
    if master == row.name:
        return 0
    lags = {link["upstream"]: link["lag_rows"] for link in said.links if link["state"] == "follow"}
    return lags.get(master, max(lags.values(), default=None))


async def _expel(caller: Caller, name: str, force: bool = False, timeout_s: float = 60.0) -> Any:
    """Ask the leader, then wait until the instance's rows are gone here."""
    instance = caller.instance
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    row = caller.face.cluster.find(name)
    request = ExpelRequest(caller.face.cluster.cluster_uuid, name, force)
    answer = await instance.leader.ask("expel", request, ExpelResponse, timeout_s)
    if row is not None:
        uuid, left_s = row.uuid, deadline - loop.time()
        if not await until(lambda: caller.face.cluster.by_uuid(uuid) is None, left_s):
            raise TimedOut("expel confirmation didn't arrive in time", hint="see `cairn status`")
    return {
        "expelled": row.name if row is not None else name,
        "lost_buckets": list(answer.lost_buckets),
        "lost_tables": list(answer.lost_tables),
        "kept_by": list(answer.kept_by),
    }


async def _restart(caller: Caller, name: str, incarnation: int = 0) -> Any:
    """An instance leaves as with SIGTERM, and its supervisor starts it anew.

    With an incarnation it may be asked for twice, and happens once.
    """
    row = caller.face.cluster.find(name)
    if row is None:
        known = ", ".join(sorted(caller.face.cluster.instances))
        raise InvalidParameter(f'there is no instance "{name}"', hint=f"known: {known}")
    request = RestartRequest(row.uuid, incarnation or row.current_state.incarnation)
    instance = caller.instance
    if row.raft_id == instance.raft_id:
        await instance.restart(request)
    else:
        await instance.peers.call(row.raft_id, "restart", request, Empty, RESTART_S)
    return {"asked": row.name, "incarnation": request.incarnation}


async def _compact(caller: Caller, keep: int = 0) -> Any:
    """Forget the applied part of this instance's Raft log but the last `keep` entries."""
    if keep < 0:
        raise InvalidParameter("keep of cairn_compact starts at 0")
    runner = caller.instance.runner
    upto = runner.applied_index - keep
    if upto >= runner.view.first_index():
        runner.compact(upto)
    return {"compacted": upto}


async def _subscribers(caller: Caller) -> Any:
    """PgFace connections of this instance: position told, lag, queue."""
    return caller.face.feed.view()


async def _replication(caller: Caller) -> Any:
    """Links of this instance: whom it follows, how far behind, rows that came twice."""
    data, replication = caller.instance.data, caller.instance.replication
    return {
        "vclock": data.vclock,
        "epoch": data.epoch,
        "links": replication.follower.view(),
        "relayed": msgspec.to_builtins(replication.relay.sent),
        "acks": replication.acks.vclocks,
        "safe_lsn": replication.acks.safe_lsn(),
    }


async def _cancel(caller: Caller, instance: str, pid: int) -> Any:
    """End the statement of a session, on whichever instance it is."""
    return {"done": await _signal(caller, instance, pid, "cancel")}


async def _terminate(caller: Caller, instance: str, pid: int) -> Any:
    return {"done": await _signal(caller, instance, pid, "end")}


async def _signal(caller: Caller, instance: str, pid: int, what: str) -> bool:
    context, watching = caller.context, caller.instance.watching
    return await watching.signal_at(instance, pid, what, Asker(context.user, context.user_id))


async def _forget_statements(caller: Caller) -> Any:
    """`_cairn_statements` and `_cairn_slow_statements` of this instance begin anew."""
    caller.face.statistics.forget_all()
    return {"forgotten": caller.instance.name}


#: name → (only for the admin, what it does)
CALLS: dict[str, tuple[bool, Callable[..., Awaitable[Any]]]] = {
    "cairn_status": (False, _status),
    "cairn_expel": (True, _expel),
    "cairn_restart": (True, _restart),
    "cairn_compact": (True, _compact),
    "cairn_subscribers": (True, _subscribers),
    "cairn_cancel": (False, _cancel),
    "cairn_terminate": (False, _terminate),
    "cairn_forget_statements": (True, _forget_statements),
    "cairn_ingest": (False, bulk.ingest),
    "cairn_promote": (False, bulk.promote),
    "cairn_put": (False, global_bulk.put),
    "cairn_settle": (False, settling.settle),
    "cairn_truncate": (False, bulk.truncate),
    "cairn_check": (False, staged_checks.check),
    "cairn_rows": (False, row_changes.rows),
    "cairn_rows_at": (False, row_changes.rows_at),
    "cairn_changes": (False, global_changes.changes),
    "cairn_changes_at": (False, global_changes.rows_at),
    "cairn_replication": (True, _replication),
    "cairn_rebalance": (True, rebalance.rebalance),
    "cairn_tier": (True, tiers.tier),
    "cairn_backup": (True, backup.backup),
    "cairn_moment": (False, backup.moment),
    "cairn_backup_piece": (True, backup.piece),
    "cairn_restore": (True, restoring.restore),
    "cairn_restore_rows": (True, restoring.rows),
}
