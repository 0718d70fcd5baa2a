"""What an instance counts, for Prometheus. Nothing is kept here: it is read when it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import cairn
from cairn.model.members.moves import OPEN
from cairn.model.members.topology import Grade
from cairn.model.watched import Kind
from cairn.node.instance import Instance
from cairn.node.steering.move_driver import FREEZE_BOUNDS_S
from cairn.node.watching.histograms import BOUNDS_S, STEPS
from cairn.server.face import PgFace

#: Every doubling from 30 µs to half a minute: the finer steps are for the charts of the console.
_SHOWN = range(5 * STEPS - 1, 25 * STEPS, STEPS)


def registry(face: PgFace) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(InstanceCollector(face))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made


def text_of(made: CollectorRegistry) -> bytes:
    return generate_latest(made)


class InstanceCollector(Collector):
    def __init__(self, face: PgFace) -> None:
        self._face = face

    def collect(self) -> Iterator[Metric]:
        face, instance = self._face, self._face.instance
        yield InfoMetricFamily("cairn_build", "the version", {"version": cairn.__version__})
        yield from _raft(instance)
        yield from _statements(face)
        yield from _clients(face)
        yield from _links(instance)
        yield from _moves(instance)
        yield from _health(instance)
        yield from _machine(face)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"cairn_{name}", about, value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"cairn_{name}", about, value)


def _labelled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    about: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    made = kind(f"cairn_{name}", about, labels=labels)
    for marks, value in values:
        made.add_metric(marks, value)
    return made


def _raft(instance: Instance) -> Iterator[Metric]:
    runner, core, row = instance.runner, instance.runner.core, instance.row
    online = row is not None and row.current_state.grade is Grade.ONLINE
    yield _gauge("instance_online", "1 when this instance is Online", online)
    yield _gauge("raft_term", "Raft term", core.term)
    yield _gauge("raft_leader_id", "raft_id of the leader, 0 when unknown", runner.leader_id)
    yield _gauge("raft_is_leader", "1 on the leader", runner.is_leader)
    yield _gauge("raft_commit_index", "last committed entry", core.log.committed)
    yield _gauge("raft_applied_index", "last applied entry", runner.applied_index)
    yield _gauge("raft_persisted_index", "last entry on disk", runner.persisted_index)
    yield _counter("raft_bad_messages", "messages of peers that were refused", runner.bad_messages)
    yield _counter(
        "governor_steps",
        "steps that the governor of this instance took",
        instance.governor.status.steps_done,
    )
    blocked = bool(instance.governor.status.blocked_by)
    yield _gauge("governor_blocked", "1 when the governor waits for something", blocked)
    quorum = instance.voters.no_quorum() is None
    yield _gauge("raft_has_quorum", "0 when this instance misses most voters", quorum)


def _statements(face: PgFace) -> Iterator[Metric]:
    statistics = face.statistics
    seconds = HistogramMetricFamily(
        "cairn_statement_seconds", "how long statements took, by kind", labels=["kind"]
    )
    for kind in Kind:
        latency = statistics.latencies[kind]
        seconds.add_metric([kind.word], _buckets(latency.counts), latency.sum_s)
    yield seconds
    yield _labelled(
        CounterMetricFamily,
        "statement_errors",
        "statements that failed, by class of SQLSTATE",
        ["class"],
        [([name], count) for name, count in sorted(statistics.errors.items())],
    )
    yield _counter("statement_rows", "rows told to clients or taken from them", statistics.rows)
    yield _counter("statement_hops", "questions to other instances", statistics.hops)
    yield _counter("statement_bytes", "bytes of rows told or taken", statistics.bytes)
    forgotten = "statements whose counters gave way to others"
    yield _counter("statements_evicted", forgotten, statistics.evicted)
    yield _counter("statement_cache_hits", "statements whose plan was known", face.statements.hits)
    yield _counter(
        "statement_cache_misses", "statements that were parsed and planned", face.statements.misses
    )
    sent, dropped = face.instance.watching.tracer.counts()
    yield _counter("trace_spans_sent", "spans of traces that the collector has taken", sent)
    lost = "spans of traces that were dropped: the collector did not take them in time"
    yield _counter("trace_spans_dropped", lost, dropped)
    reads = face.executor.reads
    yield _counter("routed_local", "statements run here", reads.owners.local)
    answered = "reads of one row that the compiled part answered alone"
    yield _counter("reads_compiled", answered, reads.owners.compiled)
    asked = "short reads of several owners, which were asked without a task"
    yield _counter("reads_together", asked, reads.short.begun)
    written = "new rows that the compiled part wrote from their request"
    yield _counter("writes_compiled", written, reads.owners.compiled_writes)
    yield _counter(
        "routed_forwarded", "statements sent one hop to the owner", reads.owners.forwarded
    )
    half_told = face.execution.reads.open_reads.count
    yield _gauge("open_reads", "longer answers that are read from here and half told", half_told)


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus counts all that is below a bound."""
    made: list[tuple[str, float]] = []
    total, at = 0, 0
    for last in _SHOWN:
        total += sum(counts[at : last + 1])
        at = last + 1
        made.append((f"{BOUNDS_S[last]:.9g}", total))
    return [*made, ("+Inf", total + sum(counts[at:]))]


