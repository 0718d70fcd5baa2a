"""Applying Raft entries to the global tables of `raft.db`, one savepoint an entry.

Every instance applies the same entries to the same tables and gets the same result; an entry
that breaks a constraint has no effect anywhere and says why. What changed is returned row by
row: topology events, the catalogue and waiting proposers all read it from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from cairn.model import ops
from cairn.model import system_tables as system
from cairn.model.errors import CairnError, CheckViolation, NotNullViolation, UniqueViolation
from cairn.model.pictures import check_readable, tables_of
from cairn.model.schema import Table, create_table_sql
from cairn.raft.types import Entry, EntryType
from cairn.storage.ddl import apply_ddl
from cairn.storage.event_log import EventLog
from cairn.storage.global_log import GlobalLog

log = logging.getLogger("cairn.apply")


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One row before and after; None where there was or is none. Neither: the table was emptied."""

    table: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None


class Applied(msgspec.Struct):
    """What applying one entry did."""

    index: int
    term: int
    request_id: str = ""
    timestamp: str = ""
    op: ops.Op | None = None  # None: an empty entry or a change of the Raft configuration
    changes: list[Change] = []
    error: CairnError | None = None
    events_01: list[str] = []  # what subscribers of topology 0.1 are told, as JSON
    events_02: list[str] = []


class _Statements:
    """SQL texts for one table, made once."""

    def __init__(self, table: Table) -> None:
        name, columns = table.physical_name, table.physical_columns
        marks = ", ".join("?" * len(columns))
        where = " AND ".join(f"c{at} = ?" for at in table.key_positions)
        self.key_positions = table.key_positions
        self.width = len(columns)
        self.insert = f"INSERT INTO {name} VALUES ({marks})"
        self.replace = f"INSERT OR REPLACE INTO {name} VALUES ({marks})"
        self.select = f"SELECT * FROM {name} WHERE {where}"
        self.delete = f"DELETE FROM {name} WHERE {where}"
        self.update = f"UPDATE {name} SET %s WHERE {where}"


