"""A disk that takes nothing any more is told, and ends its instance; work that goes on is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.node.watching.disks import Disks, Stall
from cairn.storage.files.groups import Job
from cairn.storage.files.writer import WriterThread
from tests.cluster.harness import eventually


class Standing:
    """A disk of which only is told how its work stands."""

    def __init__(self) -> None:
        self.now: Hashable | None = None

    def standing(self) -> Hashable | None:
        return self.now


def watched(limit_s: float) -> tuple[Standing, Disks, list[str]]:
    disk, ended = Standing(), list[str]()
    disks: Any = {"data.db": disk}
    return disk, Disks("i1", disks, limit_s, lambda problem: ended.append(str(problem))), ended


def test_time_counts_while_nothing_changes_and_we_were_awake() -> None:
    stall = Stall()
    said = [stall.looked(at, 1.0) for at in (None, 1, 1, 1, 2, 2, None, None)]
    assert said == [0.0, 0.0, 1.0, 2.0, 0.0, 1.0, 0.0, 0.0]
    stall.looked(1, 1.0)
    assert stall.looked(1, 3600.0) == 1.0


def test_a_stalled_disk_is_told_after_a_while_and_then_ends_the_instance() -> None:
    disk, disks, ended = watched(60.0)
    disk.now = "fsync"
    for _ in range(6):
        disks._look(1.0)
    assert (disks.problems(), ended) == (["i1: the disk of data.db has taken nothing for 5 s"], [])
    for _ in range(15):
        disks._look(1.0)
    assert ended == ["i1: the disk of data.db has taken nothing for 20 s"]
    disk.now = "the next one"
    disks._look(1.0)
    assert disks.problems() == []


@pytest.mark.parametrize(("limit_s", "count"), [(0.0, 0), (8.0, 1)])
def test_hang_timeout_is_its_limit(limit_s: float, count: int) -> None:
    disk, disks, ended = watched(limit_s)
    disk.now = "fsync"
    for _ in range(9):
        disks._look(1.0)
    assert len(ended) == count


async def stands(disk: WriterThread) -> Hashable | None:
    """What it says when it has said the same twice in a row, or that nothing is under way."""
    said = [disk.standing()]
    for _ in range(2000):
        await asyncio.sleep(0.01)
        said.append(disk.standing())
        if len(said) > 20 and len(set(said[-20:])) == 1:
            return said[-1]
    raise AssertionError(said[-5:])


def test_a_thread_that_waits_in_its_commit_stands_and_one_that_waits_in_its_work_does_not(
    tmp_path: Path,
) -> None:
    held, waiting = threading.Event(), threading.Event()

    def wait(*_: Any) -> bool:
        waiting.set()
        return not held.wait(60.0)  # whatever the kernel would wait for

    async def script() -> None:
        connection = apsw.Connection(str(tmp_path / "data.db"))
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE t (a)")
        disk = WriterThread(connection, "writer", lambda problem: None)
        done: list[Any] = []
        assert disk.standing() is None
        disk.submit(Job(wait, done.append))
        await asyncio.to_thread(waiting.wait, 60.0)
        assert await stands(disk) is None
        held.set()
        await asyncio.to_thread(eventually, lambda: done, "the work")
        held.clear()
        waiting.clear()
        connection.set_commit_hook(wait)
        disk.submit(Job(lambda: connection.execute("INSERT INTO t VALUES (1)"), done.append))
        await asyncio.to_thread(waiting.wait, 60.0)
        assert await stands(disk) is not None
        held.set()
        await asyncio.to_thread(eventually, lambda: len(done) == 2, "the commit")
        disk.close()

    asyncio.run(script())
