"""The one writer of a file: what it groups, in which order, and what is on disk afterwards."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.storage.files import writer
from cairn.storage.files.groups import Job
from cairn.storage.files.sqlite import CHECKPOINT_PAGES, RESERVED, open_writer, reserve
from cairn.storage.files.writer import WriterThread

Told = list[tuple[str, str]]


class Desk:
    """A writer over a file of its own, and what it told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = open_writer(path)
        self.connection.execute("CREATE TABLE IF NOT EXISTS t (what TEXT, thread TEXT)")
        self.told: list[str] = []
        self.fatal: list[BaseException] = []
        self.writer = WriterThread(self.connection, "writer", self.fatal.append)
        self._moved = asyncio.Event()

    def put(self, what: str, **how: bool) -> None:
        def run() -> str:
            thread = threading.current_thread().name
            self.connection.execute("INSERT INTO t VALUES (?, ?)", (what, thread))
            return what

        self.writer.submit(Job(run, self._done, **how))

    def _done(self, what: str) -> None:
        self.told.append(what)
        self._moved.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.told) < count:
                self._moved.clear()
                await self._moved.wait()

    def rows(self) -> Told:
        reader = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        found: Told = reader.execute("SELECT what, thread FROM t ORDER BY rowid").fetchall()
        reader.close()
        return found


def scene(play: Callable[[Desk], Coroutine[Any, Any, None]], path: Path) -> Desk:
    async def run() -> Desk:
        desk = Desk(path)
        try:
            await play(desk)
        finally:
            desk.writer.close()
        return desk

    return asyncio.run(run())


