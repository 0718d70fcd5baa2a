"""Running a prepared statement: the right part of the instance for each kind of plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.model.errors import (
    InFailedTransaction,
    InvalidParameter,
    PlanOutdated,
    QueryCanceled,
    StatementInvalidated,
    Unsupported,
)
from cairn.model.topology import ConnectionType
from cairn.node.reading import How
from cairn.node.returning import Returner
from cairn.server.blocks import ACTIONS, ENDINGS, change_block
from cairn.server.forwarding import check_forward
from cairn.server.settings import show, show_all
from cairn.server.statements import Cached
from cairn.sql import plans

if TYPE_CHECKING:
    from cairn.server.connection import Connection

DML_S = 30.0
REPLANS = 10
Row = tuple[Any, ...]


class Outcome(msgspec.Struct):
    """What a statement gave: rows for those that have them, a count for the others."""

    rows: Sequence[Row] | None
    count: int
    tag: str
    notices: tuple[str, ...] = ()


_READS = (plans.PointRead, plans.ScatterRead)
_SHARDED_WRITES = (
    plans.PointWrite,
    plans.ShardedInsert,
    plans.ScatterWrite,
    plans.InsertSelect,
    plans.KeyedWrite,
)


def run_at_once(session: Connection, cached: Cached, params: Sequence[Any]) -> Outcome | None:
    """The outcome without waiting for anybody, for what can have one; None for the rest."""
    prepared = cached.prepared
    plan = prepared.plan
    if type(plan) is plans.PointRead and session.reads_plainly(prepared):
        if prepared.hidden:
            params = prepared.start(params, session.now())
        rows = session.service.dispatcher.point_read_here(plan, params, cached.sharded)
        if rows is None:
            return None
        return Outcome(rows, len(rows), prepared.complete(len(rows)))
    if type(plan) is plans.SessionPlan:
        return _session_plan(session, plan, prepared.complete(0))
    if type(plan) is plans.EmptyPlan:
        return Outcome(None, 0, "")
    return None


async def run(session: Connection, cached: Cached, params: Sequence[Any]) -> Outcome:
    """Run to the end; planned again, quietly, when a schema change came between."""
    for _ in range(REPLANS):
        try:
            return await _run(session, cached, params)
        except PlanOutdated:
            catalog = session.service.catalog
            if session.wants_invalidation:
                planned, present = cached.stale_by(catalog)
                raise StatementInvalidated(
                    prepared_version=planned, current_version=present
                ) from None
            cached = session.service.statements.replanned(cached, session.user_id, catalog)
    return await _run(session, cached, params)


async def _run(session: Connection, cached: Cached, params: Sequence[Any]) -> Outcome:
    prepared = cached.prepared
    plan = prepared.plan
    service = session.service
    values = prepared.start(params, session.now())
    hints = _hop_hint(session, plan, values) if session.wants_hints else ()
    preference = str(prepared.options.get("read_preference", session.preference))
    check_forward(session, cached, values, preference)
    # What a write reads before it begins can be ended.
    finding = How(cancelled=session.cancelled, watch=session.watch)
    if isinstance(plan, plans.Returning):
        rows = await Returner(service.dispatcher, plan, values).run(values, cached.sharded, finding)
        session.wrote()
        return Outcome(rows, len(rows), prepared.complete(len(rows)), hints)
    if isinstance(plan, _READS):
        how = How(
            preference=preference,
            row_max=_setting(session, cached, values, "sql_motion_row_max", 5000),
            opcode_max=_setting(session, cached, values, "sql_vdbe_opcode_max", 0),
            cancelled=session.cancelled,
            is_local=prepared.options["read_concern"] == "local"
            if "read_concern" in prepared.options
            else session.is_local,
        )
        rows = await service.dispatcher.read(plan, values, cached.sharded, how)
        session.tell_staleness(how.stale_s)
        if session.cancelled.is_set():
            raise QueryCanceled("canceling statement due to user request")
        return Outcome(rows, len(rows), prepared.complete(len(rows)), hints)
    if isinstance(plan, _SHARDED_WRITES):
        count = await service.dispatcher.write(plan, values, tables=cached.sharded, how=finding)
        session.wrote()
        return Outcome(None, count, prepared.complete(count), hints)
    if isinstance(plan, plans.GlobalWrite):
        change = await service.dispatcher.change_global(
            plan,
            values,
            session.user_id,
            DML_S,
            tables=cached.sharded,
            how=finding,
            is_unsafe=show(session, "unsafe_system_writes").lower() in ("on", "true", "1"),
        )
        session.wrote()
        return Outcome(change.rows, change.row_count, prepared.complete(change.row_count))
    if isinstance(plan, plans.ExplainPlan):
        lines = await asyncio.to_thread(_explain, session, plan, values)
        return Outcome([(line,) for line in lines], len(lines), prepared.complete(len(lines)))
    return await _run_rare(session, plan, prepared.complete(0))


def _hop_hint(session: Connection, plan: plans.Plan, values: Sequence[Any]) -> tuple[str, ...]:
    """ "You are one hop away": who owns the bucket of a statement that came to the wrong one."""
    if isinstance(plan, plans.Returning):
        plan = plan.write
    if not isinstance(plan, plans.PointRead | plans.PointWrite) or plan.bucket is None:
        return ()
    assert plan.tier is not None
    service = session.service
    bucket = plan.bucket(values)
    routes = service.dispatcher.routes
    replicaset = service.cluster.replicasets[routes.owner(plan.tier, bucket)]
    master = service.cluster.by_raft_id(routes.master(replicaset.name))
    if master is None or master.raft_id == service.instance.raft_id:
        return ()
    position = service.cluster.position
    hint = {
        "map": "hop",
        "tier": plan.tier,
        "bucket_id": bucket,
        "replicaset_uuid": replicaset.uuid,
        "instance_uuid": master.uuid,
        "address": service.cluster.address(master.raft_id, ConnectionType.PGPROTO),
        "raft": {"term": position.term, "index": position.index},
    }
    return (json.dumps(hint),)


async def _run_rare(session: Connection, plan: plans.Plan, tag: str) -> Outcome:
    service = session.service
    match plan:
        case plans.DdlPlan():
            has_changed = await service.schema_changes.run(plan, session.user_id)
            session.wrote()
            return Outcome(None, 0, tag, plan.notices if has_changed else (plan.skipped,))
        case plans.AclPlan():
            notices = _is_already_so(session, plan)
            await service.schema_changes.change_access(plan, session.user_id)
            session.wrote()
            return Outcome(None, 0, tag, notices)
        case plans.AlterSystemPlan():
            await service.schema_changes.alter_system(plan, session.user_id)
            session.wrote()
            return Outcome(None, 0, tag)
    raise Unsupported(f"{tag or 'this statement'} cannot be run here")


def _is_already_so(session: Connection, plan: plans.AclPlan) -> tuple[str, ...]:
    """What IF [NOT] EXISTS leaves out, in PostgreSQL's words."""
    exists = plan.name in session.service.catalog.users
    if not plan.if_exists or exists is not plan.action.startswith("create"):
        return ()
    return (f'role "{plan.name}" {"already exists" if exists else "does not exist"}, skipping',)


