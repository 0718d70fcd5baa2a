"""The global tables of `raft.db`: changes of single rows, and all of them as a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from cairn.model.errors import CairnError
from cairn.model.log import ops
from cairn.model.log.applied import Change
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog_rows import CatalogRows
from cairn.model.tables.schema import Table, create_table_sql
from cairn.storage.raft_db.global_kin import GlobalKin


class TableDump(msgspec.Struct, frozen=True, array_like=True):
    """One global table in a snapshot: its rows, and the texts that make it and its indexes."""

    table_id: int
    rows: list[list[Any]]
    tables: list[str]  # none for a table that every instance makes when it starts
    indexes: list[str]


_FIXED = {table.id for table in system.GLOBAL_TABLES}


class _Statements:
    """SQL texts for one table, made once."""

    def __init__(self, table: Table) -> None:
        name, columns = table.physical_name, table.physical_columns
        marks = ", ".join("?" * len(columns))
        where = " AND ".join(f"c{at} = ?" for at in table.key_positions)
        self.key_positions = table.key_positions
        self.width = len(columns)
        stored = "RETURNING *"  # SQLite has its own mind about a value of another type
        self.insert = f"INSERT INTO {name} VALUES ({marks}) {stored}"
        self.replace = f"INSERT OR REPLACE INTO {name} VALUES ({marks}) {stored}"
        self.select = f"SELECT * FROM {name} WHERE {where}"
        self.delete = f"DELETE FROM {name} WHERE {where}"
        self.update = f"UPDATE {name} SET %s WHERE {where} {stored}"


class GlobalTables:
    """Behind one writing connection. Used on the writer's thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._statements: dict[int, _Statements] = {}
        for table in system.SYSTEM_TABLES:
            connection.execute(create_table_sql(table, if_not_exists=True))
        self.reload()

    def reload(self) -> None:
        """Read the catalogue: at a start, and when a snapshot was installed."""
        self.known = CatalogRows(self._rows)
        self._learn()

    def follow(self, changes: list[Change]) -> None:
        """An entry is applied: learn the tables that it made or changed. Whatever ends an entry
        comes before this, so nothing of it has to be taken back."""
        pending = system.PICO_PROPERTY.id
        if self.known.follow(changes) or any(change.table == pending for change in changes):
            self._learn()

    def _learn(self) -> None:
        self.tables = {table.id: table for table in system.SYSTEM_TABLES}
        for table in self.known.tables.values():
            if table.is_global:
                self.tables[table.id] = table  # an upgrade may have widened a system table
        self._statements = {}
        self.kin = GlobalKin(self.known.tables, self._pending_table())

    def _rows(self, table: Table) -> Any:
        return self.connection.execute(f"SELECT * FROM {table.physical_name}")

    def _pending_table(self) -> Table | None:
        """As the schema change that is under way leaves it."""
        name = system.PICO_PROPERTY.physical_name
        query = f"SELECT c1 FROM {name} WHERE c0 = 'pending_schema_change'"
        found: Any = self.connection.execute(query).fetchone()
        if found is None or found[0] is None:
            return None
        ddl = msgspec.json.decode(found[0], type=ops.DdlPrepare).ddl
        return ddl.table if isinstance(ddl, ops.CreateTable | ops.AlterTable) else None

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
        execute = self.connection.execute
        match op:
            case ops.Insert(row=row):
                [new] = execute(texts.insert, row).fetchall()
                return [Change(op.table, None, new)]
            case ops.Replace(row=row):
                old = execute(texts.select, [row[at] for at in texts.key_positions]).fetchone()
                [new] = execute(texts.replace, row).fetchall()
                return [Change(op.table, old, new)]
            case ops.Delete(key=key):
                old = execute(texts.select, key).fetchone()
                if old is None:
                    return []
                execute(texts.delete, key)
                return [Change(op.table, old, None)]
            case ops.Update(key=key, changes=changes):
                old = execute(texts.select, key).fetchone()
                if old is None:
                    return []
                assignments = ", ".join(f"c{at} = ?" for at, _ in changes)
                values = [value for _, value in changes]
                [new] = execute(texts.update % assignments, (*values, *key)).fetchall()
                return [Change(op.table, old, new)]

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
        knows_all = False
        for dump in contents:
            if dump.table_id not in _FIXED and not knows_all:
                self.reload()
                knows_all = True
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

    def _widen(self, table: Table, width: int) -> None:
        """A snapshot of a newer catalogue has columns that this file lacks yet."""
        info = f"SELECT name FROM pragma_table_info('{table.physical_name}')"
        have = len(self.connection.execute(info).fetchall())
        for at in range(have, width):
            self.connection.execute(f"ALTER TABLE {table.physical_name} ADD COLUMN c{at} ANY")


def dump_tables(connection: apsw.Connection) -> list[TableDump]:
    """All global tables as `install` takes them; call it inside one read transaction."""
    found: list[TableDump] = []
    known = CatalogRows(lambda table: connection.execute(f"SELECT * FROM {table.physical_name}"))
    others = [t for t in known.tables.values() if t.is_global and t.id not in _FIXED]
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
