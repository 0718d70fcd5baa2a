"""Opening SQLite files the one way this project trusts: WAL, FULL, checked before use."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import apsw

from cairn.model.errors import StorageDamaged
from cairn.storage.files.checksums import has_checksums, is_damage, require
from cairn.storage.files.log_frames import lost_commits

BUSY_TIMEOUT_MS = 10_000
CHECKPOINT_PAGES = 2000
BULK_CHECKPOINT_PAGES = 16_000  # while commits are large: the next ones touch the same pages again
RESERVED = (CHECKPOINT_PAGES + 500) * (4096 + 24)  # bytes of the log up to its next beginning
WHOLE_BYTES = 64 * 1024 * 1024  # a file of at most so many is read whole before it is used
INSERT_ROWS, INSERT_VALUES = 64, 1024  # that one step of a bulk takes, at most
INSERT_STEPS = 16  # of one block
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


def open_writer(path: Path) -> apsw.Connection:
    """The single writing connection of a file. Every commit is on disk when it returns."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    has = has_checksums(path)
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=500)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        require(connection, has)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        connection.pragma("cache_size", -16_000)
    except (StorageDamaged, apsw.Error) as problem:
        connection.close()
        raise refused(path, problem) from None
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection that only reads; it belongs to the thread that uses it."""
    flags = apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=500)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.pragma("query_only", 1)
    connection.pragma("cache_size", -16_000)
    return connection


class PagesDamaged(StorageDamaged):
    """Some pages have a wrong checksum. Nobody gets what they hold; the others can be read."""


class Unreadable(StorageDamaged):
    """What is on the disk is no file of ours any more. Another try would find the same."""


def check_file(path: Path) -> bool:
    """Refuse a file that is not whole: better no start than wrong data.

    Whether all of it was read. To read a large one would take minutes, in which others wait for
    this instance; the scrub does that afterwards (`node/rows/upkeep/health.py`), and whoever meets
    a damaged page before it notices by its checksum.
    """
    if not path.exists():
        return True
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(100)
    if size == 0:
        wal = log_of(path)
        if not wal.exists() or wal.stat().st_size == 0:
            return True  # created and never written: as good as absent
        raise damaged(path, "the file is empty but its write-ahead log is not")
    if len(header) < 100 or not header.startswith(b"SQLite format 3\x00"):
        raise damaged(path, "not an SQLite file")
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    if page < 512 or size % page:
        raise damaged(path, f"{size} bytes is no whole number of {page}-byte pages")
    is_small = size <= WHOLE_BYTES
    try:
        connection = apsw.Connection(str(path))
        try:
            _check_log(path, page, connection)
            verdict = _look(connection, is_small=is_small)
        finally:
            connection.close()
    except apsw.Error as problem:
        if is_damage(problem):
            found = damaged(path, "the checksum of a page is wrong")
            raise PagesDamaged(found.message, detail=found.detail, hint=found.hint) from None
        raise refused(path, problem) from None
    if verdict != [("ok",)]:
        raise damaged(path, str(verdict[0][0]))
    return is_small


def _look(connection: apsw.Connection, *, is_small: bool) -> list[Any]:
    trees = "SELECT count(*) FROM dbstat"
    if not is_small:
        connection.execute(f"{trees} WHERE name = 'sqlite_schema'").fetchall()
        return [("ok",)]
    verdict = quick_check(connection)
    if verdict != [("ok",)]:  # it does not say why: reading the same pages does
        connection.execute(trees).fetchall()
    return verdict


def _check_log(path: Path, page: int, connection: apsw.Connection) -> None:
    """Before anybody reads: with the last connection the log goes into the file and is deleted."""
    found: list[Any] = connection.execute("PRAGMA wal_checkpoint(NOOP)").fetchall()
    frames = max(found[0][1], 0)  # -1: there is no log
    if lost_commits(log_of(path), page, frames):
        keep_log(connection)
        raise damaged(path, "a frame of its write-ahead log is, and commits behind it are lost")


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def keep_log(connection: apsw.Connection) -> None:
    """When it is closed: somebody may want to look into it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def quick_check(connection: apsw.Connection) -> list[Any]:
    """`[("ok",)]`, or what is wrong with the file. Not with rows: of buckets that come or go they
    may be of a time before a NOT NULL."""
    connection.execute("PRAGMA ignore_check_constraints = ON")
    return connection.execute("PRAGMA quick_check(1)").fetchall()


