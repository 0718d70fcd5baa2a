"""A write-ahead log that was damaged after its commits were synced is told from a torn one."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from cairn.storage.files.groups import Job
from cairn.storage.files.log_frames import UNSYNCED_MAX
from cairn.storage.files.sqlite import Unreadable, check_file, log_of, open_writer
from cairn.storage.files.writer import WriterThread
from tests.storage.rot import ends, flip_at, start_of

COMMITS = 12


def commit(connection: apsw.Connection, key: int) -> None:
    """Several pages."""
    with connection:
        rows = [(key * 100 + number, "." * 900) for number in range(12)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Files as a kill leaves them: a log that began anew once, with commits of the round before
    behind its end."""
    live, path = tmp_path / "live.db", tmp_path / "data.db"
    connection = open_writer(live)
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT")
    for key in range(COMMITS + 10):
        commit(connection, key)
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    for key in range(100, 100 + COMMITS):
        commit(connection, key)
    shutil.copy(live, path)
    shutil.copy(log_of(live), log_of(path))
    connection.close()
    return path


PLACES: dict[str, Callable[[list[int]], int]] = {
    "the head of the log": lambda last: 18,
    "its sum": lambda last: 26,
    "the first page": lambda last: start_of(1) + 500,
    "the page of a commit": lambda last: start_of(last[3]) + 500,
    "the mark of a commit": lambda last: start_of(last[3]) + 7,
    "the salts of a frame": lambda last: start_of(last[3]) + 9,
    "the sum of a frame": lambda last: start_of(last[3]) + 17,
    "a page in the middle of a commit": lambda last: start_of(last[3] + 2) + 4000,
    "the newest commit that can be judged": lambda last: start_of(last[-6]) + 500,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_byte_that_changed_before_other_commits_is_noticed(place: str, killed: Path) -> None:
    flip_at(log_of(killed), PLACES[place](ends(log_of(killed))))
    before = log_of(killed).read_bytes()
    with pytest.raises(Unreadable, match="write-ahead log"):
        check_file(killed)
    assert log_of(killed).read_bytes() == before  # kept for whoever wants to look into it


def test_a_whole_log_is_taken_into_the_file(killed: Path) -> None:
    check_file(killed)
    assert not log_of(killed).exists()
    connection = open_writer(killed)
    [(count,)] = connection.execute("SELECT count(*) FROM t").fetchall()
    connection.close()
    assert count == (2 * COMMITS + 10) * 12


def test_whatever_a_power_cut_leaves_of_the_last_commits_is_no_damage(killed: Path) -> None:
    """Of `UNSYNCED_MAX` and the one that was being synced, in parts and in any order."""
    whole, file = log_of(killed).read_bytes(), killed.read_bytes()
    last = ends(log_of(killed))
    chance = random.Random(40_001)
    low, high = start_of(last[-UNSYNCED_MAX - 2] + 1), start_of(last[-1] + 1)
    for _ in range(60):
        torn = bytearray(whole)
        for at in range(low // 512 * 512, high, 512):
            if chance.random() < chance.choice([0.03, 0.5]):  # what was there before, or nothing
                here = slice(max(at, low), min(at + 512, high))
                torn[here] = bytes(here.stop - here.start)
        if chance.random() < 0.3:
            del torn[chance.randrange(low, high) :]
        log_of(killed).write_bytes(torn)
        killed.write_bytes(file)
        check_file(killed)


def test_what_was_rolled_back_is_no_damage(tmp_path: Path) -> None:
    """Its frames stay behind the end, with the salts of today."""
    live, path = tmp_path / "live.db", tmp_path / "data.db"
    connection = open_writer(live)
    connection.pragma("cache_size", 10)
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT")
    connection.execute("BEGIN")
    for key in range(40):
        rows = [(key * 100 + number, "." * 900) for number in range(12)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.execute("ROLLBACK")
    for key in range(3):
        commit(connection, key)
    shutil.copy(live, path)
    shutil.copy(log_of(live), log_of(path))
    connection.close()
    assert log_of(path).stat().st_size > start_of(ends(log_of(path))[-1] + 20)
    check_file(path)


def test_few_commits_in_a_row_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Also when one that should has nothing to write: SQLite syncs nothing then."""

    async def script() -> list[str]:
        connection = open_writer(tmp_path / "data.db")
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY)")
        modes: list[str] = []

        def failed(problem: BaseException) -> None:
            raise problem

        writer = WriterThread(connection, "writer", failed)
        for key in range(4 * UNSYNCED_MAX):
            done = asyncio.get_running_loop().create_future()

            def put(key: int = key) -> None:
                connection.execute("INSERT INTO t VALUES (?)", (key,))
                modes.append("waits" if connection.pragma("synchronous") == 2 else "goes on")

            writer.submit(Job(put, done.set_result, must_sync=False))
            await done
            done = asyncio.get_running_loop().create_future()
            writer.submit(Job(lambda: None, done.set_result))  # writes nothing
            await done
        writer.close()
        connection.close()
        return modes

    modes = asyncio.run(script())
    row = ["goes on"] * UNSYNCED_MAX + ["waits"]
    assert modes == (row * 4)[: len(modes)]
