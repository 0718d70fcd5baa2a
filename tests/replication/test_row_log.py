"""The row log on disk: one record a statement, applied whole and only where it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from cairn.model.errors import LimitExceeded
from cairn.model.log.records import Kind, Operation, Packed, RowChange, RowOp, Shape
from cairn.replication.applier import Damaged, LogGap, LogRefused, OtherHistory
from cairn.replication.relay import Subscribe, check_history
from cairn.storage.data_db import data_store
from cairn.storage.data_db.full_copy import CopySource, CopyTarget
from tests.replication.builders import BY_B, TABLE, WIDER, Site, inserted, packed

Sites = Callable[..., list[Site]]


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    made: list[Site] = []

    def make(*names: str) -> list[Site]:
        made.extend(Site(tmp_path, name) for name in names)
        return made

    yield make
    for site in made:
        site.close()


@pytest.fixture
def pair(sites: Sites) -> tuple[Site, Site]:
    """A master in epoch 1 with a table and one row, and a replica that has both."""
    master, replica = sites("A", "B")
    master.master(1)
    replica.enter(1)
    master.create()
    master.insert(1)
    assert replica.follow(master) == 2
    return master, replica


# --- records --------------------------------------------------------------------------------------


def test_each_statement_leaves_one_record_and_lsns_have_no_gaps(pair: tuple[Site, Site]) -> None:
    master, _ = pair
    with pytest.raises(apsw.ConstraintError):
        master.insert(1)  # a failed statement uses no lsn
    assert master.run(f"UPDATE {TABLE.physical_name} SET c1 = 'y' WHERE c0 = 9") == (0, 0)
    master.run(f"INSERT INTO {TABLE.physical_name} VALUES (1, 2, 'x'), (1, 3, 'x')")
    assert [record.lsn for record in master.log_of("A")] == [1, 2, 3]


def test_a_statement_too_big_for_one_message_is_refused(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, _ = pair
    monkeypatch.setattr(data_store, "RECORD_MAX_BYTES", 1_000)
    with pytest.raises(LimitExceeded):
        master.insert(2, "x" * 2_000)
    assert master.rows() == [(1, "x")]
    assert master.insert(2) == 3


@pytest.mark.parametrize("alone", [False, True])
def test_a_refused_first_statement_of_a_new_master_leaves_nothing_behind(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """Its number among the origins is taken back with it; the next statement gets one again."""
    old, new = pair
    old.enter(2, A=2)
    new.enter(2, A=2)
    new.master(2)
    monkeypatch.setattr(data_store, "RECORD_MAX_BYTES", 1_000)

    def too_much() -> int:
        new.store.connection.execute(f"UPDATE {TABLE.physical_name} SET c1 = ?", ("x" * 2_000,))
        return 1

    with pytest.raises(LimitExceeded):
        new.group(lambda: new.store.statement(too_much, alone=alone))
    assert new.insert(2) == 1
    assert [record.lsn for record in new.log_of("B")] == [1]
    assert old.follow(new) == 1
    assert old.rows() == new.rows() == [(1, "x"), (2, "x")]


def test_a_relay_reads_to_the_end_of_what_fits_and_sees_what_came_since(
    pair: tuple[Site, Site],
) -> None:
    """Rule 16: a half-read cursor would hold the connection in the past."""
    master, _ = pair
    for key in range(2, 9):
        master.insert(key, "x" * 100)
    assert [record.lsn for record in master.reader.packed("A", 0, 100, 150)] == [1]
    assert [record.lsn for record in master.reader.packed("A", 2, 100, 350)] == [3, 4]
    master.insert(9)
    assert master.log_of("A")[-1].lsn == 10


# --- a schema change has its place in the log -----------------------------------------------------


def test_a_schema_change_is_applied_at_its_place(pair: tuple[Site, Site]) -> None:
    master, replica = pair
    master.insert(2)
    master.reshape(Shape(TABLE.id, WIDER, (BY_B,)))
    master.run(f"INSERT INTO {TABLE.physical_name} VALUES (1, 3, 'x', 7)")
    master.reshape(Shape(TABLE.id, msgspec.structs.replace(WIDER, schema_version=3), truncate=True))
    master.run(f"INSERT INTO {TABLE.physical_name} VALUES (1, 4, 'x', 8)")
    kinds = [msgspec.msgpack.decode(record.body)[0] for record in master.log_of("A")]
    assert kinds == [Kind.DDL, Kind.ROWS, Kind.ROWS, Kind.DDL, Kind.ROWS, Kind.DDL, Kind.ROWS]
    for record in master.log_of("A", 2):
        assert replica.take([record]) == 1
    assert replica.rows() == master.rows() == [(4, "x", 8)]
    assert replica.store.tables == master.store.tables


def test_a_schema_change_that_fails_half_way_leaves_the_table_as_it_was(
    pair: tuple[Site, Site],
) -> None:
    _, replica = pair
    twice = (BY_B, msgspec.structs.replace(BY_B, id=2, columns=("b",), unique=True))
    replica.take([packed("A", 1, 3, inserted(2))])  # two rows with one b: the index cannot be made
    with pytest.raises(Damaged):
        replica.take([packed("A", 1, 4, kind=Kind.DDL, shape=Shape(TABLE.id, WIDER, twice))])
    change = inserted(1, version=2)  # a row that is there, after the table was widened
    with pytest.raises(Damaged):
        replica.take([packed("A", 1, 4, change, kind=Kind.DDL, shape=Shape(TABLE.id, WIDER))])
    assert replica.store.tables == {TABLE.id: TABLE}
    assert replica.take([packed("A", 1, 4, inserted(3))]) == 1
    assert replica.rows() == [(1, "x"), (2, "x"), (3, "x")]


# --- what does not fit is refused, with origin and lsn --------------------------------------------

CHANGED = RowChange(TABLE.id, 1, RowOp.UPDATE, (1, 5, "x"), (1, 5, "y"))
BAD = {
    "no such table": (packed("A", 1, 3, inserted(2, table=7)), "this instance has no such table"),
    "another schema": (packed("A", 1, 3, inserted(2, version=2)), "this instance has schema 1"),
    "a row that is not there": (packed("A", 1, 3, CHANGED), "changed 0 rows of table t instead"),
    "a row that is there": (packed("A", 1, 3, inserted(1)), "UNIQUE constraint failed"),
    "a wrong type": (packed("A", 1, 3, inserted("no number")), "cannot store TEXT"),  # type: ignore[arg-type]
    "too few columns": (
        packed("A", 1, 3, RowChange(TABLE.id, 1, RowOp.INSERT, None, (1, 2))),
        "BindingsError",
    ),
    "half a change": (packed("A", 1, 3, RowChange(TABLE.id, 1, 2, None, (1, 2, "x"))), "half told"),
    "an unknown change": (packed("A", 1, 3, RowChange(TABLE.id, 1, 9, None, (1, 2, ""))), "kind 9"),
    "a value of no type": (packed("A", 1, 3, inserted(2, {})), "does not fit"),  # type: ignore[arg-type]
    "no shape": (packed("A", 1, 3, kind=Kind.DDL), "has no shape"),
    "no body": (Packed("A", 1, 3, b"\xc1"), "cannot be read"),
    "a body cut short": (Packed("A", 1, 3, packed("A", 1, 3, inserted(2)).body[:-2]), "cannot be"),
    "bulk rows that do not fit": (
        packed("A", 1, 3, bulk=(TABLE.id, 1, [(1, 2, "x"), (1, 1, "x")])),
        "UNIQUE constraint failed",
    ),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_record_that_does_not_fit_changes_nothing(pair: tuple[Site, Site], what: str) -> None:
    _, replica = pair
    bad, why = BAD[what]
    with pytest.raises(Damaged) as refused:
        replica.take([bad])
    assert str(refused.value).startswith("record A:3 ")
    assert why in str(refused.value)
    assert replica.rows() == [(1, "x")]
    assert (replica.store.vclock, replica.log_of("A", 2)) == ({"A": 2}, [])
    assert replica.take([packed("A", 1, 3, inserted(2))]) == 1  # and the next good one follows


def test_what_came_before_a_bad_record_stays(pair: tuple[Site, Site]) -> None:
    _, replica = pair
    good, bad = packed("A", 1, 3, inserted(2)), packed("A", 1, 5, inserted(3))
    with pytest.raises(LogGap):
        replica.take([good, bad])
    assert (replica.rows(), replica.store.vclock) == ([(1, "x"), (2, "x")], {"A": 3})


def test_records_seen_twice_are_applied_once(pair: tuple[Site, Site]) -> None:
    master, replica = pair
    master.insert(2)
    assert replica.take(master.log_of("A")) == 1
    assert replica.take(master.log_of("A")) == 0
    assert replica.rows() == [(1, "x"), (2, "x")]


# --- epochs ---------------------------------------------------------------------------------------


def test_a_promise_outlives_a_restart(pair: tuple[Site, Site]) -> None:
    """Rule 1: it is durable before it is answered."""
    _, replica = pair
    assert replica.group(lambda: replica.store.promise(2)) == (1, {"A": 2})
    replica.reopen()
    replica.enter(1)
    assert replica.take([packed("A", 1, 3, inserted(2))]) == 0
    assert replica.rows() == [(1, "x")]


def test_a_tail_past_the_cut_is_undone_and_kept_aside(pair: tuple[Site, Site]) -> None:
    """Rule 2."""
    master, replica = pair
    master.run(f"UPDATE {TABLE.physical_name} SET c1 = 'tail' WHERE c0 = 1")
    master.run(f"DELETE FROM {TABLE.physical_name}")
    master.insert(5)
    replica.enter(2, A=2)
    replica.master(2)
    replica.insert(2)
    assert [record.lsn for record in master.enter(2, A=2)] == [5, 4, 3]
    assert master.rows() == [(1, "x")]
    assert master.diverged() == [("A", 1, 3), ("A", 1, 4), ("A", 1, 5)]
    assert master.follow(replica) == 1
    assert master.rows() == replica.rows() == [(1, "x"), (2, "x")]
    master.enter(3, A=2, B=1)
    master.master(3)
    assert master.insert(6) == 3  # the lsn is used again, in another epoch
    assert [(record.epoch, record.lsn) for record in master.log_of("A")] == [(1, 1), (1, 2), (3, 3)]


def test_of_an_operation_only_what_was_taken_back_is_forgotten(pair: tuple[Site, Site]) -> None:
    """It was done for one bucket, and for another that came later; only that record goes."""
    master, _ = pair

    def done(key: int, bucket: int) -> None:
        def work() -> int:
            text = f"INSERT INTO {TABLE.physical_name} VALUES (?, ?, 'x')"
            master.store.connection.execute(text, (bucket, key))
            master.store.put_operation(Operation("once", 1, ((bucket, bucket),)))
            return 1

        master.group(lambda: master.store.statement(work))

    done(2, 4)
    kept = master.store.vclock["A"]
    done(3, 5)
    assert master.store.operation("once") == Operation("once", 2, ((4, 5),))
    master.enter(2, A=kept)
    assert master.store.operation("once") == Operation("once", 1, ((4, 4),))


def test_a_tail_below_the_last_cut_is_found_by_the_cut_that_was_missed(
    pair: tuple[Site, Site],
) -> None:
    """Epoch 2 left A's record 3 out, epoch 3 used its lsn again; B heard of nothing but epoch 4."""
    master, replica = pair
    master.insert(2)
    assert replica.follow(master) == 1
    tail = replica.enter(4, {1: {}, 2: {"A": 2}, 3: {"A": 2}}, A=8)
    assert [record.lsn for record in tail] == [3]
    assert replica.rows() == [(1, "x")]
    assert replica.store.vclock == {"A": 2}


