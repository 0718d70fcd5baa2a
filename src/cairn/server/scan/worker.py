"""A process that reads rows for an instance and hands them over as Arrow, or as lines of text.

    python -m cairn.server.scan.worker

Requests come on stdin, batches leave on stdout. Statements that only scan are read from the
file's pages (`columns.py`). Whoever closes a file gives up the locks of its process on it: hence a
process, which also leaves the instance's loop alone.
The worker only ever reads, and ends with its instance, whose end of the pipes closes.
"""

from __future__ import annotations

import fcntl
import gc
import os
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
from cairn.model.types.row_shape import RowShape
from cairn.model.types.values import ColumnType
from cairn.native.library import library
from cairn.server.scan.arrow_types import BATCH_ROWS, BatchEncoder
from cairn.server.scan.statement import LinesAsked, Scan
from cairn.storage.files.sqlite import damaged

HEAD = struct.Struct("<iI")  # rows or one of the kinds below; bytes that follow
PIPE_BYTES = 1024 * 1024
END, FAILED, CANNOT = -1, -2, -3


class ScanRequest(msgspec.Struct, frozen=True):
    """One statement to run in a read transaction of its own."""

    data: str
    raft: str
    sql: str
    args: tuple[Any, ...]
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    lines: LinesAsked | None = None  # text instead of Arrow
    shape: RowShape | None = None  # DataRow messages instead of Arrow
    piece_bytes: int = 0  # about so much of them at a time


class CannotRun(Exception):
    """The statement needs what only the instance has; nothing was read."""


Piece = tuple[int, bytes | memoryview]  # rows and their IPC stream


def batches(request: ScanRequest, encoder: BatchEncoder) -> Iterator[Piece]:
    """(rows, IPC stream) of the answer's pieces."""
    try:
        yield from _by_pages(request, encoder.encode_batch)
    except CannotRun:
        yield from _by_cursor(request, encoder)


def _by_pages(request: ScanRequest, encode: Callable[[Any], Iterator[Piece]]) -> Iterator[Piece]:
    def read(pages: Any, scan: Scan) -> Iterator[Piece]:
        for batch in pages.columns_of(Path(request.data), scan, request.types):
            yield from encode(batch)

    return _of_pages(request, read)


def _of_pages(
    request: ScanRequest, read: Callable[[Any, Scan], Iterator[Piece]]
) -> Iterator[Piece]:
    """What is read from the file's pages; other ways than this one the instance has itself."""
    scan = Scan.of(request.sql, request.args)
    pages = _pages() if scan is not None else None
    if scan is None or pages is None:
        raise CannotRun("more than a scan, or numpy is missing")
    is_begun = False
    try:
        for piece in read(pages, scan):
            yield piece
            is_begun = True
    except pages.UnknownFile as problem:
        if is_begun:  # pages that SQLite can read are all alike
            raise damaged(Path(request.data), str(problem)) from None
        raise CannotRun(str(problem)) from None


def _messages(request: ScanRequest) -> Iterator[Piece]:
    """The answer as messages of a SELECT or lines of a COPY."""
    try:
        if library() is not None:
            writer = import_module("cairn.server.scan.messages_out").writer(request)
            return _of_pages(
                request,
                lambda pages, scan: writer.pieces(pages.records_of(Path(request.data), scan)),
            )
        encoder: Any
        if request.lines is not None:
            module = import_module("cairn.server.scan.lines")
            encoder = module.LinesEncoder(request.types, request.lines)
        else:
            module = import_module("cairn.server.scan.data_rows")
            encoder = module.MessagesEncoder(request.shape, request.piece_bytes)
    except ImportError as problem:
        raise CannotRun(str(problem)) from None
    return _by_pages(request, encoder.encode_batch)


def _pages() -> Any:
    """The reader of whole pages, where numpy is installed."""
    try:
        return import_module("cairn.server.scan.columns")
    except ImportError:
        return None


def _by_cursor(request: ScanRequest, encoder: BatchEncoder) -> Iterator[Piece]:
    import apsw

    from cairn.model.settings import limits
    from cairn.sql.functions import functions
    from cairn.storage.readers import RowReader

    paths = Path(request.data), Path(request.raft)
    reader = RowReader(*paths, functions.register, spill_max=lambda: limits.SPILL_BYTES)
    try:
        reader.may_spill()
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
        if request.lines is not None or request.shape is not None:
            for rows, data in _messages(request):
                put(rows, data)
                answers.flush()
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
