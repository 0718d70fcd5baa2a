"""A damaged `data.db` is put aside whole; a new one takes its place and waits for a full copy.

Order, so that a crash at any moment is harmless: the note is on disk before anything is moved; the
old file is moved once, and what was put aside before is deleted when it is there; the note goes
only when the new file says of itself that it has no rows. The note keeps what the instance has
promised: rows come from others, promises do not.

What was put aside may be all that is left of some rows. Until the new file has a copy of somebody
else's (`given`), nothing takes its place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.storage.files.sqlite import keep_log, sync_directory

NOTE = "data.db.damaged"
ASIDE = "damaged"  # the directory of what was put aside; the newest only
_NEEDED = "needed"  # in it, as long as nobody has given us the rows
_MARK = "note.json"
_FILES = ("data.db", "data.db-wal", "data.db-shm")


class Note(msgspec.Struct, frozen=True):
    why: str
    promised: int  # epoch
    at: str  # when
    had_rows: bool = True  # False: there were none yet, and nothing is to be copied


class Kept(msgspec.Struct, frozen=True):
    """What goes on in the new file."""

    promised: int
    diverged: list[Any]  # rows of `_cairn_diverged`, as far as they can be read
    had_rows: bool


def leave_note(directory: Path, note: Note) -> None:
    """From here on the next start begins with an empty file."""
    fresh = directory / f"{NOTE}.new"
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(note))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(directory / NOTE)
    sync_directory(directory)


def put_aside(directory: Path) -> Kept | None:
    """At a start, before `data.db` is opened; None: nothing is to be done."""
    try:
        note = msgspec.json.decode((directory / NOTE).read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    aside = directory / ASIDE
    told = msgspec.json.encode(note)
    is_done = (aside / _MARK).exists() and (aside / _MARK).read_bytes() == told
    if is_done or (aside / _NEEDED).exists():  # what is here since then has no rows
        for name in _FILES:
            (directory / name).unlink(missing_ok=True)
    else:
        _move(directory, aside, told)
    sync_directory(directory)
    return Kept(note.promised, _diverged(aside / "data.db"), note.had_rows)


def _move(directory: Path, aside: Path, told: bytes) -> None:
    fresh = directory / f"{ASIDE}.new"  # a start that did not get to its end may have filled it
    fresh.mkdir(mode=0o700, exist_ok=True)
    for name in reversed(_FILES):  # the file itself last: until then all of it is here
        if (directory / name).exists():
            (directory / name).rename(fresh / name)
    (fresh / _MARK).write_bytes(told)
    (fresh / _NEEDED).touch()
    sync_directory(fresh)
    shutil.rmtree(aside, ignore_errors=True)
    fresh.rename(aside)


def finished(directory: Path) -> None:
    (directory / NOTE).unlink(missing_ok=True)
    sync_directory(directory)


def given(directory: Path) -> None:
    """The rows are here again: what was put aside is kept for people, and for the next one."""
    (directory / ASIDE / _NEEDED).unlink(missing_ok=True)


def promised_in(path: Path) -> int:
    """The epoch that a damaged file promised, as far as it can still be read; else 0."""
    found = _read(path, "SELECT value FROM local_state WHERE key = 'promised_epoch'")
    return int(found[0][0]) if found and isinstance(found[0][0], int) else 0


def _diverged(path: Path) -> list[Any]:
    return _read(path, "SELECT * FROM _cairn_diverged")


def _read(path: Path, query: str) -> list[Any]:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        keep_log(connection)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    except apsw.Error:
        return []
