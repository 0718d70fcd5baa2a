"""Time, chance, disk and network, all from one object: real here, virtual under the simulator."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import apsw

from cairn.model.unexpected import owned
from cairn.net.peers import Network, SocketNetwork
from cairn.net.tls import PeerTls
from cairn.storage.files.groups import Job, run_group
from cairn.storage.files.writer import Disk, WriterThread

log = logging.getLogger("cairn")

Group = Callable[[apsw.Connection, list[Job]], None]


class Runtime(Protocol):
    """What an instance takes from the world. Sleeping and tasks come from the running loop."""

    chance: random.Random
    network: Network

    def wall_clock(self) -> datetime: ...

    def boot_clock(self) -> float:
        """Seconds that also pass while the machine is suspended: leases are counted in them."""

    def disk(
        self,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Group = run_group,
    ) -> Disk: ...

    def directory(self) -> Path: ...

    def free_bytes(self) -> int:
        """Space left where the directory is."""

    def uuid(self) -> str: ...


class RealRuntime:
    def __init__(self, directory: Path, listen: str, tls: PeerTls | None = None) -> None:
        self.chance: random.Random = random.SystemRandom()
        self.network: Network = SocketNetwork(listen, tls)
        self._directory = directory

    def wall_clock(self) -> datetime:
        return datetime.now(UTC)

    #: Without a frame of its own: it is read twice for every point read.
    boot_clock = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))

    def disk(
        self,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Group = run_group,
    ) -> Disk:
        return WriterThread(connection, name, on_fatal, group)

    def directory(self) -> Path:
        return self._directory

    def free_bytes(self) -> int:
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize

    def uuid(self) -> str:
        return uuid_from(os.urandom(16))


def uuid_from(random_bytes: bytes) -> str:
    """A version 4 uuid from sixteen random bytes."""
    data = bytearray(random_bytes)
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def timestamp(runtime: Runtime) -> str:
    """RFC 3339 in UTC, to the second, as the documents write it."""
    return runtime.wall_clock().strftime("%Y-%m-%dT%H:%M:%S+00:00")


def spawn(coroutine: object, name: str = "") -> asyncio.Task[None]:
    task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)  # type: ignore[arg-type]
    _tasks.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[None]) -> None:
    """Nobody waits for it: what it did not expect is written down here, and life goes on."""
    _tasks.discard(task)
    if not task.cancelled() and (problem := task.exception()) is not None:
        refusal = owned(problem, task.get_name())
        if refusal is problem:
            log.warning("%s: %s", task.get_name(), refusal)


_tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
