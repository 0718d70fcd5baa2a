"""What a target has of a source after each delta: exactly its rows, whatever happened between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cairn.model.errors import NoMaster
from cairn.model.log.records import RowChange, RowOp, Shape
from cairn.model.members.moves import END
from cairn.model.tables.schema import FIRST_USER_TABLE_ID
from cairn.moves.delta import MoveMustRestart, MoveRefused, Progress, is_empty
from cairn.storage.data_db import moving_out
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.moving_out import MoveReader
from tests.moves.builders import MOVE, Pair, filled, rows_of, wider
from tests.replication.builders import TABLE, WIDER

# --- copying --------------------------------------------------------------------------------------


def test_a_copy_has_the_rows_of_its_buckets_and_no_others(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    assert pair.t.content(1, 10) == [(3, 30, "v3"), (4, 40, "v4"), (5, 50, "v5"), (6, 60, "v6")]
    assert pair.t.progress() == Progress(1, 1, 3, 6, pair.s.gives.stamp(), END, (4, 72), (4, 72))


def test_a_replica_that_becomes_master_knows_how_much_was_copied(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", 1)
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)
    pair.t.pull(pair.s)
    pair.replicate()
    known = pair.t2.progress()
    assert known is not None
    assert (known.done, known.total) == ((2, 36), (4, 72))


def test_a_copy_gets_past_large_records_of_buckets_that_stay(pair: Pair) -> None:
    """A delta ends before the present: asked again from the same place it would be the same."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    for key in range(30):
        pair.s.put(8, 1000 + key, "x" * 500)
    pair.s.put(4, 41, "at last")
    for _ in range(30):
        known = pair.t.progress()
        assert known is not None
        delta = pair.t.ask(pair.s, max_bytes=1_000)
        if not is_empty(known, delta):
            pair.t.take_delta(known, delta)
    assert (4, 41, "at last") in pair.t.content()


def test_a_range_that_takes_too_long_to_count_is_moved_without(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_out, "COUNT_S", -1.0)
    pair.s.bulk([(3, key, "x") for key in range(20_000)])
    assert pair.s.gives.total(3, 6) is None
    monkeypatch.undo()
    assert pair.s.gives.total(3, 6) == (20_000, 20_000 * 17)


def test_a_copy_begins_with_an_empty_range(pair: Pair) -> None:
    filled(pair)
    pair.t.put(4, 99, "of an earlier owner")
    pair.t.put(7, 70, "not of this move")
    pair.t.begin(pair.s)
    assert pair.t.content(1, 10) == [(7, 70, "not of this move")]
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


def test_a_delta_continues_exactly_where_the_one_before_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", 1)
    filled(pair)
    pair.t.begin(pair.s)
    table = TABLE.id
    assert pair.t.pull(pair.s).after == (table, 3, 30)
    assert pair.t.content() == [(3, 30, "v3")]
    pair.s.put(3, 30, "newer")  # copied: comes with the log
    pair.s.put(5, 50, "newer")  # not copied yet: comes with its row
    delta = pair.t.pull(pair.s)
    old, new = (3, 30, "v3"), (3, 30, "newer")
    assert delta.changes == (
        RowChange(table, 1, RowOp.DELETE, old, None),
        RowChange(table, 1, RowOp.INSERT, None, new),
    )
    assert rows_of(delta) == [(table, 1, [(4, 40, "v4")])]
    assert (delta.after, delta.lag) == ((table, 4, 40), 0)
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


