"""What is kept of the changes of global tables leads from any kept position to any later one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cairn.model.errors import BehindPosition, PositionLost
from cairn.model.log import ops
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import Column, Table
from cairn.model.types.values import ColumnType
from cairn.raft.types import ConfState, Entry, SnapshotMeta
from cairn.storage.raft_db import global_log
from cairn.storage.raft_db.global_log import GlobalChange, reading
from cairn.storage.raft_db.global_tables import dump_tables
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

TABLE = Table(
    id=2000,
    name="g",
    columns=(Column("a", ColumnType.INTEGER), Column("s", ColumnType.STRING)),
    primary_key=("a",),
)
Rows = dict[Any, Any]


class Instance:
    """One `raft.db`, applying entries as an instance does."""

    def __init__(self, path: Path) -> None:
        self.path, self.last = path, 0
        self.store = RaftStore(path)
        self.machine = StateMachine(self.store.connection)

    def apply(self, *given: ops.Op) -> None:
        for op in given:
            self.last += 1
            data = ops.encode(ops.Envelope(op, f"{self.last}", "2026-01-01T00:00:00Z"))
            with self.store.connection:
                self.machine.apply(Entry(3, self.last, 0, data))
                self.store.put_applied(self.last, 3)

    def changes(self, after: int, limit: int = 1000) -> tuple[list[GlobalChange], int]:
        with reading(self.path) as log:
            found, reached = log.changes(TABLE, after, limit)
        return found, reached.index

    def rows_at(self, at: int) -> Rows:
        with reading(self.path) as log:
            return {row[0]: row[1] for row in log.rows_at(TABLE, at)}


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    made = Instance(tmp_path / "raft.db")
    made.apply(ops.DdlPrepare(1, ops.CreateTable(TABLE)), ops.DdlCommit(1))
    return made


def replayed(known: Rows, changes: list[GlobalChange]) -> Rows:
    now = dict(known)
    for change in changes:
        if change.is_truncate:
            now.clear()
            continue
        if change.old is not None:
            assert now.pop(change.old[0]) == change.old[1]
        if change.new is not None:
            assert change.new[0] not in now
            now[change.new[0]] = change.new[1]
    return now


def anything(chance: random.Random) -> ops.Op:
    key, word = chance.randrange(8), chance.choice("xyz")
    return chance.choice(
        [
            ops.Insert(TABLE.id, (key, word)),
            ops.Replace(TABLE.id, (key, word)),
            ops.Update(TABLE.id, (key,), ((1, word),)),
            ops.Delete(TABLE.id, (key,)),
            ops.Batch((ops.Delete(TABLE.id, (key,)), ops.Insert(TABLE.id, (key, word)))),
            ops.Batch((ops.Insert(TABLE.id, (key, word)), ops.Insert(TABLE.id, (key, word)))),
            ops.Insert(system.PICO_PROPERTY.id, (f"{key}", "1")),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_from_the_rows_at_one_position_to_those_at_another(
    instance: Instance, seed: int
) -> None:
    """Entries that are refused (a key that is there) are none of them."""
    chance = random.Random(seed)
    instance.apply(*(anything(chance) for _ in range(60)))
    for _ in range(10):
        first, last = sorted(chance.sample(range(2, instance.last + 1), 2))
        found, _reached = instance.changes(first)
        upto = [change for change in found if change.position.index <= last]
        assert replayed(instance.rows_at(first), upto) == instance.rows_at(last)


def test_a_limit_cuts_between_entries_and_nothing_is_told_twice(instance: Instance) -> None:
    many = ops.Batch(tuple(ops.Insert(TABLE.id, (at, "x")) for at in range(5)))
    instance.apply(many, ops.Delete(TABLE.id, (1,)), ops.Delete(TABLE.id, (2,)))
    position, told = 0, []
    while position < instance.last:
        found, position = instance.changes(position, 2)
        assert len({change.position for change in found}) in (1, 2)
        told.append(len(found))
    assert told == [5, 2]


def test_a_table_that_was_emptied_is_told_as_that(instance: Instance) -> None:
    instance.apply(ops.Insert(TABLE.id, (1, "x")))
    before = instance.last
    instance.apply(ops.DdlPrepare(2, ops.TruncateTable(TABLE.id, "g")), ops.DdlCommit(2))
    instance.apply(ops.Insert(TABLE.id, (2, "y")))
    found, _ = instance.changes(before)
    assert [change.is_truncate for change in found] == [True, False]
    assert replayed({1: "x"}, found) == {2: "y"}
    with pytest.raises(PositionLost, match="was emptied since"):
        instance.rows_at(before)


def test_positions_before_what_is_kept_or_after_it_are_refused(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_log, "PRUNE_EVERY", 10)
    limit = rows.to_json(15)
    instance.apply(ops.Insert(system.PICO_DB_CONFIG.id, ("global_log_max", "", limit)))
    instance.apply(*(ops.Insert(TABLE.id, (at, "x")) for at in range(40)))
    with pytest.raises(PositionLost, match="begins after entry") as caught:
        instance.changes(2)
    assert caught.value.sqlstate == "PC005"
    with reading(instance.path) as log:
        begins = log.begins
    found, reached = instance.changes(begins)
    assert len(found) == instance.last - begins and reached == instance.last
    assert len(instance.rows_at(begins)) == 40 - len(found)
    with pytest.raises(BehindPosition):
        instance.changes(instance.last + 1)


def test_after_a_snapshot_only_what_follows_it_is_known(instance: Instance, tmp_path: Path) -> None:
    """What led to it is not here; another instance has it, and this one must not invent it."""
    instance.apply(*(ops.Insert(TABLE.id, (at, "x")) for at in range(5)))
    other = Instance(tmp_path / "other.db")
    other.apply(ops.Nop())
    with other.store.connection:
        other.store.install(SnapshotMeta(instance.last, 3, ConfState((1,))))
        other.machine.install(dump_tables(instance.store.connection))
    other.last = instance.last
    with pytest.raises(PositionLost):
        other.changes(instance.last - 1)
    for each in (instance, other):
        each.apply(ops.Delete(TABLE.id, (3,)))
    assert other.changes(instance.last - 1) == instance.changes(instance.last - 1)


def test_a_file_of_an_earlier_version_begins_where_it_is(instance: Instance) -> None:
    instance.apply(ops.Insert(TABLE.id, (1, "x")))
    instance.store.connection.execute("DROP TABLE global_changes")
    instance.store.connection.execute("DELETE FROM raft_state WHERE key = 'changes_from'")
    instance.machine = StateMachine(instance.store.connection)
    before = instance.last
    with pytest.raises(PositionLost):
        instance.changes(before - 1)
    instance.apply(ops.Insert(TABLE.id, (2, "y")))
    assert [change.new for change in instance.changes(before)[0]] == [(2, "y")]
