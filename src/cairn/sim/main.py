"""Running many seeds: `python -m cairn.sim --seeds A-B`, `cairn simulate --seed N`, `make sim`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cairn.sim.ledger import Ended, Ledger, continue_ledger
from cairn.sim.profile import SECOND
from cairn.sim.workers import processes
from cairn.sim.world import Result, run_seed

CHECK_TWICE_EVERY = 50  # seeds that are run twice, to prove that a seed says it all


def run_checked(job: tuple[int, int | None]) -> Result:
    """One seed; every 50th is run twice and must leave the same trace."""
    seed, nodes = job
    result = run_seed(seed, nodes=nodes)
    if seed % CHECK_TWICE_EVERY == 0 and result.failure is None:
        again = run_seed(seed, nodes=nodes)
        if again.trace_hash != result.trace_hash:
            result.failure, result.oracle = "two runs of one seed differ", "determinism"
    return result


def results_of(first: int, count: int, workers: int, nodes: int | None) -> Iterator[Result]:
    jobs = [(seed, nodes) for seed in range(first, first + count)]
    if workers <= 1 or count == 1:
        yield from map(run_checked, jobs)
        return
    with processes(workers) as pool:
        yield from pool.imap_unordered(run_checked, jobs, chunksize=4)


def run_seeds(
    first: int,
    count: int,
    workers: int = 1,
    *,
    nodes: int | None = None,
    stop_after: int = 10,
) -> list[Result]:
    """Run seeds first … first + count - 1 and print what came of it; the failing results."""
    started = time.monotonic()
    failures: list[Result] = []
    done: list[Result] = []
    for result in results_of(first, count, workers, nodes):
        done.append(result)
        if result.failure is not None:
            failures.append(result)
            report(result, nodes)
            if len(failures) >= stop_after:
                say(f"stopped after {stop_after} failing seeds")
                break
    summarise(done, len(failures), time.monotonic() - started)
    return failures


def report(result: Result, nodes: int | None) -> None:
    fixed = f" --nodes {nodes}" if nodes is not None else ""
    say(f"seed {result.seed} FAILED: {result.failure}")
    say(f"  profile: {result.profile.describe()}")
    say(f"  repeat:  cairn simulate --seed {result.seed}{fixed}")


def summarise(done: Iterable[Result], failed: int, seconds: float) -> None:
    results = list(done)
    count = max(1, len(results))
    virtual = sum(r.profile.fault_time_us + r.profile.calm_time_us for r in results) / SECOND
    say(
        f"{len(results)} seeds, {failed} failed, {seconds:.1f} s, "
        f"{60 * len(results) / max(seconds, 1e-9):.0f} seeds/min, "
        f"{virtual / max(seconds, 1e-9):.0f}x real time"
    )
    say(
        "per seed: "
        f"{sum(r.events for r in results) // count} events, "
        f"{sum(r.messages for r in results) // count} messages, "
        f"{sum(r.terms for r in results) / count:.1f} terms, "
        f"{sum(r.commits for r in results) // count} commits, "
        f"{sum(r.operations for r in results) // count} client operations"
    )


def keep_ledger(path: Path, minutes: float, nodes: int | None = None) -> int:
    """Fresh seeds from where the ledger ended, in this process; how many of them failed."""
    kind = "raft" if nodes is None else f"raft of {nodes}"

    def run(_: str, seed: int) -> Ended:
        result = run_checked((seed, nodes))
        if result.failure is not None:
            report(result, nodes)
        profile = result.profile
        virtual_s = (profile.fault_time_us + profile.calm_time_us) / SECOND
        return Ended(virtual_s, result.failure)

    ledger = Ledger(path)
    failed = continue_ledger(ledger, (kind,), minutes, run)
    for line in ledger.totals():
        say(line)
    return failed


def explain(seed: int, nodes: int | None = None) -> Result:
    """Run one seed and tell its story."""
    result = run_seed(seed, nodes=nodes, keep_notes=True)
    for note in result.notes:
        say(note)
    say(f"seed {seed}: {'FAILED: ' + result.failure if result.failure else 'nothing wrong'}")
    return result


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def parse_seeds(text: str) -> tuple[int, int]:
    """`7`, `1-500` -> (first, count)."""
    first, dash, last = text.partition("-")
    start = int(first)
    return start, (int(last) - start + 1 if dash else 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("cairn.sim", description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="N or A-B")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nodes", type=int, default=None, help="fix the number of voters")
    parser.add_argument("--trace", action="store_true", help="tell the story of one seed")
    parser.add_argument("--ledger", type=Path, help="go on where this file ends, and add to it")
    parser.add_argument("--minutes", type=float, default=10.0, help="with --ledger: how long")
    options = parser.parse_args(arguments)
    if options.ledger is not None:
        return 1 if keep_ledger(options.ledger, options.minutes, options.nodes) else 0
    first, count = parse_seeds(options.seeds)
    if options.trace:
        explain(first, options.nodes)
    return 1 if run_seeds(first, count, options.workers, nodes=options.nodes) else 0
