"""The durable log: what was written is there, what is damaged is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.model.errors import CairnError, StorageDamaged
from cairn.model.log import ops
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.model.tables.schema import FIRST_USER_TABLE_ID, Column, Index, Table
from cairn.model.types.values import ColumnType
from cairn.raft.types import ConfState, Entry, HardState, Ready, SnapshotMeta
from cairn.storage.files.groups import Job, run_group
from cairn.storage.raft_db.global_tables import dump_tables
from cairn.storage.raft_db.raft_store import LogView, RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

INTEGER = ColumnType.INTEGER
TABLE = Table(
    id=FIRST_USER_TABLE_ID,
    name="g",
    columns=(Column("id", INTEGER, nullable=False), Column("s", ColumnType.STRING)),
    primary_key=("id",),
    sharding=None,
)


def entries(first: int, last: int, term: int = 1) -> list[Entry]:
    return [Entry(term, index, 0, b"%d" % index) for index in range(first, last + 1)]


def write(store: RaftStore, ready: Ready) -> None:
    run_group(store.connection, [Job(lambda: store.write(ready), lambda _: None)])


def test_entries_and_hard_state_are_there_after_reopening(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")
    write(store, Ready(1, hard_state=HardState(3, 2, 1), entries=entries(1, 5, 3)))
    store.close()
    again = RaftStore(tmp_path / "raft.db")
    assert again.hard_state == HardState(3, 2, 1)
    assert again.load() == entries(1, 5, 3)


def test_a_conflicting_tail_is_replaced_in_the_same_transaction(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")
    write(store, Ready(1, hard_state=HardState(1, 0, 0), entries=entries(1, 5)))
    write(store, Ready(2, hard_state=HardState(2, 0, 0), entries=entries(3, 4, 2)))
    assert store.load() == entries(1, 2) + entries(3, 4, 2)


def test_an_error_leaves_nothing_of_its_group(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")

    def fail() -> None:
        raise OSError("disk")

    good = Job(lambda: store.append(entries(1, 3)), lambda _: None)
    with pytest.raises(OSError, match="disk"):
        run_group(store.connection, [good, Job(fail, lambda _: None)])
    assert store.load() == []


def test_compaction_keeps_the_position_and_the_rest(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")
    write(store, Ready(1, hard_state=HardState(1, 0, 5), entries=entries(1, 5)))
    view = LogView(store)
    with store.connection:
        store.put_applied(5, 1, ConfState((1,)))
        store.compact(3)
    view.compacted(3)
    assert (store.compacted, store.load()) == ((3, 1), entries(4, 5))
    assert (view.first_index(), view.last_index(), view.term(3)) == (4, 5, 1)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ("DELETE FROM raft_log WHERE idx = 3", "log entry 3 is missing"),
        ("UPDATE raft_log SET data = x'00' WHERE idx = 2", "log entry 2 has a wrong checksum"),
        ("UPDATE raft_state SET value = 99 WHERE key = 'commit'", "point past the last entry"),
        ("UPDATE raft_state SET value = 0 WHERE key = 'term'", "term 0 is behind the log"),
        ("UPDATE raft_state SET value = 9 WHERE key = 'format_version'", "format version 9"),
    ],
)
def test_contradictions_refuse_to_start_and_say_what_to_do(
    tmp_path: Path, harm: str, sentence: str
) -> None:
    store = RaftStore(tmp_path / "raft.db")
    write(store, Ready(1, hard_state=HardState(1, 0, 2), entries=entries(1, 5)))
    store.connection.execute(harm)
    store.close()
    with pytest.raises(StorageDamaged, match=sentence) as refusal:
        RaftStore(tmp_path / "raft.db")
    assert refusal.value.hint is not None


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 5000), flip=st.booleans())
def test_a_truncated_or_overwritten_file_is_never_served(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool
) -> None:
    path = tmp_path_factory.mktemp("raft") / "raft.db"
    store = RaftStore(path)
    write(store, Ready(1, hard_state=HardState(1, 0, 2), entries=entries(1, 50)))
    store.connection.pragma("wal_checkpoint(TRUNCATE)")
    store.close()
    content = bytearray(path.read_bytes())
    if flip:
        content[cut % len(content)] ^= 0xFF
        path.write_bytes(content)
    else:
        path.write_bytes(content[: -(cut % len(content)) or None])
    try:
        again = RaftStore(path)
    except StorageDamaged:
        return
    assert again.load() in (entries(1, 50), [])
    if not again.load():
        assert again.get("term") is None  # as good as never written: it will join anew


def test_a_batch_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    store = RaftStore(tmp_path / "raft.db")
    machine = StateMachine(store.connection)
    good = ops.Insert(system.PICO_PROPERTY.id, ("a", "1"))
    data = ops.encode(ops.Envelope(ops.Batch((good, good)), "r", "now"))
    done = machine.apply(Entry(1, 1, 0, data))
    assert done.error is not None and done.error.sqlstate == "23505"
    assert machine.connection.execute("SELECT count(*) FROM t516").fetchall() == [(0,)]


def looks(store: RaftStore) -> list[Any]:
    """Tables and indexes as SQLite itself describes them, down to the text."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    return store.connection.execute(query).fetchall()


