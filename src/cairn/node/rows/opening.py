"""`data.db` at a start: opened as it is, or put aside if it is gone or cannot be read.

Order: what is known to be lost is noted, the file is opened, and only if that shows damage is it
noted as well and a new one opened in its place. A disk that is full, or does not answer, is no
damage: then the instance does not start, and the file stays where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from cairn.model.members.topology import Replicaset
from cairn.node.consensus.global_state import GlobalState
from cairn.storage.data_db.data_store import DataStore
from cairn.storage.files import setting_aside
from cairn.storage.files.sqlite import Unreadable

log = logging.getLogger("cairn.scrub")


def open_rows(
    path: Path, name: str, state: GlobalState, at: str, make: Callable[[], DataStore]
) -> DataStore:
    """`at`: the time, for notes. `make` opens the file, or makes a new one where there is none."""
    _note_lost(path, name, state, at)
    try:
        return _opened(path, make)
    except Unreadable as problem:
        _note_unreadable(path, name, state, at, problem)
        return _opened(path, make)


def _opened(path: Path, make: Callable[[], DataStore]) -> DataStore:
    kept = setting_aside.put_aside(path.parent)
    store = make()
    if kept is not None:
        if kept.had_rows:
            store.begin_empty(kept.promised, kept.diverged)
        setting_aside.finished(path.parent)
    return store


def _note_lost(path: Path, name: str, state: GlobalState, at: str) -> None:
    """Before `data.db` is opened: was it removed or emptied since the last start?

    Whoever counts as one that has the replicaset's rows had this file before it counted. Without
    the note a new one, with nothing in it, would promise and be named master.
    """
    mine = _holds_rows_of(name, state)
    if mine is None or not _is_absent(path):
        return
    log.error("data.db is gone: this instance has no rows until it has a copy of its master's")
    setting_aside.leave_note(path.parent, setting_aside.Note("it is gone", mine.epoch, at))


def _note_unreadable(
    path: Path, name: str, state: GlobalState, at: str, problem: Unreadable
) -> None:
    """It cannot be opened, and what cannot be read cannot be given to anybody: another one of the
    replicaset is asked for its rows. The file stays for people who want to look into it."""
    mine = _holds_rows_of(name, state)
    log.error(
        "%s: it is put aside in %s%s",
        problem.message,
        path.parent / setting_aside.ASIDE,
        "" if mine is None else ", and this instance has no rows until it has a copy of others'",
    )
    promised = max(0 if mine is None else mine.epoch, setting_aside.promised_in(path))
    note = setting_aside.Note(problem.message, promised, at, had_rows=mine is not None)
    setting_aside.leave_note(path.parent, note)


def _holds_rows_of(name: str, state: GlobalState) -> Replicaset | None:
    """The replicaset whose rows this instance should have, if there can be any."""
    me = state.cluster.instances.get(name)
    mine = state.cluster.replicasets.get(me.replicaset_name) if me is not None else None
    has_rows = any(not table.is_global for table in state.catalog.tables.values())
    return mine if mine is not None and name in mine.members and has_rows else None


def _is_absent(path: Path) -> bool:
    """An empty file is as good as none. With a log that is not empty it is damaged, and a log alone
    would be deleted by SQLite."""
    if not path.exists():
        return True
    wal = path.with_name(path.name + "-wal")
    return path.stat().st_size == 0 and not (wal.exists() and wal.stat().st_size)
