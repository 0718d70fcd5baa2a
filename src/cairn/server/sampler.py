"""Once in five seconds: what the instance did since the last time, kept for an hour.

It also measures how late the event loop is: a timer that fires late was held up by something, and
so was everything else.
"""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path
from time import perf_counter, process_time, time

from cairn.model.unexpected import owned
from cairn.model.watched import Kind
from cairn.node.instance import Instance
from cairn.node.watching.histograms import COUNT, quantile_s
from cairn.node.watching.samples import PERIOD_S

TICK_S = 0.25
_PAGE = resource.getpagesize()


class Sampler:
    def __init__(self, instance: Instance, directory: Path) -> None:
        self._instance, self._directory = instance, directory
        self._loop = asyncio.get_running_loop()
        self._late_s = 0.0  # the latest tick since the last sample
        self.worst_s = 0.0  # the same before it
        self.disk_used = 0
        self._before = self._counters()
        self._counts = self._all_counts()
        self._sampled = perf_counter()
        self._due = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def close(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        self._late_s = max(self._late_s, now - self._due)
        if perf_counter() - self._sampled >= PERIOD_S - TICK_S / 2:
            try:
                self._sample()
            except Exception as problem:  # a chart has a gap
                owned(problem, "a sample")
        self._due = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def _counters(self) -> dict[str, float]:
        """What only grows: a sample has it as a rate."""
        instance = self._instance
        statistics = instance.watching.statistics
        links = instance.replication.follower.links.values()
        return {
            **{
                f"{kind.word}_per_s": float(sum(statistics.latencies[kind].counts)) for kind in Kind
            },
            "errors_per_s": float(statistics.errors.total()),
            "hops_per_s": float(statistics.hops),
            "rows_per_s": float(statistics.rows),
            "replicated_per_s": float(sum(link.records for link in links)),
            "raft_per_s": float(instance.runner.applied_index),
            "cpu_percent": process_time() * 100,
        }

    def _all_counts(self) -> list[int]:
        latencies = self._instance.watching.statistics.latencies
        return [sum(each) for each in zip(*(one.counts for one in latencies), strict=True)]

    def _sample(self) -> None:
        instance, now = self._instance, perf_counter()
        passed_s, self._sampled = now - self._sampled, now
        counters, counts = self._counters(), self._all_counts()
        rates = {
            name: max(value - self._before[name], 0.0) / passed_s
            for name, value in counters.items()
        }
        fresh = [counts[at] - self._counts[at] for at in range(COUNT)]
        self._before, self._counts = counters, counts
        lags = [link.lag_rows or 0 for link in instance.replication.follower.links.values()]
        self.disk_used = _used(self._directory)
        self.worst_s, self._late_s = self._late_s, 0.0
        instance.watching.samples.add(
            time(),
            rates
            | {
                "p50_ms": quantile_s(fresh, 0.50) * 1000,
                "p95_ms": quantile_s(fresh, 0.95) * 1000,
                "p99_ms": quantile_s(fresh, 0.99) * 1000,
                "lag_rows": float(max(lags, default=0)),
                "sessions": float(len(instance.watching.activity.sessions)),
                "memory_bytes": float(memory_bytes()),
                "disk_used_bytes": float(self.disk_used),
                "disk_free_bytes": float(instance.runtime.free_bytes()),
                "loop_lag_ms": self.worst_s * 1000,
            },
        )


def memory_bytes() -> int:
    """Resident, of this process."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):  # another system than Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _used(directory: Path) -> int:
    """Bytes of the files of the instance; they all lie side by side."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_file(follow_symlinks=False):
                    total += entry.stat().st_size
            except OSError:
                continue  # it is gone since
    return total
