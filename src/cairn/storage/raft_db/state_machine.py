"""Applying Raft entries to the global tables of `raft.db`, one savepoint an entry.

Every instance applies the same entries to the same tables and gets the same result; an entry
that breaks a constraint has no effect anywhere and says why. What changed is returned row by
row: topology events, the catalogue and waiting proposers all read it from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import apsw
import msgspec

from cairn.model.errors import CairnError, CheckViolation, NotNullViolation, UniqueViolation
from cairn.model.log import ops
from cairn.model.log.applied import Applied, Change
from cairn.model.tables.pictures import check_readable
from cairn.raft.types import Entry, EntryType
from cairn.storage.raft_db.ddl import apply_ddl
from cairn.storage.raft_db.event_log import EventLog
from cairn.storage.raft_db.global_log import GlobalLog
from cairn.storage.raft_db.global_tables import GlobalTables, TableDump

log = logging.getLogger("cairn.apply")


class StateMachine:
    """The global tables behind one writing connection. Runs on the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection, self.tables = connection, GlobalTables(connection)
        self.events, self.changes = EventLog(connection), GlobalLog(connection)

    # --- applying -----------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Applied:
        """The effects of one committed entry. Never raises for what an entry says: one that
        cannot be carried out has no effect on any instance, and its error tells why.
        """
        done = Applied(entry.index, entry.term)
        if entry.type == EntryType.CONF_CHANGE or not entry.data:
            return done
        try:
            envelope = ops.decode(entry.data)
        except msgspec.MsgspecError as problem:
            done.error = _refused(done, problem)
            return done
        done.request_id, done.timestamp = envelope.request_id, envelope.timestamp
        done.op = envelope.op
        self.connection.execute("SAVEPOINT entry")
        try:
            done.changes = self._apply_op(envelope.op)
            for change in done.changes:
                if change.new is not None:
                    check_readable(change.table, change.new)
            self.events.applied(done)
            self.changes.applied(done)
            self.tables.follow(done.changes)
        except Exception as problem:
            if _is_of_the_machine(problem):
                raise
            self.connection.execute("ROLLBACK TO entry")
            done.changes, done.events_01, done.events_02 = [], [], []
            done.error = _refused(done, problem)
        self.connection.execute("RELEASE entry")
        return done

    def _apply_op(self, op: ops.Op) -> list[Change]:
        match op:
            case ops.Nop():
                return []
            case ops.DdlPrepare() | ops.DdlCommit() | ops.DdlAbort():
                return apply_ddl(self.tables, op)
            case ops.Batch(ops=several):
                changes = [change for each in several for change in self.tables.dml(each)]
            case ops.Insert() | ops.Replace() | ops.Update() | ops.Delete():
                changes = self.tables.dml(op)
        self.tables.kin.check(self.connection, changes)
        return changes

    def install(self, contents: Iterable[TableDump]) -> None:
        """Replace all global tables by a snapshot's."""
        self.tables.install(contents)
        self.changes.installed()


#: Trouble that an entry can make, among what SQLite raises. All else is the disk's or the file's.
_OF_THE_ENTRY = (
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.RangeError,
    apsw.BindingsError,
)


def _is_of_the_machine(problem: Exception) -> bool:
    """Whether another instance would not have met it: then going on would make us differ."""
    if isinstance(problem, apsw.Error):
        return not isinstance(problem, _OF_THE_ENTRY)
    return isinstance(problem, OSError | MemoryError)


def _refused(done: Applied, problem: Exception) -> CairnError:
    if isinstance(problem, CairnError):
        return problem
    if isinstance(problem, apsw.ConstraintError):
        return constraint_error(problem)
    log.error(
        "entry %d (%s) cannot be understood and has no effect: %r",
        done.index,
        done.request_id or "no request",
        problem,
    )
    return CairnError(f"the entry cannot be understood: {problem}", sqlstate="22023")


def constraint_error(problem: apsw.ConstraintError) -> CairnError:
    """SQLite's words turned into ours."""
    text = str(problem)
    if "UNIQUE" in text or "PRIMARY" in text:
        return UniqueViolation(f"duplicate key exists in unique index: {text}")
    if "NOT NULL" in text:
        return NotNullViolation(f"null value in a column that must not be null: {text}")
    if "CHECK" in text:
        return CheckViolation(f"constraint failed: {text}")
    return CairnError(f"constraint failed: {text}", sqlstate="23000")
