"""Whatever an entry says, every instance lives on and comes to the same end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from cairn.governor.plan import plan
from cairn.governor.view import ClusterView
from cairn.model.log import ops
from cairn.model.log.applied import Applied
from cairn.model.members.topology import Grade, Position, State, Tier
from cairn.model.tables import system_tables as system
from cairn.model.tables.catalog_rows import CatalogRows
from cairn.node.boot.config import InstanceConfig
from cairn.node.boot.first_entries import first_entries, first_instance
from cairn.node.consensus.global_state import GlobalState
from cairn.raft.types import Entry
from cairn.storage.raft_db.global_tables import dump_tables
from cairn.storage.raft_db.raft_store import RaftStore
from cairn.storage.raft_db.state_machine import StateMachine

INSTANCE = system.PICO_INSTANCE
WORDS = ("", "i1", "r", "Online", "[]", "{}", "null", '["Onlin",1]', '{"a":{}}', "[[[", "\x00", "é")


def entry(index: int, op: ops.Op) -> Entry:
    return Entry(1, index, 0, ops.encode(ops.Envelope(op, f"request {index}", "now")))


class Copy:
    """The state machine of one instance, and the pictures that its event loop makes of it."""

    def __init__(self, path: Path) -> None:
        self.store = RaftStore(path)
        self.machine = StateMachine(self.store.connection)
        config = InstanceConfig(
            cluster_name="c",
            instance_name="i1",
            tiers=(Tier("default", 1, is_default=True),),
        )
        row = first_instance(config, "uuid-i1", "uuid-r1")
        entries = first_entries(config, row, "uuid-c", "now", lambda password: "verifier")
        for each in entries:
            self.machine.apply(each)
        self.last = entries[-1].index
        self.state = GlobalState(path)

    def apply(self, *data: Entry) -> list[Applied]:
        done = [self.machine.apply(each) for each in data]
        self.state.follow(done)
        self.last = data[-1].index
        return done

    def govern(self) -> Any:
        return plan(
            ClusterView(
                cluster=self.state.cluster,
                leader=1,
                voters=frozenset({1}),
                learners=frozenset(),
                pending_ddl=self.state.pending_ddl(),
                queue=self.state.queue(),
                sharded_tiers=self.state.catalog.sharded_tiers,
            )
        )

    def close(self) -> None:
        self.state.close()
        self.store.close()


def junk(chance: random.Random, depth: int = 0) -> Any:
    choices: list[Any] = [
        None,
        chance.choice(WORDS),
        chance.randint(-3, 3),
        chance.choice((2**63 - 1, -(2**63), 2**64 - 1)),
        chance.choice((0.5, -1.0, float("inf"))),
        bytes(chance.randrange(20)),
        True,
    ]
    if depth < 2:
        choices += [[junk(chance, depth + 1)], {"a": junk(chance, depth + 1)}]
    return chance.choice(choices)


def garbage(chance: random.Random) -> ops.Op:
    table = chance.choice((*system.GLOBAL_TABLES, system.CAIRN_EVENT)).id
    if chance.random() < 0.1:
        table = chance.choice((0, -1, 1024, 9999))
    width = len(system.BY_ID[table].columns) if table in system.BY_ID else 3
    width = max(width + chance.choice((0, 0, 0, 1, -1)), 0)
    key = tuple(chance.choice(("i1", "default_1", 1, junk(chance))) for _ in range(1))
    match chance.randrange(6):
        case 0:
            return ops.Insert(table, tuple(junk(chance) for _ in range(width)))
        case 1:
            return ops.Replace(table, tuple(junk(chance) for _ in range(width)))
        case 2:
            return ops.Delete(table, key)
        case 3:
            return chance.choice((ops.DdlCommit(7), ops.DdlAbort(7, "no"), ops.Nop()))
        case 4:
            several = [garbage(chance) for _ in range(2)]
            return ops.Batch(tuple(each for op in several for each in ops.dml_of(op)))
        case _:
            changes = ((chance.randint(-1, width), junk(chance)),)
            return ops.Update(table, key, changes)


def data_of(chance: random.Random) -> bytes:
    made = ops.encode(ops.Envelope(garbage(chance), "r", "now"))
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(1, 40))
    if chance.random() < 0.2:
        return made[: chance.randrange(1, len(made))]
    return made


@pytest.mark.parametrize("seed", range(6))
def test_garbage_stops_nobody_and_leaves_two_copies_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    one, other = Copy(tmp_path / "one.db"), Copy(tmp_path / "other.db")
    try:
        for index in range(one.last + 1, one.last + 250):
            try:
                data = data_of(chance)
            except (msgspec.MsgspecError, OverflowError, TypeError):
                continue  # not even an entry
            said = [copy.apply(Entry(1, index, 0, data)) for copy in (one, other)]
            assert str(said[0][0].error) == str(said[1][0].error), f"seed {seed}"
            one.govern()
            assert one.state.is_as_rows_say(), f"seed {seed}, entry {index}"
        assert one.machine.tables.known.tables == CatalogRows(one.state.rows).tables
        assert dump_tables(one.store.connection) == dump_tables(other.store.connection)
        again = StateMachine(one.store.connection)  # a restart reads what is there
        assert dump_tables(again.connection) == dump_tables(other.store.connection)
    finally:
        one.close()
        other.close()


def test_an_entry_that_cannot_be_understood_has_no_effect_and_is_told(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "one.db")
    before = dump_tables(copy.store.connection)
    at = INSTANCE.position("target_state")
    typo = ops.Update(INSTANCE.id, ("i1",), ((at, '["Onlin",1]'),))
    [done] = copy.apply(entry(copy.last + 1, typo))
    assert done.error is not None and done.error.sqlstate == "23514"
    assert "_pico_instance cannot be understood" in done.error.message
    [done] = copy.apply(Entry(1, copy.last + 1, 0, b"\xc1 no entry"))
    assert done.error is not None and "cannot be understood" in done.error.message
    assert dump_tables(copy.store.connection) == before
    good = ops.Update(INSTANCE.id, ("i1",), ((at, '["Online",1]'),))
    [done] = copy.apply(entry(copy.last + 1, good))
    assert done.error is None
    assert copy.state.cluster.instances["i1"].target_state == State(Grade.ONLINE, 1)
    copy.close()


def test_what_was_refused_is_not_told_later(tmp_path: Path) -> None:
    """Events are made from pictures: a refused entry must not stay in them."""
    copy = Copy(tmp_path / "one.db")
    change = ops.Replace(system.PICO_PEER_ADDRESS.id, (1, "elsewhere:4327", "pgproto"))
    keep = copy.machine.events._keep

    def refuse(*_: Any) -> None:
        raise ValueError("no")

    copy.machine.events._keep = refuse  # type: ignore[method-assign]
    [done] = copy.apply(entry(copy.last + 1, change))
    assert done.error is not None and (done.changes, done.events_01) == ([], [])
    copy.machine.events._keep = keep  # type: ignore[method-assign]
    [done] = copy.apply(entry(copy.last + 1, change))
    assert done.error is None and len(done.events_01) == 1
    copy.close()


def test_trouble_of_the_disk_is_not_taken_for_a_bad_entry(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "one.db")

    def full(*_: Any) -> list[Any]:
        raise apsw.FullError("database or disk is full")

    copy.machine.tables.dml = full  # type: ignore[method-assign]
    with pytest.raises(apsw.FullError):
        copy.machine.apply(entry(copy.last + 1, ops.Delete(INSTANCE.id, ("i1",))))
    copy.close()


def broken(copy: Copy, column: str, value: str) -> None:
    """A row that an earlier version has let in."""
    position = INSTANCE.position(column)
    sql = f"UPDATE {INSTANCE.physical_name} SET c{position} = ?"
    copy.store.connection.execute(sql, (value,))
    copy.machine = StateMachine(copy.store.connection)
    copy.state.reload(Position(1, copy.last))


def test_a_row_that_is_there_and_cannot_be_understood_stops_nobody(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "one.db")
    broken(copy, "target_state", '["Onlin",1]')
    row = copy.state.cluster.instances["i1"]
    assert (row.target_state, row.current_state) == (State(Grade.OFFLINE), State(Grade.OFFLINE))
    [problem] = copy.state.cluster.problems
    assert problem.startswith("_pico_instance i1: target_state: '[\"Onlin\",1]' is not allowed")
    idle = copy.govern()
    assert (idle.step, len(idle.blocked_by)) == ("idle", 1)
    assert "write a good value with UPDATE" in idle.blocked_by[0]
    at = INSTANCE.position("target_state")
    repair = ops.Update(INSTANCE.id, ("i1",), ((at, json.dumps(["Online", 1])),))
    [done] = copy.apply(entry(copy.last + 1, repair))
    assert (done.error, copy.state.cluster.problems) == (None, ())
    copy.close()