def refused(path: Path, problem: StorageDamaged | apsw.Error) -> StorageDamaged:
    """Why a file cannot be opened. A disk that is full or does not answer is no damage: the file
    may be whole."""
    if isinstance(problem, StorageDamaged):
        return problem
    if isinstance(problem, _DAMAGED) or is_damage(problem):
        return damaged(path, str(problem))
    return StorageDamaged(
        f"{path.name} cannot be opened: {explained(problem)}",
        detail=str(path),
        hint="look at the disk, at the rights on the file and at the limits of this process",
    )


def damaged(path: Path, why: str) -> Unreadable:
    return Unreadable(
        f"{path.name} is damaged: {why}",
        detail=str(path),
        hint="restore the directory from a copy, or expel this instance, "
        "empty its directory and let it join again under a new name",
    )


def insert_many(
    connection: apsw.Connection,
    sql: str,
    rows: Sequence[Sequence[Any]],
    seen: Callable[[Sequence[Sequence[Any]]], Any] = lambda block: None,
) -> None:
    """Many rows by one `INSERT … VALUES (?, …)`, several to a step.

    SQLite runs without Python's lock meanwhile: the longer a step, the more the other threads get
    done, and each step is looked up, bound and reset at a price of its own. `seen` gets all rows
    in blocks: while a block is in the processor's cache, whatever else is done to it is cheap.
    """
    if not rows:
        return
    width = len(rows[0])
    together = max(1, min(INSERT_ROWS, INSERT_VALUES // width))
    size = together * width
    whole = len(rows) - len(rows) % together

    def steps() -> Iterator[list[Any]]:
        for start in range(0, whole, together * INSERT_STEPS):
            block = rows[start : min(start + together * INSERT_STEPS, whole)]
            seen(block)
            flat = [*chain.from_iterable(block)]
            for at in range(0, len(flat), size):
                yield flat[at : at + size]

    if whole:
        marks = sql[sql.rindex("(") :]
        connection.executemany(sql + f", {marks}" * (together - 1), steps())
    if rest := rows[whole:]:
        seen(rest)
        connection.executemany(sql, rest)


def is_disk_full(problem: BaseException) -> bool:
    if isinstance(problem, OSError):
        return problem.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(problem, apsw.FullError)


def explained(problem: BaseException) -> str:
    """One line for the administrator of an instance that has to stop."""
    if is_disk_full(problem):
        said = problem.strerror if isinstance(problem, OSError) else problem
        return f"no space left for the database ({said}): free space and restart"
    if is_damage(problem):
        return "a page of the file is damaged: its checksum is wrong"
    if isinstance(problem, apsw.IOError):
        return f"the disk refused a write ({problem}): check its space and health, then restart"
    return f"{type(problem).__name__}: {problem}"


def reserve(wal: Path) -> None:
    """Give the write-ahead log its size beforehand, while nobody writes to it.

    A commit that makes a file longer waits for the file system's own journal as well. Zeros behind
    the end are no frames to SQLite, and it writes over them from the first checkpoint on.
    """
    handle = os.open(wal, os.O_RDWR)
    try:
        size = os.fstat(handle).st_size
        if size < RESERVED:
            try:
                os.pwrite(handle, bytes(RESERVED - size), size)
                os.fdatasync(handle)
            except OSError:  # no space: then it grows as long as it can
                os.ftruncate(handle, size)
    finally:
        os.close(handle)


def sync_directory(path: Path) -> None:
    """A file's name is durable only when its directory is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
