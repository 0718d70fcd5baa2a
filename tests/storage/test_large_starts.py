"""A large file is not read whole before it is used; what is wrong with it is found soon after."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import StorageDamaged
from cairn.storage.files import sqlite
from cairn.storage.files.scrub import PIECE_PAGES, suspects
from cairn.storage.files.sqlite import check_file, open_writer
from tests.storage.rot import flip_page

ROWS = 30_000


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sqlite, "WHOLE_BYTES", 1 << 20)
    path = tmp_path / "data.db"
    connection = open_writer(path)
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT")
    with connection:
        rows = [(key, f"text of {key}" + "." * 100) for key in range(ROWS)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    return path


def bad_pieces(path: Path) -> list[int]:
    """Where pieces begin in which something looks damaged."""
    found, first = [], 1
    while first:
        after, is_bad = suspects(path, first)
        if is_bad:
            found.append(first)
        first = after
    return found


def test_a_large_file_is_used_before_it_is_read(data: Path) -> None:
    pages = data.stat().st_size // 4096
    assert pages > 3 * PIECE_PAGES
    assert check_file(data) is False
    assert bad_pieces(data) == []
    flip_page(data, pages - 5)
    assert check_file(data) is False


def test_a_small_file_is_read_whole_first(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "WHOLE_BYTES", data.stat().st_size)
    assert check_file(data) is True
    flip_page(data, data.stat().st_size // 4096 - 5)
    with pytest.raises(StorageDamaged):
        check_file(data)


@pytest.mark.parametrize("less", range(5))
def test_every_page_is_looked_at_whatever_their_number_is(data: Path, less: int) -> None:
    """SQLite takes some numbers of bytes for one page: pieces must not be of these."""
    connection = apsw.Connection(str(data))
    connection.execute("PRAGMA journal_mode = delete")
    with connection:
        connection.execute("DELETE FROM t WHERE k > ?", (ROWS // 2 - 37 * 4 * less,))
    connection.execute("VACUUM")
    connection.close()
    pages = data.stat().st_size // 4096
    for page in (2, PIECE_PAGES, PIECE_PAGES + 1, pages - 1, pages):
        assert bad_pieces(data) == []
        flip_page(data, page)
        [first] = bad_pieces(data)
        assert first <= page < suspects(data, first)[0] or suspects(data, first)[0] == 0
        flip_page(data, page)


def test_pages_that_are_written_meanwhile_are_not_suspected(data: Path) -> None:
    connection, over = open_writer(data), threading.Event()
    chance = random.Random(1)

    def write() -> None:
        while not over.is_set():
            with connection:
                keys = [(chance.randrange(ROWS),) for _ in range(300)]
                connection.executemany("UPDATE t SET v = v || 'x' WHERE k = ?", keys)
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [bad_pieces(data) for _ in range(10)]
    finally:
        over.set()
        writer.join()
        connection.close()
    assert found == [[]] * 10


def test_a_large_file_whose_end_is_gone_is_refused(data: Path) -> None:
    os.truncate(data, data.stat().st_size - 3 * 4096)
    with pytest.raises(StorageDamaged):
        check_file(data)


def test_a_large_file_that_lost_the_list_of_its_tables_is_refused(data: Path) -> None:
    flip_page(data, 1)
    with pytest.raises(StorageDamaged):
        check_file(data)


def test_pages_that_are_still_in_the_log_are_not_missed(data: Path, tmp_path: Path) -> None:
    connection = open_writer(data)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    with connection:
        rows: list[Any] = [(ROWS + key, "new" * 50) for key in range(ROWS)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    there = tmp_path / "there"
    there.mkdir()
    for name in ("data.db", "data.db-wal"):
        (there / name).write_bytes((tmp_path / name).read_bytes())
    connection.close()
    assert check_file(there / "data.db") is False
