"""A byte that changed by itself is found when it is read, and is never told as a value."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError, StorageDamaged
from cairn.storage.data_db.log_tables import PUT_BASE, PUT_RECORD, open_log, place
from cairn.storage.data_db.row_log import LogReader
from cairn.storage.files.groups import Job
from cairn.storage.files.sqlite import check_file, open_writer
from cairn.storage.files.writer import WriterThread
from cairn.storage.readers import RowReader
from cairn.storage.sqlite_errors import translated
from tests.storage.rot import flip, flip_page

ROWS = 3000


def text_of(key: int) -> str:
    return f"text of {key:06d} " + "." * 60


def written(path: Path) -> Path:
    connection = open_writer(path)
    connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT")
    with connection:
        rows = [(key, text_of(key)) for key in range(ROWS)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "data.db")


@pytest.fixture
def reader(data: Path) -> Any:
    found = RowReader(data, written(data.with_name("raft.db")), lambda _: None)
    yield found
    found.close()


def test_a_changed_byte_is_never_served_and_other_rows_are(data: Path, reader: RowReader) -> None:
    flip(data, text_of(777).encode())
    with pytest.raises(CairnError) as caught:
        reader.quick("SELECT v FROM main.t WHERE k = ?", (777,))
    assert (caught.value.sqlstate, type(caught.value)) == ("XX001", StorageDamaged)
    assert caught.value.hint
    with pytest.raises(CairnError) as caught:
        reader.rows("SELECT v FROM main.t", (), 0, threading.Event())
    assert caught.value.sqlstate == "XX001"
    assert reader.quick("SELECT v FROM main.t WHERE k = ?", (5,)) == [(text_of(5),)]


def test_a_changed_byte_of_a_global_table_is_never_served(data: Path, reader: RowReader) -> None:
    flip(data.with_name("raft.db"), text_of(777).encode())
    with pytest.raises(CairnError) as caught:
        reader.quick("SELECT v FROM raft.t WHERE k = ?", (777,))
    assert caught.value.sqlstate == "XX001"


def test_a_file_with_a_changed_byte_is_noticed_at_the_start(data: Path) -> None:
    flip(data, text_of(777).encode())
    with pytest.raises(StorageDamaged):
        check_file(data)


def test_a_file_of_an_older_version_gets_checksums_at_its_next_start(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    old = apsw.Connection(str(path), vfs="unix")
    old.pragma("journal_mode", "wal")
    old.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT")
    with old:
        rows = [(key, text_of(key)) for key in range(ROWS)]
        old.executemany("INSERT INTO t VALUES (?, ?)", rows)
    old.close()
    new = open_writer(path)
    assert new.execute("SELECT * FROM t").fetchall() == rows
    new.close()
    flip(path, text_of(777).encode())
    with pytest.raises(StorageDamaged):
        check_file(path)


def test_a_log_whose_list_of_origins_has_a_damaged_index_is_read_to_its_end(tmp_path: Path) -> None:
    """Nobody has to do without records that can be found without it."""
    path = tmp_path / "data.db"
    writer = open_writer(path)
    open_log(writer)
    writer.execute(PUT_BASE, ("one", 0))
    writer.execute(PUT_RECORD, (place(1, 1), 1, b"a body"))
    query = "SELECT pageno FROM dbstat WHERE name = 'sqlite_autoindex_origin_1'"
    page = writer.execute(query).fetchone()
    writer.close()
    assert page is not None
    flip_page(path, int(page[0]))
    reader = LogReader(path)
    assert [each.body for each in reader.packed("one", 0, 10, 1000)] == [b"a body"]
    assert (reader.oldest("one"), reader.epoch_at("one", 1)) == (1, 1)
    reader.close()


class Desk:
    """A writer of rows: statements that cannot be done answer with their error."""

    def __init__(self, path: Path) -> None:
        self.connection = open_writer(path)
        self.fatal: list[BaseException] = []
        self.writer = WriterThread(self.connection, "writer", self.fatal.append)

    def put(self, key: int, text: str, *, quick: bool, alone: bool = False) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def run() -> Any:
            try:
                sql = "INSERT INTO t VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
                self.connection.execute(sql, (key, text))
            except apsw.Error as problem:
                return translated(problem)
            return "done"

        self.writer.submit(Job(run, future.set_result, is_quick=quick, is_alone=alone))
        return future


@pytest.mark.parametrize("quick", [True, False])
def test_a_statement_on_a_damaged_page_fails_alone_and_its_group_is_committed(
    data: Path, quick: bool
) -> None:
    flip(data, text_of(777).encode())

    async def play() -> tuple[list[Any], list[Any], list[BaseException]]:
        desk = Desk(data)
        waiting = [
            desk.put(5, "first", quick=quick),
            desk.put(777, "guilty", quick=quick),
            desk.put(1500, "last", quick=quick),
        ]
        async with asyncio.timeout(20):
            told = await asyncio.gather(*waiting)
            told.append(await desk.put(6, "later", quick=quick))
        desk.writer.close()
        sql = "SELECT v FROM t WHERE k IN (5, 6, 1500) ORDER BY k"
        found = [value for (value,) in desk.connection.execute(sql)]
        desk.connection.close()
        return told, found, desk.fatal

    told, found, fatal = asyncio.run(play())
    assert fatal == []
    assert [getattr(each, "sqlstate", each) for each in told] == ["done", "XX001", "done", "done"]
    assert found == ["first", "later", "last"]
