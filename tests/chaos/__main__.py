"""A storm by hand: `python -m tests.chaos --blows 200 --mode sync --seed 7 --ledger FILE`."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.chaos.blows import SmallDisks
from tests.chaos.storm import Storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--blows", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="at most so long")
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1_000_000))
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--factor", type=int, default=3, help="members of a replicaset")
    parser.add_argument("--kinds", help="only these blows: kill,isolate,…")
    parser.add_argument("--longest", type=float, default=5.0, help="seconds of a blow")
    parser.add_argument("--ledger", type=Path, help="a line for each storm is added to it")
    asked = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="cairn-chaos-"))
    full_disks = SmallDisks.are_possible()
    print(f"seed {asked.seed}, files in {directory}, full disks: {full_disks}", flush=True)
    begun, failure = time.monotonic(), ""
    storm = Storm(
        directory,
        asked.mode,
        asked.seed,
        size=asked.instances,
        factor=asked.factor,
        full_disks=full_disks,
        longest_s=asked.longest,
    )
    try:
        until = begun + 60 * asked.minutes
        kinds = asked.kinds.split(",") if asked.kinds else None
        storm.run(asked.blows, kinds=kinds, until=until, tell=partial(print, flush=True))
    except AssertionError as problem:
        failure = str(problem)
        print(f"FAILED: {failure}", flush=True)
        _keep_files(storm, directory)
    finally:
        storm.close()
    if asked.ledger is not None:
        line = {
            "mode": asked.mode,
            "seed": asked.seed,
            "blows": dict(storm.done),
            "outcomes": dict(storm.load.outcomes),
            "ways": dict(storm.load.ways),
            "fresh": storm.count_acked(),
            "staged": sum(storm.staged.ended.values()) if storm.staged is not None else 0,
            "seconds": round(time.monotonic() - begun),
            "failure": failure[:2000],
        }
        with asked.ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")
    if not failure:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if failure else 0


def _keep_files(storm: Storm, directory: Path) -> None:
    """Small disks are gone with the storm: what it leaves for people goes beside them."""
    kept = directory / "kept"
    for name in storm.names:
        shutil.copytree(directory / name, kept / name, ignore=shutil.ignore_patterns("ballast"))
    print(f"what the instances left is in {kept}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
