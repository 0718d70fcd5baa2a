"""Time, chance, disk and network of a simulated instance."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

from cairn.net.peers import Network
from cairn.node.runtime import uuid_from
from cairn.sim.cluster.loop import Process, VirtualLoop
from cairn.sim.cluster.wire import SimNetwork, Wire
from cairn.storage.files.groups import Job, run_group
from cairn.storage.files.writer import MAX_GROUP, Disk, Nobody, NoReader, Others, Reader

CHECKPOINT = 4_000_000  # past this, SQLite itself may have synced and moved parts of the log
HUNG_S = 0.1  # how often a disk that hangs is tried
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

#: Told after every committed group of a file, before its jobs are: the file's name, its writer.
Observer = Callable[[str, apsw.Connection], None]
#: Told at moments at which an instance could die; it may be dead afterwards.
Step = Callable[[str], None]
Group = Callable[[apsw.Connection, list[Job]], None]


class SimRuntime:
    """One life of one instance. Its clocks run a little too fast or too slow."""

    def __init__(
        self,
        process: Process,
        wire: Wire,
        directory: Path,
        seed: int,
        observe: Observer = lambda name, connection: None,
        step: Step = lambda what: None,
    ) -> None:
        self.process, self.step = process, step
        self.chance: random.Random = random.Random(seed)
        self.network: Network = SimNetwork(wire, process)
        self._loop, self._directory, self._observe = wire.loop, directory, observe
        self._rate = self.chance.uniform(0.98, 1.02)
        self._boot_s, self._rate_since = 1_000.0, 0.0
        self._ahead_s = self.chance.uniform(-300, 300)
        self.disk_delay_s = self.chance.choice((0.0005, 0.002, 0.01))
        self.disks: list[VirtualDisk] = []
        self.free = 1 << 40

    def wall_clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() + self._ahead_s)

    def boot_clock(self) -> float:
        return self._boot_s + (self._loop.time() - self._rate_since) * self._rate

    def run_at(self, rate: float) -> None:
        """From now on the clock that counts leases runs so fast; it never jumps."""
        self._boot_s, self._rate_since = self.boot_clock(), self._loop.time()
        self._rate = rate

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock on the wall."""
        self._ahead_s += seconds

    def free_bytes(self) -> int:
        return self.free

    def disk(
        self,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Group = run_group,
    ) -> Disk:
        made = VirtualDisk(self, connection, name, on_fatal, group, self._observe)
        self.disks.append(made)
        return made

    def directory(self) -> Path:
        return self._directory

    def uuid(self) -> str:
        return uuid_from(self.chance.randbytes(16))

    @property
    def loop(self) -> VirtualLoop:
        return self._loop


class VirtualDisk:
    """Group commit as `WriterThread` does it: slow, in order, told only after the commit.

    A group becomes durable at some moment of its writing and is told at the end, so a crash can
    find it written and not yet acknowledged. `synced` is the length of the write-ahead log that
    would survive a power cut.
    """

    def __init__(
        self,
        runtime: SimRuntime,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Group,
        observe: Observer,
    ) -> None:
        self._runtime, self._connection, self._name = runtime, connection, name
        self._on_fatal, self._group, self._observe = on_fatal, group, observe
        self._queue: deque[Job] = deque()
        self._urgent = 0
        self._writing: list[Job] = []
        self._is_written = False
        self.is_busy = self._is_closed = False
        self.path = Path(connection.filename)
        self._log = self.path.with_name(f"{self.path.name}-wal")
        self.synced = self._log_size()
        self.is_full = False  # the next group finds no space
        self.is_hung = False  # nothing is written any more, and nobody is told
        self._lengths = [self.synced]  # of the log, after each commit
        self.groups = self.jobs = 0
        self.reads: Callable[[], int] = lambda: 0  # of no interest here: nothing waits on the loop
        self.reader: Reader = NoReader()
        self.others: Others = Nobody()  # likewise

    def submit(self, job: Job) -> None:
        if job.is_urgent:
            self._queue.insert(self._urgent, job)
            self._urgent += 1
        else:
            self._queue.append(job)
        self._begin()

    def standing(self) -> Hashable | None:
        return self.groups if self.is_busy else None

    def close(self) -> None:
        """Finish what is queued, then stop."""
        if self.is_hung:
            self._is_closed = True
        if not self._is_closed:
            self._is_closed = True
            self.reader.writing(self)
            while self._writing or self._queue:
                self._writing = self._writing or self._next_group()
                self._commit()
                self._runtime.loop.call_soon(_deliver, self._writing)
                self._writing, self._is_written = [], False

    def _begin(self) -> None:
        if self.is_busy or self._is_closed or not self._queue:
            return
        self.is_busy = True
        self.reader.writing(self)
        self._writing, self._is_written = self._next_group(), False
        whole = self._runtime.disk_delay_s * self._runtime.chance.uniform(0.5, 2.0)
        loop = self._runtime.loop
        loop.call_later(whole * self._runtime.chance.random(), self._commit)
        loop.call_later(whole, self._tell)

    def _commit(self) -> None:
        if self._is_written or not self._writing or self.is_hung:
            return
        is_synced = any(job.must_sync for job in self._writing)
        how = f"{'synced' if is_synced else 'lazy'} group of the {self._name}"
        self._runtime.step(f"before a {how}")
        if not self._runtime.process.is_alive:
            return
        self._is_written = True
        try:
            if self.is_full:
                self.is_full = False
                raise apsw.FullError("database or disk is full")
            self._group(self._connection, self._writing)
        except BaseException as problem:
            self._writing, self._is_closed = [], True
            self._on_fatal(problem)
            return
        self.groups += 1
        self.jobs += len(self._writing)
        length = self._log_size()
        if is_synced:
            self.synced = length
        self._lengths.append(length)
        self._observe(self._name, self._connection)
        self._runtime.step(f"after a {how}")

    def _tell(self) -> None:
        if self.is_hung:
            self._runtime.loop.call_later(HUNG_S, self._tell)
            return
        self.is_busy = False
        if self._is_closed:
            return
        self._commit()
        if not self._runtime.process.is_alive:
            return
        self.reader.written(self)
        jobs, self._writing = self._writing, []
        _deliver(jobs)
        self._begin()

    def _next_group(self) -> list[Job]:
        jobs: list[Job] = []
        while self._queue and len(jobs) < MAX_GROUP:
            if self._queue[0].is_alone and jobs:
                break
            jobs.append(self._queue.popleft())
            self._urgent = max(self._urgent - 1, 0)
            if jobs[-1].is_alone:
                break
        return jobs

    # --- a power cut ------------------------------------------------------------------------------

    def _log_size(self) -> int:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0

    def forget(self, commits: int) -> None:
        """A disk that lied: the last commits would not outlive a power cut."""
        kept = self._lengths[: max(len(self._lengths) - commits, 1)]
        self.synced = min(self.synced, kept[-1])

    def survivors(self) -> dict[Path, bytes]:
        """The files as a power cut leaves them: what was never synced is gone."""
        found: dict[Path, bytes] = {}
        if self.path.exists():
            found[self.path] = self.path.read_bytes()
        if self._log.exists():
            whole = self._log.read_bytes()
            found[self._log] = whole if len(whole) > CHECKPOINT else whole[: self.synced]
        return found


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job.result)
