"""`make sanitize SECONDS=120 SEED=1`: the compiled part under the sanitizers of gcc.

It is built into `build/sanitize`, beside the normal build, and gets `tests/native` and then hostile
input of every kind. The first mistake ends it with the place in C where it happened.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.native.building import ROOT, build, copy_source

FLAGS = (
    *("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
    *("-fno-sanitize-recover=undefined", "-fno-builtin"),
    *(f"-D{name}=cairn_{name}" for name in ("malloc", "calloc", "realloc")),
)
#: Python and its other libraries keep memory until the end: only what C does wrong is looked for.
OPTIONS = "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1"


def _found(name: str) -> str:
    done = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def build_into(source: Path) -> None:
    build(source, *FLAGS, more=[Path(__file__).with_name("failing.c")])


def environment(source: Path) -> dict[str, str]:
    preloaded = " ".join(map(_found, ("libasan.so", "libubsan.so", "libstdc++.so.6")))
    return {
        **os.environ,
        "PYTHONPATH": f"{source}:{ROOT}",
        "PYTHONMALLOC": "malloc",  # else Python's own blocks hide where a value ends
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def attack(seconds: float, seed: int) -> None:
    """In a process that has the sanitized library."""
    from cairn.native.library import library
    from tests.native.hostile import STEPS

    if getattr(library(), "fail_after", None) is None:
        raise SystemExit("this is not the sanitized library")
    done, number, end = dict.fromkeys(STEPS, 0), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for name, step in STEPS.items():
            try:
                step(random.Random(f"{seed}.{name}.{number}"))
            except BaseException:
                print(f"{name}, seed {seed}, step {number}", flush=True)
                raise
            done[name] += 1
        number += 1
    print(", ".join(f"{name} {count}" for name, count in done.items()))


def main() -> int:
    options = argparse.ArgumentParser(prog="make sanitize")
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--attack", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.attack:
        attack(given.seconds, given.seed)
        return 0
    print(f"seed {given.seed}, {given.seconds:g} seconds", flush=True)
    source = copy_source(ROOT / "build/sanitize")
    build_into(source)
    told = ["--attack", "--seconds", str(given.seconds), "--seed", str(given.seed)]
    for command in (
        ["pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", "-m", "not cluster", "tests/native"],
        ["tests.native.sanitized", *told],
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment(source))
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
