"""A statement that changes more than one record can tell is several records, and one change."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cairn.model.errors import CairnError, LimitExceeded
from cairn.model.log.records import (
    Body,
    Kind,
    Operation,
    Packed,
    RowChange,
    RowOp,
    Shape,
    decode_body,
    encode_body,
)
from cairn.model.tables.schema import ForeignKey
from cairn.replication.applier import Damaged, NoRoom
from cairn.replication.relay import Subscribe, select
from cairn.storage.data_db import data_store, row_log
from cairn.storage.data_db.long import gathering
from cairn.storage.data_db.long.gathering import Gathering
from cairn.storage.files import spill
from tests.replication.builders import TABLE, Site, inserted

ROWS = 10
Pair = tuple[Site, Site]
BEFORE = [(key, "x") for key in range(ROWS)]
AFTER = [(key, "y") for key in range(ROWS)]


@pytest.fixture(autouse=True)
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows are a record."""
    monkeypatch.setattr(gathering, "LOOK_EVERY", 3)
    monkeypatch.setattr(gathering, "PART_BYTES", 1)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A master in epoch 1 with ten rows, and a replica that has them."""
    master, replica = Site(tmp_path, "A"), Site(tmp_path, "B")
    master.master(1)
    replica.enter(1)
    master.create()
    for key in range(ROWS):
        master.insert(key)
    assert replica.follow(master) == ROWS + 1
    yield master, replica
    master.close()
    replica.close()


def update_all(site: Site, text: str = "y") -> tuple[int, int]:
    return site.run(f"UPDATE {TABLE.physical_name} SET c1 = ?", text)


def parts_of(site: Site, after: int = ROWS + 1) -> list[Packed]:
    return site.log_of(site.name, after)


def more_of(records: list[Packed]) -> list[tuple[int, int, bool]]:
    """Of each record: its lsn, how many changes it has, whether there is more."""
    found = [(record.lsn, decode_body(record.body)) for record in records]
    return [(lsn, len(body.changes), body.more) for lsn, body in found]


def test_a_long_statement_is_told_in_records_that_follow_each_other(pair: Pair) -> None:
    master, _ = pair
    assert update_all(master) == (ROWS, 15)
    assert more_of(parts_of(master)) == [
        (12, 3, True),
        (13, 3, True),
        (14, 3, True),
        (15, 1, False),
    ]
    assert master.insert(77) == 16


def test_a_replica_applies_nothing_of_it_before_all_is_there(pair: Pair) -> None:
    master, replica = pair
    update_all(master)
    *first, last = parts_of(master)
    for record in first:
        assert replica.take([record]) == 1
        assert replica.rows() == BEFORE
        assert replica.store.position() == (1, {"A": ROWS + 1})
        assert parts_of(replica) == []
    assert replica.applier.arriving.upto == {"A": 14}
    replica.take([last])
    assert replica.rows() == AFTER
    assert replica.store.position() == master.store.position()
    assert replica.log_of("A") == master.log_of("A")
    assert replica.applier.arriving.upto == {}


def test_what_a_replica_holds_is_not_asked_for_again(pair: Pair) -> None:
    master, replica = pair
    update_all(master)
    replica.take(parts_of(master)[:2])

    def asked(held: dict[str, int]) -> list[int]:
        request = Subscribe("B", "r1", replica.store.vclock, held=held)
        vclock = master.store.vclock
        found = select(
            request, vclock, master.reader.oldest, lambda *at: master.log_of(at[0], at[1])
        )
        return [record.lsn for record in found]

    assert asked(replica.applier.arriving.upto) == [14, 15]
    assert asked({}) == [12, 13, 14, 15]
    assert replica.take(parts_of(master)) == 2  # those it holds are known
    assert replica.rows() == AFTER


def test_who_starts_again_has_nothing_of_it_and_takes_it_anew(pair: Pair) -> None:
    master, replica = pair
    update_all(master)
    replica.take(parts_of(master)[:2])
    replica.reopen()
    replica.enter(1)
    assert replica.applier.arriving.upto == {}
    assert replica.follow(master) == 4
    assert replica.rows() == AFTER


def test_a_statement_that_its_master_took_along_was_never_there(pair: Pair) -> None:
    """The replica had a part of it and becomes master: its position is that of before."""
    old, new = pair
    update_all(old)
    new.take(parts_of(old)[:3])
    cut = new.store.position()[1]["A"]
    new.enter(2, A=cut)
    new.master(2)
    assert new.applier.arriving.upto == {}
    assert new.rows() == BEFORE
    update_all(new, "z")
    assert len(old.enter(2, A=cut)) == 4
    assert old.rows() == BEFORE
    assert old.diverged() == [("A", 1, lsn) for lsn in (12, 13, 14, 15)]
    assert old.follow(new) == 4
    assert old.rows() == new.rows() == [(key, "z") for key in range(ROWS)]


def test_the_rest_of_a_statement_does_not_end_one_of_another_epoch(pair: Pair) -> None:
    """The same master again, under the same numbers."""
    master, replica = pair
    update_all(master)
    replica.take(parts_of(master)[:2])
    master.enter(2, A=ROWS + 1)
    assert master.rows() == BEFORE
    master.master(2)
    replica.enter(2, A=ROWS + 1)
    update_all(master, "z")
    assert replica.follow(master) == 4
    assert replica.rows() == master.rows() == [(key, "z") for key in range(ROWS)]


def test_a_full_copy_overtakes_what_is_held(pair: Pair) -> None:
    master, replica = pair
    update_all(master)
    records = parts_of(master)
    replica.take(records[:2])
    replica.group(lambda: replica.store.connection.execute("UPDATE origin SET base = 15"))
    replica.store.reload()  # as after a copy
    master.insert(77)
    assert replica.take([*records[2:], *parts_of(master, 15)]) == 1
    assert replica.applier.arriving.upto == {}
    assert replica.rows() == [*BEFORE, (77, "x")]


@pytest.mark.parametrize("at", [0, 2, 3])
def test_a_damaged_part_takes_back_all_of_it_and_it_is_asked_for_anew(pair: Pair, at: int) -> None:
    master, replica = pair
    update_all(master)
    records = parts_of(master)
    body = decode_body(records[at].body)
    change = body.changes[0]
    assert change.old is not None
    elsewhere = msgspec.structs.replace(change, old=(change.old[0], 999, "x"))
    wrong = msgspec.structs.replace(body, changes=(elsewhere, *body.changes[1:]))
    broken = [*records]
    broken[at] = msgspec.structs.replace(records[at], body=encode_body(wrong))
    with pytest.raises(Damaged, match="changed 0 rows"):
        replica.take(broken)
    assert replica.rows() == BEFORE
    assert replica.store.position() == (1, {"A": ROWS + 1})
    assert replica.applier.arriving.upto == {}
    assert replica.follow(master) == 4
    assert replica.rows() == AFTER


def test_one_that_fails_leaves_no_record_and_no_row(pair: Pair) -> None:
    master, replica = pair
    with pytest.raises(Exception, match="UNIQUE"):
        master.run(f"UPDATE {TABLE.physical_name} SET c0 = 100 - c0 * (c0 < 9)")
    assert master.rows() == BEFORE
    assert master.insert(77) == ROWS + 2
    replica.follow(master)
    assert replica.rows() == master.rows()


def test_an_operation_is_known_with_all_of_its_rows_or_not_at_all(pair: Pair) -> None:
    master, replica = pair

    def work() -> int:
        master.store.connection.execute(f"DELETE FROM {TABLE.physical_name}")
        master.store.put_operation(Operation("once", ROWS, ((1, 1),)))
        return master.store.count_rows()

    assert master.group(lambda: master.store.statement(work)) == (ROWS, 15)
    *first, last = parts_of(master)
    replica.take(first)
    assert replica.store.operation("once") is None
    replica.take([last])
    assert replica.store.operation("once") == Operation("once", ROWS, ((1, 1),))
    assert replica.rows() == []


def test_a_few_long_rows_are_several_records_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number says nothing: they are looked at when they are encoded."""
    monkeypatch.setattr(gathering, "LOOK_EVERY", 100)
    monkeypatch.setattr(gathering, "PART_BYTES", 2_000)
    monkeypatch.setattr(data_store, "ONE_RECORD_BYTES", 5_000)
    monkeypatch.setattr(data_store, "RECORD_MAX_BYTES", 2_500)
    master, replica = pair
    assert update_all(master, "y" * 1_000)[0] == ROWS
    assert more_of(parts_of(master))[-1] == (ROWS + 12, 0, False)
    replica.follow(master)
    assert replica.rows() == master.rows() == [(key, "y" * 1_000) for key in range(ROWS)]


