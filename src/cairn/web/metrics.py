"""What an instance counts, in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Callable

from cairn.model.moves import OPEN
from cairn.model.topology import Grade
from cairn.node.instance import Instance
from cairn.node.steering.move_driver import FREEZE_BOUNDS_S
from cairn.server.face import PgFace


def metrics(face: PgFace) -> str:
    instance = face.instance
    runner, core = instance.runner, instance.runner.core
    row = instance.row
    lines: list[str] = []

    def put(name: str, kind: str, about: str, value: float, **labels: str) -> None:
        marks = ",".join(f'{key}="{text}"' for key, text in labels.items())
        if (head := f"# TYPE cairn_{name} {kind}") not in lines:  # once for all its labels
            lines.append(f"# HELP cairn_{name} {about}")
            lines.append(head)
        lines.append(f"cairn_{name}{'{' + marks + '}' if marks else ''} {value:.17g}")

    online = row is not None and row.current_state.grade is Grade.ONLINE
    put("instance_online", "gauge", "1 when this instance is Online", online)
    put("raft_term", "gauge", "Raft term", core.term)
    put(
        "raft_leader_id",
        "gauge",
        "raft_id of the leader, 0 when unknown",
        face.instance.runner.leader_id,
    )
    put("raft_is_leader", "gauge", "1 on the leader", runner.is_leader)
    put("raft_commit_index", "gauge", "last committed entry", core.log.committed)
    put("raft_applied_index", "gauge", "last applied entry", runner.applied_index)
    put("raft_persisted_index", "gauge", "last entry on disk", runner.persisted_index)
    put("raft_bad_messages_total", "counter", "messages refused", runner.bad_messages)
    put("governor_steps_total", "counter", "steps taken", instance.governor.status.steps_done)
    put("sessions", "gauge", "open client connections", len(face.sessions))
    put("statement_cache_hits_total", "counter", "statements found", face.statements.hits)
    put("statement_cache_misses_total", "counter", "statements parsed", face.statements.misses)
    put("routed_local_total", "counter", "statements run here", face.executor.reads.local)
    put(
        "routed_forwarded_total",
        "counter",
        "statements sent one hop to the owner",
        face.executor.reads.forwarded,
    )
    half_told = face.execution.open_reads.count
    put("open_reads", "gauge", "longer answers that are read from here and half told", half_told)
    put("topology_subscribers", "gauge", "service connections", len(face.feed.view()))
    put("topology_events_sent_total", "counter", "events told", face.feed.events_sent)
    put("topology_subscribers_dropped_total", "counter", "slow ones", face.feed.dropped)
    _put_links(instance, put)
    _put_moves(instance, put, lines)
    health = instance.health
    for file in ("data.db", "raft.db"):
        about = "1 when a file is damaged or its rows differ from its master's"
        put("storage_damaged", "gauge", about, file in health.damage, file=file)
    put("scrubs_total", "counter", "times that all was read and compared", health.scrubs)
    put("scrub_rows_total", "counter", "rows compared with the master's", health.compared)
    put("scrub_differences_total", "counter", "pieces that differed", health.differences)
    return "\n".join(lines) + "\n"


def _put_moves(instance: Instance, put: Callable[..., None], lines: list[str]) -> None:
    """Buckets that move: how many moves there are, what came here, how long ranges were frozen."""
    moves = instance.state.cluster.moves.values()
    for phase in sorted(OPEN):
        count = sum(move.phase is phase for move in moves)
        put("moves_open", "gauge", "moves of buckets under way", count, phase=phase.value)
    moving, driver = instance.moving, instance.move_driver
    put("moves_rows_total", "counter", "rows that moves brought here", moving.taken_rows)
    put("moves_bytes_total", "counter", "bytes that moves brought here", moving.taken_bytes)
    to_do = [
        max(report.total[0] - report.rows, 0)
        for report in moving.reports.values()
        if report.total is not None
    ]
    put("moves_rows_to_do", "gauge", "rows that are still to come here", sum(to_do))
    name = "cairn_move_freeze_seconds"
    lines.append(f"# HELP {name} how long ranges were frozen, as this instance saw it as leader")
    lines.append(f"# TYPE {name} histogram")
    count = 0
    for bound, more in zip((*FREEZE_BOUNDS_S, "+Inf"), driver.freeze_counts, strict=True):
        count += more
        lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
    lines.append(f"{name}_sum {driver.frozen_s:.17g}")
    lines.append(f"{name}_count {count}")


def _put_links(instance: Instance, put: Callable[..., None]) -> None:
    """Rows between replicas: lag and state of each link, what crossed it by origin."""
    replication, now = instance.replication, instance.runtime.boot_clock()
    names = {row.uuid: row.name for row in instance.state.cluster.instances.values()}
    links = list(replication.follower.links.values())
    for link in links:
        about = "records behind an upstream"
        put("replication_lag_rows", "gauge", about, link.lag_rows, upstream=link.upstream)
    for link in links:
        about = "seconds since everything of an upstream was here"
        lag_s = link.lag_s(now)
        if lag_s is not None:
            put("replication_lag_seconds", "gauge", about, lag_s, upstream=link.upstream)
    for link in links:
        about = "1 when an upstream is not followed because of what it sent"
        stopped = link.state == "stopped"
        put("replication_link_stopped", "gauge", about, stopped, upstream=link.upstream)
    for field, about in (
        ("records", "records that came from an upstream"),
        ("bytes", "bytes of records that came from an upstream"),
        ("twice", "records that came although they were here"),
    ):
        for link in links:
            for origin, seen in link.origins.items():
                marks = {"upstream": link.upstream, "origin": names.get(origin, origin)}
                put(
                    f"replication_received_{field}_total",
                    "counter",
                    about,
                    getattr(seen, field),
                    **marks,
                )
    for field, about in (
        ("records", "records sent to a subscriber"),
        ("bytes", "bytes of records sent to a subscriber"),
    ):
        for subscriber, origins in replication.relay.sent.items():
            for origin, sent in origins.items():
                marks = {
                    "subscriber": names.get(subscriber, subscriber),
                    "origin": names.get(origin, origin),
                }
                put(
                    f"replication_relayed_{field}_total",
                    "counter",
                    about,
                    getattr(sent, field),
                    **marks,
                )
