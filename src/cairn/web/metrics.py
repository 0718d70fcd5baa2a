"""What an instance counts, in Prometheus' text form."""

from __future__ import annotations

from cairn.model.topology import Grade
from cairn.server.service import Service


def metrics(service: Service) -> str:
    instance = service.instance
    runner, core = instance.runner, instance.runner.core
    row = instance.row
    lines: list[str] = []

    def put(name: str, kind: str, about: str, value: float, **labels: str) -> None:
        marks = ",".join(f'{key}="{text}"' for key, text in labels.items())
        lines.append(f"# HELP cairn_{name} {about}")
        lines.append(f"# TYPE cairn_{name} {kind}")
        lines.append(f"cairn_{name}{'{' + marks + '}' if marks else ''} {value:g}")

    online = row is not None and row.current_state.grade is Grade.ONLINE
    put("instance_online", "gauge", "1 when this instance is Online", online)
    put("raft_term", "gauge", "Raft term", core.term)
    put("raft_leader_id", "gauge", "raft_id of the leader, 0 when unknown", core.leader)
    put("raft_is_leader", "gauge", "1 on the leader", runner.is_leader)
    put("raft_commit_index", "gauge", "last committed entry", core.log.committed)
    put("raft_applied_index", "gauge", "last applied entry", runner.applied_index)
    put("raft_persisted_index", "gauge", "last entry on disk", runner.persisted_index)
    put("raft_bad_messages_total", "counter", "messages refused", runner.bad_messages)
    put("governor_steps_total", "counter", "steps taken", instance.governor.status.steps_done)
    put("sessions", "gauge", "open client connections", len(service.sessions))
    put("statement_cache_hits_total", "counter", "statements found", service.statements.hits)
    put("statement_cache_misses_total", "counter", "statements parsed", service.statements.misses)
    put("routed_local_total", "counter", "statements run here", service.dispatcher.local)
    put(
        "routed_forwarded_total",
        "counter",
        "statements sent one hop to the owner",
        service.dispatcher.forwarded,
    )
    put("topology_subscribers", "gauge", "service connections", len(service.feed.view()))
    put("topology_events_sent_total", "counter", "events told", service.feed.events_sent)
    put("topology_subscribers_dropped_total", "counter", "slow ones", service.feed.dropped)
    for link in instance.replication.links.values():
        put(
            "replication_lag_rows",
            "gauge",
            "records behind an upstream",
            link.lag_rows,
            upstream=link.upstream,
        )
    return "\n".join(lines) + "\n"