def test_long_rows_that_were_told_are_not_told_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few changes, so that nobody looked at them before their statement was over."""
    monkeypatch.setattr(gathering, "LOOK_EVERY", 100)
    monkeypatch.setattr(gathering, "PART_BYTES", 2_000)
    monkeypatch.setattr(data_store, "ONE_RECORD_BYTES", 5_000)
    master, replica = pair
    update_all(master, "y" * 1_000)
    master.run(f"UPDATE {TABLE.physical_name} SET c1 = 'short'")
    name, text = TABLE.physical_name, "z" * 1_000
    master.run(f"INSERT INTO {name} SELECT 1, c0 + 100, '{text}' FROM {name}")
    replica.follow(master)
    assert replica.rows() == master.rows()
    told = [decode_body(record.body).changes for record in parts_of(master)]
    assert sum(map(len, told)) == 3 * ROWS


def test_no_record_is_longer_than_it_may_be_whatever_was_guessed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "PART_MOST", 3_000)
    monkeypatch.setattr(data_store, "RECORD_MAX_BYTES", 3_100)
    monkeypatch.setattr(gathering, "LOOK_EVERY", 7)
    master, replica = pair
    assert update_all(master, "y" * 1_000)[0] == ROWS
    replica.follow(master)
    assert replica.rows() == master.rows() == [(key, "y" * 1_000) for key in range(ROWS)]


@pytest.mark.parametrize("lengths", [[10] * 300 + [1_000] * 50, [1_000, *[10] * 10] * 40])
def test_what_is_in_memory_is_bounded_also_when_rows_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: list[int]
) -> None:
    monkeypatch.setattr(gathering, "LOOK_EVERY", 8)
    monkeypatch.setattr(gathering, "PART_BYTES", 5_000)
    gathered = Gathering(tmp_path, lambda table: False)
    for key, length in enumerate(lengths):
        gathered.changes.append(inserted(key, "x" * length))
        if len(gathered.changes) >= gathered.look_at:
            gathered.look()
        assert sum(len(change.new[2]) for change in gathered.changes if change.new) < 5_000 + 8_100


def test_a_statement_that_fails_while_it_is_logged_leaves_no_trace_of_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of a position has to be found on disk, too."""
    site = Site(tmp_path, "A")
    site.master(1)
    site.create()
    for key in range(ROWS):
        site.insert(key)
    site.master(2)
    monkeypatch.setattr(data_store, "RECORD_MAX_BYTES", 1_000)
    with pytest.raises(LimitExceeded):
        site.run(f"UPDATE {TABLE.physical_name} SET c1 = iif(c0 < 9, 'y', ?)", "y" * 1_000)
    assert site.store.position() == (1, {"A": ROWS + 1})
    site.insert(77)
    site.reopen()
    assert site.store.position() == (2, {"A": ROWS + 2})
    site.close()


