"""A ledger of simulated seeds: a file that a command continues, so that hours add up over days.

One JSON line for each batch: what was run, how long it took, which seeds failed and why. The next
run begins after the last seed of its kind, so no seed is counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

BATCH_S = 60.0  # a run that is killed loses at most this much of its account


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Seeds `first` … `last` of one kind, run one after another."""

    kind: str
    first: int
    last: int
    seconds: float  # of real time
    virtual_s: float
    failures: dict[int, str] = {}
    at: str = ""  # when it ended

    @property
    def seeds(self) -> int:
        return self.last - self.first + 1


class Ended(msgspec.Struct):
    """One seed that was run: how long it was inside the simulation, and what was wrong."""

    virtual_s: float
    failure: str | None


class Ledger:
    """The file. Lines are only ever added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batches: list[Batch] = []
        if path.exists():
            lines = path.read_bytes().splitlines()
            self.batches = [msgspec.json.decode(line, type=Batch) for line in lines if line]

    def next_seed(self, kind: str, at_least: int = 1) -> int:
        last = max((each.last for each in self.batches if each.kind == kind), default=0)
        return max(last + 1, at_least)

    def seconds_of(self, kind: str) -> float:
        return sum(each.seconds for each in self.batches if each.kind == kind)

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(batch) + b"\n")

    def totals(self) -> Iterator[str]:
        """A line for each kind, and one for all of them."""
        kinds = sorted({each.kind for each in self.batches})
        for kind in kinds:
            yield _total(kind, [each for each in self.batches if each.kind == kind])
        if len(kinds) > 1:
            yield _total("all", self.batches)


def _total(name: str, batches: list[Batch]) -> str:
    failed = sorted(seed for each in batches for seed in each.failures)
    return (
        f"{name}: {sum(each.seeds for each in batches)} seeds, {len(failed)} failed, "
        f"{sum(each.seconds for each in batches) / 3600:.2f} hours, "
        f"{sum(each.virtual_s for each in batches) / 3600:.1f} simulated hours"
        + (f"; failed: {', '.join(map(str, failed))}" if failed else "")
    )


def continue_ledger(
    ledger: Ledger,
    kinds: tuple[str, ...],
    minutes: float,
    run: Callable[[str, int], Ended],
    *,
    first: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Fresh seeds until the time is over, always of the kind that had the least of it so far."""
    end, failed = clock() + 60 * minutes, 0
    share = min(BATCH_S, 60 * minutes / len(kinds))
    while clock() < end:
        kind = min(kinds, key=ledger.seconds_of)
        batch = _run_batch(ledger.next_seed(kind, first), kind, share, run, clock)
        failed += len(batch.failures)
        ledger.add(batch)
    return failed


def _run_batch(
    first: int,
    kind: str,
    seconds: float,
    run: Callable[[str, int], Ended],
    clock: Callable[[], float],
) -> Batch:
    """As many seeds as fit, one at least."""
    begun = clock()
    batch = Batch(kind, first, first - 1, 0.0, 0.0, {})
    while batch.last < first or clock() < begun + seconds:
        batch.last += 1
        ended = run(kind, batch.last)
        batch.virtual_s += ended.virtual_s
        if ended.failure is not None:
            batch.failures[batch.last] = ended.failure
    batch.seconds, batch.at = clock() - begun, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return batch
