"""Backups on disk: a directory each, with a manifest that is written last.

A backup is made under a name that begins with a dot, and renamed when all of it is on disk: what
has another name is whole, and what is left of one that was killed is removed by the next.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from cairn.cli.talking import TalkProblem
from cairn.model.backups import FORMAT, MANIFEST, FileFacts, Manifest

PARTIAL = ".partial-"
LOCK = ".lock"
_BLOCK = 1 << 20
Progress = Callable[[int, int], None]  # bytes done, of how many


class _Head(msgspec.Struct, frozen=True):
    """What every version can read of a manifest."""

    format: int
    version: str = "another version"


def is_backup(directory: Path) -> bool:
    return os.path.isfile(directory / MANIFEST)  # False for a name that no file can have, too


def read_manifest(directory: Path) -> Manifest:
    """Of one backup; raises in one sentence what is wrong with it."""
    if (directory / MANIFEST).exists() and not is_backup(directory):
        raise TalkProblem(f"{directory / MANIFEST} is no file", 2)
    try:
        data = (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise TalkProblem(f"{directory} is no backup: it has no {MANIFEST}", 2) from None
    except OSError as problem:
        raise TalkProblem(f"{directory / MANIFEST}: {problem.strerror}", 2) from None
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format > FORMAT:
            raise TalkProblem(
                f"{directory} was made by Cairn {head.version}, which is newer than this one"
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as problem:
        raise TalkProblem(f"{directory / MANIFEST} cannot be read: {problem}") from None


def chain(directory: Path) -> list[tuple[Path, Manifest]]:
    """The backup with all that it continues, the whole one first."""
    found: list[tuple[Path, Manifest]] = []
    at: Path | None = directory
    while at is not None:
        manifest = read_manifest(at)
        if found and (wanted := found[-1][1].previous) is not None and wanted.id != manifest.id:
            raise TalkProblem(
                f"{found[-1][0]} continues backup {wanted.id}, and {at} is {manifest.id}"
            )
        if any(at == seen for seen, _ in found):
            raise TalkProblem(f"{directory} continues itself, by way of {found[-1][0]}")
        found.append((at, manifest))
        previous = manifest.previous
        at = None if previous is None else at.parent / Path(previous.directory).name
        if at is not None and not is_backup(at):
            raise TalkProblem(
                f"{found[-1][0]} continues {at}, which is not there: put it beside it again"
            )
    return found[::-1]


def verify(directory: Path, progress: Progress = lambda done, total: None) -> list[Manifest]:
    """Every byte of a backup and of those that it continues. Raises at the first that is wrong."""
    links = chain(directory)
    total = sum(facts.bytes for _, manifest in links for facts in files_of(manifest))
    done = 0

    def read(count: int) -> None:
        progress(done + count, total)

    for at, manifest in links:
        for facts in files_of(manifest):
            done += _check_file(at, facts, read)
    return [manifest for _, manifest in links]


def files_of(manifest: Manifest) -> list[FileFacts]:
    return [manifest.globals, *(part.file for part in manifest.parts)]


def _check_file(directory: Path, facts: FileFacts, progress: Callable[[int], None]) -> int:
    path = directory / facts.name
    if Path(facts.name).name != facts.name:
        raise TalkProblem(f"{directory / MANIFEST} names a file elsewhere: {facts.name}")
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device has no end
            raise TalkProblem(f"{path} is no file")
        size = path.stat().st_size
        if size != facts.bytes:
            raise TalkProblem(
                f"{path} is damaged: it has {size} bytes and should have {facts.bytes}"
            )
        if sha256(path, progress) != facts.sha256:
            raise TalkProblem(f"{path} is damaged: its checksum (sha256) is wrong")
        check_readable(path)
    except FileNotFoundError:
        raise TalkProblem(f"{path} is missing") from None
    except OSError as problem:
        raise TalkProblem(f"{path}: {problem.strerror}") from None
    return facts.bytes


def check_readable(path: Path) -> None:
    """Whether SQLite can read all of it: damage from before it came here has a good sha256."""
    from cairn.storage.files.page_copy import check_pages

    if path.suffix == ".db" and (problem := check_pages(path)) is not None:
        raise TalkProblem(f"{path} is damaged: {problem}")


def sha256(path: Path, progress: Callable[[int], None] = lambda count: None) -> str:
    found, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            done += len(block)
            progress(done)
    return found.hexdigest()


# --- a folder of backups --------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One backup at a time; leftovers of one that was killed are removed."""
    if folder.exists() and not folder.is_dir():
        raise TalkProblem(f"{folder} is a file: name a directory for backups", 2)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as problem:
        raise TalkProblem(f"{folder}: {problem.strerror}", 2) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TalkProblem(f"{folder}: another backup is being made there") from None
        for left in folder.glob(f"{PARTIAL}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def backups_in(folder: Path) -> list[Path]:
    """Whole ones, oldest first: their names are times."""
    if not folder.is_dir():
        return []
    return sorted(
        each for each in folder.iterdir() if not each.name.startswith(".") and is_backup(each)
    )


def remove_old(folder: Path, keep: int) -> list[str]:
    """All but the last `keep`, and but those that these continue. Their names."""
    found = backups_in(folder)
    kept: set[Path] = set()
    for each in found[-keep:]:
        kept.update(at for at, _ in chain(each))
    removed = [each for each in found if each not in kept]
    for each in removed:
        away = folder / f"{PARTIAL}{each.name}"  # half a backup is never taken for a whole one
        each.rename(away)
        shutil.rmtree(away)
    return [each.name for each in removed]


def put_in_place(partial: Path, manifest: Manifest, target: Path) -> None:
    """The manifest last; then all of it gets its name at once."""
    write_synced(partial / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync(partial)
    os.rename(partial, target)
    sync(target.parent)


def write_synced(path: Path, data: bytes) -> None:
    with open_private(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
