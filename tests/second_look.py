"""`make test`: a few tests that failed are run again, alone, and named as unsteady when they pass.

Hundreds of tests start real clusters on two cores. A pause of the machine can break one of them
without a fault in the code, and it can also show a rare fault. So nothing is hidden: an unsteady
test is printed by name at the end, and whoever sees it looks for the cause. More than a few
failures, or one that fails again, fail the run.

The files of the first run lie in memory where there is enough of it: commits of clusters wait for
no disk then. Who is killed finds all that it wrote in either place, and power cuts are the
simulator's. `make test-all` and the second look use the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST = 5
MEMORY = Path("/dev/shm")
ENOUGH_KB = 8 << 20  # of memory that nobody uses: a run of all tests was seen to need two GB
NOTE = "CAIRN_FAILED_TESTS"  # where the first run writes the names of those that failed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """As a plugin of the first run."""
    if path := os.environ.get(NOTE):
        reports = (terminalreporter.stats.get(kind, ()) for kind in ("failed", "error"))
        names = sorted({report.nodeid for kind in reports for report in kind})
        Path(path).write_text(json.dumps(names))


def quick_folder() -> Path | None:
    try:
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        is_enough = int(facts["MemAvailable"].split()[0]) > ENOUGH_KB
        is_room = shutil.disk_usage(MEMORY).free > ENOUGH_KB << 10
    except (OSError, KeyError, ValueError):
        return None
    return MEMORY if is_enough and is_room else None


def run(arguments: Sequence[str]) -> int:
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        note, files = Path(folder) / "failed.json", Path(folder) / "t"
        first = [*pytest, "-p", "tests.second_look", "--basetemp", str(files)]
        first += ["-o", "tmp_path_retention_policy=failed", *arguments]
        code = subprocess.run(first, env=os.environ | {NOTE: str(note)}, check=False).returncode
        names = json.loads(note.read_text()) if note.exists() else []
        if names:
            keep_logs(files, Path(tempfile.mkdtemp(prefix="cairn-tests-")))
    if code != 1 or not 0 < len(names) <= MOST:  # 1: all were run, and some failed
        return code
    print(f"\n{len(names)} failed: run again, alone", flush=True)
    if again := subprocess.run([*pytest, "--timeout=600", *names], check=False).returncode:
        return again
    print("\nUNSTEADY, failed once and passed alone: find out why")
    for name in names:
        print(f"  {name}")
    return 0


def keep_logs(files: Path, to: Path) -> None:
    for log in files.rglob("*.log"):
        place = to / log.relative_to(files)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, place)
    print(f"\nthe logs of clusters: {to}", flush=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
