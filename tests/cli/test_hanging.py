"""An instance that hangs without dying is shown, ended and started again; one that waits is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cairn.cli.instance.hanging import Pulse, Standing, Watch
from tests.cluster.harness import Cluster, eventually

ASLEEP = Standing("S", False, 1.0)


def looks(watch: Watch, standing: Standing | None, times: int, since_s: float = 1.0) -> bool:
    """Whether one that stays silent hangs after so many looks."""
    return any(watch.looked(7, 10.0, standing, since_s) for _ in range(times + 1))


def test_silence_past_the_limit_is_a_hang() -> None:
    assert not looks(Watch(), ASLEEP, 10)
    assert looks(Watch(), ASLEEP, 11)


@pytest.mark.parametrize(
    "standing",
    [
        Standing("T", False, 1.0),
        Standing("t", True, 1.0),
        Standing("S", True, 1.0),
        Standing("D", False, 1.0),
        Standing("R", False, 1.0),
        None,
    ],
    ids=["stopped", "traced", "under a debugger", "waits for the disk", "gets no core", "unknown"],
)
def test_one_that_could_not_run_does_not_hang(standing: Standing | None) -> None:
    assert not looks(Watch(), standing, 1000)


def test_a_supervisor_that_stood_still_counts_one_look() -> None:
    watch = Watch()
    assert not looks(watch, ASLEEP, 1, since_s=3600.0)
    assert watch.silent_s == 1.0


def test_one_that_spins_hangs_as_long_as_it_has_a_core() -> None:
    watch = Watch()
    spinning = [watch.looked(7, 10.0, Standing("R", False, at / 2), 1.0) for at in range(22)]
    assert [at for at, hangs in enumerate(spinning) if hangs] == [21]


def test_a_beat_ends_the_silence_and_zero_turns_it_off() -> None:
    watch, pulse = Watch(), Pulse()
    for _ in range(30):
        pulse.beat(3.0)
        assert not watch.looked(*pulse.read(), ASLEEP, 1.0)
        assert not watch.looked(*pulse.read(), ASLEEP, 1.0)
    pulse.beat(0.0)
    assert not any(watch.looked(*pulse.read(), ASLEEP, 1.0) for _ in range(100))


PROGRAM = """
import faulthandler, os, signal, sys, time
from pathlib import Path
from cairn.cli.instance import hanging, supervisor
hanging.LOOK_S = supervisor.LOOK_AT_CHILD_S = 0.05
hanging.LAST_WORDS_S = 0.3
lives = Path(sys.argv[1]) / "lives"

def stand_still():
    while True:
        {how}

def child(tell, lifeline, beat):
    with lives.open("a") as file:
        file.write(".")
    faulthandler.register(signal.SIGQUIT)
    beat(0.4)
    if lives.stat().st_size == 1:
        stand_still()
    for _ in range(20):
        time.sleep(0.05)
        beat(0.4)
    beat(0.0)
    time.sleep(1.0)
    return 0

sys.exit(supervisor.supervise(child, lives.parent))
"""


@pytest.mark.parametrize("how", ["time.sleep(1000)", "pass"], ids=["waits", "spins"])
def test_a_child_that_stands_still_is_shown_ended_and_started_again(
    tmp_path: Path, how: str
) -> None:
    command = [sys.executable, "-c", PROGRAM.replace("{how}", how), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, (tmp_path / "lives").read_text()) == (0, "..")
    lines = ended.stderr.splitlines()
    assert lines[0] == (
        "cairn: the event loop of the instance has stood still for 0.4 s (--hang-timeout): "
        "what its threads do is written below, and it is ended"
    )
    assert "in stand_still" in ended.stderr
    assert lines[-1] == "cairn: the instance crashed (signal 9); it is started again in 0.5 s"


HANGS_WHEN_TOLD = """
import signal, time

def hangs_for_ever(*_):
    time.sleep(100_000)

signal.signal(signal.SIGUSR1, hangs_for_ever)
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_real_instance_that_hangs_comes_back_and_a_stopped_one_is_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(HANGS_WHEN_TOLD)
    cluster = Cluster(tmp_path, "hangs")
    try:
        node = cluster.add("i1")
        cluster.peers = node.peer
        node.start("--hang-timeout", "5", PYTHONPATH=str(tmp_path / "lib"))
        eventually(lambda: node.sql("SELECT 1") == [(1,)], "an instance")
        node.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        eventually(lambda: node.sql("INSERT INTO t VALUES (1) RETURNING id") == [(1,)], "a row")
        first = node.child_pid
        os.kill(first, signal.SIGSTOP)
        time.sleep(8.0)  # a condition that never comes cannot be waited for
        os.kill(first, signal.SIGCONT)
        eventually(lambda: node.sql("SELECT id FROM t") == [(1,)], "the row after the pause")
        assert node.child_pid == first
        os.kill(first, signal.SIGUSR1)
        eventually(lambda: node.child_pid != first, "another child")
        eventually(lambda: node.sql("SELECT id FROM t") == [(1,)], "the row after the hang")
        assert "in hangs_for_ever" in node.log()
        assert node.stop() == 0
    finally:
        cluster.close()
