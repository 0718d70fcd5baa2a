"""What DdlPrepare, DdlCommit and DdlAbort do to the catalogue and to global tables.

Only the catalogue changes here for sharded tables: their own files are changed at the masters
through the row log, so applying an entry never waits.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cairn.model.errors import (
    DuplicateTable,
    NotInPrerequisiteState,
    UndefinedTable,
    UniqueViolation,
)
from cairn.model.log import ops
from cairn.model.log.applied import Change
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.altering import as_added, with_renamed
from cairn.model.tables.schema import (
    Index,
    Table,
    compared_column,
    create_index_sql,
    create_table_sql,
)
from cairn.model.tables.sequences import all_numbers_of
from cairn.storage.files.reshaping import check_rows, reshape
from cairn.storage.raft_db.global_tables import GlobalTables

PENDING = "pending_schema_change"
PENDING_VERSION = "pending_schema_version"
NEXT_VERSION = "next_schema_version"
GLOBAL_VERSION = "global_schema_version"


def apply_ddl(
    tables: GlobalTables, op: ops.DdlPrepare | ops.DdlCommit | ops.DdlAbort
) -> list[Change]:
    match op:
        case ops.DdlPrepare():
            return _prepare(tables, op)
        case ops.DdlCommit():
            return _finish(tables, op.schema_version, commit=True, reason="")
        case ops.DdlAbort():
            return _finish(
                tables,
                op.schema_version,
                commit=False,
                reason=op.reason,
                settle=op.is_verdict,
            )


def encode_pending(op: ops.DdlPrepare) -> str:
    return msgspec.json.encode(op).decode()


def decode_pending(text: str) -> ops.DdlPrepare:
    return msgspec.json.decode(text, type=ops.DdlPrepare)


def get_property(tables: GlobalTables, key: str) -> Any:
    name = system.PICO_PROPERTY.physical_name
    row = tables.connection.execute(f"SELECT c1 FROM {name} WHERE c0 = ?", (key,)).fetchone()
    return None if row is None or row[0] is None else json.loads(row[0])


def _put_property(tables: GlobalTables, key: str, value: Any) -> list[Change]:
    table = system.PICO_PROPERTY.id
    if value is None:
        return tables.dml(ops.Delete(table, (key,)))
    return tables.dml(ops.Replace(table, (key, json.dumps(value))))


def _prepare(tables: GlobalTables, op: ops.DdlPrepare) -> list[Change]:
    if get_property(tables, PENDING) is not None:
        raise NotInPrerequisiteState("another schema change is in progress")
    changes: list[Change] = []
    ddl = op.ddl
    if isinstance(ddl, ops.CreateTable):
        if any(table.name == ddl.table.name for table in tables.known.tables.values()):
            raise DuplicateTable(f"table {ddl.table.name} already exists")
        table = msgspec.structs.replace(ddl.table, operable=False, schema_version=op.schema_version)
        changes += tables.dml(ops.Insert(system.PICO_TABLE.id, rows.table_row(table)))
        changes += tables.dml(
            ops.Insert(system.PICO_INDEX.id, rows.index_row(rows.primary_index(table)))
        )
        changes += _put_property(tables, "last_table_id", table.id)
        for made in ddl.indexes:
            index = msgspec.structs.replace(made, operable=False, schema_version=op.schema_version)
            changes += tables.dml(ops.Insert(system.PICO_INDEX.id, rows.index_row(index)))
    else:
        table = _table(tables, ops.table_of(ddl))
        if table.is_global:
            _check_global(tables, table, ddl)
        changes += _put_table(tables, msgspec.structs.replace(table, operable=False))
        if isinstance(ddl, ops.CreateIndex):
            index = msgspec.structs.replace(
                ddl.index, operable=False, schema_version=op.schema_version
            )
            changes += tables.dml(ops.Insert(system.PICO_INDEX.id, rows.index_row(index)))
    changes += _put_property(tables, PENDING, json.loads(encode_pending(op)))
    changes += _put_property(tables, PENDING_VERSION, op.schema_version)
    changes += _put_property(tables, NEXT_VERSION, op.schema_version + 1)
    return changes


def _finish(
    tables: GlobalTables, version: int, *, commit: bool, reason: str, settle: bool = True
) -> list[Change]:
    pending = get_property(tables, PENDING)
    if pending is None or get_property(tables, PENDING_VERSION) != version:
        raise NotInPrerequisiteState("there is no pending ddl operation")
    op = decode_pending(json.dumps(pending))
    changes = _commit(tables, op.ddl, version) if commit else _abort(tables, op.ddl)
    changes += _put_property(tables, PENDING, None)
    changes += _put_property(tables, PENDING_VERSION, None)
    if commit:
        changes += _put_property(tables, GLOBAL_VERSION, version)
    if op.governor_op_id is not None and settle:  # else it stays pending and is tried again
        changes += _settle_queue(tables, op.governor_op_id, commit=commit, reason=reason)
    return changes


def _settle_queue(tables: GlobalTables, op_id: int, *, commit: bool, reason: str) -> list[Change]:
    """The queue's row changes in the entry that carries the effect."""
    queue = system.PICO_GOVERNOR_QUEUE
    status = "done" if commit else "failed"
    assignments = (
        (queue.position("status"), status),
        (queue.position("status_description"), None if commit else reason),
    )
    return tables.dml(ops.Update(queue.id, (op_id,), assignments))