class StateMachine:
    """The global tables behind one writing connection. Runs on the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._statements: dict[int, _Statements] = {}
        for table in system.SYSTEM_TABLES:
            connection.execute(create_table_sql(table, if_not_exists=True))
        self.reload()
        self.events, self.changes = EventLog(connection), GlobalLog(connection)

    def reload(self) -> None:
        """Learn the tables anew, after a schema change or an installed snapshot."""
        self.tables = {table.id: table for table in system.SYSTEM_TABLES}
        for table in self._catalogue().values():
            if table.is_global:
                self.tables[table.id] = table  # an upgrade may have widened a system table
        self._statements = {}

    def _catalogue(self) -> dict[str, Table]:
        tables, _ = tables_of(
            self.connection.execute(f"SELECT * FROM {system.PICO_TABLE.physical_name}"),
            self.connection.execute(f"SELECT * FROM {system.PICO_INDEX.physical_name}"),
        )
        return tables

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
        except Exception as problem:
            if _is_of_the_machine(problem):
                raise
            self.connection.execute("ROLLBACK TO entry")
            done.changes, done.events_01, done.events_02 = [], [], []
            if isinstance(envelope.op, ops.DdlPrepare | ops.DdlCommit | ops.DdlAbort):
                self.reload()
            done.error = _refused(done, problem)
        self.connection.execute("RELEASE entry")
        return done

    def _apply_op(self, op: ops.Op) -> list[Change]:
        match op:
            case ops.Nop():
                return []
            case ops.Batch(ops=several):
                return [change for each in several for change in self.dml(each)]
            case ops.Insert() | ops.Replace() | ops.Update() | ops.Delete():
                return self.dml(op)
            case ops.DdlPrepare() | ops.DdlCommit() | ops.DdlAbort():
                changes = apply_ddl(self, op)
                self.reload()
                return changes

    def dml(self, op: ops.Dml) -> list[Change]:
        table = self.tables.get(op.table)
        if table is None:
            raise CairnError(f"no global table with id {op.table}", sqlstate="42P01")
        texts = self._statements.get(op.table)
        if texts is None:
            texts = self._statements[op.table] = _Statements(table)
        if isinstance(op, ops.Insert | ops.Replace) and len(op.row) < texts.width:
            # Written by an instance of the version before: it does not know the new columns.
            padding = (None,) * (texts.width - len(op.row))
            op = msgspec.structs.replace(op, row=(*op.row, *padding))
        match op:
            case ops.Insert(row=row):
                self.connection.execute(texts.insert, row)
                return [Change(op.table, None, tuple(row))]
            case ops.Replace(row=row):
                key = [row[at] for at in texts.key_positions]
                old = self.connection.execute(texts.select, key).fetchone()
                self.connection.execute(texts.replace, row)
                return [Change(op.table, old, tuple(row))]
            case ops.Delete(key=key):
                old = self.connection.execute(texts.select, key).fetchone()
                if old is None:
                    return []
                self.connection.execute(texts.delete, key)
                return [Change(op.table, old, None)]
            case ops.Update(key=key, changes=changes):
                old = self.connection.execute(texts.select, key).fetchone()
                if old is None:
                    return []
                assignments = ", ".join(f"c{at} = ?" for at, _ in changes)
                values = [value for _, value in changes]
                self.connection.execute(texts.update % assignments, (*values, *key))
                new = list(old)
                for at, value in changes:
                    new[at] = value
                return [Change(op.table, old, tuple(new))]

    def empty(self, table: Table) -> list[Change]:
        self.connection.execute(f"DELETE FROM {table.physical_name}")
        return [Change(table.id, None, None)]

    # --- snapshots ----------------------------------------------------------------------------

    def install(self, contents: Iterable[TableDump]) -> None:
        """Replace all global tables by a snapshot's; system tables come first, they name others.

        Who did not apply the entries must still look as if it had: columns that were added later,
        indexes, unique ones above all. Later entries have to end in the same way everywhere.
        """
        execute = self.connection.execute
        for table in list(self.tables.values()):
            if table.local:
                continue
            if table.id in _FIXED:
                execute(f"DELETE FROM {table.physical_name}")
                for name in _index_names(self.connection, table):
                    execute(f"DROP INDEX {name}")
            else:
                execute(f"DROP TABLE IF EXISTS {table.physical_name}")
        self._statements = {}
        for dump in contents:
            if dump.table_id not in _FIXED:
                self.reload()
            target = self.tables[dump.table_id]
            for text in dump.tables:
                execute(text)
            if dump.rows:
                self._widen(target, len(dump.rows[0]))
                marks = ", ".join("?" * len(dump.rows[0]))
                self.connection.executemany(
                    f"INSERT INTO {target.physical_name} VALUES ({marks})", dump.rows
                )
            for text in dump.indexes:
                execute(text)
        self.reload()
        self.changes.installed()

    def _widen(self, table: Table, width: int) -> None:
        """A snapshot of a newer catalogue has columns that this file lacks yet."""
        info = f"SELECT name FROM pragma_table_info('{table.physical_name}')"
        have = len(self.connection.execute(info).fetchall())
        for at in range(have, width):
            self.connection.execute(f"ALTER TABLE {table.physical_name} ADD COLUMN c{at} ANY")


class TableDump(msgspec.Struct, frozen=True, array_like=True):
    """One global table in a snapshot: its rows, and the texts that make it and its indexes."""

    table_id: int
    rows: list[list[Any]]
    tables: list[str]  # none for a table that every instance makes when it starts
    indexes: list[str]


_FIXED = {table.id for table in system.GLOBAL_TABLES}


def dump_tables(connection: apsw.Connection) -> list[TableDump]:
    """All global tables as `install` takes them; call it inside one read transaction."""
    found: list[TableDump] = []
    tables, _ = tables_of(
        connection.execute(f"SELECT * FROM {system.PICO_TABLE.physical_name}"),
        connection.execute(f"SELECT * FROM {system.PICO_INDEX.physical_name}"),
    )
    others = [t for t in tables.values() if t.is_global and t.id not in _FIXED]
    for table in (*system.GLOBAL_TABLES, *others):
        texts = _texts(connection, table, "table")
        if not texts:
            continue  # prepared, not yet committed: the entry that commits it creates it
        content = [list(row) for row in connection.execute(f"SELECT * FROM {table.physical_name}")]
        made = [] if table.id in _FIXED else texts
        found.append(TableDump(table.id, content, made, _texts(connection, table, "index")))
    return found


def _texts(connection: apsw.Connection, table: Table, kind: str) -> list[str]:
    """What SQLite keeps of a table or of its indexes; a primary key has no text of its own."""
    query = "SELECT sql FROM sqlite_master WHERE type = ? AND tbl_name = ? AND sql NOT NULL"
    found: Any = connection.execute(f"{query} ORDER BY name", (kind, table.physical_name))
    return [text for (text,) in found]


def _index_names(connection: apsw.Connection, table: Table) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql NOT NULL"
    found: list[Any] = connection.execute(query, (table.physical_name,)).fetchall()
    return [name for (name,) in found]


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