def _setting(
    session: Connection, cached: Cached, values: Sequence[Any], name: str, default: int
) -> int:
    """A limit as the statement's OPTION has it, else the session, else the cluster."""
    asked: Any = cached.prepared.options.get(name)
    if isinstance(asked, int):  # OPTION (name = $1)
        asked = values[asked - 1]
        if asked is None or asked < 0:
            raise InvalidParameter(
                f"expected option {name} to be a non-negative integer, got: {asked}"
            )
    if asked is None:
        asked = session.parameters.get(name)
    if asked is None:
        asked = session.service.instance.state.setting(name, default)
    return int(asked)


def _explain(session: Connection, plan: plans.ExplainPlan, values: Sequence[Any]) -> list[str]:
    from cairn.sql.explain import explain_lines  # brings sqlglot along: not before it is needed

    state = session.service.instance.state
    options = {
        name: int(session.parameters.get(name) or state.setting(name, default))
        for name, default in (("sql_vdbe_opcode_max", 0), ("sql_motion_row_max", 5_000))
    }
    reader = session.service.execution.thread_reader()

    def query_plan(sql: str, args: Sequence[Any]) -> list[Row]:
        return list(reader.connection.execute(f"EXPLAIN QUERY PLAN {sql}", args))

    given = values if len(values) >= len(plan.inner.param_types) else None
    return explain_lines(
        plan.inner,
        given,
        facets=plan.facets,
        options=options,
        query_plan=query_plan,
        catalog=session.service.catalog,
    )


def _session_plan(session: Connection, plan: plans.SessionPlan, tag: str) -> Outcome:
    match plan.action:
        case action if action in ACTIONS:
            tag, notices = change_block(session, plan, tag)
            return Outcome(None, 0, tag, notices)
        case "show" if plan.name == "all":
            listed = show_all(session)
            return Outcome(listed, len(listed), tag)
        case "show":
            value = show(session, plan.name or "")
            return Outcome([(value,)], 1, tag)
        case "set":
            session.set_parameter(plan.name or "", plan.value or "")
        case "reset":
            session.reset_parameter(plan.name or "")
        case "deallocate":
            if plan.name is None:
                session.book.deallocate_all()
            else:
                session.book.deallocate(plan.name.encode())
        case "discard":
            session.book.deallocate_all()
            session.reset_parameter("all")
    return Outcome(None, 0, tag)


def check_transaction(session: Connection, cached: Cached) -> None:
    """In a failed block only its end is taken, or what goes back before the failure."""
    if session.status != "E":
        return
    plan = cached.prepared.plan
    if isinstance(plan, plans.SessionPlan) and plan.action in ENDINGS:
        return
    raise InFailedTransaction