def test_rows_that_cannot_be_read_are_refused_and_change_nothing(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    known, delta = pair.t.progress(), pair.t.ask(pair.s)
    assert known is not None
    for odd in (b"\x05", b"\x91\x93\x03\x1e", b"\xdd\x00\x00\x00\x02\x93\x03\x1e\xa0"):
        wrong = msgspec.structs.replace(delta, rows=((TABLE.id, 1, msgspec.Raw(odd)),))
        with pytest.raises(MoveRefused, match="packed rows cannot be read"):
            pair.t.take_delta(known, wrong)
    assert (pair.t.progress(), pair.t.content()) == (known, [])
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


def test_the_log_comes_before_rows_and_may_fill_deltas_alone(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    for n in range(5):
        pair.s.put(4, 40, f"n{n}")
    lags = [pair.t.pull(pair.s, max_bytes=0).lag for _ in range(5)]
    assert lags == [4, 3, 2, 1, 0]
    assert pair.t.content() == pair.s.content()


def test_rows_come_only_with_a_delta_whose_log_part_reached_the_present(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    for n in range(3):
        pair.s.put(4, 40, f"n{n}")
    delta = pair.t.pull(pair.s, max_bytes=0)
    assert (delta.rows, delta.after, delta.lag) == ((), (), 2)
    pair.t.pull_all(pair.s, max_bytes=0)
    assert pair.t.content() == pair.s.content()


@pytest.mark.parametrize(
    ("old", "new", "op"),
    [
        ((3, 30), (6, 66), RowOp.DELETE),  # over the mark: its other half comes with the rows
        ((6, 60), (3, 33), RowOp.INSERT),
        ((3, 30), (3, 31), RowOp.UPDATE),
        ((6, 60), (6, 61), None),
        ((3, 30), (9, 90), RowOp.DELETE),  # out of the range and into it
        ((8, 80), (3, 80), RowOp.INSERT),
    ],
)
def test_a_key_that_changes_is_cut_at_the_mark(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    old: tuple[int, int],
    new: tuple[int, int],
    op: RowOp | None,
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", 2)
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)  # 30 and 40
    pair.s.change("UPDATE t SET bucket_id = ?, c0 = ? WHERE bucket_id = ? AND c0 = ?", *new, *old)
    delta = pair.t.pull(pair.s)
    assert [change.op for change in delta.changes] == ([] if op is None else [op])
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


def test_rows_that_were_loaded_in_bulk_follow(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.bulk([(2, 1, "a"), (3, 2, "b"), (6, 3, "c"), (7, 4, "d")])
    delta = pair.t.pull(pair.s)
    assert [change.new for change in delta.changes] == [(3, 2, "b"), (6, 3, "c")]
    assert pair.t.content() == pair.s.content()


def test_no_half_read_delta_keeps_the_source_in_the_past(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s, max_bytes=0)  # ends after one row
    pair.s.put(3, 30, "newer")
    pair.s.put(5, 51, "new")
    pair.t.pull_all(pair.s, max_bytes=0)
    assert pair.t.content() == pair.s.content()


def test_all_of_a_delta_is_of_one_moment(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is written while a delta is read comes with the next one, by the log."""
    filled(pair)
    pair.t.begin(pair.s)
    read = MoveReader._rows

    def interrupted(self: MoveReader, *args: Any) -> Any:
        pair.s.put(3, 30, "meanwhile")
        return read(self, *args)

    monkeypatch.setattr(MoveReader, "_rows", interrupted)
    assert rows_of(pair.t.pull(pair.s))[0][2][0] == (3, 30, "v3")
    monkeypatch.undo()
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


# --- masters of the source ------------------------------------------------------------------------


def test_a_new_master_of_the_source_goes_on_from_the_same_position(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "by s1")
    pair.replicate()
    cut = dict(pair.s2.store.vclock)
    pair.s2.enter(2, **cut)
    pair.s2.owns(2)
    pair.s2.put(3, 30, "by s2")
    pair.s2.put(4, 44, "by s2")
    delta = pair.t.pull(pair.s2)
    assert delta.at == {"s1": (cut["s1"], 1), "s2": (2, 2)}
    assert pair.t.content() == pair.s2.content()


def test_records_of_several_masters_follow_in_the_order_of_their_epochs(pair: Pair) -> None:
    """s2 and s1 wrote the same row in turns: the order of names is not that of time."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    writers = [(pair.s2, pair.s), (pair.s, pair.s2)] * 2
    for epoch, (writer, other) in enumerate(writers, 2):
        writer.follow(other)
        cut = dict(writer.store.vclock)
        for site in (writer, other):
            site.enter(epoch, **cut)
        writer.owns(epoch)
        other.store.fence = Fence(epoch)
        writer.put(3, 30, f"epoch {epoch}")
    pair.t.pull_all(pair.s, max_bytes=0)
    assert pair.t.content()[0] == (3, 30, "epoch 5")
    assert pair.t.content() == pair.s.content()


def test_a_source_without_what_the_target_has_makes_it_begin_anew(pair: Pair) -> None:
    """The failover of an asynchronous source lost a record that was copied."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.replicate()
    pair.s.put(3, 30, "lost")
    pair.t.pull_all(pair.s)
    cut = dict(pair.s2.store.vclock)
    pair.s2.enter(2, **cut)
    pair.s2.owns(2)
    with pytest.raises(MoveMustRestart):
        pair.t.ask(pair.s2)


def test_a_position_of_another_history_is_told_by_its_epoch(pair: Pair) -> None:
    """The lost lsn is used again, in a later epoch: the number alone would fit."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.replicate()
    pair.s.put(3, 30, "lost")
    pair.t.pull_all(pair.s)
    cut = dict(pair.s2.store.vclock)
    for site in (pair.s2, pair.s):
        site.enter(2, **cut)
    pair.s.owns(2)
    pair.s.put(4, 44, "the same lsn")
    pair.s.put(4, 45, "and one more")
    with pytest.raises(MoveMustRestart):
        pair.t.ask(pair.s)
    pair.t.begin(pair.s, attempt=2)
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert (3, 30, "v3") in pair.t.content()


def test_a_log_that_forgot_what_comes_next_makes_the_target_begin_anew(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "forgotten")
    pair.s.put(3, 30, "last")
    last = pair.s.store.vclock["s1"]
    pair.s.group(lambda: pair.s.store.prune("s1", last - 1))
    with pytest.raises(MoveMustRestart):
        pair.t.ask(pair.s)


def test_the_first_records_of_a_new_master_must_be_there_as_well(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.replicate()
    cut = dict(pair.s2.store.vclock)
    pair.s2.enter(2, **cut)
    pair.s2.owns(2)
    pair.s2.put(3, 30, "forgotten")
    pair.s2.put(3, 31, "last")
    pair.s2.group(lambda: pair.s2.store.prune("s2", 1))
    with pytest.raises(MoveMustRestart):
        pair.t.ask(pair.s2)


def test_a_log_that_was_pruned_up_to_the_position_is_gone_on_with(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.group(lambda: pair.s.store.prune("s1", pair.s.store.vclock["s1"] - 1))
    pair.s.put(3, 30, "next")
    pair.t.pull(pair.s)
    assert pair.t.content() == pair.s.content()


# --- what the target refuses ----------------------------------------------------------------------


def test_a_delta_that_comes_twice_is_taken_once(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    known = pair.t.progress()
    assert known is not None
    delta = pair.t.ask(pair.s)
    pair.t.take_delta(known, delta)
    with pytest.raises(MoveRefused, match="does not continue"):  # and not by chance: by a key
        pair.t.take_delta(known, delta)
    assert pair.t.content() == pair.s.content()


def test_a_late_delta_of_an_attempt_that_was_given_up_is_refused(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    known = pair.t.progress()
    assert known is not None
    late = pair.t.ask(pair.s)
    pair.t.begin(pair.s, attempt=2)
    with pytest.raises(MoveRefused):
        pair.t.take_delta(known, late)
    assert pair.t.content() == []


def test_a_late_delta_after_the_move_was_given_up_is_refused(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    known = pair.t.progress()
    assert known is not None
    late = pair.t.ask(pair.s)
    pair.t.become(1)  # the fence has no such move any more
    with pytest.raises(MoveRefused):
        pair.t.take_delta(known, late)
    assert pair.t.content() == []


def test_who_is_not_the_master_takes_nothing(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    known = pair.t.progress()
    assert known is not None
    late = pair.t.ask(pair.s)
    incoming = ((MOVE.id, 3, 6),)
    pair.t.store.fence = Fence(2, incoming=incoming)
    with pytest.raises(NoMaster):
        pair.t.take_delta(known, late)
    with pytest.raises(NoMaster):
        pair.t.begin(pair.s)
    assert pair.t.content() == []


def test_a_delta_that_cannot_be_taken_leaves_nothing_behind(pair: Pair) -> None:
    """Also the first record of its master ever: what it was to be written with is taken back."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.replicate()
    cut = dict(pair.t2.store.vclock)
    pair.t2.enter(2, **cut)
    pair.t2.become(2, incoming=((MOVE.id, 3, 6),))
    pair.s.put(4, 40, "newer")
    known = pair.t2.progress()
    assert known is not None
    delta = pair.t2.ask(pair.s)
    row = (9, 1, "no place")
    broken = msgspec.structs.replace(
        delta, changes=(*delta.changes, RowChange(TABLE.id, 1, RowOp.DELETE, row, None))
    )
    with pytest.raises(Exception, match="changed 0 rows"):
        pair.t2.take_delta(known, broken)
    assert (pair.t2.store.vclock, pair.t2.log_of("t2")) == ({**cut, "t2": 0}, [])
    pair.t2.take_delta(known, delta)
    assert [record.lsn for record in pair.t2.log_of("t2")] == [1]
    assert pair.t2.content() == pair.s.content()


# --- schema changes -------------------------------------------------------------------------------


def test_rows_of_before_a_new_column_get_it_empty(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "narrow")
    pair.catalogue(Shape(TABLE.id, WIDER))
    pair.s.change("UPDATE t SET c2 = 7 WHERE bucket_id = 4")
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert pair.t.content()[:2] == [(3, 30, "narrow", None), (4, 40, "v4", 7)]


@pytest.mark.parametrize("first", ["s", "t"])
def test_while_a_schema_change_is_half_made_nothing_is_taken(pair: Pair, first: str) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "newer")
    one, other = (pair.s, pair.t) if first == "s" else (pair.t, pair.s)
    one.shaped(Shape(TABLE.id, WIDER))
    with pytest.raises(MoveRefused):
        pair.t.pull(pair.s)
    other.shaped(Shape(TABLE.id, WIDER))
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()


@pytest.mark.parametrize("first", ["s", "t"])
@pytest.mark.parametrize("rows_max", [1, 1000])
def test_what_was_truncated_does_not_come_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, first: str, rows_max: int
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", rows_max)
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)
    pair.s.put(3, 30, "before")
    pair.s.put(3, 31, "before")
    empty = Shape(TABLE.id, wider(TABLE, 2, truncated_at=2), truncate=True)
    one, other = (pair.s, pair.t) if first == "s" else (pair.t, pair.s)
    one.shaped(empty)
    if first == "s":
        pair.s.put(3, 32, "after")
    other.shaped(empty)
    pair.s.put(4, 41, "after")
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert (4, 41, "after") in pair.t.content()


def test_a_dropped_table_takes_nothing_along(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.put(3, 30, "newer")
    pair.t.shaped(Shape(TABLE.id, None))  # S is not there yet
    pair.t.pull_all(pair.s)
    pair.s.shaped(Shape(TABLE.id, None))
    pair.t.pull_all(pair.s)
    assert pair.t.store.tables == {}


def test_a_table_that_is_made_meanwhile_follows(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    other = msgspec.structs.replace(TABLE, id=FIRST_USER_TABLE_ID + 1, name="u", schema_version=2)
    pair.s.shaped(Shape(other.id, other))
    pair.s.run(f"INSERT INTO {other.physical_name} VALUES (4, 1, 'u')")
    pair.t.tables[other.id] = other
    with pytest.raises(MoveRefused):
        pair.t.pull(pair.s)
    pair.t.shaped(Shape(other.id, other))
    pair.t.pull_all(pair.s)
    assert pair.t.content(table=other) == [(4, 1, "u")]


def test_all_tables_are_copied_one_after_the_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", 3)
    other = msgspec.structs.replace(TABLE, id=FIRST_USER_TABLE_ID + 1, name="u")
    pair.catalogue(Shape(other.id, other))
    filled(pair)
    for bucket in range(1, 9):
        pair.s.run(f"INSERT INTO {other.physical_name} VALUES (?, ?, 'u')", bucket, bucket)
    pair.t.begin(pair.s)
    assert pair.t.pull(pair.s).after == (TABLE.id, 5, 50)
    pair.s.run(f"UPDATE {other.physical_name} SET c1 = 'newer' WHERE bucket_id = 3")
    pair.s.put(3, 30, "newer")
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert pair.t.content(table=other) == pair.s.content(table=other)


# --- operations -----------------------------------------------------------------------------------


def test_operations_move_with_their_buckets_and_with_no_others(pair: Pair) -> None:
    pair.s.operation("early", [2, 3, 4, 9], [(3, 30, "x")])
    pair.s.operation("elsewhere", [8], [(8, 80, "x")])
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.operation("late", [1, 6], [(6, 60, "x")])
    pair.t.pull_all(pair.s)
    assert pair.t.done() == {"early": ((3, 4),), "late": ((6, 6),)}


def test_an_operation_is_known_of_buckets_that_were_not_copied_yet(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows come later, with the buckets; repeated at the target it would be done again."""
    monkeypatch.setattr(moving_out, "ROWS_MAX", 1)
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)  # bucket 3
    pair.s.operation("meanwhile", [3, 5], [(3, 30, "once"), (5, 50, "once")])
    pair.t.pull_all(pair.s)
    assert pair.t.content() == pair.s.content()
    assert pair.t.done() == {"meanwhile": ((3, 3), (5, 5))}


def test_an_operation_that_found_nothing_to_change_was_done_all_the_same(pair: Pair) -> None:
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.s.operation("nothing", [3, 4], [])
    pair.t.pull_all(pair.s)
    assert pair.t.done() == {"nothing": ((3, 4),)}


def test_an_empty_range_knows_no_operations(pair: Pair) -> None:
    pair.t.operation("own", [3, 7], [(7, 70, "x")])
    pair.t.operation("other", [4], [])
    pair.t.begin(pair.s)
    assert pair.t.done() == {"own": ((7, 7),)}