def _clients(face: PgFace) -> Iterator[Metric]:
    yield _gauge("sessions", "open client connections", len(face.sessions))
    yield _gauge("topology_subscribers", "service connections", len(face.feed.view()))
    yield _counter(
        "topology_events_sent", "topology events told to service connections", face.feed.events_sent
    )
    yield _counter(
        "topology_subscribers_dropped",
        "service connections that were too slow and were ended",
        face.feed.dropped,
    )
    yield _gauge("audit_lines_lost", "lines of the audit log not written yet", face.audit.lost)


def _links(instance: Instance) -> Iterator[Metric]:
    """Rows between replicas: lag and state of each link, what crossed it by origin."""
    replication, now = instance.replication, instance.runtime.boot_clock()
    names = {row.uuid: row.name for row in instance.state.cluster.instances.values()}
    links = list(replication.follower.links.values())
    upstream = ["upstream"]
    yield _labelled(
        GaugeMetricFamily,
        "replication_lag_rows",
        "records behind an upstream",
        upstream,
        [([link.upstream], link.lag_rows) for link in links],
    )
    yield _labelled(
        GaugeMetricFamily,
        "replication_lag_seconds",
        "seconds since everything of an upstream was here",
        upstream,
        [([link.upstream], lag) for link in links if (lag := link.lag_s(now)) is not None],
    )
    yield _labelled(
        GaugeMetricFamily,
        "replication_link_stopped",
        "1 when an upstream is not followed because of what it sent",
        upstream,
        [([link.upstream], link.state == "stopped") for link in links],
    )
    for field, about in (
        ("records", "records that came from an upstream"),
        ("bytes", "bytes of records that came from an upstream"),
        ("twice", "records that came although they were here"),
    ):
        yield _labelled(
            CounterMetricFamily,
            f"replication_received_{field}",
            about,
            ["upstream", "origin"],
            [
                ([link.upstream, names.get(origin, origin)], getattr(seen, field))
                for link in links
                for origin, seen in link.origins.items()
            ],
        )
    for field, about in (
        ("records", "records sent to a subscriber"),
        ("bytes", "bytes of records sent to a subscriber"),
    ):
        yield _labelled(
            CounterMetricFamily,
            f"replication_relayed_{field}",
            about,
            ["subscriber", "origin"],
            _relayed(replication.relay.sent, names, field),
        )


def _relayed(
    sent: Mapping[str, Mapping[str, object]], names: dict[str, str], field: str
) -> list[tuple[list[str], float]]:
    return [
        ([names.get(subscriber, subscriber), names.get(origin, origin)], getattr(traffic, field))
        for subscriber, origins in sent.items()
        for origin, traffic in origins.items()
    ]


def _moves(instance: Instance) -> Iterator[Metric]:
    """Buckets that move: how many moves there are, what came here, how long ranges were frozen."""
    moves = instance.state.cluster.moves.values()
    yield _labelled(
        GaugeMetricFamily,
        "moves_open",
        "moves of buckets under way",
        ["phase"],
        [([phase.value], sum(move.phase is phase for move in moves)) for phase in sorted(OPEN)],
    )
    moving, driver = instance.moving, instance.move_driver
    yield _counter("moves_rows", "rows that moves brought here", moving.taken_rows)
    yield _counter("moves_bytes", "bytes that moves brought here", moving.taken_bytes)
    to_do = [
        max(report.total[0] - report.rows, 0)
        for report in moving.reports.values()
        if report.total is not None
    ]
    yield _gauge("moves_rows_to_do", "rows that are still to come here", sum(to_do))
    frozen = HistogramMetricFamily(
        "cairn_move_freeze_seconds",
        "how long ranges were frozen, as this instance saw it as leader",
    )
    count, buckets = 0, []
    for bound, more in zip((*FREEZE_BOUNDS_S, "+Inf"), driver.freeze_counts, strict=True):
        count += more
        buckets.append((str(bound), float(count)))
    frozen.add_metric([], buckets, driver.frozen_s)
    yield frozen


def _health(instance: Instance) -> Iterator[Metric]:
    health = instance.health
    yield _labelled(
        GaugeMetricFamily,
        "storage_damaged",
        "1 when a file is damaged or its rows differ from its master's",
        ["file"],
        [([file], file in health.damage) for file in ("data.db", "raft.db")],
    )
    yield _counter("scrubs", "times that all was read and compared", health.scrubs)
    yield _counter("scrub_rows", "rows compared with the master's", health.compared)
    yield _counter("scrub_differences", "pieces that differed", health.differences)


def _machine(face: PgFace) -> Iterator[Metric]:
    sampler = face.sampler
    about = "how late the event loop was at worst, in the last five seconds"
    yield _gauge("event_loop_lag_seconds", about, sampler.worst_s)
    yield _gauge("disk_used_bytes", "files of this instance", sampler.disk_used)
    free = face.instance.runtime.free_bytes()
    yield _gauge("disk_free_bytes", "space left where its files are", free)