def test_who_missed_a_cut_that_is_forgotten_asks_for_a_copy(pair: tuple[Site, Site]) -> None:
    _, replica = pair
    assert replica.enter(2, {1: {}}, A=2) == []
    assert replica.enter(4, {3: {"A": 2}}, A=2) == []
    replica.reopen()
    assert replica.enter(5, {4: {"A": 2}}, A=2) == []
    assert replica.store.is_complete
    assert replica.enter(8, {7: {"A": 2}}, A=2) is None
    assert not replica.store.is_complete


def test_a_schema_change_past_the_cut_asks_for_a_copy_and_is_kept_aside(
    pair: tuple[Site, Site],
) -> None:
    master, _ = pair
    master.insert(2)
    master.reshape(Shape(TABLE.id, WIDER))
    assert master.enter(2, A=2) is None
    assert master.diverged() == [("A", 1, 3), ("A", 1, 4)]
    master.reopen()
    assert not master.store.is_complete  # until then nobody may count on its vclock


def copied(source: Site, target: Site, max_bytes: int = 1 << 20) -> CopyTarget:
    reading, writing = CopySource(source.path), CopyTarget(target.store, source.name)
    target.group(lambda: writing.begin(reading.head))
    while (chunk := reading.chunk(max_bytes)) is not None:
        target.group(lambda piece=chunk: writing.rows(*piece))  # type: ignore[misc]
    target.group(lambda: writing.finish(reading.head))
    return writing


