"""`python -m tests.replication.run_mutants [text | 194-284]`: every rule taken out once, and who
noticed; those with the text in their names, or some of the list by their places in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.native import sanitized
from tests.native.building import copy_source
from tests.replication.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


def is_of_c(mutant: Mutant) -> bool:
    return mutant.file.startswith("native/")


def is_caught(mutant: Mutant, source: Path) -> bool | None:
    """Whether the test fails on a copy of the source that lacks the rule; None: it cannot run."""
    path = source / "cairn" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.file} has {mutant.old!r} not once")
    path.write_text(text.replace(mutant.old, mutant.new))
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        if is_of_c(mutant):
            sanitized.build_into(source)
            environment = sanitized.environment(source)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=120", mutant.test],
            cwd=ROOT,
            env=environment,
            capture_output=True,
        )
    finally:
        path.write_text(text)
    if done.returncode not in (0, 1):
        print(done.stdout.decode()[-2000:])
        return None
    return done.returncode == 1


def check_whole(chosen: list[Mutant]) -> None:
    """A test that fails anyway would catch everything."""
    tests = sorted({mutant.test for mutant in chosen})
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT)
    if done.returncode:
        raise SystemExit("these tests must pass on the source as it is")


def chosen_by(words: list[str]) -> list[Mutant]:
    if words and (places := re.fullmatch(r"(\d+)-(\d+)", words[0])):
        first, last = map(int, places.groups())
        return list(MUTANTS[first - 1 : last])
    return [mutant for mutant in MUTANTS if not words or words[0] in mutant.name]


def main() -> int:
    chosen = chosen_by(sys.argv[1:])
    width = max(len(mutant.name) for mutant in chosen)
    escaped = 0
    check_whole(chosen)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        to_build = copy_source(Path(directory) / "c")
        for mutant in chosen:
            begun = time.monotonic()
            caught = is_caught(mutant, to_build if is_of_c(mutant) else source)
            escaped += not caught
            how = {True: "caught", False: "NOT CAUGHT", None: "BROKEN"}[caught]
            took = time.monotonic() - begun
            test = mutant.test.rpartition("::")[2]
            print(
                f"{mutant.rule:9} {mutant.name:{width}} {how:10} {took:5.1f} s  {test}", flush=True
            )
    print(f"{len(chosen) - escaped} of {len(chosen)} caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