def test_jobs_are_done_in_order_wherever_they_run(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        for n in range(30):
            desk.put(f"{n}", is_quick=n % 3 != 0, is_alone=n % 7 == 0)
        await desk.until(30)

    desk = scene(play, tmp_path / "x.db")
    order = [str(n) for n in range(30)]
    assert desk.told == order
    assert [what for what, _ in desk.rows()] == order
    by = dict(desk.rows())
    assert (by["1"], by["3"]) == ("MainThread", "writer")


def test_those_who_come_together_share_a_commit(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        for n in range(100):
            desk.put(f"{n}", is_quick=True)
        await desk.until(100)

    desk = scene(play, tmp_path / "x.db")
    assert (desk.writer.jobs, desk.writer.groups) == (100, 1)


def test_an_urgent_job_goes_ahead_of_what_is_queued(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        for what in ("a", "b"):
            desk.put(what, is_quick=True)
        desk.put("fence", is_quick=True, is_urgent=True)
        desk.put("promise", is_urgent=True)
        await desk.until(4)

    assert scene(play, tmp_path / "x.db").told == ["fence", "promise", "a", "b"]


def test_nothing_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        seen: list[int] = []

        def done(_: Any) -> None:
            seen.append(len(desk.rows()))
            desk._done("told")

        for is_quick in (True, False):
            desk.writer.submit(
                Job(
                    lambda: desk.connection.execute("INSERT INTO t VALUES ('x', '')"),
                    done,
                    is_quick=is_quick,
                )
            )
        await desk.until(2)
        assert seen == [1, 2]

    scene(play, tmp_path / "x.db")


@pytest.mark.parametrize("is_quick", [True, False])
def test_an_error_stops_the_writer_for_good(tmp_path: Path, is_quick: bool) -> None:
    async def play(desk: Desk) -> None:
        def broken() -> None:
            raise apsw.FullError("no space")

        desk.put("good", is_quick=is_quick)
        desk.writer.submit(Job(broken, desk._done, is_quick=is_quick))
        async with asyncio.timeout(20):
            while not desk.fatal:
                await asyncio.sleep(0)
        desk.put("late", is_quick=is_quick)
        await asyncio.sleep(0.01)

    desk = scene(play, tmp_path / "x.db")
    assert [type(problem) for problem in desk.fatal] == [apsw.FullError]
    assert desk.told == []


def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        for n in range(5):
            desk.put(f"{n}", is_quick=n < 3)

    assert [what for what, _ in scene(play, tmp_path / "x.db").rows()] == ["0", "1", "2", "3", "4"]


def test_the_log_begins_anew_once_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer, "RESERVE_AFTER_S", 3600.0)  # however slow the machine is

    async def play(desk: Desk) -> None:
        for n in range(300):
            desk.put(f"{n}" * 1000, is_quick=n % 2 == 0)
            await desk.until(n + 1)

    desk = scene(play, tmp_path / "x.db")
    assert len(desk.rows()) == 300
    assert (tmp_path / "x.db-wal").stat().st_size < CHECKPOINT_PAGES * 4096 / 4


def test_a_log_of_reserved_size_is_read_after_a_crash(tmp_path: Path) -> None:
    connection = open_writer(tmp_path / "x.db")
    connection.execute("CREATE TABLE t (a INTEGER)")
    reserve(tmp_path / "x.db-wal")
    assert (tmp_path / "x.db-wal").stat().st_size == RESERVED
    for n in range(20):
        connection.execute("INSERT INTO t VALUES (?)", (n,))
    for name in ("x.db", "x.db-wal"):  # as a killed process leaves them
        shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")
    after = apsw.Connection(str(tmp_path / "killed-x.db"))
    assert after.execute("SELECT count(*), sum(a) FROM t").fetchall() == [(20, 190)]
    assert after.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("somebody_reads", [False, True])
def test_a_disk_that_is_not_quick_is_waited_for_only_while_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, somebody_reads: bool
) -> None:
    monkeypatch.setattr(writer, "QUICK_COMMIT_S", 0.0)  # every disk is slower than that
    monkeypatch.setattr(writer, "PATIENT_COMMIT_S", 60.0)
    monkeypatch.setattr(writer, "SLOW_S", 0.0)
    places: list[str] = []

    async def play(desk: Desk) -> None:
        commit, reads = desk.writer._commit, iter(range(1000))

        def seen(jobs: list[Job]) -> None:
            places.append(threading.current_thread().name)
            commit(jobs)

        desk.writer._commit = seen  # type: ignore[method-assign]
        desk.writer.reads = lambda: next(reads) if somebody_reads else 7
        for n in range(10):
            desk.put(f"{n}", is_quick=True)
            await desk.until(n + 1)

    scene(play, tmp_path / "x.db")
    assert set(places[1:]) == {"writer" if somebody_reads else "MainThread"}


def test_looks_leave_nothing_for_the_disk(tmp_path: Path) -> None:
    """What takes itself back costs no page of the log, unless others are committed with it."""
    pages: list[int] = []

    async def play(desk: Desk) -> None:
        def look() -> str:
            desk.connection.execute("SAVEPOINT look")
            desk.connection.execute("INSERT INTO t VALUES ('seen', '')")
            desk.connection.execute("ROLLBACK TO look")
            desk.connection.execute("RELEASE look")
            return "look"

        desk.put("first", is_quick=True)
        await desk.until(1)
        before = desk.writer._pages
        for count in (2, 3):
            desk.writer.submit(Job(look, desk._done, is_quick=True, is_look=True))
            await desk.until(count)
        pages.append(desk.writer._pages - before)
        desk.writer.submit(Job(look, desk._done, is_quick=True, is_look=True))
        desk.put("second", is_quick=True)
        await desk.until(5)
        pages.append(desk.writer._pages - before)

    desk = scene(play, tmp_path / "t.db")
    assert [what for what, _ in desk.rows()] == ["first", "second"]
    assert pages[0] == 0 and pages[1] > 0


def test_whoever_is_run_again_keeps_its_place(tmp_path: Path) -> None:
    """One job's failure takes the transaction back: the others are run once more, in order."""
    ran: list[str] = []

    async def play(desk: Desk) -> None:
        def job(what: str) -> Callable[[], Any]:
            def run() -> Any:
                ran.append(what)
                if what == "guilty":
                    desk.connection.execute("ROLLBACK")
                    return CairnError("the disk gave an error")
                return what

            return run

        for what in ("first", "second", "guilty"):
            desk.writer.submit(Job(job(what), lambda _: desk._done(""), is_quick=True))
        desk.writer.submit(Job(job("behind"), lambda _: desk._done("")))
        await desk.until(4)

    scene(play, tmp_path / "t.db")
    assert ran == ["first", "second", "guilty", "first", "second", "behind"]


class Replicas:
    """Who confirms what was told so far when asked to, and not before."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._confirmed = desk, 0
        self.answered = 0

    def outstanding(self) -> int:
        return len(self._desk.told) - self._confirmed

    def confirm(self) -> None:
        self.answered = self.outstanding()
        self._confirmed = len(self._desk.told)


def test_replicas_store_one_half_while_the_other_one_is_stored_here(tmp_path: Path) -> None:
    sizes: list[int] = []

    async def play(desk: Desk) -> None:
        desk.writer.others = replicas = Replicas(desk)
        finished = desk.writer._finished

        def told(jobs: list[Job]) -> None:
            sizes.append(len(jobs))
            finished(jobs)

        desk.writer._finished = told  # type: ignore[method-assign]
        for n in range(8):
            desk.put(f"{n}", is_quick=True)
        await desk.until(8)  # half of it, then the rest
        replicas.confirm()
        for n in range(8, 10):  # fewer than were answered: the others are waited for a moment only
            desk.put(f"{n}", is_quick=True)
        await desk.until(10)

    desk = scene(play, tmp_path / "x.db")
    assert sizes == [4, 4, 1, 1]
    assert desk.told == [str(n) for n in range(10)]


def test_whoever_waits_for_nobody_is_stored_in_one_group(tmp_path: Path) -> None:
    async def play(desk: Desk) -> None:
        for n in range(8):
            desk.put(f"{n}", is_quick=True)
        await desk.until(8)

    assert scene(play, tmp_path / "x.db").writer.groups == 1
