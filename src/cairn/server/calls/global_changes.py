"""The calls behind streams of a global table: changes after a Raft position, the rows as of one.

A position is the index of an entry. Any instance may be asked, as long as it has applied the
position and still keeps what came after it; each answer says what it has.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from cairn.model.errors import CairnError, InvalidParameter, Unsupported
from cairn.model.quoting import identifier
from cairn.model.tables.schema import Table
from cairn.model.tables.system_tables import CAIRN_LOCK
from cairn.server.caller import Caller
from cairn.server.calls.global_bulk import global_table
from cairn.server.calls.row_changes import told_row
from cairn.storage.raft_db.global_log import GlobalChange, GlobalLogReader, reading

BEHIND_S = 1.0  # patience with an entry that others have applied
MOST = 10_000


async def changes(caller: Caller, name: str, after: int = -1, limit: int = MOST) -> Any:
    """Changes of a global table by entries after `after`, oldest first, about `limit` at most.

    -1 asks only what is kept: all after `begins`, up to `last`. An entry is told whole, `after` of
    the answer is where to go on.
    """
    table = _readable(caller, name)
    index, limit = int(after), max(1, min(int(limit), MOST))

    def read(log: GlobalLogReader) -> dict[str, Any]:
        told, reached = log.changes(table, index, limit) if index >= 0 else ([], log.last)
        return {
            "key": table.primary_key,
            "begins": log.begins,
            "last": [log.last.term, log.last.index],
            "after": [reached.term, reached.index],
            "changes": [_told(table, change) for change in told],
        }

    return await _read(caller, index, read)


async def rows_at(caller: Caller, name: str, at: int) -> Any:
    """The rows of a global table as they were when entry `at` was applied."""
    table = _readable(caller, name)
    index = int(at)
    if index < 0:
        raise InvalidParameter(f"{index} is no entry of the Raft log")

    def read(log: GlobalLogReader) -> dict[str, Any]:
        rows = [told_row(table, row) for row in log.rows_at(table, index)]
        return {"key": table.primary_key, "rows": rows}

    return await _read(caller, index, read)


async def _read(caller: Caller, index: int, read: Any) -> Any:
    instance = caller.instance
    with suppress(CairnError):  # then the log itself says that it is behind
        await instance.runner.wait_applied(index, BEHIND_S)
    path = instance.store.path

    def work() -> msgspec.Raw:
        with reading(path) as log:
            return msgspec.Raw(msgspec.json.encode(read(log)))  # not on the event loop

    return await caller.execution.reads.apart(caller.context, work)


def _readable(caller: Caller, name: str) -> Table:
    """The table, if the caller may read it."""
    table = global_table(caller, name)
    if table.id == CAIRN_LOCK.id:
        raise Unsupported(f"changes of {name} are not kept", hint="SELECT * FROM pg_locks")
    caller.allowed(f"SELECT * FROM {identifier(name)}")
    return table


def _told(table: Table, change: GlobalChange) -> dict[str, Any]:
    old, new = (None if row is None else told_row(table, row) for row in (change.old, change.new))
    if change.is_truncate:
        op = "truncate"
    else:
        op = "insert" if old is None else "delete" if new is None else "update"
    return {
        "op": op,
        "old": old,
        "new": new,
        "term": change.position.term,
        "index": change.position.index,
        "n": change.n,
        "timestamp": change.timestamp,
    }
