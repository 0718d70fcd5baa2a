"""`cairn demo` touches nothing that it did not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import free_ports

pytestmark = pytest.mark.cluster


def demo(directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", str(directory), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_demo_is_not_ended_by_another_one_in_its_directory(tmp_path: Path) -> None:
    base = free_ports(1)[0] % 20_000 + 20_000
    alone = ("--instances", "1", "--replication-factor", "1", "--detach")
    environment = {key: os.environ.pop(key, None) for key in ("CAIRN_ADMIN_PASSWORD",)}
    try:
        assert demo(tmp_path, *alone, "--base-port", str(base)).returncode == 0
        for port in (base, base + 5):
            second = demo(tmp_path, *alone, "--base-port", str(port))
            told = f"cairn demo: i1 run in {tmp_path} already"
            assert (second.returncode, second.stderr[: len(told)]) == (2, told)
        dsn = f"postgresql://admin:T0psecret1@127.0.0.1:{base}/cairn"
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        stopped = demo(tmp_path, "--stop")
        os.environ.update({key: value for key, value in environment.items() if value is not None})
    assert stopped.stdout.startswith("stopped i1")
