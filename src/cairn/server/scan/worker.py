"""A process that reads rows for an instance and hands them over as Arrow, or as lines of text.

    python -m cairn.server.scan.worker

Requests come on stdin, batches leave on stdout. Statements that only scan are read from the
file's pages (`scan_columns.py`); of others columns are made in C by the ADBC driver for SQLite,
where it is installed. That driver has an SQLite of its own, and two of them in one process
on one file could break its locks: hence a process, which also leaves the instance's loop alone.
The worker only ever reads, and ends with its instance, whose end of the pipes closes.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from cairn.model.errors import CairnError
from cairn.model.values import ColumnType
from cairn.server.scan.arrow_types import BATCH_ROWS, BatchEncoder
from cairn.server.scan.statement import LinesAsked, Scan

HEAD = struct.Struct("<iI")  # rows or one of the kinds below; bytes that follow
PIPE_BYTES = 1024 * 1024
END, FAILED, CANNOT = -1, -2, -3
#: What may mean something else to a plain SQLite than to ours: functions, LIKE, global tables.
_OURS = re.compile(
    r"\b(?!(?:in|and|or|not|where|between|select|from)\b)\w+\s*\(|\b(?:like|glob|regexp|raft)\b",
    re.IGNORECASE,
)


class ScanRequest(msgspec.Struct, frozen=True):
    """One statement to run in a read transaction of its own."""

    data: str
    raft: str
    sql: str
    args: tuple[Any, ...]
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    lines: LinesAsked | None = None  # text instead of Arrow


class CannotRun(Exception):
    """The statement needs what only the instance has; nothing was read."""


Piece = tuple[int, bytes | memoryview]  # rows and their IPC stream


def batches(request: ScanRequest, encoder: BatchEncoder) -> Iterator[Piece]:
    """(rows, IPC stream) of the answer's pieces."""
    try:
        yield from _by_pages(request, encoder.encode_batch)
        return
    except CannotRun:
        pass
    if not _OURS.search(request.sql):
        driver = _driver()
        if driver is not None:
            yield from _by_driver(*driver, request, encoder)
            return
    yield from _by_cursor(request, encoder)


def _by_pages(request: ScanRequest, encode: Callable[[Any], Iterator[Piece]]) -> Iterator[Piece]:
    scan = Scan.of(request.sql, request.args)
    pages = _pages() if scan is not None else None
    if scan is None or pages is None:
        raise CannotRun("more than a scan, or numpy is missing")
    is_begun = False
    try:
        for batch in pages.columns_of(Path(request.data), scan, request.types):
            yield from encode(batch)
            is_begun = True
    except pages.UnknownFile as problem:
        if is_begun:
            raise
        raise CannotRun(str(problem)) from None


def _lines(request: ScanRequest, asked: LinesAsked) -> Iterator[Piece]:
    """The answer as messages of text; other ways than this one the instance has itself."""
    try:
        module = import_module("cairn.server.scan.lines")
    except ImportError as problem:
        raise CannotRun(str(problem)) from None
    yield from _by_pages(request, module.LinesEncoder(request.types, asked).encode_batch)


def _pages() -> Any:
    """The reader of whole pages, where numpy is installed."""
    try:
        return import_module("cairn.server.scan.columns")
    except ImportError:
        return None


def _driver() -> tuple[Any, Any] | None:
    """ADBC's driver for SQLite and its manager, where they are installed."""
    try:
        return import_module("adbc_driver_sqlite"), import_module("adbc_driver_manager")
    except ImportError:
        return None


def _by_driver(
    driver: Any, adbc: Any, request: ScanRequest, encoder: BatchEncoder
) -> Iterator[Piece]:
    import pyarrow as pa

    with (
        driver.connect(f"file:{request.data}?mode=ro") as database,
        adbc.AdbcConnection(database) as connection,
        adbc.AdbcStatement(connection) as statement,
    ):
        statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
        statement.set_sql_query(f"{_typed_row(request)} UNION ALL SELECT * FROM ({request.sql})")
        if request.args:
            columns = [pa.array([value]) for value in request.args]
            row = pa.record_batch(columns, names=[str(at) for at in range(len(columns))])
            schema, array = row.__arrow_c_array__()
            statement.bind(array, schema)
        stream, _ = statement.execute_query()
        is_first = True
        for batch in pa.RecordBatchReader._import_from_c(stream.address):
            yield from encoder.encode_batch(batch.slice(1) if is_first else batch)
            is_first = False


def _typed_row(request: ScanRequest) -> str:
    """A row in front that is thrown away: the driver guesses types from the first rows it sees."""
    examples = {
        ColumnType.DOUBLE: "0.0", ColumnType.UUID: "x''", ColumnType.DECIMAL: "x''",
        ColumnType.INTEGER: "0", ColumnType.UNSIGNED: "0", ColumnType.BOOLEAN: "0",
        ColumnType.DATETIME: "0", ColumnType.DATE: "0", ColumnType.TIMESTAMP: "0",
        ColumnType.INTERVAL: "x''",
    }  # fmt: skip
    return "SELECT " + ", ".join(
        f"{examples.get(type_, repr(''))} AS c{at}" for at, type_ in enumerate(request.types)
    )


def _by_cursor(request: ScanRequest, encoder: BatchEncoder) -> Iterator[Piece]:
    import apsw

    from cairn.sql.functions import functions
    from cairn.storage.readers import RowReader

    reader = RowReader(Path(request.data), Path(request.raft), functions.register)
    try:
        try:
            cursor = reader.connection.execute(request.sql, request.args)
        except apsw.SQLError as problem:
            raise CannotRun(str(problem)) from None
        while rows := list(islice(cursor, BATCH_ROWS)):
            yield len(rows), encoder.encode(rows)
    finally:
        reader.close()


# --- the pipes ------------------------------------------------------------------------------------


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    decode = msgspec.msgpack.Decoder(ScanRequest).decode
    while head := requests.read(4):
        request = decode(requests.read(int.from_bytes(head, "little")))
        _answer(request, answers)
        answers.flush()


def _answer(request: ScanRequest, answers: BinaryIO) -> None:
    def put(kind: int, data: bytes | memoryview) -> None:
        answers.write(HEAD.pack(kind, len(data)))
        answers.write(data)

    try:
        if request.lines is not None:
            for rows, data in _lines(request, request.lines):
                put(rows, data)
            put(END, b"")
            return
        encoder = BatchEncoder(request.names, request.types)
        is_empty = True
        for rows, data in batches(request, encoder):
            put(rows, data)
            is_empty = False
        if is_empty:
            put(0, encoder.encode(()))  # the columns of an empty answer
        put(END, b"")
    except BrokenPipeError:
        raise
    except CannotRun as problem:
        put(CANNOT, str(problem).encode())
    except CairnError as problem:
        put(FAILED, msgspec.json.encode([problem.sqlstate, str(problem)]))
    except Exception as problem:
        put(FAILED, msgspec.json.encode(["XX000", f"{type(problem).__name__}: {problem}"]))


def main() -> None:
    gc.disable()  # rows come and go in lists that hold no cycles
    with suppress(OSError):  # fewer turns between the two processes
        fcntl.fcntl(sys.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the instance is gone; nothing to tidy up


if __name__ == "__main__":
    main()
