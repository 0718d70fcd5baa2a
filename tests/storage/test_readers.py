"""Reads that would not end, or whose rows would not fit, end with a sentence."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from cairn.model.errors import CairnError, LimitExceeded, MotionLimit, QueryCanceled
from cairn.native.library import library
from cairn.storage.readers import RowCursor, RowReader, TooLongHere

COUNTING = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
MIB = 1024 * 1024


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "data.db", tmp_path / "raft.db"
    for path in found:
        apsw.Connection(str(path)).execute("CREATE TABLE t (x)")
    return found


def never() -> threading.Event:
    return threading.Event()


def test_rows_that_do_not_fit_are_refused_and_the_next_read_goes_on(
    files: tuple[Path, Path],
) -> None:
    reader = RowReader(*files, lambda _: None, answer_bytes=MIB)
    with pytest.raises(LimitExceeded) as caught:
        reader.rows(f"{COUNTING} SELECT n FROM r", (), 0, never())
    assert (caught.value.sqlstate, str(caught.value)) == (
        "54000",
        "the answer is larger than 1 MiB",
    )
    assert reader.rows(f"{COUNTING} SELECT n FROM r LIMIT 3", (), 0, never()) == [(1,), (2,), (3,)]
    reader.close()


def test_as_many_rows_as_are_allowed_are_taken(files: tuple[Path, Path]) -> None:
    reader = RowReader(*files, lambda _: None)
    some = f"{COUNTING} SELECT n FROM r LIMIT 2500"
    assert len(reader.rows(some, (), 2500, never())) == 2500
    with pytest.raises(MotionLimit):
        reader.rows(some, (), 2499, never())
    reader.close()


def test_a_read_that_takes_too_long_for_the_event_loop_says_so(files: tuple[Path, Path]) -> None:
    reader = RowReader(*files, lambda _: None)
    with pytest.raises(TooLongHere):
        reader.briefly(f"{COUNTING} SELECT count(*) FROM r", ())
    assert reader.briefly("SELECT 1", ()) == [(1,)]
    reader.close()


def test_what_cannot_be_ended_in_the_middle_is_not_begun_on_the_event_loop(
    files: tuple[Path, Path],
) -> None:
    reader = RowReader(*files, lambda _: None, heavy=("upper",))
    assert reader.quick("SELECT upper('a')", ()) is None
    assert reader.quick("SELECT lower('a')", ()) == [("a",)]
    assert reader.rows("SELECT upper('a')", (), 0, never()) == [("A",)]
    reader.close()


@pytest.mark.parametrize(
    "text",
    [
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list",
        "SELECT sql FROM sqlite_master",
        "SELECT sql FROM raft.sqlite_master",
        "ATTACH ':memory:' AS x",
        "CREATE TEMP TABLE x (y)",
        "SELECT load_extension('x')",
        "SELECT 1; PRAGMA query_only",
        "INSERT INTO t VALUES (1)",
    ],
)
def test_a_reader_reads_rows_and_nothing_else(files: tuple[Path, Path], text: str) -> None:
    reader = RowReader(*files, lambda _: None)
    for ask in (lambda: reader.quick(text, ()), lambda: reader.rows(text, (), 0, never())):
        with pytest.raises(CairnError) as refused:
            ask()
        assert refused.value.sqlstate == "42501"
    assert reader.quick(f"{COUNTING} SELECT max(n) FROM (SELECT n FROM r LIMIT 5)", ()) == [(5,)]
    reader.close()


def test_a_read_is_judged_when_its_rows_are_those_of_one_moment(files: tuple[Path, Path]) -> None:
    """What is written after the verdict is not seen, however long the read goes on."""
    writer = apsw.Connection(str(files[0]))
    writer.pragma("journal_mode", "wal")
    writer.execute("CREATE TABLE origin (id, uuid); INSERT INTO origin VALUES (1, 1)")
    writer.execute("INSERT INTO t VALUES (1)")
    reader = RowReader(*files, lambda _: None)
    asked = []

    def check() -> None:
        asked.append("judged")
        writer.execute("INSERT INTO t VALUES (2)")

    assert reader.rows("SELECT x FROM t", (), 0, never(), 0, check) == [(1,)]
    assert asked == ["judged"]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_a_read_that_reached_its_limit_leaves_no_transaction_open(
    files: tuple[Path, Path], most: int
) -> None:
    """Else the thread would go on with the rows of that moment."""
    writer = apsw.Connection(str(files[0]))
    writer.execute("CREATE TABLE origin (id, uuid)")
    reader = RowReader(*files, lambda _: None)
    with pytest.raises(LimitExceeded):
        reader.rows(f"{COUNTING} SELECT n FROM r", (), 0, never(), most, lambda: None)
    assert not reader.connection.in_transaction


@pytest.mark.skipif(library() is None, reason="there was no compiler")
def test_groups_are_made_by_a_hash_and_ended_like_any_read(files: tuple[Path, Path]) -> None:
    apsw.Connection(str(files[0])).execute("CREATE TABLE origin (x)")
    reader = RowReader(*files, lambda _: None)

    def rows(plain: str, source: str, stopped: threading.Event) -> list[Any]:
        grouped = f"SELECT packed_groups('ka', n % 3) FROM ({source})"
        grouped = f"SELECT c0, c1 FROM packed_rows(({grouped}), 2)"
        cursor = RowCursor(reader, plain, (), 0, 0, stopped, lambda: None, grouped)
        try:
            return cursor.rows(10)
        finally:
            cursor.end()

    left = "SELECT 'left to SQLite'"
    some = "SELECT 1 AS n UNION ALL SELECT 4 UNION ALL SELECT 5"
    assert rows(left, some, never()) == [(1, 2), (2, 1)]
    assert rows(left, "SELECT 'text' * 1.5 AS n", never()) == [("left to SQLite",)]
    stopped = never()
    threading.Timer(0.05, stopped.set).start()
    with pytest.raises(QueryCanceled):
        rows(left, f"{COUNTING} SELECT n FROM r", stopped)
    reader.close()
