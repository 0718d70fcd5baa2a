"""`make test`: a few tests that failed are run again, alone, and named as unsteady when they pass.

Hundreds of tests start real clusters on two cores. A pause of the machine can break one of them
without a fault in the code, and it can also show a rare fault. So nothing is hidden: an unsteady
test is printed by name at the end, and whoever sees it looks for the cause. More than a few
failures, or one that fails again, fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 5
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def run(arguments: Sequence[str], failed: Path = FAILED) -> int:
    failed.unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*pytest, *arguments], check=False).returncode
    if code != 1:  # 1: all were run, and some failed
        return code
    names = sorted(json.loads(failed.read_text())) if failed.exists() else []
    if not 0 < len(names) <= MOST:
        return code
    print(f"\n{len(names)} failed: run again, alone", flush=True)
    if again := subprocess.run([*pytest, "--timeout=600", *names], check=False).returncode:
        return again
    print("\nUNSTEADY, failed once and passed alone: find out why")
    for name in names:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
