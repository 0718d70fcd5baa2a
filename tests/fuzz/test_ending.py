"""`python -m tests.fuzz` that is ended leaves no instance behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import eventually


def is_running(pid: str) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()  # one that nobody has reaped
    except OSError:
        return False


@pytest.mark.cluster
def test_a_fuzz_run_that_is_ended_takes_its_instance_with_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz", "--minutes", "5", "--kind", "http"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    try:
        found = eventually(lambda: list(tmp_path.glob("*/**/cairn.pid")), "its instance")
        pids = eventually(lambda: found[0].read_text().split(), "its pids")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        eventually(lambda: not any(map(is_running, pids)), "they end")
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