def _commit(tables: GlobalTables, ddl: ops.Ddl, version: int) -> list[Change]:
    table = _table(tables, ops.table_of(ddl))
    fresh = msgspec.structs.replace(table, operable=True, schema_version=version)
    match ddl:
        case ops.CreateTable(indexes=indexes):
            if table.is_global:
                tables.connection.execute(create_table_sql(table))
            changes = []
            for made in indexes:
                changes += _make_index(tables, table, made, version)
            return changes + _put_table(tables, fresh)
        case ops.DropTable():
            return _drop_table(tables, table)
        case ops.TruncateTable(restarts=restarts):
            changes = _put_table(tables, msgspec.structs.replace(fresh, truncated_at=version))
            if restarts:
                changes += tables.dml(ops.Delete(system.CAIRN_SEQUENCE.id, (table.id,)))
            return changes + tables.empty(table) if table.is_global else changes
        case ops.RenameTable(new_name=name):
            return _put_table(tables, msgspec.structs.replace(fresh, name=name))
        case ops.AddColumns():
            wider = _altered(fresh, ddl)
            if table.is_global:
                reshape(tables.connection, table, wider)
            return _put_table(tables, wider)
        case ops.RenameColumn(old=old, new=new):
            return _rename_column(tables, fresh, old, new)
        case ops.Restate(columns=columns, description=description):
            told = {column.name: column for column in columns}
            stated = tuple(told.get(column.name, column) for column in table.columns)
            about = table.description if description is None else description
            changed = msgspec.structs.replace(fresh, columns=stated, description=about)
            return _put_table(tables, changed)
        case ops.AlterTable(table=wanted, indexes=indexes):
            if table.is_global:
                reshape(tables.connection, table, wanted)
            altered = msgspec.structs.replace(wanted, operable=True, schema_version=version)
            return _put_altered(tables, altered, indexes)
        case ops.CreateIndex(index=index):
            return _make_index(tables, table, index, version) + _put_table(tables, fresh)
        case ops.DropIndex(index_id=index_id):
            if table.is_global:
                tables.connection.execute(f"DROP INDEX IF EXISTS i{table.id}_{index_id}")
            changes = tables.dml(ops.Delete(system.PICO_INDEX.id, (table.id, index_id)))
            return changes + _put_table(tables, fresh)
        case ops.RenameIndex(index_id=index_id, new_name=name):
            assign = ((system.PICO_INDEX.position("name"), name),)
            changes = tables.dml(ops.Update(system.PICO_INDEX.id, (table.id, index_id), assign))
            return changes + _put_table(tables, fresh)


def _altered(table: Table, ddl: ops.AddColumns | ops.AlterTable) -> Table:
    if isinstance(ddl, ops.AlterTable):
        return ddl.table
    return msgspec.structs.replace(table, columns=table.columns + as_added(ddl.columns))


def _make_index(tables: GlobalTables, table: Table, index: Index, version: int) -> list[Change]:
    if table.is_global:
        tables.connection.execute(create_index_sql(table, index))
    ready = msgspec.structs.replace(index, operable=True, schema_version=version)
    return tables.dml(ops.Replace(system.PICO_INDEX.id, rows.index_row(ready)))


