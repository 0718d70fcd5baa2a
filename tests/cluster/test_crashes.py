"""An instance that crashes is started again by its supervisor, which says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli.instance import supervisor
from tests.cluster.harness import Cluster, Node, eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    cluster = Cluster(tmp_path, "crashes").start("i1")
    try:
        yield cluster["i1"]
    finally:
        cluster.close()


def test_a_crashed_instance_comes_back_with_its_rows(node: Node) -> None:
    node.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    eventually(lambda: node.sql("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING") == [], "a row")
    for number in (signal.SIGSEGV, signal.SIGKILL):
        before = node.child_pid
        os.kill(before, number)
        eventually(lambda was=before: node.child_pid != was, "another child")  # type: ignore[misc]
        eventually(lambda: node.sql("SELECT id FROM t") == [(1,)], "the row")
        said = f"the instance crashed (signal {int(number)}); it is started again in"
        assert said in (node.dir / "cairn.log").read_text()
    assert node.stop() == 0  # and whoever tells it to end is obeyed


def test_one_that_is_told_to_end_while_it_waits_is_not_started_again(node: Node) -> None:
    """The pause before the third start is two seconds."""
    for _ in range(2):
        before = node.child_pid
        os.kill(before, signal.SIGKILL)
        eventually(lambda was=before: node.child_pid != was, "another child")  # type: ignore[misc]
    os.kill(node.child_pid, signal.SIGKILL)
    eventually(
        lambda: (node.dir / "cairn.log").read_text().count("is started again") == 3, "the pause"
    )
    assert node.stop() == 128 + signal.SIGKILL


def test_pauses_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[float] = []
    lives: list[int] = []

    def paused(code: int, crashes: int, signals: list[int]) -> bool:
        first, longest = supervisor.PAUSES_S
        told.append(min(first * 2 ** (crashes - 1), longest))
        return True

    def once(child: object, directory: Path, heard: list[int]) -> tuple[int, list[object]]:
        lives.append(1)
        return supervisor.CRASHED, []

    monkeypatch.setattr(supervisor, "_paused", paused)
    monkeypatch.setattr(supervisor, "_run_once", once)
    assert supervisor._supervise(lambda tell, lifeline, beat: 0, tmp_path) == supervisor.CRASHED
    assert told == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert len(lives) == supervisor.MAX_CRASHES + 1
