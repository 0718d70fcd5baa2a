"""What instances tell each other of their work, for whoever looks at the whole cluster."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Kind(IntEnum):
    """Statements that are measured apart from each other. The order is that of the counters."""

    SELECT_POINT = 0
    SELECT_WIDE = 1
    INSERT = 2
    UPDATE = 3
    DELETE = 4
    COPY = 5
    DDL = 6
    OTHER = 7

    @property
    def word(self) -> str:
        return self.name.lower()


class StatementSeen(msgspec.Struct, frozen=True, array_like=True):
    """One statement with its literals left out, of one user, on one instance."""

    user_id: int
    query: str
    kind: int
    calls: int
    errors: int
    total_s: float
    max_s: float
    rows: int
    hops: int
    bytes: int
    plans: int


class SlowStatement(msgspec.Struct, frozen=True):
    """One run that took longer than `slow_statement_ms`."""

    at_us: int
    user_id: int
    user: str
    query: str
    took_s: float
    rows: int
    hops: int
    plan: tuple[str, ...] = ()


class SessionSeen(msgspec.Struct, frozen=True):
    """One session, as `pg_stat_activity` of its instance shows it to an administrator."""

    pid: int
    user_id: int
    user: str
    application: str
    address: str
    port: int | None
    state: str
    query: str
    began_us: int
    block_us: int | None
    query_us: int | None
    changed_us: int | None


class TableSize(msgspec.Struct, frozen=True, array_like=True):
    table_id: int
    rows: int
    bytes: int
    index_bytes: int


class WatchRequest(msgspec.Struct, frozen=True):
    """What is wanted: `sessions`, `statements`, `slow`, `tables`, `samples` or the `last`."""

    parts: tuple[str, ...] = ()
    since_s: float = 0.0  # samples that are younger


class WatchResponse(msgspec.Struct, frozen=True):
    name: str
    sessions: tuple[SessionSeen, ...] = ()
    statements: tuple[StatementSeen, ...] = ()
    evicted: int = 0  # statements that were forgotten for younger ones
    slow: tuple[SlowStatement, ...] = ()
    tables: tuple[TableSize, ...] = ()
    samples: tuple[tuple[float, ...], ...] = ()  # the time, then as `SAMPLED` names them


class SignalRequest(msgspec.Struct, frozen=True):
    """End the statement (`cancel`) or the session (`end`) of that number; who asks is checked."""

    pid: int
    what: str
    user_id: int
    user: str


class SignalResponse(msgspec.Struct, frozen=True):
    is_done: bool  # False: there is no such session


#: Numbers of a sample, by their order. Rates are per second since the sample before.
SAMPLED: tuple[str, ...] = (
    *(f"{kind.word}_per_s" for kind in Kind),
    *("p50_ms", "p95_ms", "p99_ms"),
    *("errors_per_s", "hops_per_s", "rows_per_s", "replicated_per_s", "lag_rows"),
    *("sessions", "cpu_percent", "memory_bytes", "disk_used_bytes", "disk_free_bytes"),
    *("raft_per_s", "loop_lag_ms"),
)