def test_who_installs_a_snapshot_has_the_same_schema_as_who_applied_the_log(tmp_path: Path) -> None:
    """Both then do the same to every later entry: take it, or refuse it with the same words."""
    log = [
        *changed(1, ops.CreateTable(TABLE)),
        *changed(2, ops.AddColumns(TABLE.id, "g", (Column("n", INTEGER, nullable=False),))),
        *changed(3, ops.CreateIndex(Index(TABLE.id, 1, "g_s", ("s",), unique=True))),
        *changed(4, ops.CreateIndex(Index(TABLE.id, 2, "g_n", ("n",)))),
        *changed(5, ops.CreateIndex(Index(TABLE.id, 3, "gone", ("n",)))),
        *changed(6, ops.DropIndex(TABLE.id, 3, "gone")),
        ops.Batch(
            (
                ops.Insert(system.PICO_TABLE.id, rows.table_row(system.PICO_PROPERTY)),
                ops.Insert(
                    system.PICO_INDEX.id, rows.index_row(rows.primary_index(system.PICO_PROPERTY))
                ),
            )
        ),
        *changed(7, ops.CreateIndex(Index(system.PICO_PROPERTY.id, 1, "p", ("value",)))),
        ops.Insert(TABLE.id, (1, "x", 1)),
        ops.DdlPrepare(8, ops.CreateIndex(Index(TABLE.id, 4, "later", ("n",)))),
    ]
    after = [
        ops.Insert(TABLE.id, (2, "x", 1)),
        ops.Insert(TABLE.id, (3, "y", None)),
        ops.Insert(TABLE.id, (4, "z", 1)),
        ops.DdlCommit(8),
        *changed(9, ops.DropIndex(TABLE.id, 2, "g_n")),
    ]
    stores = [RaftStore(tmp_path / f"{name}.db") for name in "abc"]
    applied, empty, behind = stores
    machines = [StateMachine(store.connection) for store in stores]
    for op in log:
        assert carried_out(machines[0], op) is None
    for op in log[:-2]:
        assert carried_out(machines[2], op) is None
    for store, machine in ((empty, machines[1]), (behind, machines[2])):
        with store.connection:
            store.install(SnapshotMeta(len(log), 1, ConfState((1, 2))))
            machine.install(dump_tables(applied.connection))
        assert looks(store) == looks(applied)
    for op in after:
        first, *others = [str(carried_out(machine, op)) for machine in machines]
        assert others == [first, first]
    for store in (empty, behind):
        assert looks(store) == looks(applied)
        assert dump_tables(store.connection) == dump_tables(applied.connection)


def changed(version: int, ddl: ops.Ddl) -> tuple[ops.Op, ops.Op]:
    return ops.DdlPrepare(version, ddl), ops.DdlCommit(version)


def carried_out(machine: StateMachine, op: ops.Op) -> CairnError | None:
    return machine.apply(Entry(1, 1, 0, ops.encode(ops.Envelope(op, "r", "now")))).error


def test_a_snapshot_gives_the_same_tables(tmp_path: Path) -> None:
    one, two = RaftStore(tmp_path / "a.db"), RaftStore(tmp_path / "b.db")
    source, target = StateMachine(one.connection), StateMachine(two.connection)
    for key in ("x", "y"):
        op = ops.Insert(system.PICO_PROPERTY.id, (key, rows.to_json(key)))
        source.apply(Entry(1, 1, 0, ops.encode(ops.Envelope(op, key, "now"))))
    with two.connection:
        two.install(SnapshotMeta(7, 2, ConfState((1, 2))))
        target.install(dump_tables(one.connection))
    assert dump_tables(two.connection) == dump_tables(one.connection)
    assert (two.applied, two.compacted, two.conf_state) == ((7, 2), (7, 2), ConfState((1, 2)))
