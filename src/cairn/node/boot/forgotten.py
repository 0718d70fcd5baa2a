"""A `raft.db` that is damaged or gone at a start: this instance has forgotten how it voted.

It must never vote again under its raft_id: whom it elected may lead in the same term. So the file
is put aside, and the instance asks for a place like a newcomer, with the uuid that it had. The
leader lets it in when a person has expelled its former self; that takes its vote away first. Until
then it stays up, holds up nobody who has a majority, and says which command it waits for.

It founds no cluster, whoever else may be there: it was a member of one.

Its rows come with it, if they are of the replicaset that it is given a place in. `data.db` says of
which one they are: rows of another cluster, or of another replicaset, would be taken for ours.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import apsw

from cairn.model.members.topology import Instance
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files.sqlite import (
    PagesDamaged,
    Unreadable,
    damaged,
    open_reader,
    sync_directory,
)
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.topology.admission import HasJoined

log = logging.getLogger("cairn.boot")

ASIDE = "forgotten"  # the directory of the damaged file; the newest only
#: The file itself first: without its log it may be whole again, and older. A log that is left is
#: no harm: SQLite deletes it when it makes a new file.
_FILES = ("raft.db", "raft.db-wal", "raft.db-shm")
_ROWS = ("data.db", "data.db-wal", "data.db-shm")
_HOME = "home"  # in `local_state`: the cluster and the replicaset of the rows


def has_forgotten(directory: Path) -> bool:
    return (directory / ASIDE).exists()


def has_rows(directory: Path) -> bool:
    """Rows come after a place in Raft: it was a member of a cluster."""
    return (directory / "data.db").exists()


def open_log(path: Path, *, knows_others: bool) -> RaftStore | None:
    """None: it is damaged or gone, and what is left was put aside. Who knows nobody to ask keeps it
    and ends, here or before it would found a cluster."""
    if not path.exists() and not knows_others:
        return None
    try:
        return _opened(path)
    except (Unreadable, PagesDamaged) as problem:
        if not knows_others:
            raise
        aside = path.parent / ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        _move(path.parent, aside, _FILES)
        log.error("%s: it is put aside in %s", problem.message, aside)
        return None


def _move(directory: Path, aside: Path, names: tuple[str, ...]) -> None:
    aside.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        if (directory / name).exists():
            (directory / name).rename(aside / name)
    sync_directory(aside)
    sync_directory(directory)


def note_home(rows: DataStore, cluster_uuid: str, place: Instance) -> None:
    """Before anything is written to them in this life."""
    home = _home_of(cluster_uuid, place)
    if rows.get(_HOME) != home:
        rows.put(_HOME, home)


def leave_strange_rows(directory: Path, cluster_uuid: str, place: Instance) -> None:
    """Before the place is taken. What is not known to be of its replicaset is put aside."""
    path = directory / "data.db"
    if path.exists() and _noted_home(path) != _home_of(cluster_uuid, place):
        _move(directory, directory / ASIDE, _ROWS)
        log.warning(
            "data.db has rows of another cluster or replicaset: it is put aside in %s, and this "
            "instance begins without rows",
            directory / ASIDE,
        )


def _home_of(cluster_uuid: str, place: Instance) -> str:
    return f"{cluster_uuid} {place.replicaset_uuid}"


def _noted_home(path: Path) -> str:
    """Empty: nobody knows."""
    try:
        connection = open_reader(path)
        try:
            query = "SELECT value FROM local_state WHERE key = ?"
            found: list[Any] = connection.execute(query, (_HOME,)).fetchall()
        finally:
            connection.close()
    except apsw.Error:
        return ""
    return str(found[0][0]) if found else ""


def _opened(path: Path) -> RaftStore:
    if not path.exists():
        raise damaged(path, "it is gone, and this instance has rows")
    store = RaftStore(path)
    if store.get("raft_id") is None and has_rows(path.parent):
        # To take it for a start that was not finished would delete them.
        store.close()
        raise damaged(path, "it does not know this instance, which has rows")
    return store


def say_what_helps(directory: Path, refused: HasJoined) -> None:
    name = refused.detail or "NAME"
    log.error(
        "raft.db is damaged or gone (what is left is in %s): %s has forgotten how it voted, and "
        "must not vote again as the member that it was. Run `cairn expel %s` at any other instance "
        "(with --force if the others wait for its rows): this one joins again by itself then, and "
        "what only it has comes with it or is in _cairn_diverged",
        directory / ASIDE,
        name,
        name,
    )
