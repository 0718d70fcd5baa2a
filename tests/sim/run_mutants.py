"""`python -m tests.sim.run_mutants`: every planted bug, how it was caught, and how fast."""

from __future__ import annotations

import multiprocessing
import os
import sys

from .mutants import MUTANTS, Catch, hunt


def catch(job: tuple[int, bool]) -> tuple[int, Catch]:
    number, scripts = job
    return number, hunt(MUTANTS[number], scripts=scripts)


def main() -> int:
    scripts = "--no-scripts" not in sys.argv  # to see what the simulator finds by itself
    jobs = [(number, scripts) for number in range(len(MUTANTS))]
    escaped = 0
    width = max(len(mutant.name) for mutant in MUTANTS)
    print(f"{'bug':{width}}  {'caught by':28} {'seeds':>5} {'s':>6}", flush=True)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 1) as pool:
        for number, found in pool.imap(catch, jobs):
            escaped += not found.by
            how = found.by or "NOT CAUGHT"
            name = MUTANTS[number].name
            print(f"{name:{width}}  {how:28} {found.seeds:5} {found.seconds:6.1f}", flush=True)
    print(f"{len(MUTANTS) - escaped} of {len(MUTANTS)} planted bugs caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
