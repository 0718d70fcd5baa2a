"""The single writer of a file: a thread that commits whatever is queued as one group."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

import apsw

GATHER_S = 0.0005
MAX_GROUP = 512  # statements of one transaction: bounds how long the first one waits


class Job:
    """One piece of work inside a group; `done` is called on the event loop after the commit."""

    __slots__ = ("done", "is_alone", "is_urgent", "must_sync", "result", "run")

    def __init__(
        self,
        run: Callable[[], Any],
        done: Callable[[Any], None],
        *,
        must_sync: bool = True,
        is_alone: bool = False,
        is_urgent: bool = False,
    ) -> None:
        self.run, self.done, self.must_sync = run, done, must_sync
        self.is_alone = is_alone  # long work: a transaction of its own, which may be cancelled
        self.is_urgent = is_urgent  # goes ahead of what is queued (fences, promises)
        self.result: Any = None


class Disk(Protocol):
    """Takes jobs in order. A thread in life, a virtual disk under the simulator."""

    def submit(self, job: Job) -> None: ...

    def close(self) -> None: ...


def run_group(connection: apsw.Connection, jobs: list[Job]) -> None:
    """All jobs in one transaction; on disk when this returns, if any of them must be.

    Work that the log can redo (applying entries) is committed without waiting for the disk:
    the next commit that must be durable takes it along, in order.
    """
    wanted = "FULL" if any(job.must_sync for job in jobs) else "NORMAL"
    connection.execute(f"PRAGMA synchronous = {wanted}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for job in jobs:
            job.result = job.run()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Flusher(Protocol):
    """A store that keeps something back until the group commits."""

    def flush(self) -> None: ...

    def failed(self) -> None: ...


def run_group_of(store: Flusher) -> Callable[[apsw.Connection, list[Job]], None]:
    """`run_group` for a store that writes some things once a group."""

    def group(connection: apsw.Connection, jobs: list[Job]) -> None:
        last = jobs[-1].run

        def run_last() -> Any:
            result = last()
            store.flush()
            return result

        jobs[-1].run = run_last
        try:
            run_group(connection, jobs)
        except BaseException:
            store.failed()
            raise

    return group


class WriterThread:
    """Group commit: while one group is being written, the next one gathers.

    Any error is fatal: a failed fsync must not be tried again (brief 4), so the instance stops
    and reads its files anew.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        name: str,
        on_fatal: Callable[[BaseException], None],
        group: Callable[[apsw.Connection, list[Job]], None] = run_group,
    ) -> None:
        self._connection, self._on_fatal, self._group = connection, on_fatal, group
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Job] = deque()
        self._urgent = 0  # how many jobs at the head of the queue are urgent
        self._wake = threading.Condition()
        self._closed = False
        self.groups = 0
        self.jobs = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        with self._wake:
            if job.is_urgent:
                self._queue.insert(self._urgent, job)
                self._urgent += 1
            else:
                self._queue.append(job)
            self._wake.notify()

    def close(self) -> None:
        """Finish what is queued, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def _let_gather(self, before: int) -> None:
        """Those who were answered together come back together: a moment for the last of them.

        Without it the first to come would be committed alone while the rest wait for the disk.
        """
        deadline = monotonic() + GATHER_S
        while len(self._queue) < before and not self._closed:
            left = deadline - monotonic()
            if left <= 0 or self._urgent:
                return
            self._wake.wait(left)

    def _run(self) -> None:
        jobs: list[Job] = []
        while True:
            with self._wake:
                while not self._queue and not self._closed:
                    self._wake.wait()
                if not self._queue:
                    return
                self._let_gather(len(jobs))
                jobs = self._next_group()
            try:
                self._group(self._connection, jobs)
            except BaseException as problem:
                self._tell(self._on_fatal, problem)
                return
            self.groups += 1
            self.jobs += len(jobs)
            self._tell(_deliver, jobs)

    def _next_group(self) -> list[Job]:
        """Everything queued, but a job that is alone gets a group of its own."""
        jobs: list[Job] = []
        while self._queue and len(jobs) < MAX_GROUP:
            if self._queue[0].is_alone and jobs:
                break
            jobs.append(self._queue.popleft())
            self._urgent = max(self._urgent - 1, 0)
            if jobs[-1].is_alone:
                break
        return jobs

    def _tell(self, function: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            return


def _deliver(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job.result)
