"""A damaged `data.db` is put aside whole; a new one takes its place and waits for a full copy.

Order, so that a crash at any moment is harmless: the note is on disk before anything is moved; the
old file is moved once; the note goes only when the new file says of itself that it has no rows.
The note keeps what the instance has promised: rows come from others, promises do not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.storage.files.sqlite import sync_directory

NOTE = "data.db.damaged"
ASIDE = "damaged"  # the directory of what was put aside; the newest only
_FILES = ("data.db", "data.db-wal", "data.db-shm")


class Note(msgspec.Struct, frozen=True):
    why: str
    promised: int  # epoch
    at: str  # when


class Kept(msgspec.Struct, frozen=True):
    """What goes on in the new file."""

    promised: int
    diverged: list[Any]  # rows of `_cairn_diverged`, as far as they can be read


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
    mark = aside / "note.json"
    if not mark.exists() or mark.read_bytes() != msgspec.json.encode(note):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        for name in reversed(_FILES):  # the file itself last: until then all of it is here
            if (directory / name).exists():
                (directory / name).rename(aside / name)
        mark.write_bytes(msgspec.json.encode(note))
        sync_directory(aside)
    else:  # a start before this one did not get to its end
        for name in _FILES:
            (directory / name).unlink(missing_ok=True)
    sync_directory(directory)
    return Kept(note.promised, _diverged(aside / "data.db"))


def finished(directory: Path) -> None:
    (directory / NOTE).unlink(missing_ok=True)
    sync_directory(directory)


def _diverged(path: Path) -> list[Any]:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return connection.execute("SELECT * FROM _cairn_diverged").fetchall()
        finally:
            connection.close()
    except apsw.Error:
        return []
