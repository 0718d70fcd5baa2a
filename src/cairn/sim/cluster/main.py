"""Running many seeds: `python -m cairn.sim.cluster --seeds A-B --workers N`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path

from cairn.sim.cluster import world
from cairn.sim.cluster.as_if_large import as_if_large
from cairn.sim.cluster.history import Result, run_seed
from cairn.sim.cluster.queue.queue_kills import run_all
from cairn.sim.cluster.row_history import run_row_seed
from cairn.sim.cluster.session_trials import (
    BANK_KINDS,
    INDEX_KINDS,
    JOIN_KINDS,
    KIN_KINDS,
    LANE_KINDS,
    LOCK_KINDS,
    ONCE_KINDS,
    run_bank_trial,
    run_index_trial,
    run_join_trial,
    run_kin_trial,
    run_lane_trial,
    run_lock_trial,
    run_once_trial,
)
from cairn.sim.cluster.short_records import in_parts
from cairn.sim.cluster.trial import BLOCK_KINDS, run_block_trial, run_trial
from cairn.sim.cluster.trial import KINDS as TRIALS
from cairn.sim.ledger import Ended, Ledger, continue_ledger
from cairn.sim.main import parse_seeds, say
from cairn.sim.workers import processes

KINDS: dict[str, Callable[[int], Result]] = {
    "cluster": run_seed,
    "rows": run_row_seed,
    **{name: run_trial(name) for name in ("mix", *TRIALS)},
    **{f"blocks-{name}": run_block_trial(name) for name in BLOCK_KINDS},
    **{f"lanes-{name}": run_lane_trial(name) for name in LANE_KINDS},
    **{f"joins-{name}": run_join_trial(name) for name in JOIN_KINDS},
    **{f"bank-{name}": run_bank_trial(name) for name in BANK_KINDS},
    **{f"kin-{name}": run_kin_trial(name) for name in KIN_KINDS},
    **{f"locks-{name}": run_lock_trial(name) for name in LOCK_KINDS},
    **{f"once-{name}": run_once_trial(name) for name in ONCE_KINDS},
}
#: The same with several records for nearly each statement.
IN_PARTS = (
    *("mix", "strikes", "restarts", "moves-strikes", "modes", "copies-moves", "columns"),
    *("truncates", "blackouts", "full-disks", "hung-disks", "moments", "moments-three"),
    *("lost-tails", "old-files-moves", "rot", "members", "graphs"),
    *("blocks-strikes", "lanes-moves-strikes", "lanes-graphs", "once-moves-strikes"),
    *("bank-moves", "bank-strikes", "bank-modes", "kin-moves-strikes"),
)
KINDS |= {f"parts-{name}": in_parts(KINDS[name]) for name in IN_PARTS}
#: The same with indexes and files that are treated as large ones are.
LARGE = (
    *("rot-starts", "rot", "old-files", "bank-calm", "bank-masters", "bank-strikes"),
    *("bank-restarts", "bank-columns", "bank-truncates", "bank-copies-moves", "bank-moves"),
    *("bank-moves-strikes", "bank-members", "bank-blackouts", "bank-old-files", "bank-schema"),
)
KINDS |= {f"large-{name}": as_if_large(KINDS[name]) for name in LARGE}
KINDS |= {f"indexes-{name}": as_if_large(run_index_trial(name)) for name in INDEX_KINDS}
CHECK_TWICE_EVERY = 25  # seeds that are run twice, to prove that a seed says it all


def run_checked(job: tuple[str, int]) -> Result:
    """One seed; what is no broken promise but a bug of the simulator fails it as well."""
    kind, seed = job
    run = KINDS[kind]
    quiet()
    try:
        result = run(seed)
        if seed % CHECK_TWICE_EVERY == 0 and result.failure is None:
            again = run(seed)
            if again.trace != result.trace:
                result.failure = f"two runs differ: {result.trace} and {again.trace}"
    except Exception:
        result = Result(seed, failure=traceback.format_exc())
    return result


def quiet() -> None:
    logger = logging.getLogger("cairn")
    logger.propagate = False
    logger.setLevel("INFO" if world.TRACE is not None else "CRITICAL")


def results_of(kind: str, first: int, count: int, workers: int) -> Iterator[Result]:
    jobs = [(kind, seed) for seed in range(first, first + count)]
    if workers <= 1 or count == 1:
        yield from map(run_checked, jobs)
        return
    with processes(workers) as pool:
        yield from pool.imap_unordered(run_checked, jobs)


def run_seeds(
    first: int, count: int, workers: int = 1, *, kind: str = "cluster", stop_after: int = 10
) -> list[Result]:
    """Run the seeds and print what came of it; the failing results."""
    started = time.monotonic()
    done: list[Result] = []
    failures: list[Result] = []
    for result in results_of(kind, first, count, workers):
        done.append(result)
        if result.failure is not None:
            failures.append(result)
            report(result, kind)
            if len(failures) >= stop_after:
                say(f"stopped after {stop_after} failing seeds")
                break
    seconds = max(time.monotonic() - started, 1e-9)
    many = max(len(done), 1)
    say(
        f"{len(done)} seeds, {len(failures)} failed, {seconds:.1f} s, "
        f"{60 * len(done) / seconds:.0f} seeds/min, "
        f"{sum(each.virtual_s for each in done) / seconds:.0f}x real time; per seed: "
        f"{sum(each.faults for each in done) / many:.1f} faults, "
        f"{sum(each.entries for each in done) // many} entries, "
        f"{sum(each.messages for each in done) // many} messages"
    )
    return failures


def report(result: Result, kind: str) -> None:
    say(f"seed {result.seed} FAILED ({result.about}): {result.failure}")
    say(f"  repeat: python -m cairn.sim.cluster --kind {kind} --seeds {result.seed} --trace")


def main(arguments: list[str] | None = None) -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are walked in one order
        os.environ["PYTHONHASHSEED"] = "0"
        words = sys.argv[1:] if arguments is None else arguments
        os.execv(sys.executable, [sys.executable, "-m", "cairn.sim.cluster", *words])
    parser = argparse.ArgumentParser("cairn.sim.cluster", description=__doc__)
    parser.add_argument("--seeds", default="1-50", help="N or A-B")
    parser.add_argument("--kind", help="which trial; without it, with --ledger: all in turn")
    parser.add_argument("--like", default="", help="with --ledger: kinds that begin with this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="tell the story of one seed")
    parser.add_argument("--debug", action="store_true", help="with all its details")
    parser.add_argument("--stop-after", type=int, default=10)
    parser.add_argument(
        "--queue-kills",
        action="store_true",
        help="kill and depose the leader at every step of every kind of migration",
    )
    parser.add_argument("--every", type=int, default=1, help="of those steps, only each Nth")
    parser.add_argument("--ledger", type=Path, help="go on where this file ends, and add to it")
    parser.add_argument("--minutes", type=float, default=10.0, help="with --ledger: how long")
    options = parser.parse_args(arguments)
    if options.kind not in (None, *KINDS):
        near = ", ".join(get_close_matches(options.kind, KINDS)) or ", ".join(TRIALS)
        parser.error(f"--kind {options.kind}: there is none; near to it: {near}")
    if options.ledger is not None:
        kinds = (options.kind,) if options.kind else tuple(KINDS)
        kinds = tuple(kind for kind in kinds if kind.startswith(options.like))
        return 1 if keep_ledger(options.ledger, kinds, options.minutes) else 0
    options.kind = options.kind or "cluster"
    if options.queue_kills:
        quiet()
        return 1 if run_all(options.workers, options.every, options.stop_after) else 0
    first, count = parse_seeds(options.seeds)
    if options.trace:
        return explain(first, options.kind, debug=options.debug)
    found = run_seeds(
        first, count, options.workers, kind=options.kind, stop_after=options.stop_after
    )
    return 1 if found else 0


def keep_ledger(path: Path, kinds: tuple[str, ...], minutes: float) -> int:
    """Fresh seeds from where the ledger ended, in this process; how many of them failed."""

    def run(kind: str, seed: int) -> Ended:
        result = run_checked((kind, seed))
        if result.failure is not None:
            report(result, kind)
        return Ended(result.virtual_s, result.failure)

    ledger = Ledger(path)
    failed = continue_ledger(ledger, kinds, minutes, run)
    for line in ledger.totals():
        say(line)
    return failed


def explain(seed: int, kind: str = "cluster", *, debug: bool = False) -> int:
    """One seed with every line that its instances logged."""
    world.TRACE = say
    quiet()
    if debug:
        logging.getLogger("cairn").setLevel("DEBUG")
    result = KINDS[kind](seed)
    for note in result.notes:
        say(note)
    if result.failure is not None:
        report(result, kind)
    return 1 if result.failure is not None else 0
