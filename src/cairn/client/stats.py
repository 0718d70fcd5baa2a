"""Counters of the driver's decisions, and how Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_LABELS: Final = {"fallbacks": "reason", "hints": "verdict", "retries": "sqlstate"}


class Stats(msgspec.Struct):
    """All counters only grow. `fallbacks` says why a statement did not go straight to its rows."""

    statements: int = 0
    routed: int = 0  # sent straight to the owner: a hop saved each
    fallbacks: Counter[str] = msgspec.field(default_factory=Counter)  # by reason
    metadata_hits: int = 0
    metadata_misses: int = 0
    hints: Counter[str] = msgspec.field(default_factory=Counter)  # "one hop away", by verdict
    reprepares: int = 0
    retries: Counter[str] = msgspec.field(default_factory=Counter)  # by SQLSTATE
    cancels: int = 0  # CancelRequests sent because a statement took too long
    outcome_unknown: int = 0
    rows_split: int = 0  # rows of executemany and INSERT sent to their owners
    connections_opened: int = 0
    connections_failed: int = 0
    addresses_refused: int = 0
    topology_connects: int = 0
    topology_failures: int = 0
    topology_snapshots: int = 0
    topology_resumes: int = 0
    topology_events: int = 0
    topology_refreshes: int = 0  # providers left because a hint told what they did not
    topology_ignored: int = 0  # notices that are no event we know
    topology_heard_at: float = 0.0  # the driver's clock, when the stream last said something

    def topology_lag_s(self, now: float) -> float:
        """How long ago the service connection was last heard; heartbeats come in between."""
        return max(0.0, now - self.topology_heard_at) if self.topology_heard_at else 0.0

    def to_prometheus(self, now: float) -> str:
        lines: list[str] = []
        for name, labels, value in self._samples():
            if not any(line.startswith(f"# TYPE {name} ") for line in lines):
                lines.append(f"# TYPE {name} counter")
            lines.append(f"{name}{labels} {value}")
        lines.append("# TYPE cairn_client_topology_lag_seconds gauge")
        lines.append(f"cairn_client_topology_lag_seconds {self.topology_lag_s(now):.3f}")
        return "\n".join(lines) + "\n"

    def _samples(self) -> Iterator[tuple[str, str, Any]]:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            name = f"cairn_client_{field}_total"
            if isinstance(value, Counter):
                label = _LABELS[field]
                for key, count in sorted(value.items()):
                    yield name, f'{{{label}="{key}"}}', count
            elif isinstance(value, int):
                yield name, "", value
