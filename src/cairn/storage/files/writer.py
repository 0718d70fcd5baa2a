"""The single writer of a file: whatever is queued is committed as one group.

Short statements run on the event loop, and so does their commit as long as the disk is quick: two
threads that share one interpreter would wait for each other at every call of SQLite. The commits of
a slow disk, checkpoints and long work are given to a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, Protocol

import apsw

from cairn.model.unexpected import owned
from cairn.storage.files.groups import GroupOf, Job, run_group, without_guilty
from cairn.storage.files.log_frames import UNSYNCED_MAX
from cairn.storage.files.sqlite import BULK_CHECKPOINT_PAGES, CHECKPOINT_PAGES, reserve

GATHER_S = 0.0004
MAX_GROUP = 512  # statements of one transaction: bounds how long the first one waits
RESERVE_AFTER_S = 1.0  # after the start, which should not wait for it
QUICK_COMMIT_S = 0.0005  # a disk that takes no longer may be waited for on the event loop
PATIENT_COMMIT_S = 0.002  # the same as long as nobody reads
SLOW_S = 2.0  # how long the thread commits after a commit that took much longer than that
SLICE = 64  # short statements run in one go: bounds how long the event loop is busy with them


class Reader(Protocol):
    """Told on the event loop before anything is committed to a file, and when it was."""

    def writing(self, disk: Disk) -> None: ...

    def written(self, disk: Disk) -> None: ...


class NoReader:
    def writing(self, disk: Disk) -> None:
        return

    def written(self, disk: Disk) -> None:
        return


class Others(Protocol):
    """Who has to have a statement besides this file before its client is answered."""

    answered: int  # how many clients were, when the last of their confirmations came

    def outstanding(self) -> int | None:
        """How many statements wait for them; None: no statement does."""


class Nobody:
    answered = 0

    def outstanding(self) -> int | None:
        return None


class Disk(Protocol):
    """Takes jobs in order. A thread in life, a virtual disk under the simulator."""

    reads: Callable[[], int]
    reader: Reader
    others: Others

    @property
    def is_busy(self) -> bool:
        """Whether something may be committed that the event loop does not know of yet."""

    def standing(self) -> Hashable | None:
        """What changes as long as the disk takes what is written; None: nothing is."""

    def submit(self, job: Job) -> None: ...

    def close(self) -> None: ...


class WriterThread:
    """Group commit: while one group is on its way to the disk, the next one gathers.

    Everything but the waiting happens on the event loop, so nothing here needs a lock. Any error
    is fatal: a failed fsync must not be tried again, so the instance stops and reads
    its files anew.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Callable[[apsw.Connection, list[Job]], None] = run_group,
    ) -> None:
        self._connection, self._on_fatal, self._group = connection, on_fatal, group
        self._store = group.store if isinstance(group, GroupOf) else None
        self._wal = Path(connection.filename_wal)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Job] = deque()
        self._urgent = 0  # how many jobs at the head of the queue are urgent
        self._open: list[Job] = []  # short jobs whose transaction has begun and waits for more
        self._is_planned = False  # a turn of ours is on the loop's list
        self.is_busy = False  # the thread has the connection
        self._is_over = False
        self._since = 0.0  # when the group that gathers began to
        self._last = 0  # size of the group before
        self._commit_s = 2 * QUICK_COMMIT_S  # what the last commits took, on average
        self._slow_until = 0.0
        self.reads: Callable[[], int] = lambda: 0  # how many the event loop has answered
        self.reader: Reader = NoReader()
        self.others: Others = Nobody()
        self._most = MAX_GROUP  # of the group that is open
        self._read = 0
        self._patience_s = QUICK_COMMIT_S
        self._pages = 0  # of the write-ahead log
        self._added = 0  # by the last commit
        self._is_synced = True  # whether what is being written waits for the disk
        self._unsynced = 0  # commits in a row that did not
        self._is_full = False  # whether SQLite knows that every commit shall be synced
        self.groups = 0
        self.jobs = 0
        self._given = 0  # pieces of work for the thread
        self._in_thread: list[Job] = []
        connection.set_wal_hook(self._on_wal)  # instead of checkpoints inside a commit
        self._work: SimpleQueue[tuple[Callable[[list[Job]], None], list[Job]] | None]
        self._work = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop.call_later(RESERVE_AFTER_S, self._reserve)

    def _reserve(self) -> None:
        if not self._is_over:
            job = Job(lambda: reserve(self._wal), lambda _: None, must_sync=False, is_alone=True)
            self.submit(job)

    def submit(self, job: Job) -> None:
        if job.is_urgent:
            self._queue.insert(self._urgent, job)
            self._urgent += 1
        else:
            self._queue.append(job)
        if not self._is_planned and not self.is_busy:
            self._begin_gathering()

    def standing(self) -> Hashable | None:
        """A thread that has run since the last look goes on; so does work of its own, unless the
        kernel says that it waits for a disk (D)."""
        if not self.is_busy:
            return None
        try:
            task = f"/proc/self/task/{self._thread.native_id}"
            fields = Path(task, "stat").read_text().rpartition(")")[2].split()
            turns = Path(task, "schedstat").read_text()
        except OSError:
            return None
        is_own = any(job.is_running for job in self._in_thread)
        if fields[0] == "R" or (is_own and fields[0] != "D"):
            return None
        return self._given, tuple(fields[7:13]), turns

    def close(self) -> None:
        """Finish what is queued, then stop."""
        self.reader.writing(self)
        if self.is_busy:
            self._work.put(None)
            self._thread.join(timeout=10)
            if self._thread.is_alive():  # a disk that takes nothing: nothing more was promised
                self._is_over = True
                return
        self.is_busy = False
        while (self._open or self._queue) and not self._is_over:
            step, jobs = self._taken()
            try:
                step(jobs)
            except BaseException as problem:
                self._fail(problem)
                return
            self._loop.call_soon(_deliver, jobs)
        self._is_over = True
        self._work.put(None)

    # --- on the loop ----------------------------------------------------------------------------

    def _begin_gathering(self) -> None:
        self._since = monotonic()
        self._plan()

    def _plan(self) -> None:
        self._is_planned = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Run what may run here; give the group to the thread once it is whole."""
        self._is_planned = False
        if self.is_busy or self._is_over:
            return
        queue = self._queue
        try:
            if not self._open:
                self._most = self._share(len(queue))
            for _ in range(SLICE):
                if not queue or not queue[0].is_quick or len(self._open) >= self._most:
                    break
                self._run_here(self._pop())
            if self._may_wait_for_more():
                self._plan()
            elif self._open or queue:
                self._end_group()
        except BaseException as problem:
            self._fail(problem)

    def _share(self, queued: int) -> int:
        """How many of them make the next group.

        Where replicas have to confirm it, half of them as long as the replicas have nothing to do:
        they store that half while we store the other one.
        """
        return MAX_GROUP if self.others.outstanding() != 0 else max(queued // 2, 1)

    def _end_group(self) -> None:
        step, jobs = self._taken()
        self.reader.writing(self)
        if step == self._commit and all(job.is_look for job in jobs):
            # A COMMIT would write and sync a page, though all was taken back.
            self._connection.execute("ROLLBACK")
            self._finished(jobs)
        elif step == self._commit and self._is_disk_quick():
            step(jobs)
            self._finished(jobs)
        else:
            self._give(step, jobs)

    def _give(self, step: Callable[[list[Job]], None], jobs: list[Job]) -> None:
        self.is_busy = True
        self._given += 1
        self._in_thread = jobs
        self._work.put((step, jobs))

    def _is_disk_quick(self) -> bool:
        """Whether waiting here costs less than waking a thread and being woken by it."""
        read, self._read = self._read, self.reads()
        self._patience_s = PATIENT_COMMIT_S if read == self._read else QUICK_COMMIT_S
        return self._commit_s < self._patience_s and monotonic() >= self._slow_until

    def _run_here(self, job: Job) -> None:
        if not self._open:
            if not self._is_full:
                self._connection.execute("PRAGMA synchronous = FULL")
                self._is_full = self._is_synced = True
            self._connection.execute("BEGIN")  # nobody else writes: no lock has to be fought for
        self._open.append(job)
        job.result = job.run()
        if not self._connection.in_transaction:
            self._begin_again(job)

    def _begin_again(self, guilty: Job) -> None:
        """The transaction was taken back: its other jobs go back behind what is urgent."""
        jobs, self._open = without_guilty(self._open, guilty), []
        if self._store is not None:
            self._store.failed()
        for job in reversed(jobs):
            self._queue.insert(self._urgent, job)
        self._loop.call_soon(_deliver, [guilty])

    def _may_wait_for_more(self) -> bool:
        """Those who were answered together come back together: a moment for the last of them.

        Without it the first to come would be committed alone while the rest wait for the disk.
        """
        queue = self._queue
        if self._open and queue:
            return queue[0].is_quick and len(self._open) < self._most
        gathered = len(self._open) + len(queue)
        if self.others.outstanding() is not None:
            self._last = self.others.answered
        return gathered < self._last and not self._urgent and monotonic() - self._since < GATHER_S

    def _taken(self) -> tuple[Callable[[list[Job]], None], list[Job]]:
        """The next group and what remains to be done with it."""
        if not self._open:
            return self._run_group, self._next_group()
        jobs, self._open = self._open, []
        return self._commit, jobs

    def _next_group(self) -> list[Job]:
        """Everything queued, but a job that is alone gets a group of its own."""
        jobs: list[Job] = []
        while self._queue and len(jobs) < MAX_GROUP:
            if self._queue[0].is_alone and jobs:
                break
            jobs.append(self._pop())
            if jobs[-1].is_alone:
                break
        return jobs

    def _pop(self) -> Job:
        self._urgent = max(self._urgent - 1, 0)
        return self._queue.popleft()

    def _finished(self, jobs: list[Job]) -> None:
        self.is_busy = False
        self._in_thread = []
        self.reader.written(self)
        if jobs:
            self.groups += 1
            self.jobs += len(jobs)
            self._last = len(jobs)
        _deliver(jobs)
        if self._is_log_long() and not self.is_busy and not self._open:
            self.reader.writing(self)
            self._give(self._checkpoint, [])
        elif self._queue and not self.is_busy and not self._is_planned:
            self._begin_gathering()

    def _is_log_long(self) -> bool:
        is_bulk = self._added >= CHECKPOINT_PAGES // 4
        return self._pages >= (BULK_CHECKPOINT_PAGES if is_bulk else CHECKPOINT_PAGES)

    def _fail(self, problem: BaseException) -> None:
        self._is_over = True
        self._on_fatal(problem)

    # --- in the thread, or on the loop when the disk is quick -----------------------------------

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            step, jobs = work
            try:
                step(jobs)
            except BaseException as problem:
                self._tell(self._fail, problem)
                return
            self._tell(self._finished, jobs)
            # Not kept until the next work comes: rows of a bulk are dear to free in their order
            # on disk, and whoever made them frees them in the order in which they were made.
            del work, step, jobs

    def _run_group(self, jobs: list[Job]) -> None:
        self._is_full = False
        if self._unsynced >= UNSYNCED_MAX:  # a damaged log is told from a torn one by that
            jobs[0].must_sync = True
        self._is_synced = any(job.must_sync for job in jobs)
        self._group(self._connection, jobs)

    def _commit(self, jobs: list[Job]) -> None:
        begun = monotonic()
        self._connection.execute("COMMIT")
        took = monotonic() - begun
        self._commit_s += (took - self._commit_s) / 8
        if took > 10 * self._patience_s:
            self._slow_until = begun + took + SLOW_S

    def _on_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._added = pages - self._pages if pages > self._pages else pages
        self._pages = pages
        self._unsynced = 0 if self._is_synced else self._unsynced + 1
        return 0

    def _checkpoint(self, jobs: list[Job]) -> None:
        """Move pages from the log to their places, so that it begins anew."""
        self._pages = 0
        self._connection.execute("PRAGMA main.wal_checkpoint(PASSIVE)").fetchall()

    def _tell(self, function: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            return


def _deliver(jobs: list[Job]) -> None:
    """All of them are committed: who cannot take its own answer keeps nobody from theirs."""
    for job in jobs:
        try:
            job.done(job.result)
        except Exception as problem:
            owned(problem, "whoever waited for a commit")
