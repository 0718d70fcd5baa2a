"""For which tables a read may go to their owners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cairn.model.errors import PlanOutdated, TableUnderDdl
from cairn.model.tables.catalog import Catalog
from cairn.model.tables.schema import Column, Sharded, Table
from cairn.model.types.values import ColumnType
from cairn.node.statements.asker.owners import Owners
from cairn.node.statements.blocks.asking import Blocks

KEY = Column("id", ColumnType.INTEGER, False)
TABLE = Table(2000, "t", (KEY,), ("id",), Sharded(("id",), "default"), schema_version=7)


def check(table: Table | None, *, pending: int | None, version: int = 7) -> None:
    """A read that was planned for `version`, while the change `pending` is under way."""
    asked = object.__new__(Owners)
    change = None if pending is None else SimpleNamespace(schema_version=pending)
    tables = {} if table is None else {table.name: table}
    state: Any = SimpleNamespace(catalog=Catalog(tables=tables), pending_ddl=lambda: change)
    asked.state = state
    asked.check_versions({TABLE.id: version})


def check_block(table: Table, *, pending: int) -> None:
    """The same for a block, which may write."""
    asked = object.__new__(Owners)
    blocks = object.__new__(Blocks)
    change = SimpleNamespace(schema_version=pending)
    state: Any = SimpleNamespace(
        catalog=Catalog(tables={table.name: table}), pending_ddl=lambda: change
    )
    reads: Any = SimpleNamespace(owners=asked)
    asked.state = blocks._state = state
    blocks._reads = reads
    item: Any = SimpleNamespace(item=SimpleNamespace(tables={TABLE.id: 7}))
    blocks._check_schema([item])


def changing(table: Table) -> Table:
    return msgspec.structs.replace(table, operable=False)


def test_a_table_as_it_was_planned_is_read() -> None:
    check(TABLE, pending=None)


def test_a_table_that_is_being_changed_is_read_as_it_was() -> None:
    check(changing(TABLE), pending=8)


def test_a_table_that_is_being_made_is_waited_for() -> None:
    with pytest.raises(TableUnderDdl):
        check(changing(TABLE), pending=7)


def test_a_block_does_not_write_to_a_table_that_may_come_to_nothing() -> None:
    check_block(changing(TABLE), pending=8)
    with pytest.raises(TableUnderDdl):
        check_block(changing(TABLE), pending=7)


def test_a_table_that_has_changed_or_is_gone_is_planned_anew() -> None:
    for table in (msgspec.structs.replace(TABLE, schema_version=8), None):
        with pytest.raises(PlanOutdated):
            check(table, pending=None)
