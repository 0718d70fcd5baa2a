"""Scan workers: all rows in batches, and several messages in one."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from cairn.client.sync_pool import SyncPool
from cairn.model.settings import limits
from cairn.model.types.values import ColumnType
from cairn.server.scan import worker as scan_worker
from cairn.server.scan.worker import END, FAILED, HEAD, ScanRequest
from cairn.spark import cluster
from cairn.spark.writes.splitting import to_stream

TYPES = (
    ColumnType.INTEGER, ColumnType.STRING, ColumnType.DOUBLE, ColumnType.BOOLEAN,
    ColumnType.UUID, ColumnType.DATETIME,
)  # fmt: skip
NAMES = ("i", "s", "d", "b", "g", "w")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows whose first batch would mislead who guesses types from it: nothing but NULL."""
    path = tmp_path / "data.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE raft_stand_in (x)")
    columns = "b INTEGER, c0 INTEGER, c1 TEXT, c2 REAL, c3 INTEGER, c4 BLOB, c5 INTEGER"
    connection.execute(f"CREATE TABLE t1 ({columns}) STRICT")
    full = [(i, f"ä{i}", i / 2, i % 2, bytes([i % 256] * 16), i * 10**6) for i in range(100)]
    rows = [(1, None, None, None, None, None, None)] * 60_000
    rows += [(2, *row) for row in full]
    connection.executemany("INSERT INTO t1 VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def ask(data: Path, sql: str, *args: Any) -> ScanRequest:
    return ScanRequest(str(data), str(data), sql, args, NAMES, TYPES)


def answer(request: ScanRequest) -> list[tuple[int, bytes]]:
    body = msgspec.msgpack.encode(request)
    out = io.BytesIO()
    scan_worker.serve(io.BytesIO(len(body).to_bytes(4, "little") + body), out)
    found, left = [], out.getvalue()
    while left:
        kind, size = HEAD.unpack(left[: HEAD.size])
        found.append((kind, left[HEAD.size : HEAD.size + size]))
        left = left[HEAD.size + size :]
    return found


def table_of(pieces: list[tuple[int, bytes]]) -> pa.Table:
    assert pieces[-1] == (END, b"")
    return pa.concat_tables(pa.ipc.open_stream(piece).read_all() for _, piece in pieces[:-1])


SQL = "SELECT c0, c1, c2, c3, c4, c5 FROM t1 WHERE b BETWEEN ? AND ?"


def test_all_rows_come_with_their_columns(data: Path) -> None:
    found = table_of(answer(ask(data, SQL, 1, 2)))
    assert found.num_rows == 60_100
    last = found.slice(60_099).to_pylist()[0]
    assert (last["s"], last["d"], last["b"], last["g"][:8]) == ("ä99", 49.5, True, "63636363")


def test_an_empty_answer_has_its_columns(data: Path) -> None:
    found = table_of(answer(ask(data, SQL, 7, 8)))
    assert (found.num_rows, found.column_names) == (0, list(NAMES))


def test_what_goes_wrong_is_told_and_the_worker_stays(data: Path) -> None:
    [(kind, said)] = answer(ask(data / "nowhere", SQL, 1, 2))
    assert kind == FAILED and said


def test_a_worker_ends_with_its_instance() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cairn.server.scan.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0


def test_messages_that_arrive_together_are_all_taken(
    dsn: str, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY")
    copy = cluster.CopyIn(
        dsn, cluster.any_address(dsn), f"COPY {name} (id) FROM STDIN (FORMAT arrow)", 30
    )
    for start in range(0, 3000, 10):
        batch = pa.record_batch([pa.array(range(start, start + 10))], names=["id"])
        copy.send(to_stream(batch))
    assert copy.finish() == 3000
    assert pool.fetch(f"SELECT count(*), sum(id) FROM {name}") == [(3000, 4498500)]


def test_one_stream_of_more_than_a_record_can_hold_is_stored_in_parts(
    dsn: str, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    count = limits.RECORD_BYTES // 1_000 + 10_000
    text = "x" * 1_000
    columns = [pa.array(range(count)), pa.array([text] * count)]
    copy = cluster.CopyIn(
        dsn, cluster.any_address(dsn), f"COPY {name} (id, s) FROM STDIN (FORMAT arrow)", 60
    )
    copy.send(to_stream(pa.record_batch(columns, names=["id", "s"])))
    assert copy.finish() == count
    asked = f"SELECT count(*), sum(id), sum(length(s)) FROM {name}"
    assert pool.fetch(asked) == [(count, count * (count - 1) // 2, count * 1_000)]