def test_a_file_that_is_being_filled_takes_no_records(pair: tuple[Site, Site]) -> None:
    """A row that was deleted since would be in it for good: the copy does not have it."""
    master, replica = pair
    master.insert(2)
    records = master.log_of("A")
    master.run(f"DELETE FROM {TABLE.physical_name}")
    reading, writing = CopySource(master.path), CopyTarget(replica.store, "A")
    replica.group(lambda: writing.begin(reading.head))
    assert replica.take(records) == 0
    replica.group(lambda: writing.finish(reading.head))
    reading.close()
    assert replica.rows() == master.rows() == []


def test_a_copy_without_a_log_still_knows_its_epoch(pair: tuple[Site, Site]) -> None:
    """It was taken of a master with a tail that nobody else has."""
    master, replica = pair
    master.insert(2)
    copied(master, replica)
    assert replica.rows() == [(1, "x"), (2, "x")]
    assert replica.reader.epochs_at(replica.store.vclock) == {"A": 1}
    assert replica.enter(2, A=2) is None


def test_a_relay_that_took_a_copy_refuses_a_subscriber_of_another_history(sites: Sites) -> None:
    """Epoch 2 left A:3 out, epoch 3 used its lsn again, and the relay's copy stands just there."""
    master, away, relay = sites("A", "C", "D")
    away.enter(1)
    master.master(1)
    master.create()
    master.insert(1)
    master.insert(2, "left out")
    assert away.follow(master) == 3
    master.enter(2, A=2)
    master.enter(3, A=2)
    master.master(3)
    master.insert(2, "kept")
    copied(master, relay)
    subscribe = Subscribe(
        *("C", "r1", away.store.vclock), epochs=away.reader.epochs_at(away.store.vclock)
    )
    with pytest.raises(OtherHistory) as refused:
        check_history(subscribe, relay.store.vclock, relay.reader.epoch_at)
    assert refused.value.origin == "A"


