"""A ledger goes on where it ended, counts every seed once and keeps what failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn.sim.ledger import Batch, Ended, Ledger, continue_ledger


def seconds() -> Iterator[float]:
    """A clock that goes on by a second whenever it is looked at."""
    yield from map(float, range(10_000))


def ran(path: Path, kinds: tuple[str, ...], minutes: float) -> list[tuple[str, int]]:
    seen: list[tuple[str, int]] = []

    def run(kind: str, seed: int) -> Ended:
        seen.append((kind, seed))
        return Ended(3600.0, "lost a row" if seed == 3 else None)

    continue_ledger(Ledger(path), kinds, minutes, run, clock=seconds().__next__)
    return seen


def test_every_run_begins_after_the_last_seed_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first, second = ran(path, ("a", "b"), 0.5), ran(path, ("a",), 0.5)
    seeds = [seed for kind, seed in first + second if kind == "a"]
    assert seeds == list(range(1, len(seeds) + 1))
    assert {kind for kind, _ in second} == {"a"}
    assert len(first + second) == len(set(first + second))


def test_a_kind_that_an_earlier_run_did_not_come_to_is_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path).add(Batch("a", 1, 9, 60.0, 0.0))
    first = [kind for kind, _ in ran(path, ("a", "b", "c"), 0.4)]
    assert set(first) == {"b", "c"}


def test_failures_and_hours_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.add(Batch("a", 1, 3, 1800.0, 7200.0, {3: "lost a row"}))
    ledger.add(Batch("a", 4, 4, 1800.0, 3600.0))
    ledger.add(Batch("b", 1, 1, 3600.0, 3600.0))
    assert list(Ledger(path).totals()) == [
        "a: 4 seeds, 1 failed, 1.00 hours, 3.0 simulated hours; failed: 3",
        "b: 1 seeds, 0 failed, 1.00 hours, 1.0 simulated hours",
        "all: 5 seeds, 1 failed, 2.00 hours, 4.0 simulated hours; failed: 3",
    ]


def test_a_short_run_still_counts_what_it_ran(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    seen = ran(path, ("a",), 0.05)
    assert sum(batch.seeds for batch in Ledger(path).batches) == len(seen) > 0