def test_more_than_a_statement_may_change_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, _ = pair
    monkeypatch.setattr(master.store._gathered._file, "_most", 60)
    with pytest.raises(LimitExceeded, match="the statement changes more than"):
        update_all(master)
    assert master.rows() == BEFORE
    assert master.insert(77) == ROWS + 2


def test_a_disk_without_room_refuses_the_statement_and_nothing_else(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair
    monkeypatch.setattr(spill.Room, "is_short", lambda self, more: True)
    with pytest.raises(CairnError) as problem:
        update_all(master)
    assert problem.value.sqlstate == "53100"
    assert master.rows() == BEFORE
    monkeypatch.undo()
    assert master.insert(77) == ROWS + 2
    replica.follow(master)
    assert replica.rows() == master.rows()


def test_a_replica_without_room_says_so_and_goes_on_when_it_has_some(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair
    update_all(master)
    replica.take(parts_of(master)[:1])
    monkeypatch.setattr(spill.Room, "is_short", lambda self, more: True)
    with pytest.raises(NoRoom, match="record A:13 cannot be held: the disk of the instance has no"):
        replica.take(parts_of(master))
    assert replica.rows() == BEFORE
    monkeypatch.undo()
    replica.follow(master)
    assert replica.rows() == AFTER


def test_a_replica_may_use_space_that_is_kept_from_statements(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk of which three hundredths are free."""
    master, replica = pair
    update_all(master)
    disk = SimpleNamespace(f_blocks=100_000, f_bavail=3_000, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    monkeypatch.setattr(spill, "LOOK_BYTES", 0)
    with pytest.raises(CairnError, match="no room for temporary files"):
        update_all(master, "z")
    replica.follow(master)
    assert replica.rows() == AFTER


def test_tied_rows_are_held_until_the_end_as_far_as_memory_may_be_used(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, replica = pair
    child = msgspec.structs.replace(
        TABLE,
        id=TABLE.id + 1,
        name="child",
        foreign_keys=(ForeignKey("child_a", (0,), TABLE.id, (0,), on_delete="cascade"),),
    )
    master.reshape(Shape(child.id, child))
    for key in range(ROWS):
        master.run(f"INSERT INTO {child.physical_name} VALUES (1, ?, 'of it')", key)
    monkeypatch.setattr(data_store, "ONE_RECORD_BYTES", 100)
    assert master.run(f"DELETE FROM {TABLE.physical_name} WHERE c0 < 9")[0] == 9
    replica.follow(master)
    assert replica.rows() == master.rows() == [(9, "x")]
    left = f"SELECT c0 FROM {child.physical_name}"
    assert replica.reader.connection.execute(left).fetchall() == [(9,)]
    for key in range(ROWS):
        master.insert(100 + key)
    monkeypatch.setattr(gathering, "HELD_BYTES", 50)
    with pytest.raises(LimitExceeded, match="in tables with foreign keys"):
        update_all(master)


def test_a_tail_that_is_too_long_to_be_undone_is_kept_aside_whole(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_log, "UNDONE_BYTES", 60)
    old, _ = pair
    update_all(old)
    assert old.enter(2, A=ROWS + 1) is None
    assert not old.store.is_complete
    assert old.diverged() == [("A", 1, lsn) for lsn in (12, 13, 14, 15)]


# --- what is gathered -----------------------------------------------------------------------------


def _changes(dice: random.Random, count: int) -> list[RowChange]:
    row = (1, 2, "x")
    made: dict[RowOp, Callable[[], RowChange]] = {
        RowOp.INSERT: lambda: inserted(1),
        RowOp.UPDATE: lambda: RowChange(TABLE.id, 1, RowOp.UPDATE, row, row),
        RowOp.DELETE: lambda: RowChange(TABLE.id, 1, RowOp.DELETE, row, None),
    }
    return [made[dice.choice(list(RowOp))]() for _ in range(count)]


def _told(changes: list[RowChange]) -> int:
    inserts = sum(change.op == RowOp.INSERT for change in changes)
    deletes = sum(change.op == RowOp.DELETE for change in changes)
    return len(changes) - inserts - deletes + max(inserts, deletes)


@pytest.mark.parametrize("seed", range(40))
def test_each_statement_of_a_block_is_told_of_its_own_rows(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    gathered = Gathering(tmp_path, lambda table: False)
    everything: list[RowChange] = []
    for _ in range(dice.randint(1, 6)):
        since = gathered.count()
        assert since == len(everything)
        mine = _changes(dice, dice.choice((0, 1, 2, 3, 5, 20)))
        for change in mine:
            gathered.changes.append(change)
            if len(gathered.changes) >= gathered.look_at:
                gathered.look()
        everything += mine
        assert gathered.count_rows(since) == _told(mine)
        assert gathered.count_rows(0) == _told(everything)
        assert gathered.since(since) in (tuple(mine), None)
    packed: list[Any] = [msgspec.msgpack.decode(part) for part in gathered.parts()]
    rest = msgspec.msgpack.decode(encode_body(Body(Kind.ROWS, 0, tuple(gathered.changes))))[2]
    whole = msgspec.msgpack.decode(encode_body(Body(Kind.ROWS, 0, tuple(everything))))[2]
    assert [change for part in packed for change in part] + rest == whole
    gathered.clear()
    assert (gathered.count(), list(gathered.parts())) == (0, [])
