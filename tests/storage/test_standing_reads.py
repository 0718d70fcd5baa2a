"""Quick reads share a transaction between two commits, and nobody can tell by what they see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError
from cairn.storage.files import writer
from cairn.storage.files.groups import Job
from cairn.storage.files.sqlite import open_writer
from cairn.storage.files.writer import WriterThread
from cairn.storage.readers import RowReader

COUNTS = {"data": "SELECT count(*) FROM rows_here", "raft": "SELECT count(*) FROM rows_there"}


class Room:
    """Two files with a writer each, and the reader of an event loop."""

    def __init__(self, directory: Path) -> None:
        self.disks: dict[str, WriterThread] = {}
        self.connections: dict[str, apsw.Connection] = {}
        for name, table in (("data", "rows_here"), ("raft", "rows_there")):
            made = open_writer(directory / f"{name}.db")
            made.execute(f"CREATE TABLE {table} (x)")
            self.connections[name] = made
            self.disks[name] = WriterThread(made, name, self._lost)
        self.reader = RowReader(directory / "data.db", directory / "raft.db", lambda _: None)
        self.reader.stand_between(*self.disks.values())

    def _lost(self, problem: BaseException) -> None:
        raise AssertionError("a writer has failed") from problem

    async def write(self, name: str, wait: threading.Event | None = None, **how: bool) -> None:
        done = asyncio.get_running_loop().create_future()
        table = COUNTS[name].split()[-1]

        def run() -> None:
            if wait is not None:
                wait.wait(20)
            self.connections[name].execute(f"INSERT INTO {table} VALUES (randomblob(900))")

        self.disks[name].submit(Job(run, done.set_result, **how))
        await asyncio.wait_for(done, 20)

    def count(self, name: str) -> int:
        while True:  # on a busy machine even this may seem to take too long
            found = self.reader.quick(COUNTS[name], ())
            if found is not None:
                return int(found[0][0])

    @property
    def stands(self) -> bool:
        return self.reader.connection.in_transaction

    def close(self) -> None:
        self.reader.close()
        for disk in self.disks.values():
            disk.close()


def played(play: Callable[[Room], Coroutine[Any, Any, None]], directory: Path) -> None:
    async def run() -> None:
        room = Room(directory)
        try:
            await play(room)
        finally:
            room.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["data", "raft"])
@pytest.mark.parametrize("is_quick", [True, False])
def test_what_was_written_is_seen_by_the_next_read(
    tmp_path: Path, name: str, is_quick: bool
) -> None:
    async def play(room: Room) -> None:
        for count in range(5):
            assert [room.count(name) for _ in range(3)] == [count] * 3
            assert room.stands
            await room.write(name, is_quick=is_quick)

    played(play, tmp_path)


def test_one_read_between_two_writes_does_not_stand(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        for count in range(3):
            assert room.count("data") == count
            assert not room.stands
            await room.write("data")

    played(play, tmp_path)


def test_while_a_thread_may_commit_each_read_is_of_its_own_moment(tmp_path: Path) -> None:
    """Somebody else may have seen the commit before this event loop hears of it."""

    async def play(room: Room) -> None:
        may_go = threading.Event()
        assert [room.count("data") for _ in range(3)] == [0, 0, 0]
        writing = asyncio.create_task(room.write("data", may_go, is_alone=True))
        while not room.disks["data"].is_busy:
            await asyncio.sleep(0)
        assert [room.count("data") for _ in range(3)] == [0, 0, 0]
        assert not room.stands
        may_go.set()
        while not room.count("data"):  # the loop is not given back: it has not been told yet
            assert not writing.done()
        await writing

    played(play, tmp_path)


def test_the_log_begins_anew_though_somebody_reads_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 40)

    async def play(room: Room) -> None:
        is_over = False

        async def reading() -> None:
            while not is_over:
                room.count("data")
                room.count("data")
                await asyncio.sleep(0)

        reader = asyncio.create_task(reading())
        for _ in range(400):
            await room.write("data", is_quick=True)
        is_over = True
        await reader
        assert room.count("data") == 400
        _, pages, _ = room.connections["data"].execute("PRAGMA wal_checkpoint").fetchone()
        assert pages < 200

    played(play, tmp_path)


def test_a_read_that_fails_leaves_no_moment_behind(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        assert [room.count("data") for _ in range(2)] == [0, 0]
        with pytest.raises(CairnError):
            room.reader.quick("SELECT abs(-9223372036854775807 - 1)", ())
        assert not room.stands
        assert [room.count("data") for _ in range(2)] == [0, 0]

    played(play, tmp_path)
