"""Schema changes of every kind, of a table under load, of a global one, and of one that comes
and goes.
"""

from __future__ import annotations

import random
from typing import Any

from cairn.model.log import ops
from cairn.model.log.ranges import whole_table
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Column, Index, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.sim.cluster.loads.load import TABLE

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
    id=TABLE.id + 2,
    name="other",
    columns=(Column("id", ColumnType.INTEGER, nullable=False),),
    primary_key=("id",),
    sharding=Sharded(("id",), "default"),
)
KINDS = ("column", "column name", "index", "no index", "index name", "table name")


def prepared(instance: Any, ddl: ops.Ddl) -> ops.Op:
    return ops.DdlPrepare(int(instance.state.cluster.properties["next_schema_version"]), ddl)


class SchemaChange:
    """A change that is drawn before the table is looked at, so that a seed draws the same."""

    def __init__(self, drawn: random.Random) -> None:
        self._wanted, self._kind = drawn.choice((TABLE, GLOBAL)), drawn.choice(KINDS)
        self.what = f"{self._kind} of {self._wanted.name}"

    def __call__(self, instance: Any) -> ops.Op | None:
        catalog = instance.state.catalog
        table = catalog.table_by_id(self._wanted.id)
        if table is None:
            return None
        indexes = [index for index in catalog.indexes.get(table.id, ()) if index.id > 1]
        return prepared(instance, _change(self._kind, table, indexes))


def _change(kind: str, table: Table, indexes: list[Index]) -> ops.Ddl:
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
        old = table.columns[-1].name
        return ops.RenameColumn(table.id, table.name, old, f"r{table.schema_version}")
    if kind == "table name":
        new = f"{table.name[0]}{table.schema_version}"
        return ops.RenameTable(table.id, table.name, new)
    added = Column(f"n{table.schema_version}", ColumnType.INTEGER)
    return ops.AddColumns(table.id, table.name, (added,))


def other_change(instance: Any) -> ops.Op:
    table = instance.state.catalog.table_by_id(OTHER.id)
    if table is None:
        return prepared(instance, ops.CreateTable(OTHER))
    if table.schema_version % 2:
        return prepared(instance, ops.TruncateTable(table.id, table.name))
    return prepared(instance, ops.DropTable(table.id, table.name))
