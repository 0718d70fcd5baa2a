"""Instances that a nursery forks are what `cairn run` would have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli.instance.many import Born, Nursery, NurseryProblem
from tests.cluster.harness import PASSWORD, eventually, free_ports

pytestmark = pytest.mark.cluster


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "cairn.cli.main", "run", *flags]


def start(nursery: Nursery, directory: Path, *flags: str) -> Born:
    environment = {**os.environ, "CAIRN_ADMIN_PASSWORD": PASSWORD}
    peer, pg = free_ports(2)
    words = command(
        *("--instance-name", "i1", "--instance-dir", str(directory / "i1")),
        *("--listen", f"127.0.0.1:{peer}", "--pg-listen", f"127.0.0.1:{pg}", *flags),
    )
    return nursery.start(words, directory / "cairn.log", environment)


def is_online(directory: Path) -> bool:
    return "i1 is Online" in (directory / "cairn.log").read_text()


def test_it_is_shown_by_its_own_command_and_ends_by_a_signal(
    nursery: Nursery, tmp_path: Path
) -> None:
    born = start(nursery, tmp_path, "--cluster-name", "nursed")
    eventually(lambda: is_online(tmp_path), "Online")
    shown = Path(f"/proc/{born.pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    told = Path(f"/proc/{born.pid}/environ").read_bytes()
    [supervisor, child] = (tmp_path / "i1" / "cairn.pid").read_text().split()
    assert (shown[:6], shown[-2:]) == (
        command("--instance-name", "i1"),
        ["--cluster-name", "nursed"],
    )
    assert (int(supervisor), os.getsid(born.pid), born.poll()) == (born.pid, born.pid, None)
    assert PASSWORD.encode() not in told
    born.send_signal(signal.SIGTERM)
    assert (born.wait(20), born.poll()) == (0, 0)
    assert not Path(f"/proc/{child}").exists()


def test_wrong_flags_end_it_with_their_code_and_words(nursery: Nursery, tmp_path: Path) -> None:
    born = start(nursery, tmp_path, "--teir", "hot")
    assert born.wait(20) == 2
    assert "there is no flag --teir" in (tmp_path / "cairn.log").read_text()


def test_a_crash_of_one_is_told_and_the_others_go_on(nursery: Nursery, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for each in folders:
        each.mkdir()
    one, other = (start(nursery, each) for each in folders)
    try:
        for each in folders:
            eventually(lambda each=each: is_online(each), "Online")  # type: ignore[misc]
        one.kill()
        assert (one.wait(20), other.poll()) == (-signal.SIGKILL, None)
    finally:
        other.send_signal(signal.SIGTERM)
        other.wait(20)


def test_instances_outlive_their_nursery(tmp_path: Path) -> None:
    with Nursery() as nursery:
        born = start(nursery, tmp_path)
        eventually(lambda: is_online(tmp_path), "Online")
    try:
        assert (Path(f"/proc/{born.pid}").exists(), born.poll()) == (True, None)
        with pytest.raises((NurseryProblem, ValueError)):
            start(nursery, tmp_path)
    finally:
        os.kill(born.pid, signal.SIGTERM)
    eventually(lambda: born.poll() is not None, "its end is seen")


def test_nothing_that_it_imports_starts_a_thread_and_little_is_imported_later() -> None:
    """A fork takes one thread along. What a fork imports itself is paid for by each instance."""
    code = (
        "import importlib, os\n"
        "from cairn.cli.instance.nursery import MODULES\n"
        "for name in MODULES: importlib.import_module(name)\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
