"""`cairn demo` touches nothing that it did not start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cairn.cli.demo.start import _ended
from cairn.cli.demo.stop import end_all, running
from cairn.testing.cluster import _free_ports as base_of  # a demo needs more than one
from tests.cluster.harness import eventually

pytestmark = pytest.mark.cluster


def demo(directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", str(directory), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_demo_is_not_ended_by_another_one_in_its_directory(tmp_path: Path) -> None:
    base = base_of(2)
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


def test_what_was_started_ends_when_the_rest_cannot_be(tmp_path: Path) -> None:
    """The folder of i2 is in the way of i2: i1 must not run on."""
    (tmp_path / "i2").touch()
    base = base_of(2)
    both = ("--instances", "2", "--replication-factor", "1", "--detach")
    found = demo(tmp_path, *both, "--base-port", str(base))
    try:
        assert (found.returncode != 0, "File exists" in found.stderr) == (True, True)
        assert running(tmp_path) == {}
    finally:
        end_all(tmp_path)


@pytest.mark.slow
def test_a_demo_that_was_killed_while_it_started_can_be_stopped(tmp_path: Path) -> None:
    """It had not written down what it started: the instances themselves have."""
    base = base_of(2)
    alone = ("--instances", "1", "--replication-factor", "1", "--detach")
    assert demo(tmp_path, *alone, "--base-port", str(base)).returncode == 0
    try:
        (tmp_path / "demo.json").unlink()
        stopped = demo(tmp_path, "--stop")
        assert (stopped.returncode, stopped.stdout[:10]) == (0, "stopped i1")
        assert demo(tmp_path, "--stop").returncode == 1
    finally:
        end_all(tmp_path)


def test_an_instance_is_known_by_the_lock_it_holds(tmp_path: Path) -> None:
    """Not by its command line, which not every system lets a process write, nor by its pid."""
    (tmp_path / "i1").mkdir()
    work = "import os, sys; held = open(os.environ['LOCK'], 'w'); print('', flush=True); input()"
    for lock, expected in ((tmp_path / "i1" / "lock", True), (tmp_path / "other", False)):
        process = subprocess.Popen(
            [sys.executable, "-c", work],
            env={**os.environ, "LOCK": str(lock)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            (tmp_path / "i1" / "cairn.pid").write_text(f"{process.pid} {process.pid}\n")
            assert running(tmp_path) == ({"i1": process.pid} if expected else {})
        finally:
            process.kill()
            process.communicate()
        assert running(tmp_path) == {}


@pytest.mark.slow
def test_instances_of_a_demo_may_be_killed_and_started_in_turn(tmp_path: Path) -> None:
    """It ended, and ended those that were there again, when each had been killed once."""
    files, said = tmp_path / "files", tmp_path / "said"
    command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", str(files)]
    command += ["--instances", "2", "--replication-factor", "1", "--base-port", str(base_of(2))]
    again: list[subprocess.Popen[bytes]] = []
    with said.open("wb") as out:
        shown = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        eventually(lambda: "Ctrl-C" in said.read_text(), "the demo", 60)
        for name in ("i1", "i2"):
            for pid in (files / name / "cairn.pid").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            eventually(lambda n=name: f"{n} has ended" in said.read_text(), "the word", 30)  # type: ignore[misc]
            if name == "i1":
                words = shlex.split(said.read_text().splitlines()[-1])
                again.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
                eventually(lambda: "i1" in running(files), "i1 again", 30)
        assert shown.poll() is None
        shown.send_signal(signal.SIGINT)
        shown.wait(60)
        told = said.read_text()
        assert ("all instances have ended" in told, "stopping" in told) == (False, True)
        assert running(files) == {}
    finally:
        shown.kill()
        end_all(files)
        for process in again:
            process.wait(30)


def test_who_was_expelled_is_not_asked_to_be_started_again() -> None:
    assert _ended("i1", 5, "cairn run") == "i1 was expelled: it has ended for good"
    assert _ended("i1", -9, "cairn run") == "i1 has ended; to start it again:\n  cairn run"