# --- full copies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_a_full_copy_is_of_one_moment_and_the_log_goes_on_from_there(
    pair: tuple[Site, Site], max_bytes: int
) -> None:
    """Rule 23: its cut is read in the transaction that reads the rows."""
    master, replica = pair
    master.reshape(Shape(TABLE.id, msgspec.structs.replace(TABLE, schema_version=2), (BY_B,)))
    for key in range(2, 300):
        master.insert(key)

    def note() -> int:
        master.store.put_operation(Operation("operation", 7, ((1, 30),)))
        return 0

    master.group(lambda: master.store.statement(note))
    reading, writing = CopySource(master.path), CopyTarget(replica.store, "A")
    master.insert(1_000)  # too late for the copy
    replica.group(lambda: writing.begin(reading.head))
    while (chunk := reading.chunk(max_bytes)) is not None:
        replica.group(lambda piece=chunk: writing.rows(*piece))  # type: ignore[misc]
    replica.group(lambda: writing.finish(reading.head))
    assert writing.count == 299
    assert replica.store.operation("operation") == Operation("operation", 7, ((1, 30),))
    assert replica.store.indexes == master.store.indexes
    assert replica.follow(master) == 1
    assert replica.rows() == master.rows()
    assert replica.store.vclock == master.store.vclock


def test_a_copy_that_does_not_fit_is_refused(pair: tuple[Site, Site]) -> None:
    master, replica = pair
    writing = CopyTarget(replica.store, "A")
    head = CopySource(master.path).head
    replica.group(lambda: writing.begin(head))
    for table, blocks in ((7, [b"\x90"]), (TABLE.id, [b"\xc1"]), (TABLE.id, [b"\x91\x91\x01"])):
        with pytest.raises(LogRefused, match="full copy from A"):
            replica.group(lambda t=table, b=blocks: writing.rows(t, b))  # type: ignore[misc]
    assert replica.store.get("copying") == 1


def test_the_mean_size_of_records_is_that_of_the_newest(pair: tuple[Site, Site]) -> None:
    """Retention counts bytes by it: a record of COPY has many rows."""
    master, _ = pair
    for key in range(10, 30):
        master.run(f"INSERT INTO {TABLE.physical_name} VALUES (1, ?, ?)", key, "x" * 5_000)
    assert 4_000 < master.reader.mean_bytes("A") < 5_100
    assert master.reader.mean_bytes("nobody") == 0.0
