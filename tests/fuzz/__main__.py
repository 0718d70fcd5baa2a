"""`make fuzz MINUTES=10 SEED=1 KIND=sql`: bounded, and the same again for the same seed."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.growth import Growth, line
from tests.fuzz.kinds import KINDS
from tests.fuzz.target import Broken, Target

SLICE_S = 8.0  # of one kind, before it is the next one's turn
CHECK_EVERY = 25  # steps


def run(
    target: Target, kind: str, seed: int, first: int, seconds: float, found: list[str] | None = None
) -> int:
    """Steps from number `first` on; how many. Each has a chance of its own: (seed, number).

    With `found`, what is found is noted there, and it goes on while the instance lives.
    """
    end = time.monotonic() + seconds
    number = first
    while time.monotonic() < end:
        try:
            with target.watched() as watch:
                while time.monotonic() < end:
                    KINDS[kind](target, random.Random(f"{seed}.{kind}.{number}"))
                    number += 1
                    if number % CHECK_EVERY == 0:
                        watch.check()
        except Exception as problem:
            told = f"{kind}, seed {seed}, step {number}: {problem!r}\n{target.story()}"
            if found is None or not target.lives():
                raise Broken(told) from problem
            found.append(told)
            print(told, flush=True)
            number += 1
    return number - first


def main() -> int:
    options = argparse.ArgumentParser(prog="make fuzz")
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--kind", choices=sorted(KINDS), action="append")
    options.add_argument("--first", type=int, default=0, help="the step to begin with")
    options.add_argument("--go-on", action="store_true", help="count what is found, and go on")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the instance is ended, too
    kinds = given.kind or list(KINDS)
    print(f"seed {given.seed}, {given.minutes:g} minutes, {', '.join(kinds)}", flush=True)
    end = time.monotonic() + given.minutes * 60
    done = dict.fromkeys(kinds, given.first)
    found: list[str] | None = [] if given.go_on else None
    with tempfile.TemporaryDirectory(prefix="cairn-fuzz-") as directory:
        target = Target(Path(directory), deaf_s=1.0, looked_into=True)
        growth = Growth(target.resident_mb())
        try:
            while (left := end - time.monotonic()) > 0:
                for kind in kinds:
                    slice_s = min(SLICE_S, max(left, 1.0))
                    done[kind] += run(target, kind, given.seed, done[kind], slice_s, found)
                    growth.after(kind, target.resident_mb())
                growth.round_is_over()
                print(f"{growth}\n  {line(target.inside.ask('sample'))}", flush=True)
            if (grown := growth.verdict()) is not None:
                raise Broken(grown)
        except Broken as problem:
            print(problem, flush=True)
            return 1
        finally:
            target.close()
    for kind, count in done.items():
        print(f"{kind}: {count - given.first} steps")
    print(f"{len(found or ())} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
