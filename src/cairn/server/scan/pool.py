"""Scan workers of an instance: started when many rows are first asked for, kept for a while.

A worker serves one COPY at a time. A COPY that ends early (the client is gone, or cancels) ends
its worker too: a process is the one thing that can always be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from cairn.model.errors import CairnError, QueryCanceled, StorageDamaged
from cairn.model.rpc import ReadRequest
from cairn.model.types.row_shape import RowShape
from cairn.server.caller import Caller
from cairn.server.face import PgFace
from cairn.server.scan.statement import LinesAsked
from cairn.server.scan.worker import CANNOT, END, FAILED, HEAD, ScanRequest
from cairn.sql import plans
from cairn.storage.files.checksums import page_damaged

log = logging.getLogger("cairn.scan")

COMMAND = (sys.executable, "-m", "cairn.server.scan.worker")
KEPT = 4  # idle workers
MOST = max(8, 2 * (os.cpu_count() or 1))  # at work for one instance; each takes some 100 MB
IDLE_S = 60.0
PIECE_BYTES = 256 * 1024  # of rows in binary
BUFFER = 1024 * 1024  # read ahead of a slow client; more is moved about in memory all the time
_idle: WeakKeyDictionary[PgFace, list[Worker]] = WeakKeyDictionary()
_all: WeakKeyDictionary[PgFace, list[Worker]] = WeakKeyDictionary()


class Worker:
    """One process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ending: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls) -> Worker:
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, limit=BUFFER)
        )

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def ask(self, request: ScanRequest) -> None:
        if self._ending is not None:
            self._ending.cancel()
        assert self._process.stdin is not None
        data = msgspec.msgpack.encode(request)
        self._process.stdin.write(len(data).to_bytes(4, "little") + data)

    async def next(self) -> tuple[int, bytes]:
        assert self._process.stdout is not None
        try:
            head = await self._process.stdout.readexactly(HEAD.size)
            kind, size = HEAD.unpack(head)
            return kind, await self._process.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise CairnError("the scan worker ended; see the instance's log") from None

    def end_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(IDLE_S, self.end)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


async def scan(
    caller: Caller,
    request: ReadRequest,
    columns: Sequence[plans.OutColumn],
    asked: LinesAsked | RowShape | None = None,
) -> AsyncIterator[tuple[int, bytes]] | None:
    """(rows, bytes) of the request's pieces; None: the instance has to read them itself."""
    face = caller.face
    still = caller.execution.reads.still(request)
    worker = await taken(face)
    if worker is None:
        return None
    instance, idle = face.instance, _idle[face]
    worker.ask(
        ScanRequest(
            str(instance.data.store.path),
            str(instance.store.path),
            request.sql,
            tuple(request.args),
            tuple(each.name for each in columns),
            tuple(each.type for each in columns),
            asked if isinstance(asked, LinesAsked) else None,
            asked if isinstance(asked, RowShape) else None,
            PIECE_BYTES,
        )
    )
    first = await _next(worker, caller)
    if first[0] == CANNOT:
        _keep(idle, worker)
        return None
    try:
        epoch = still()  # its moment was between the two
    except BaseException:
        worker.end()
        raise
    return _pieces(caller, request, epoch, worker, first, idle)


def has_idle(face: PgFace) -> bool:
    return any(each.is_alive for each in _idle.get(face, ()))


async def taken(face: PgFace) -> Worker | None:
    """A worker for one statement; None: too many are at work, or none can be started."""
    idle, every = _idle.setdefault(face, []), _all.setdefault(face, [])
    worker = next((each for each in idle if each.is_alive), None)
    idle[:] = [each for each in idle if each is not worker and each.is_alive]
    if worker is not None:
        return worker
    every[:] = [each for each in every if each.is_alive]
    if len(every) >= MOST:
        return None
    try:
        worker = await Worker.start()
    except OSError as problem:
        log.warning("no scan worker: %s", problem)
        return None
    every.append(worker)
    return worker


def given_back(face: PgFace, worker: Worker) -> None:
    """It has told its answer to the end."""
    _keep(_idle.setdefault(face, []), worker)


def failure(data: bytes) -> CairnError:
    """What a worker says of its failure."""
    sqlstate, message = msgspec.json.decode(data, type=tuple[str, str])
    if sqlstate == StorageDamaged.sqlstate:
        return page_damaged(message)
    return CairnError(message, sqlstate=sqlstate)


async def _pieces(
    caller: Caller,
    request: ReadRequest,
    epoch: int,
    worker: Worker,
    piece: tuple[int, bytes],
    idle: list[Worker],
) -> AsyncIterator[tuple[int, bytes]]:
    is_over = False
    try:
        while piece[0] >= 0:
            yield piece
            piece = await _next(worker, caller)
        is_over = True
        if piece[0] == FAILED:
            raise failure(piece[1])
        assert piece[0] == END
        # Only now the rows are one.
        await caller.execution.reads.check_told(request, epoch)
    finally:
        if is_over:
            _keep(idle, worker)
        else:
            worker.end()


async def _next(worker: Worker, caller: Caller) -> tuple[int, bytes]:
    """The next piece, unless the client cancels or goes."""
    task: asyncio.Task[Any] = asyncio.ensure_future(worker.next())
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.5)
            if caller.context.cancelled.is_set():
                raise QueryCanceled("canceling statement due to user request")
    except BaseException:
        task.cancel()
        worker.end()
        raise
    found: tuple[int, bytes] = task.result()
    return found


def _keep(idle: list[Worker], worker: Worker) -> None:
    if len(idle) >= KEPT:
        worker.end()
        return
    idle.append(worker)
    worker.end_later()
