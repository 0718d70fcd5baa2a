"""`cairn backup`: a copy of the whole cluster as it is at one moment, while people work."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from cairn.cli.copies import files
from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.model.backups import (
    FORMAT,
    GLOBAL_FILE,
    FileFacts,
    Manifest,
    Part,
    Previous,
    Stamp,
)
from cairn.model.quoting import literal

BEGIN_S = 60.0
PIECE_S = 30.0
TRIES = 5
LATEST = "latest"


class Unwritable(TalkProblem):
    """Trouble here, not in the cluster: trying again does not help."""


def run_backup(
    folder: Path,
    dsn: str | None,
    password_file: str | None,
    *,
    previous: str | None = None,
    keep: int = 0,
    as_json: bool = False,
) -> int:
    if keep < 0:
        raise TalkProblem("--keep: 0 keeps all, else how many are kept", 2)
    if files.is_backup(folder):
        raise TalkProblem(
            f"{folder} is a backup itself: give the directory that has all of them", 2
        )
    with ended_by_signal(), files.locked(folder):
        before = _previous(folder, previous)
        begun = time.monotonic()
        taken, manifest = _take(Target(dsn, password_file), folder, before, Shown("backup"))
        removed = files.remove_old(folder, keep) if keep else []
    _tell(taken, manifest, removed, time.monotonic() - begun, as_json)
    return 0


def run_verify(directory: Path, *, as_json: bool = False) -> int:
    """One backup, or all in a directory."""
    chosen = [directory] if files.is_backup(directory) else files.backups_in(directory)
    if not chosen:
        raise TalkProblem(f"{directory} is no backup, and has none", 2)
    told = []
    for each in chosen:
        manifests = files.verify(each, Shown(f"verify {each.name}"))
        size = sum(facts.bytes for facts in files.files_of(manifests[-1]))
        told.append({"directory": str(each), "id": manifests[-1].id, "bytes": size})
        if not as_json:
            print(f"{each}: good, {_size(size)}, {_kind(manifests[-1])}")
    if as_json:
        print(json.dumps(told))
    return 0


def _previous(folder: Path, given: str | None) -> tuple[Path, Manifest] | None:
    """What an incremental backup continues; it has to lie in the same directory."""
    if given is None:
        return None
    known = files.backups_in(folder)
    if given == LATEST:
        if not known:
            return None  # the first of a series is whole
        path = known[-1]
    else:
        path = folder / given if (folder / given).is_dir() else Path(given)
        files.read_manifest(path)
        if path.resolve().parent != folder.resolve():
            raise TalkProblem(f"--from {given}: it has to lie in {folder}", 2)
    return path, files.chain(path)[-1][1]


# --- taking it ------------------------------------------------------------------------------------


def _take(
    target: Target, folder: Path, before: tuple[Path, Manifest] | None, shown: Shown
) -> tuple[Path, Manifest]:
    """Again from the beginning when whoever was asked, or a master with a part of it, goes away."""
    for attempt in range(1, TRIES + 1):
        talk = Talk(target)
        try:
            facts = _begin(talk, before)
            try:
                return _brought(talk, facts, folder, before, shown)
            except TalkProblem as problem:
                if attempt == TRIES or isinstance(problem, Unwritable):
                    raise
                shown.say(f"{problem}; beginning anew")
            finally:
                with suppress(TalkProblem):
                    _end(talk, facts)
        finally:
            talk.close()
    raise AssertionError("unreachable")


def _brought(
    talk: Talk,
    facts: dict[str, Any],
    folder: Path,
    before: tuple[Path, Manifest] | None,
    shown: Shown,
) -> tuple[Path, Manifest]:
    """In its place, whole; or nothing of it is left."""
    partial = folder / f"{files.PARTIAL}{facts['id']}"
    partial.mkdir(mode=0o700)
    try:
        manifest = _fetch(talk, facts, partial, before, shown)
        name = _free_name(folder)
        files.put_in_place(partial, manifest, folder / name)
        return folder / name, manifest
    except OSError as problem:  # of a file that is being written
        why = problem.strerror or problem
        raise Unwritable(f"{folder}: {why}; nothing of this backup is left there") from None
    finally:
        shown.end()
        shutil.rmtree(partial, ignore_errors=True)


def _begin(talk: Talk, before: tuple[Path, Manifest] | None) -> dict[str, Any]:
    after: dict[str, Stamp] = {}
    if before is not None:
        after = {part.replicaset: part.stamp for part in before[1].parts}
    body = literal(json.dumps(after))
    facts: dict[str, Any] = talk.call(f"CALL cairn_backup('begin', {body})", BEGIN_S)
    if before is not None and facts["cluster_uuid"] != before[1].cluster_uuid:
        _end(talk, facts)
        raise TalkProblem(
            f"{before[0]} is of cluster {before[1].cluster_uuid}, this is {facts['cluster_uuid']}: "
            "take a whole backup (without --from)"
        )
    for reason in facts["waits"]:
        print(f"cairn: tried again: {reason}", file=sys.stderr)
    return facts


def _end(talk: Talk, facts: dict[str, Any]) -> None:
    """What the instances keep for it is let go now, and not when nobody asks any more."""
    talk.call(f"CALL cairn_backup('end', {literal(facts['id'])})", PIECE_S)


def _fetch(
    talk: Talk,
    facts: dict[str, Any],
    partial: Path,
    before: tuple[Path, Manifest] | None,
    shown: Shown,
) -> Manifest:
    parts: list[Part] = []
    for at, told in enumerate(facts["parts"], 1):
        name = f"{told['replicaset']}{'' if told['is_whole'] else '.log'}.db"
        if Path(name).name != name:
            raise TalkProblem(f"the cluster told a name that is none: {told['replicaset']}")
        of = f"{told['replicaset']} ({at} of {len(facts['parts'])})"
        found = _file(talk, facts["id"], told["replicaset"], partial / name, shown.about(of))
        parts.append(msgspec.convert({**told, "file": found}, Part))
    dump = _file(talk, facts["id"], "", partial / GLOBAL_FILE, shown.about("global tables"))
    continues = None
    if before is not None and not all(part.is_whole for part in parts):
        continues = Previous(before[1].id, before[0].name)
    known = {key: facts[key] for key in Manifest.__struct_fields__ if key in facts}
    known |= {"format": FORMAT, "parts": (), "globals": dump}
    manifest = msgspec.convert(known, Manifest)
    return msgspec.structs.replace(manifest, parts=tuple(parts), previous=continues)


def _file(talk: Talk, moment: str, part: str, path: Path, progress: files.Progress) -> FileFacts:
    """Bytes as they come, on disk when this returns."""
    offset, digest = 0, hashlib.sha256()
    with files.open_private(path) as file:
        while True:
            text = f"CALL cairn_backup_piece({literal(moment)}, {literal(part)}, {offset})"
            piece = talk.call(text, PIECE_S)
            data = base64.b64decode(piece["data"])
            if piece["is_ready"] and not data:
                break
            file.write(data)
            digest.update(data)
            offset += len(data)
            progress(piece["copied"] + offset, 2 * piece["total"])  # made there, then brought here
        file.flush()
        os.fsync(file.fileno())
    files.check_readable(path)
    return FileFacts(path.name, offset, digest.hexdigest())


def _free_name(folder: Path) -> str:
    """When it was finished; two in one second get different names, in order."""
    while True:
        name = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
        if not (folder / name).exists():
            return name
        time.sleep(0.1)


# --- what people see ------------------------------------------------------------------------------


class Shown:
    """A line of progress for a person at a terminal; nothing in a pipe."""

    def __init__(self, what: str) -> None:
        self._what, self._said, self._is_open = what, 0.0, False
        self._is_seen = sys.stderr.isatty()

    def about(self, subject: str) -> Callable[[int, int], None]:
        return lambda done, total: self(done, total, subject)

    def __call__(self, done: int, total: int, subject: str = "") -> None:
        now = time.monotonic()
        if not self._is_seen or now - self._said < 0.2:
            return
        self._said, self._is_open = now, True
        share = f"{100 * done // total} %" if total else ""
        print(f"\r\x1b[K{self._what} {subject} {share}", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        self.end()
        print(f"cairn: {text}", file=sys.stderr)

    def end(self) -> None:
        if self._is_open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_open = False


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C: nothing stays behind by half."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(
    taken: Path, manifest: Manifest, removed: list[str], took_s: float, as_json: bool
) -> None:
    size = sum(facts.bytes for facts in files.files_of(manifest))
    if as_json:
        print(
            json.dumps(
                {
                    "directory": str(taken),
                    "id": manifest.id,
                    "kind": _kind(manifest),
                    "cluster_uuid": manifest.cluster_uuid,
                    "term": manifest.term,
                    "index": manifest.index,
                    "taken_at": manifest.taken_at,
                    "bytes": size,
                    "seconds": round(took_s, 3),
                    "replicasets": [part.replicaset for part in manifest.parts],
                    "removed": removed,
                }
            )
        )
        return
    print(
        f"{taken}: {_kind(manifest)}, {_size(size)}, {len(manifest.parts)} replicasets at "
        f"{manifest.term}:{manifest.index} of {manifest.taken_at}, {took_s:.1f} s"
    )
    for name in removed:
        print(f"removed: {name}")


def _kind(manifest: Manifest) -> str:
    if manifest.previous is None:
        return "whole"
    return f"continues {manifest.previous.directory}"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
