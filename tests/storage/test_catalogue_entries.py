"""The catalogue follows what entries change, row by row, and is what its rows say."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.model.log import ops
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog import Privilege
from cairn.model.tables.catalog_rows import MAKERS, CatalogRows
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Index, Sharded, Table
from cairn.model.types.enums import EnumType
from cairn.model.types.values import ColumnType
from tests.storage.test_garbage_entries import Copy, entry

MOOD = (1 << 40) + 1
KINDS = ("create", "create", "create", "rename", "columns", "index", "drop index", "drop")


class Schema:
    """Schema changes as a leader proposes them: each is prepared, then made or called off."""

    def __init__(self, path: Path) -> None:
        self.copy, self.version, self.made = Copy(path), 1, 0

    def run(self, *all_ops: ops.Op) -> None:
        for op in all_ops:
            [done] = self.copy.apply(entry(self.copy.last + 1, op))
            assert done.error is None, done.error

    def change(self, ddl: ops.Ddl, *, aborted: bool = False) -> None:
        self.version += 1
        last: ops.Op = ops.DdlCommit(self.version)
        if aborted:
            last = ops.DdlAbort(self.version, "called off")
        self.run(ops.DdlPrepare(self.version, ddl), last)

    def table(self, *, mood: bool = False, is_global: bool = False) -> Table:
        self.made += 1
        enum = EnumType(MOOD) if mood else None
        return Table(
            id=FIRST_USER_TABLE_ID + self.made,
            name=f"t{self.made}",
            columns=(
                Column("id", ColumnType.INTEGER, nullable=False),
                Column("a", ColumnType.STRING, enum=enum),
            ),
            primary_key=("id",),
            sharding=None if is_global else Sharded(("id",), "default"),
        )

    def tables(self) -> list[Table]:
        found = self.copy.state.catalog.tables.values()
        return sorted((each for each in found if not each.is_system), key=lambda each: each.id)


@pytest.fixture
def schema(tmp_path: Path) -> Iterator[Schema]:
    made = Schema(tmp_path / "raft.db")
    yield made
    made.copy.close()


def random_change(schema: Schema, chance: random.Random) -> ops.Ddl | None:
    kind, tables = chance.choice(KINDS), schema.tables()
    if kind == "create" or not tables:
        return ops.CreateTable(
            schema.table(mood=chance.random() < 0.3, is_global=chance.random() < 0.3)
        )
    table = chance.choice(tables)
    indexes = schema.copy.state.catalog.indexes.get(table.id, ())
    match kind:
        case "rename":
            schema.made += 1
            return ops.RenameTable(table.id, table.name, f"t{schema.made}")
        case "columns":
            name = f"c{len(table.columns)}"
            return ops.AddColumns(table.id, table.name, (Column(name, ColumnType.INTEGER),))
        case "index":
            at = 1 + max((index.id for index in indexes), default=0)
            return ops.CreateIndex(Index(table.id, at, f"{table.name}_{at}", ("a",)))
        case "drop index" if indexes:
            index = chance.choice(indexes)
            return ops.DropIndex(table.id, index.id, index.name)
        case "drop":
            return ops.DropTable(table.id, table.name)
    return None


def random_rows(chance: random.Random) -> ops.Op:
    """What is no change of the schema, and yet of the catalogue."""
    table = FIRST_USER_TABLE_ID + chance.randrange(9)
    right = Privilege(40 + chance.randrange(5), "insert", "table", table)
    labels = tuple("abc"[: chance.randrange(1, 4)])
    mood = rows.enum_row(EnumType(MOOD, "mood", labels, 1, 1))
    setting = ("statement_timeout", "", str(chance.randrange(9)))
    granted = rows.privilege_row(right)
    key = tuple(granted[at] for at in system.PICO_PRIVILEGE.key_positions)
    return chance.choice(
        [
            ops.Replace(system.CAIRN_TYPE.id, mood),
            ops.Replace(system.PICO_PRIVILEGE.id, granted),
            ops.Delete(system.PICO_PRIVILEGE.id, key),
            ops.Replace(system.PICO_DB_CONFIG.id, setting),
            ops.Delete(system.PICO_DB_CONFIG.id, setting[:2]),
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_the_rows_say_after_each_change(schema: Schema, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(60):
        ddl = random_change(schema, chance)
        if ddl is not None:
            schema.change(ddl, aborted=chance.random() < 0.2)
        schema.run(random_rows(chance))
        state, told = schema.copy.state, f"seed {seed}, step {step}"
        assert state.is_as_rows_say(), told
        fresh = CatalogRows(state.rows)
        known = schema.copy.machine.tables.known
        assert known.tables == fresh.tables, told
        for table in fresh.tables:
            assert known.indexes_of(table) == fresh.indexes_of(table), told


def test_a_change_reads_the_rows_that_it_changes_and_no_others(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        schema.change(ops.CreateTable(schema.table()))
    read: Counter[int] = Counter()
    for table, make in list(MAKERS.items()):

        def counted(row: Any, table: int = table, make: Any = make) -> Any:
            read[table] += 1
            return make(row)

        monkeypatch.setitem(MAKERS, table, counted)
    schema.change(ops.CreateTable(schema.table()))
    # By both entries: judged once, understood by the writer and by the event loop.
    assert read[system.PICO_TABLE.id] == 6
    assert read[system.PICO_INDEX.id] == 3
