"""Work of one transaction of a file: a group of jobs that is committed, or a look that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import apsw

from cairn.model.errors import CairnError


class Job:
    """One piece of work inside a group; `done` is called on the event loop after the commit."""

    __slots__ = (
        *("done", "is_alone", "is_look", "is_quick", "is_running", "is_urgent", "must_sync"),
        *("result", "run"),
    )

    def __init__(
        self,
        run: Callable[[], Any],
        done: Callable[[Any], None],
        *,
        must_sync: bool = True,
        is_alone: bool = False,
        is_urgent: bool = False,
        is_quick: bool = False,
        is_look: bool = False,
    ) -> None:
        self.run, self.done, self.must_sync = run, done, must_sync
        self.is_look = is_look  # takes back all that it does
        self.is_alone = is_alone  # long work: a transaction of its own, which may be cancelled
        self.is_urgent = is_urgent  # goes ahead of what is queued (fences, promises)
        self.is_quick = is_quick  # touches a few rows by their key: may run on the event loop
        self.is_running = False  # in a thread: what it waits for may be something else than a disk
        self.result: Any = None


class Store(Protocol):
    """What of a file is kept in memory as well."""

    def failed(self) -> None: ...


class _Nothing:
    """A store that keeps nothing in memory."""

    def failed(self) -> None:
        return


def run_group(connection: apsw.Connection, jobs: list[Job], store: Store | None = None) -> None:
    """All jobs in one transaction; on disk when this returns, if any of them must be.

    Work that the log can redo (applying entries) is committed without waiting for the disk:
    the next commit that must be durable takes it along, in order.
    """
    kept = store or _Nothing()
    wanted = "FULL" if any(job.must_sync for job in jobs) else "NORMAL"
    connection.execute(f"PRAGMA synchronous = {wanted}")
    left: list[Job] | None = jobs
    while left:
        left = _run_once(connection, left, kept)


def _run_once(connection: apsw.Connection, jobs: list[Job], store: Store) -> list[Job]:
    """Who has to be run again: the others, when one of them has ended the transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for job in jobs:
            job.is_running = True
            job.result = job.run()
            job.is_running = False
            if not connection.in_transaction:
                store.failed()
                return without_guilty(jobs, job)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        store.failed()
        raise
    return []


def without_guilty(jobs: list[Job], guilty: Job) -> list[Job]:
    """An I/O error takes the whole transaction back: nobody's work is in the file.

    The one that met it has its error; the others know nothing of it and are run once more.
    """
    if not isinstance(guilty.result, CairnError):
        raise TransactionLost("work went on after its transaction had ended")
    return [job for job in jobs if job is not guilty]


class TransactionLost(Exception):
    """Somebody took a failure for a success: nothing may be told to anybody."""


class GroupOf:
    """`run_group` for a store that is told when a group was taken back."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, connection: apsw.Connection, jobs: list[Job]) -> None:
        run_group(connection, jobs, self.store)
