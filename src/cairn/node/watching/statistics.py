"""What statements cost: counted at their end, on the way of every one of them.

`ended` is on the path of a point read, which takes some 40 µs in all: it does sums and
nothing else. Everything here has a bound: so many counters, so many statements, so many slow ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from heapq import nsmallest
from math import frexp
from typing import Any

from cairn.model.watched import Kind, SlowStatement, StatementSeen
from cairn.node.watching.histograms import COUNT, FIRST, STEPS

MOST = 2_000  # statements that are remembered
SHOWN = 1_500  # characters of one
SLOW_KEPT = 100  # runs that took long
_LAST = COUNT - 1
_SHIFT = -FIRST * STEPS - STEPS  # `frexp` gives a half to one: in steps that is STEPS to 2 · STEPS
_TWICE = 2 * STEPS


class Seen:
    """One statement of one user. Plans that were made from it point here."""

    __slots__ = (
        *("bytes", "calls", "errors", "hops", "is_kept", "kind", "max_s", "plans", "query"),
        *("plan", "rows", "total_s", "user_id"),
    )

    def __init__(self, user_id: int, query: str, kind: Kind) -> None:
        self.user_id, self.query, self.kind = user_id, query, kind
        self.is_kept = False
        self.plan: Callable[[], Any] = lambda: None  # the last that was made, while it is in use
        self.begin_anew()

    def begin_anew(self) -> None:
        self.calls = self.errors = self.rows = self.hops = self.bytes = self.plans = 0
        self.total_s = self.max_s = 0.0

    def told(self) -> StatementSeen:
        return StatementSeen(
            self.user_id,
            self.query,
            self.kind,
            self.calls,
            self.errors,
            self.total_s,
            self.max_s,
            self.rows,
            self.hops,
            self.bytes,
            self.plans,
        )


class Latency:
    """Of one kind of statement."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * COUNT
        self.sum_s = 0.0


class Statistics:
    """Of one instance. `slow_s` is the time from which on a statement is slow; those in `on_slow`
    are told of it, with its seconds, rows and hops."""

    def __init__(self) -> None:
        self.latencies = tuple(Latency() for _ in Kind)
        self.errors: Counter[str] = Counter()  # by class: the first two characters of SQLSTATE
        self.rows = self.hops = self.bytes = 0
        self.slow_s = float("inf")
        self.on_slow: list[Callable[[Seen, float, int, int], None]] = []
        self.slow: deque[SlowStatement] = deque(maxlen=SLOW_KEPT)
        self.evicted = 0
        self._seen: dict[tuple[int, str], Seen] = {}

    # --- while statements run ---------------------------------------------------------------------

    def ended(self, seen: Seen, took_s: float, rows: int, hops: int, size: int) -> None:
        seen.calls += 1
        seen.total_s += took_s
        seen.rows += rows
        self.rows += rows
        if size:
            seen.bytes += size
            self.bytes += size
        if hops:
            seen.hops += hops
            self.hops += hops
        if took_s > seen.max_s:
            seen.max_s = took_s
        latency = self.latencies[seen.kind]
        latency.sum_s += took_s
        part, exponent = frexp(took_s)
        at = exponent * STEPS + _SHIFT + int(part * _TWICE)
        latency.counts[at if 0 <= at < COUNT else _LAST if at > 0 else 0] += 1
        if not seen.is_kept:
            self._keep(seen)
        if took_s >= self.slow_s:
            for listener in self.on_slow:
                listener(seen, took_s, rows, hops)

    def failed(self, seen: Seen | None, sqlstate: str) -> None:
        self.errors[sqlstate[:2]] += 1
        if seen is not None:
            seen.errors += 1
            if not seen.is_kept:
                self._keep(seen)

    # --- what is remembered of each ---------------------------------------------------------------

    def statement(self, user_id: int, query: str, kind: Kind) -> Seen:
        """The counters of a statement; `query` is without literals."""
        query = query[:SHOWN]
        found = self._seen.get((user_id, query))
        return found or Seen(user_id, query, kind)

    def _keep(self, seen: Seen) -> None:
        """It has run: from now on it is shown. One that was forgotten begins anew."""
        key = (seen.user_id, seen.query)
        other = self._seen.get(key)
        if other is not None:  # two plans of one statement were made before either ran
            other.calls += seen.calls
            other.errors += seen.errors
            other.rows += seen.rows
            other.hops += seen.hops
            other.bytes += seen.bytes
            other.plans += seen.plans
            other.total_s += seen.total_s
            other.max_s = max(other.max_s, seen.max_s)
            seen.begin_anew()
            return
        if len(self._seen) >= MOST:
            self._forget()
        seen.is_kept = True
        self._seen[key] = seen

    def _forget(self) -> None:
        """The tenth that cost least in all: what runs often or long stays."""
        for seen in nsmallest(MOST // 10, self._seen.values(), key=lambda each: each.total_s):
            del self._seen[seen.user_id, seen.query]
            seen.is_kept = False
            seen.begin_anew()
            self.evicted += 1

    # --- what is told -----------------------------------------------------------------------------

    def statements(self) -> tuple[StatementSeen, ...]:
        return tuple(seen.told() for seen in self._seen.values())

    def forget_all(self) -> None:
        """`CALL cairn_forget_statements()`: counting begins anew."""
        for seen in self._seen.values():
            seen.is_kept = False
            seen.begin_anew()
        self._seen.clear()
        self.evicted = 0
        self.slow.clear()
