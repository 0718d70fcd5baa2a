"""Nobody waits for the long statements of somebody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from cairn.node.statements.owner.fair_threads import FairThreads

FEW, MOST = 2, 4
HOG, ANN, BOB, EVE = range(4)


class Scene:
    """Works that end when they are told to."""

    def __init__(self) -> None:
        self.threads = FairThreads(FEW, MOST, "test")
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}
        self._news = threading.Condition()

    def start(self, whose: int, name: str) -> Future[Any]:
        gate = self._gates[name] = threading.Event()

        def work() -> str:
            with self._news:
                self.begun.append(name)
                self._news.notify_all()
            assert gate.wait(30)
            return name

        return self.threads.submit(whose, work)

    def wait(self, holds: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(holds, 30), self.begun

    def end(self, name: str) -> None:
        self._gates[name].set()

    def close(self) -> None:
        for gate in self._gates.values():
            gate.set()
        self.threads.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_one_user_has_a_few_threads_and_another_does_not_wait_for_them(scene: Scene) -> None:
    for at in range(6):
        scene.start(HOG, f"hog{at}")
    scene.start(ANN, "ann")
    scene.wait(lambda: {"hog0", "hog1", "ann"} == set(scene.begun))


def test_the_next_thread_is_for_who_has_the_fewest(scene: Scene) -> None:
    for at in range(4):
        scene.start(HOG, f"hog{at}")
    for at in range(3):
        scene.start(ANN, f"ann{at}")
    scene.wait(lambda: {"hog0", "hog1", "ann0"} == set(scene.begun))
    scene.end("ann0")  # two run, of the hog, and ann is next although the hog asked before
    scene.wait(lambda: "ann1" in scene.begun)
    assert "hog2" not in scene.begun
    scene.end("hog0")
    scene.end("hog1")  # now each has one at least
    scene.wait(lambda: len(scene.begun) >= 5)
    assert {"ann0", "ann1", "hog0", "hog1"} < set(scene.begun)


def test_there_is_an_end_to_threads_and_to_waiting(scene: Scene) -> None:
    for user in range(MOST):
        scene.start(user, f"first of {user}")
    scene.wait(lambda: len(scene.begun) == MOST)
    late = scene.start(99, "late")
    assert not late.running()
    for user in range(MOST):
        scene.end(f"first of {user}")
    scene.wait(lambda: "late" in scene.begun)
    scene.end("late")
    assert late.result(30) == "late"


def test_what_nobody_waits_for_any_more_is_not_begun(scene: Scene) -> None:
    for at in range(3):
        scene.start(HOG, f"hog{at}")
    taken_back = scene.start(HOG, "taken back")
    after = scene.start(HOG, "after")
    assert taken_back.cancel()
    for name in ("hog0", "hog1", "hog2", "after"):
        scene.end(name)
    assert after.result(30) == "after"
    assert "taken back" not in scene.begun


def test_an_error_is_told_and_leaves_the_thread(scene: Scene) -> None:
    def fails() -> None:
        raise ValueError("told")

    for _ in range(10):
        with pytest.raises(ValueError, match="told"):
            scene.threads.submit(ANN, fails).result(30)
    scene.start(ANN, "next")
    scene.wait(lambda: "next" in scene.begun)
