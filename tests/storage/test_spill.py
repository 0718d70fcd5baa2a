"""Temporary files: what waits for the disk holds up nobody else."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from cairn.storage.files import spill
from cairn.storage.files.spill import OPEN_EMPTY, SpillFiles

LONG = """WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000)
    SELECT count(*), max(length(v)) FROM (SELECT hex(randomblob(200)) v FROM s ORDER BY 1 LIMIT -1)
"""


@pytest.fixture
def sorter(tmp_path: Path) -> tuple[apsw.Connection, SpillFiles]:
    files = SpillFiles(tmp_path)
    connection = apsw.Connection("", flags=OPEN_EMPTY, vfs=files.name)
    connection.execute("PRAGMA cache_size = -200")
    return connection, files


def test_a_sort_that_waits_for_the_disk_lets_other_threads_run(
    sorter: tuple[apsw.Connection, SpillFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, may_go_on, write = threading.Event(), threading.Event(), os.pwrite

    def slowly(file: int, data: bytes, offset: int) -> int:
        writes.set()
        assert may_go_on.wait(30)  # as a system call does: without the interpreter's lock
        return write(file, data, offset)

    monkeypatch.setattr(spill.os, "pwrite", slowly)
    found: list[object] = []
    sorting = threading.Thread(target=lambda: found.extend(sorter[0].execute(LONG)))
    sorting.start()
    began = writes.wait(30)
    may_go_on.set()
    sorting.join(60)
    assert began, "it was written by other calls than these"
    assert found == [(20000, 400)]


def test_files_are_counted_and_have_no_names(
    sorter: tuple[apsw.Connection, SpillFiles], tmp_path: Path
) -> None:
    connection, files = sorter
    connection.execute("CREATE TABLE t (v)")
    connection.execute("INSERT INTO t SELECT randomblob(1000000) FROM (VALUES (1), (2), (3))")
    assert files.bytes >= 2_000_000
    assert list(tmp_path.iterdir()) == []
    connection.close()
    assert files.bytes == 0


@pytest.mark.parametrize(
    ("code", "told"), [(errno.ENOSPC, apsw.FullError), (errno.EIO, apsw.IOError)]
)
def test_a_disk_that_refuses_ends_the_statement(
    sorter: tuple[apsw.Connection, SpillFiles],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    told: type[Exception],
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, "no")

    with monkeypatch.context() as patched:
        patched.setattr(spill.os, "pwrite", refuse)
        with pytest.raises(told):
            list(sorter[0].execute(LONG))
    assert list(sorter[0].execute(LONG)) == [(20000, 400)]


def test_what_is_written_piece_by_piece_is_whole(
    sorter: tuple[apsw.Connection, SpillFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[..., int] = os.pwrite
    monkeypatch.setattr(spill.os, "pwrite", lambda file, data, at: write(file, data[:1000], at))
    assert list(sorter[0].execute(LONG)) == [(20000, 400)]