def _put_altered(tables: GlobalTables, table: Table, indexes: tuple[Index, ...]) -> list[Change]:
    """The table, its key and its indexes; those that are not among them are gone."""
    changes = _put_table(tables, table)
    wanted = {index.id: index for index in (rows.primary_index(table), *indexes)}
    for index in tables.known.indexes_of(table.id):
        if index.id not in wanted:
            if table.is_global:
                tables.connection.execute(f"DROP INDEX IF EXISTS {index.physical_name}")
            changes += tables.dml(ops.Delete(system.PICO_INDEX.id, (table.id, index.id)))
    for index in wanted.values():
        changes += tables.dml(ops.Replace(system.PICO_INDEX.id, rows.index_row(index)))
    return changes


def _abort(tables: GlobalTables, ddl: ops.Ddl) -> list[Change]:
    table = _table(tables, ops.table_of(ddl))
    if isinstance(ddl, ops.CreateTable):
        return _drop_table(tables, table)
    changes = _put_table(tables, msgspec.structs.replace(table, operable=True))
    if isinstance(ddl, ops.CreateIndex):
        key = (ddl.index.table_id, ddl.index.id)
        changes += tables.dml(ops.Delete(system.PICO_INDEX.id, key))
    return changes


def _drop_table(tables: GlobalTables, table: Table) -> list[Change]:
    if table.is_global:
        tables.connection.execute(f"DROP TABLE IF EXISTS {table.physical_name}")
    changes = tables.dml(ops.Delete(system.PICO_TABLE.id, (table.id,)))
    for index in tables.known.indexes_of(table.id):
        changes += tables.dml(ops.Delete(system.PICO_INDEX.id, (table.id, index.id)))
    if any(column.identity is not None for column in table.columns):
        for numbers in all_numbers_of(table.id):
            changes += tables.dml(ops.Delete(system.CAIRN_SEQUENCE.id, (numbers,)))
    privileges = system.PICO_PRIVILEGE
    query = f"SELECT c1, c3, c4, c2 FROM {privileges.physical_name} WHERE c3 = 'table' AND c4 = ?"
    for key in tables.connection.execute(query, (table.id,)).fetchall():
        changes += tables.dml(ops.Delete(privileges.id, key))
    return changes


def _rename_column(tables: GlobalTables, table: Table, old: str, new: str) -> list[Change]:
    indexes = tuple(tables.known.indexes_of(table.id))
    changed, moved = with_renamed(table, indexes, old, new)
    changes = _put_table(tables, changed)
    for index in moved:
        changes += tables.dml(ops.Replace(system.PICO_INDEX.id, rows.index_row(index)))
    return changes


def _check_global(tables: GlobalTables, table: Table, ddl: ops.Ddl) -> None:
    """What rows forbid is refused when the change is prepared: its commit must not fail.

    No row comes in between, since the table takes none until the change has ended.
    """
    execute = tables.connection.execute
    if isinstance(ddl, ops.DropTable | ops.TruncateTable):
        tables.kin.check_gone(table)
    if isinstance(ddl, ops.AddColumns | ops.AlterTable):
        execute("SAVEPOINT tried")
        try:
            want = _altered(table, ddl)
            reshape(tables.connection, table, want)
            check_rows(tables.connection, table, want)
            tables.kin.check_rows(tables.connection, want)
        finally:
            execute("ROLLBACK TO tried")
            execute("RELEASE tried")
    if isinstance(ddl, ops.CreateIndex) and ddl.index.unique:
        names = [compared_column(table, table.position(name)) for name in ddl.index.columns]
        known = " AND ".join(f"{name} IS NOT NULL" for name in names)
        query = (
            f"SELECT 1 FROM {table.physical_name} WHERE {known} "
            f"GROUP BY {', '.join(names)} HAVING count(*) > 1 LIMIT 1"
        )
        if execute(query).fetchone() is not None:
            raise UniqueViolation(
                f'could not create unique index "{ddl.index.name}": some rows have the same key'
            )


def _put_table(tables: GlobalTables, table: Table) -> list[Change]:
    return tables.dml(ops.Replace(system.PICO_TABLE.id, rows.table_row(table)))


def _table(tables: GlobalTables, table_id: int) -> Table:
    """As it was before this entry."""
    table = tables.known.tables.get(table_id)
    if table is None:
        raise UndefinedTable(f"table with id {table_id} not found")
    return table
