"""Gathered rows: in memory while they are few, in files that have no name when they are many."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from cairn.model.errors import CairnError, LimitExceeded, MotionLimit, QueryCanceled
from cairn.storage.files.pieces import Pieces, Row
from cairn.storage.files.spill import Room, SpillFiles, remove_left
from cairn.storage.merging import Merger
from cairn.storage.temp_store import TempFiles

MIB = 1024 * 1024
COUNTING = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"


@pytest.fixture
def merger(tmp_path: Path) -> Iterator[Merger]:
    raft = tmp_path / "raft.db"
    apsw.Connection(str(raft)).execute("CREATE TABLE t (x)")
    made = Merger(raft, lambda _: None)
    yield made
    made.end()
    made.close()
    assert os.listdir(tmp_path) == ["raft.db"]


def wide(count: int) -> list[Row]:
    return [(at, f"{at * 7919 % count:08}" + "x" * 200) for at in range(count)]


def whole(merger: Merger, sql: str) -> list[Row]:
    merger.start(sql, ())
    found: list[Row] = []
    while True:
        piece = merger.take(64 * 1024)
        found += piece.rows
        if piece.is_last:
            return found


def test_a_limit_of_few_steps_is_told_as_one_wherever_it_is_reached(merger: Merger) -> None:
    """`SET sql_vdbe_opcode_max = 1` ends even the BEGIN of a merge (found by fuzzing)."""
    for steps in range(1, 30):
        with pytest.raises(LimitExceeded, match=f"Limit: {steps}$"):
            merger.begin(threading.Event(), steps, 0)
            merger.table(("",), [(1,), (2,)])
            merger.given(0, 1, [(3,)])
            whole(merger, "SELECT x0 FROM m0 UNION ALL SELECT x0 FROM g0 ORDER BY 1")
        merger.end()


def test_rows_that_do_not_fit_go_to_files_and_come_back_sorted(
    merger: Merger, tmp_path: Path
) -> None:
    merger.begin(threading.Event(), 0, 0)
    merger.table(("", ""), wide(100_000)[:50_000])
    merger.add(wide(100_000)[50_000:])
    found = whole(merger, "SELECT x1, x0 FROM m0 ORDER BY x1")
    assert found == sorted((text, at) for at, text in wide(100_000))
    assert os.listdir(tmp_path) == ["raft.db"]  # nothing is left if the process ends now
    merger.end()
    assert merger.has_spilled


def test_few_rows_stay_in_memory_and_the_next_statement_begins_with_nothing(merger: Merger) -> None:
    for _ in range(2):
        merger.begin(threading.Event(), 0, 1)
        merger.table(("",), [(1,), (2,)])
        merger.table(("",), [(2,), (3,)])
        assert whole(merger, "SELECT m0.x0 FROM m0, m1 WHERE m0.x0 = m1.x0") == [(2,)]
        merger.end()
    assert not merger.has_spilled


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM m0",
        f"{COUNTING} SELECT n, random() AS k FROM r LIMIT 3000000",
    ],
)
def test_a_statement_that_needs_too_large_files_is_told_what_to_do(
    merger: Merger, sql: str
) -> None:
    is_gathered = "m0" in sql
    merger.begin(threading.Event(), 0, 8 * MIB)
    with pytest.raises(CairnError) as caught:
        merger.table(("", ""), wide(200_000) if is_gathered else [])
        whole(merger, sql if is_gathered else f"SELECT * FROM ({sql}) ORDER BY k")
    assert (caught.value.sqlstate, str(caught.value)) == (
        "53400",
        f"the statement needs more than {8 * MIB} bytes of temporary files",
    )
    assert "sql_spill_max_bytes" in str(caught.value.hint)
    merger.end()
    merger.begin(threading.Event(), 0, 8 * MIB)  # the next one has all of it again
    merger.table(("", ""), wide(10_000))
    assert whole(merger, "SELECT count(*) FROM m0") == [(10_000,)]


def test_a_merge_ends_when_it_is_cancelled(merger: Merger) -> None:
    stopped = threading.Event()
    merger.begin(stopped, 0, 0)
    merger.start(f"{COUNTING} SELECT n FROM r", ())
    assert len(merger.take(1000).rows) > 0
    stopped.set()
    with pytest.raises(QueryCanceled):
        merger.take(MIB)


def test_a_file_of_a_process_that_died_is_removed(tmp_path: Path) -> None:
    (tmp_path / "spill-1-1").write_bytes(b"rows")
    (tmp_path / "data.db").write_bytes(b"")
    remove_left(tmp_path)
    assert os.listdir(tmp_path) == ["data.db"]


@pytest.mark.parametrize("seed", range(50))
def test_pieces_hold_each_row_once_and_not_much_more_than_asked(seed: int) -> None:
    chance = random.Random(seed)
    rows: list[Row] = [
        (at, "x" * chance.choice([0, 3, 300, 5_000, 40_000])) for at in range(chance.randrange(400))
    ]
    most = chance.choice([100, 10_000, 100_000])
    pieces = Pieces(iter(rows))
    found: list[Row] = []
    while True:
        piece = pieces.take(most)
        assert msgspec.msgpack.decode(piece.data, type=list[tuple[int, str]]) == piece.rows
        assert len(piece.data) <= 2 * most + 100 or len(piece.rows) == 1
        found += piece.rows
        if piece.is_last:
            break
        assert piece.rows
    assert found == rows


def test_a_limit_on_rows_counts_all_pieces() -> None:
    pieces = Pieces(iter([(at,) for at in range(1000)]), row_max=500)
    with pytest.raises(MotionLimit):
        while not pieces.take(100).is_last:
            pass
    assert Pieces(iter([(1,)] * 500), row_max=500).take(MIB).is_last


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM m0",
        "CREATE TABLE m1 (x0)",
        "SELECT 1; DELETE FROM m0",
        "ATTACH ':memory:' AS other",
        "ROLLBACK",
        "SELECT load_extension('x')",
        "SELECT name FROM sqlite_master",
    ],
)
def test_a_text_of_another_instance_only_reads(merger: Merger, sql: str) -> None:
    merger.begin(threading.Event(), 0, 0)
    merger.table(("",), [(1,)])
    merger.connection.execute("CREATE TABLE m9 (x0)")  # texts of ours are remembered
    with pytest.raises(CairnError) as problem:
        merger.start(sql, (), is_foreign=True)
        merger.take(MIB)
    assert problem.value.sqlstate == "42501"
    merger.start("SELECT x0 FROM m0", (), is_foreign=True)
    assert merger.take(MIB).rows == [(1,)]
    merger.start("DELETE FROM m0", ())  # what is ours may still be done


@pytest.mark.parametrize("kind", [SpillFiles, TempFiles])
def test_temporary_files_leave_the_last_space_of_a_disk_to_rows(
    tmp_path: Path, kind: type[SpillFiles]
) -> None:
    """An instance without space stops; whoever may log in may sort or fill a temporary table."""
    files = kind(tmp_path, Room(tmp_path, share=1.0, most=1 << 62))
    connection = apsw.Connection("", vfs=files.name)
    connection.pragma("cache_size", -100)
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(apsw.FullError):
        connection.execute(f"INSERT INTO t {COUNTING} SELECT randomblob(1000) FROM r LIMIT 10000")
    assert files.is_full
    assert (files.problem().sqlstate, files.bytes) == ("53100", 0)
    connection.close()
    files.unregister()
    room = Room(tmp_path)
    disk = os.statvfs(tmp_path)
    assert not room.is_short(1)
    assert room.is_short(disk.f_bavail * disk.f_frsize)
    assert not room.is_short(1)  # a small one may still find room
