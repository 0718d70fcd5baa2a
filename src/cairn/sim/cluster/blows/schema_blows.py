"""Schema changes of every kind, of a table under load, of a global one, and of one that comes
and goes.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from cairn.model.log import ops
from cairn.model.log.ranges import whole_table
from cairn.model.tables import system_tables as system
from cairn.model.tables.altering import as_added, without_column
from cairn.model.tables.schema import Column, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.loads.load import TABLE
from cairn.sim.cluster.loads.marks import UNWRITTEN, WRITTEN, is_of

SCHEMA = (ops.SCHEMA_RANGE, whole_table(system.PICO_TABLE.id), whole_table(system.PICO_INDEX.id))
GLOBAL = Table(
    id=TABLE.id + 1,
    name="g",
    columns=(
        Column("id", ColumnType.INTEGER, nullable=False),
        Column("word", ColumnType.STRING),
    ),
    primary_key=("id",),
    sharding=None,
)
GLOBAL_INDEX = Index(GLOBAL.id, 1, "g_word", ("word",), unique=True)
OTHER = Table(
    id=TABLE.id + 1_000,  # clients make tables of their own
    name="other",
    columns=(Column("id", ColumnType.INTEGER, nullable=False),),
    primary_key=("id",),
    sharding=Sharded(("id",), "default"),
)
OF_COLUMNS = ("default", "written default", "not null", "not null", "null", "no column", "several")
KINDS = (
    *("column", "column name", "index", "no index", "index name", "table name"),
    *dict.fromkeys(OF_COLUMNS),
)


def prepared(instance: Any, ddl: ops.Ddl) -> ops.Op:
    return ops.DdlPrepare(int(instance.state.cluster.properties["next_schema_version"]), ddl)


class SchemaChange:
    """A change that is drawn before the table is looked at, so that a seed draws the same."""

    def __init__(
        self,
        drawn: random.Random,
        tables: tuple[Table, ...] = (TABLE, GLOBAL),
        kinds: tuple[str, ...] = KINDS,
    ) -> None:
        self._wanted, self._kind = drawn.choice(tables), drawn.choice(kinds)
        self.what = f"{self._kind} of {self._wanted.name}"

    def __call__(self, instance: Any) -> ops.Op | None:
        catalog = instance.state.catalog
        table = catalog.table_by_id(self._wanted.id)
        if table is None:
            return None
        known, own = catalog.indexes.get(table.id, ()), len(self._wanted.columns)
        return prepared(instance, _change(self._kind, table, known, own))


def _change(kind: str, table: Table, known: tuple[Index, ...], own: int) -> ops.Ddl:
    """`own` columns are what the load writes, and stay."""
    altered = _altered(kind, table, own, known)
    if altered is not None:
        return ops.AlterTable(altered, known)
    indexes = [index for index in known if index.id > 1]
    number = max([1, *(index.id for index in indexes)]) + 1
    if kind == "no index" and indexes:
        return ops.DropIndex(table.id, indexes[0].id, indexes[0].name)
    if kind == "index name" and indexes:
        first = indexes[0]
        return ops.RenameIndex(table.id, first.id, first.name, f"{first.name}_")
    if kind == "index" and len(indexes) < 3:
        column = table.columns[1].name
        return ops.CreateIndex(Index(table.id, number, f"i{table.id}_{number}", (column,)))
    if kind == "column name":
        last = [column for column in table.columns if not column.is_dropped][-1]
        kept = last.name[0] if is_of(UNWRITTEN, last) or is_of(WRITTEN, last) else "r"
        new = f"{kept}{table.schema_version}"
        return ops.RenameColumn(table.id, table.name, last.name, new)
    if kind == "table name":
        new = f"{table.name[0]}{table.schema_version}"
        return ops.RenameTable(table.id, table.name, new)
    added = Column(f"n{table.schema_version}", ColumnType.INTEGER)
    return ops.AddColumns(table.id, table.name, (added,))


def _altered(kind: str, table: Table, own: int, indexes: tuple[Index, ...]) -> Table | None:
    match kind:
        case "default":
            return _widened(table, UNWRITTEN)
        case "written default":
            return _widened(table, WRITTEN)
        case "not null" | "null" if any(is_of(WRITTEN, column) for column in table.columns):
            return _stated(table, own, nullable=kind == "null")
        case "not null" | "null":
            return _widened(table, WRITTEN)
        case "no column":
            return _without(table, own, indexes)
        case "several":
            left = _without(_stated(table, own, nullable=False), own, indexes)
            return _widened(left, UNWRITTEN)
    return None


def _widened(table: Table, name: str) -> Table:
    """With one more column, whose DEFAULT rows of before have too."""
    number = table.schema_version
    nullable = name == WRITTEN or number % 2 == 0
    added = Column(
        f"{name}{number}", ColumnType.INTEGER, nullable, default=str(number), missing=str(number)
    )
    return replace(table, columns=table.columns + as_added((added,)))


def _stated(table: Table, own: int, *, nullable: bool) -> Table:
    """The last column that clients write, with or without NOT NULL."""
    columns = list(table.columns)
    for at in reversed(range(own, len(columns))):
        if is_of(WRITTEN, columns[at]):
            columns[at] = replace(columns[at], nullable=nullable, is_judged=not nullable)
            break
    return replace(table, columns=tuple(columns))


def _without(table: Table, own: int, indexes: tuple[Index, ...]) -> Table:
    """Without the first column that was added and is still there, unless an index is on it.

    Those that clients write go last: there has to be something to be wrong about.
    """
    left = [column for column in table.columns[own:] if not column.is_dropped]
    for column in sorted(left, key=lambda each: is_of(WRITTEN, each)):
        if not any(column.name in index.columns for index in indexes):
            return without_column(table, column.name)
    return table


def other_change(instance: Any) -> ops.Op:
    table = instance.state.catalog.table_by_id(OTHER.id)
    if table is None:
        return prepared(instance, ops.CreateTable(OTHER))
    if table.schema_version % 2:
        return prepared(instance, ops.TruncateTable(table.id, table.name))
    return prepared(instance, ops.DropTable(table.id, table.name))
