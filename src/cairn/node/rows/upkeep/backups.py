"""The part of one instance in a backup: it holds its writer for a moment, copies, gives pieces.

The order, which is what makes the parts of all masters one moment (`replication/cut.py`):

1. `hold`: a job of the writer opens the copy and does not end. Nothing is written from here on.
2. Whoever asked holds all masters, reads the global tables, and only then comes `release`.
   If nobody comes within `HOLD_S`, writing goes on, and `release` says so: the moment is void.
3. The copy is made from what was kept, slowly (`backup_bytes_per_s`), into a file of its own.
4. `piece` gives that file away; `end`, or a minute in which nobody asks, removes it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cairn.model.backups import (
    ALIVE,
    CopyRequest,
    Held,
    HoldRequest,
    Piece,
    PieceRequest,
    Released,
)
from cairn.model.errors import CairnError, DiskFull, NoMaster, NotInPrerequisiteState
from cairn.model.rpc import Empty
from cairn.node.consensus.global_state import GlobalState
from cairn.node.rows.data_plane import DataPlane
from cairn.node.runtime import spawn
from cairn.storage.files.page_copy import PageCopy

log = logging.getLogger("cairn.backup")

HOLD_S = 1.0  # longer: a lost message stops writers that long; shorter: slow disks never make it
IDLE_S = 60.0
PIECE_BYTES = 256 * 1024  # longer: the event loop is busy with one for longer
BYTES_PER_S = 33_554_432  # unless `backup_bytes_per_s` says otherwise; 0: no limit
SPARE_BYTES = 64 * 1024 * 1024  # that a copy must leave on the disk
FOLDER = "backup"  # in the instance's directory: copies on their way


class _Copy:
    """One copy from the moment it is held until it is given away."""

    def __init__(self, file: Path, now: float) -> None:
        self.file = file
        self.used = now  # when somebody last asked for it
        self.gate = threading.Event()
        self.ended: asyncio.Future[bool] | None = None  # the writer's job
        self.pages: PageCopy | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_ready = self.is_dropped = False
        self.problem: CairnError | None = None


class Backups:
    def __init__(
        self, name: str, state: GlobalState, data: DataPlane, free_bytes: Callable[[], int]
    ) -> None:
        self._name, self._state, self._data = name, state, data
        self._free_bytes = free_bytes
        self._copies: dict[str, _Copy] = {}
        self._folder = data.store.path.parent / FOLDER
        shutil.rmtree(self._folder, ignore_errors=True)  # of an earlier life

    def close(self) -> None:
        """Files stay behind; the next start removes them."""
        for copy in self._copies.values():
            copy.is_dropped = True
            copy.gate.set()

    # --- the moment -------------------------------------------------------------------------------

    async def hold(self, request: HoldRequest) -> Held:
        loop = asyncio.get_running_loop()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._drop(request.copy_id)
        copy = _Copy(self._folder / f"{request.copy_id}.db", loop.time())
        self._copies[request.copy_id] = copy
        answer: asyncio.Future[Held] = loop.create_future()
        copy.ended = asyncio.ensure_future(
            self._data.run(lambda: self._keep(copy, request, loop, answer), alone=True)
        )
        copy.ended.add_done_callback(lambda done: _refused(done, answer))
        try:
            return await answer
        except BaseException:
            self._drop(request.copy_id)
            raise

    def _keep(
        self,
        copy: _Copy,
        request: HoldRequest,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Held],
    ) -> bool:
        """In the writer's thread, alone in its group: all before it is committed."""
        store = self._data.store
        store.check_master()
        if copy.gate.is_set() or store.newest is not store.fence:
            raise NoMaster("the owner of some buckets changes this very moment")
        try:
            self._check_space(request)
            copy.pages = PageCopy(store.path, copy.file, request.after)
        except CairnError:
            raise
        except Exception as problem:  # it must not end the writer
            raise CairnError(f"{self._name} cannot make a copy: {problem}") from problem
        found = Held(
            request.replicaset,
            self._name,
            store.fence.epoch,
            store.fence.owned,
            dict(store.versions),
            copy.pages.stamp,
            copy.pages.is_whole,
        )
        loop.call_soon_threadsafe(_answered, answer, found)
        return copy.gate.wait(HOLD_S)

    def _check_space(self, request: HoldRequest) -> None:
        needed = os.stat(self._data.store.path).st_size + SPARE_BYTES
        if request.after is None and self._free_bytes() < needed:
            raise DiskFull(
                f"{self._name} has no space for a copy of its rows: {needed >> 20} MiB are needed",
                hint="free space where the instance keeps its files",
            )

    async def release(self, request: CopyRequest) -> Released:
        """Writing goes on. Whether it had stopped until now."""
        copy = self._copies.get(request.copy_id)
        if copy is None or copy.ended is None:
            return Released(False)
        copy.gate.set()
        try:
            was_held = await copy.ended
        except CairnError:
            was_held = False
        if not was_held or request.copy_id not in self._copies:
            self._drop(request.copy_id)
            return Released(False)
        copy.task = spawn(self._make(copy), "backup")
        return Released(True)

    async def _make(self, copy: _Copy) -> None:
        """Some pages at a time, at the rate that is set."""
        loop = asyncio.get_running_loop()
        pages = copy.pages
        assert pages is not None
        try:
            is_over = False
            while not is_over and not copy.is_dropped:
                begun, before = loop.time(), pages.copied
                is_over = await asyncio.to_thread(pages.step)
                await asyncio.sleep(self._pause_s(pages.copied - before, loop.time() - begun))
            copy.is_ready = is_over
        except Exception as problem:
            log.warning("the copy for a backup failed: %s", problem)
            copy.problem = CairnError(f"the copy at {self._name} failed: {problem}")
            pages.close()

    def _pause_s(self, count: int, took_s: float) -> float:
        rate = int(self._state.setting("backup_bytes_per_s", BYTES_PER_S))
        return max(count / rate - took_s, 0.0) if rate > 0 else 0.0

    # --- giving it away ---------------------------------------------------------------------------

    async def piece(self, request: PieceRequest) -> Piece:
        copy = self._copies.get(request.copy_id)
        if copy is None or copy.pages is None:
            raise NotInPrerequisiteState("this copy was given up", hint="begin the backup anew")
        loop = asyncio.get_running_loop()
        copy.used = loop.time()
        if copy.problem is not None:
            raise copy.problem
        if request.offset == ALIVE:
            return Piece(b"", copy.pages.copied, copy.pages.total, copy.is_ready)
        if not copy.is_ready:
            await asyncio.sleep(0.05)
            return Piece(b"", copy.pages.copied, copy.pages.total, False)
        data = await asyncio.to_thread(_read, copy.file, request.offset)
        await asyncio.sleep(self._pause_s(len(data), 0.0))
        return Piece(data, copy.pages.total, copy.pages.total, True)

    async def end(self, request: CopyRequest) -> Empty:
        self._drop(request.copy_id)
        return Empty()

    def drop_idle(self) -> None:
        """Who asks no more has gone; what is kept for it would fill the disk."""
        now = asyncio.get_running_loop().time()
        for copy_id, copy in list(self._copies.items()):
            if now - copy.used > IDLE_S and not (copy.task and not copy.task.done()):
                self._drop(copy_id)

    def _drop(self, copy_id: str) -> None:
        copy = self._copies.pop(copy_id, None)
        if copy is None:
            return
        copy.is_dropped = True
        copy.gate.set()
        spawn(_removed(copy), "backup ended")


async def _removed(copy: _Copy) -> None:
    """A step that has begun ends first: it is in a thread, and has the files open."""
    if copy.ended is not None:
        await asyncio.wait((copy.ended,))
    if copy.task is not None:
        await asyncio.wait((copy.task,))
    if copy.pages is not None:
        await asyncio.to_thread(copy.pages.close)
    with suppress(FileNotFoundError):
        copy.file.unlink()


def _answered(answer: asyncio.Future[Held], found: Held) -> None:
    if not answer.done():
        answer.set_result(found)


def _refused(done: asyncio.Future[bool], answer: asyncio.Future[Held]) -> None:
    if not done.cancelled() and (problem := done.exception()) is not None and not answer.done():
        answer.set_exception(problem)


def _read(file: Path, offset: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(PIECE_BYTES)
