"""Directories of a stopped cluster, put back from a copy, begin a history of their own.

What the cluster did after the copy was made is forgotten by it, but not by others: streams and
drivers remember positions that will be used again for something else. So the restored cluster gets
another uuid. Everybody compares it already: instances when they meet, drivers when they connect,
streams with every offset.

Order, so that a crash at any moment is harmless: a note with the new uuid is in every directory
before the first file is changed, and goes when the last one is. An instance does not start beside
a note; the command, given again, goes on with the uuid that it finds there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError, ConfigProblem
from cairn.model.members.cluster import Cluster
from cairn.model.members.topology import Grade, Position
from cairn.model.tables import system_tables as system
from cairn.node.boot.identity import write_durably
from cairn.node.consensus.global_state import GlobalState
from cairn.raft.types import ConfState
from cairn.storage.files.sqlite import open_reader, sync_directory
from cairn.storage.raft_db.raft_store import RaftStore

NOTE = "restore.json"


class Note(msgspec.Struct, frozen=True):
    before: str  # uuid of the cluster
    after: str


class CannotRestore(CairnError):
    """These directories are not one cluster at one moment."""

    sqlstate = "55000"


class Copy(msgspec.Struct):
    """What one directory says of itself."""

    directory: Path
    name: str
    raft_id: int
    cluster_uuid: str
    last: int  # entry of its log
    commit: int
    applied: tuple[int, int]  # index and term
    terms: dict[int, int]  # of the entries that it has
    voters: ConfState
    cluster: Cluster
    row_epoch: int  # of its newest row


def check_not_interrupted(directory: Path) -> None:
    """At every start of an instance."""
    if (directory / NOTE).exists():
        raise ConfigProblem(
            f"{directory}: a restore was begun and not finished",
            hint="run `cairn restore` with all directories again",
        )


def note_file(store: RaftStore) -> bool:
    """Whether the directory is another one than at the last start: somebody has copied it."""
    now = _made_at(store.path.parent)
    before = store.get("made_at")
    if before != now:
        store.put("made_at", now)
    return before not in (None, now)


def _made_at(directory: Path) -> int:
    """A file that is written once: when it came here. No copy can be given an older time."""
    with suppress(FileNotFoundError):
        return (directory / "instance_uuid").stat().st_ctime_ns
    return 0


def restore(directories: Sequence[Path], without: Sequence[str], new_uuid: str) -> list[Copy]:
    """Give all of them a new history, or refuse and change nothing."""
    notes = {note for each in directories if (note := _noted(each)) is not None}
    if len(notes) > 1:
        raise CannotRestore("two other restores were begun in these directories")
    copies = [_read(each) for each in directories]
    note = notes.pop() if notes else Note(copies[0].cluster_uuid, new_uuid)
    _check(copies, without, note)
    for copy in copies:
        write_durably(copy.directory / NOTE, msgspec.json.encode(note))
    for copy in copies:
        _stamp(copy, note)
    for copy in copies:
        (copy.directory / NOTE).unlink()
        sync_directory(copy.directory)
    return copies


def _noted(directory: Path) -> Note | None:
    with suppress(FileNotFoundError):
        return msgspec.json.decode((directory / NOTE).read_bytes(), type=Note)
    return None


def _read(directory: Path) -> Copy:
    path = directory / "raft.db"
    if not path.exists() or not (directory / "data.db").exists():
        raise CannotRestore(f"{directory} is neither a backup nor the directory of an instance")
    store = RaftStore(path)
    try:
        if store.get("raft_id") is None:
            raise CannotRestore(f"{directory}: this instance never had a place in a cluster")
        index, term = store.applied
        state = GlobalState(path)
        try:
            state.reload(Position(term, index))
            cluster = state.cluster
        finally:
            state.close()
        entries = store.load()
        return Copy(
            directory=directory,
            name=store.get("instance_name"),
            raft_id=store.get("raft_id"),
            cluster_uuid=store.get("cluster_uuid"),
            last=entries[-1].index if entries else store.compacted[0],
            commit=store.hard_state.commit,
            applied=(index, term),
            terms={entry.index: entry.term for entry in entries},
            voters=store.conf_state,
            cluster=cluster,
            row_epoch=_row_epoch(directory / "data.db"),
        )
    finally:
        store.close()


def _row_epoch(path: Path) -> int:
    try:
        connection = open_reader(path)
        try:
            query = "SELECT value FROM local_state WHERE key = 'last_epoch'"
            row: Any = connection.execute(query).fetchone()
        finally:
            connection.close()
    except apsw.Error as problem:
        raise CannotRestore(f"{path}: {problem}") from None
    return 0 if row is None else int(row[0])


# --- one cluster, at one moment -------------------------------------------------------------------


def _check(copies: list[Copy], without: Sequence[str], note: Note) -> None:
    for copy in copies:
        if copy.cluster_uuid not in (note.before, note.after):
            raise CannotRestore(
                f"{copy.directory} is of cluster {copy.cluster_uuid}, "
                f"{copies[0].directory} of {note.before}"
            )
    newest = max(copies, key=lambda copy: copy.applied)
    _check_members(copies, without, newest)
    _check_logs(copies, newest)
    _check_rows(copies, newest)


def _check_members(copies: list[Copy], without: Sequence[str], newest: Copy) -> None:
    names = [copy.name for copy in copies]
    for name in names:
        if names.count(name) > 1:
            raise CannotRestore(f"two directories are of {name}")
    wanted = {
        each.name: each
        for each in newest.cluster.instances.values()
        if each.target_state.grade is not Grade.EXPELLED
    }
    if strangers := [name for name in names if name not in newest.cluster.instances]:
        raise CannotRestore(f"{', '.join(strangers)} had left the cluster: leave it out")
    if missing := [name for name in sorted(wanted) if name not in (*names, *without)]:
        raise CannotRestore(
            f"the directory of {', '.join(missing)} lacks",
            hint="give the directories of all instances; one that is lost for good is named by "
            "--without NAME, and has to be expelled afterwards",
        )


def _check_logs(copies: list[Copy], newest: Copy) -> None:
    # What was applied was agreed on, also when the note of the commit is older.
    commit = max(max(copy.commit, copy.applied[0]) for copy in copies)
    have = {copy.raft_id for copy in copies if copy.last >= commit}
    voters = newest.voters
    for group in (voters.voters, voters.voters_outgoing):
        if group and 2 * len(have & set(group)) <= len(group):
            behind = [copy.name for copy in copies if copy.last < commit]
            raise CannotRestore(
                f"{', '.join(behind) or 'too many'} lack what a majority had agreed on",
                hint="these copies were not made at the same time: take those that were",
            )
    for copy in copies:
        index, term = copy.applied
        known = newest.terms.get(index, term)
        if known != term:
            raise CannotRestore(
                f"{copy.name} and {newest.name} tell different histories: entry {index} is of "
                f"term {term} and {known}"
            )


def _check_rows(copies: list[Copy], newest: Copy) -> None:
    for copy in copies:
        me = newest.cluster.instances[copy.name]
        replicaset = newest.cluster.replicasets.get(me.replicaset_name)
        if replicaset is not None and copy.row_epoch > replicaset.epoch:
            raise CannotRestore(
                f"{copy.name} has rows of epoch {copy.row_epoch}, the cluster knows of "
                f"{replicaset.epoch} only",
                hint="raft.db and data.db belong together: take them from one copy",
            )


# --- the new history ------------------------------------------------------------------------------


def _stamp(copy: Copy, note: Note) -> None:
    """The log before it is forgotten: whoever joins shall not read the old uuid in it."""
    store = RaftStore(copy.directory / "raft.db")
    try:
        execute = store.connection.execute
        execute("BEGIN IMMEDIATE")
        store.put("cluster_uuid", note.after)
        store.put("restored_from", note.before)
        store.put("made_at", _made_at(copy.directory))
        execute(
            f"UPDATE {system.PICO_PROPERTY.physical_name} SET c1 = replace(c1, ?, ?) "
            "WHERE c0 = 'cluster_uuid'",
            (note.before, note.after),
        )
        store.compact(store.applied[0])
        execute("COMMIT")
    finally:
        store.close()
