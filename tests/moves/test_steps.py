"""Each step of a move: what it writes, what it holds on to, and what makes it void."""

from __future__ import annotations

import random

import msgspec
import pytest

from cairn.model.log import ops
from cairn.model.log.ops import SCHEMA_RANGE, Delete, Replace
from cairn.model.log.ranges import KeyRange, Predicate, key_range, one_key, whole_table
from cairn.model.members.cluster import Cluster
from cairn.model.members.moves import Move, Phase
from cairn.model.members.topology import BucketRange, BucketState
from cairn.model.tables import rows
from cairn.model.tables import system_tables as system
from cairn.moves import ranges, steps
from cairn.moves.shares import Wanted
from cairn.moves.steps import Step
from cairn.raft.cas import Accepted, CasLog, ConflictFound, LogRecord, Standing
from tests.moves.maps import (
    applied,
    begun,
    cluster_of,
    final_report,
    frozen,
    handed_over,
    move_of,
    owner_of,
    row,
    with_set,
)

BUCKET, SET, MOVE = system.PICO_BUCKET.id, system.PICO_REPLICASET.id, system.CAIRN_MOVE.id
PROPERTY = system.PICO_PROPERTY.id
COPYING = BucketState.COPYING
BEGUN = Move(*(1, "default", 11, 20, "s", "t"), reason="why", started="now", changed="now")
OWN = (one_key(BUCKET, ("default", 11)), one_key(MOVE, (1,)))
BOTH = (one_key(SET, ("s",)), one_key(SET, ("t",)))
PIECE = row(11, 20, "s", state=COPYING, target_replicaset="t", move_id=1)
KEYS = {table.id: table.key_positions for table in system.BY_ID.values()}


def put(bucket: BucketRange) -> Replace:
    return Replace(BUCKET, rows.bucket_row(bucket))


def noted(move: Move) -> Replace:
    return Replace(MOVE, rows.move_row(move))


def changed(move: Move, **fields: object) -> Move:
    return msgspec.structs.replace(move, **fields)


# --- whole values ---------------------------------------------------------------------------------


def test_a_start_splits_the_row_and_gives_the_move_a_number_of_its_own() -> None:
    step = steps.start(
        cluster_of(properties={"last_move_id": "6"}),
        *("default", Wanted(11, 20, "s", "t"), "why", "now"),
    )
    piece = msgspec.structs.replace(PIECE, move_id=7)
    assert step.ops == (
        put(row(1, 10, "s")),
        put(piece),
        put(row(21, 30, "s")),
        noted(changed(BEGUN, id=7)),
        Replace(PROPERTY, ("last_move_id", "7")),
    )
    assert step.ranges == (
        key_range(BUCKET, ("default", 1), ("default", 30)),
        *BOTH,
        whole_table(MOVE),
        one_key(PROPERTY, ("rebalance_paused",)),
        one_key(PROPERTY, ("last_move_id",)),
    )


def test_a_freeze_notes_the_epochs_and_its_own_position() -> None:
    cluster = with_set(begun(cluster_of()), "t", epoch=4)
    step = steps.freeze(cluster, move_of(cluster), "later")
    assert step.ops == (
        put(msgspec.structs.replace(PIECE, frozen_at=11)),
        noted(
            changed(
                BEGUN,
                phase=Phase.FROZEN,
                source_epoch=1,
                target_epoch=4,
                frozen_at=11,
                changed="later",
            )
        ),
        Replace(PROPERTY, ("last_freeze", "11")),
    )
    paused = one_key(PROPERTY, ("rebalance_paused",))
    assert step.ranges == (*OWN, *BOTH, SCHEMA_RANGE, paused)


def test_a_thaw_gives_the_range_back_to_its_source() -> None:
    cluster = frozen(begun(cluster_of()))
    step = steps.thaw(cluster, move_of(cluster), "slow", "later")
    thawed = changed(
        *(move_of(cluster),), phase=Phase.COPYING, frozen_at=0, thaws=1, reason="slow",
        changed="later",
    )  # fmt: skip
    assert step.ops == (put(PIECE), noted(thawed))
    assert step.ranges == OWN


def test_a_hand_over_holds_on_to_both_replicasets_and_the_schema() -> None:
    cluster = frozen(begun(cluster_of()))
    step = steps.copied(cluster, move_of(cluster), final_report(cluster), "later")
    done = changed(
        move_of(cluster),
        phase=Phase.COPIED,
        source_final={"s1": (7, 1)},
        target_first={"t1": (9, 1)},
        changed="later",
    )
    piece = msgspec.structs.replace(PIECE, state=BucketState.COPIED)
    assert step.ops == (put(piece), noted(done))
    assert step.ranges == (*OWN, *BOTH, SCHEMA_RANGE)


def test_a_finished_range_is_merged_with_its_neighbours() -> None:
    cluster = handed_over(frozen(begun(cluster_of(row(1, 20, "s"), row(21, 30, "t")))))
    step = steps.finish(cluster, move_of(cluster), "later")
    assert step.ops == (
        Delete(BUCKET, ("default", 21)),
        put(row(11, 30, "t")),
        noted(changed(move_of(cluster), phase=Phase.DONE, changed="later")),
    )
    around = key_range(BUCKET, ("default", 1), ("default", 30))
    assert step.ranges == (around, *BOTH, one_key(MOVE, (1,)))


def test_a_move_that_is_given_up_goes_back_in_two_steps() -> None:
    cluster = frozen(begun(cluster_of()))
    step = steps.abort(cluster, move_of(cluster), "disk", "later")
    given_up = changed(
        move_of(cluster), phase=Phase.ABORTING, frozen_at=0, reason="disk", changed="later"
    )
    piece = msgspec.structs.replace(PIECE, state=BucketState.ABORTING_COPY)
    assert step.ops == (put(piece), noted(given_up))
    assert step.ranges == OWN
    cluster = applied(cluster, step)
    step = steps.aborted(cluster, move_of(cluster), "last")
    assert step.ops == (
        Delete(BUCKET, ("default", 11)),
        Delete(BUCKET, ("default", 21)),
        put(row(1, 30, "s")),
        noted(changed(given_up, phase=Phase.ABORTED, changed="last")),
    )
    around = key_range(BUCKET, ("default", 1), ("default", 30))
    assert step.ranges == (around, *BOTH, one_key(MOVE, (1,)))


def test_who_serves_the_range_in_each_phase() -> None:
    def served(cluster: Cluster) -> tuple[str, bool]:
        found = ranges.of(cluster.tier_buckets("default"), 11, 20)
        assert found is not None
        return found.owner, found.is_writable

    cluster = begun(cluster_of())
    assert served(cluster) == ("s", True)
    held = frozen(cluster)
    assert served(held) == ("s", False)
    assert served(applied(held, steps.thaw(held, move_of(held), "", ""))) == ("s", True)
    assert served(applied(held, steps.abort(held, move_of(held), "", ""))) == ("s", True)
    given = handed_over(held)
    assert served(given) == ("t", True)
    assert served(applied(given, steps.finish(given, move_of(given), ""))) == ("t", True)


# --- what cannot be planned -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(25, 31, "s", "t"),  # past the end
        Wanted(5, 12, "s", "t"),  # over the edge of one that moves
        Wanted(12, 14, "s", "t"),  # inside of one that moves
        Wanted(1, 5, "t", "s"),  # not its source's
        Wanted(1, 5, "s", "s"),
    ],
)
def test_only_a_part_of_one_row_at_rest_is_begun(wanted: Wanted) -> None:
    with pytest.raises(ranges.BrokenCover):
        steps.start(begun(cluster_of()), "default", wanted, "why", "now")


def test_a_step_of_a_move_whose_row_is_another_s_is_not_made() -> None:
    cluster = begun(cluster_of())
    stranger = changed(move_of(cluster), id=9)
    for make in (steps.freeze, steps.finish, steps.aborted):
        with pytest.raises(ranges.BrokenCover):
            make(cluster, stranger, "now")


# --- what makes a step void -----------------------------------------------------------------------


def verdict(step: Step, between: tuple[KeyRange, ...]) -> object:
    """The compare-and-swap of a step that was decided before another entry came."""
    log = CasLog(10)
    log.append(LogRecord(11, 2, b"", between))
    touched = ops.touched(ops.Batch(step.ops), KEYS)
    return log.check(Predicate(10, 2, step.ranges), b"me", touched, Standing(True, 1, 2, True))


def of_sets(*names: str) -> tuple[KeyRange, ...]:
    return tuple(one_key(SET, (name,)) for name in names)


STEPS = {
    "start": steps.start(cluster_of(), "default", Wanted(11, 20, "s", "t"), "why", "now"),
    "freeze": steps.freeze(begun(cluster_of()), BEGUN, "now"),
    "copied": steps.copied(
        frozen(begun(cluster_of())),
        move_of(frozen(begun(cluster_of()))),
        final_report(frozen(begun(cluster_of()))),
        "now",
    ),
    "finish": steps.finish(
        handed_over(frozen(begun(cluster_of()))),
        move_of(handed_over(frozen(begun(cluster_of())))),
        "now",
    ),
}


@pytest.mark.parametrize("name", ["s", "t"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_change_of_either_replicaset_makes_it_void(step: Step, name: str) -> None:
    assert isinstance(verdict(step, of_sets(name)), ConflictFound)
    assert verdict(step, of_sets("u")) == Accepted()


@pytest.mark.parametrize("first", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("second", STEPS.values(), ids=STEPS)
def test_of_two_steps_about_the_same_buckets_one_loses(first: Step, second: Step) -> None:
    between = ops.touched(ops.Batch(first.ops), KEYS)
    assert isinstance(verdict(second, between), ConflictFound)


@pytest.mark.parametrize("name", ["freeze", "copied"])
def test_a_schema_change_makes_freeze_and_hand_over_void(name: str) -> None:
    assert isinstance(verdict(STEPS[name], (SCHEMA_RANGE,)), ConflictFound)


@pytest.mark.parametrize("name", ["start", "freeze"])
def test_a_pause_makes_start_and_freeze_void(name: str) -> None:
    paused = (one_key(PROPERTY, ("rebalance_paused",)),)
    assert isinstance(verdict(STEPS[name], paused), ConflictFound)


def test_a_merge_and_a_start_beside_it_cannot_both_be_made() -> None:
    given = handed_over(frozen(begun(cluster_of(row(1, 20, "s"), row(21, 30, "t")))))
    beside = steps.start(given, "default", Wanted(25, 30, "t", "s"), "why", "now")
    finish = steps.finish(given, move_of(given), "now")
    assert isinstance(verdict(finish, ops.touched(ops.Batch(beside.ops), KEYS)), ConflictFound)
    assert isinstance(verdict(beside, ops.touched(ops.Batch(finish.ops), KEYS)), ConflictFound)


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"frozen_at": 3},  # of an earlier freeze
        {"source_epoch": 2},
        {"target_epoch": 2},
        {"final": None},
        {"first": None},
    ],
)
def test_only_the_word_of_this_very_freeze_hands_over(fields: dict[str, object]) -> None:
    cluster = frozen(begun(cluster_of()))
    move = move_of(cluster)
    assert steps.is_handed_over(cluster, move, final_report(cluster))
    assert not steps.is_handed_over(cluster, move, final_report(cluster, **fields))


@pytest.mark.parametrize("name", ["s", "t"])
@pytest.mark.parametrize("fields", [{"epoch": 2}, {"target_master_name": "x2"}])
def test_a_master_that_changes_hands_nothing_over(name: str, fields: dict[str, object]) -> None:
    cluster = frozen(begun(cluster_of()))
    other = with_set(cluster, name, **fields)
    assert not steps.is_handed_over(other, move_of(cluster), final_report(cluster))


def test_a_move_that_is_not_frozen_is_not_handed_over() -> None:
    cluster = begun(cluster_of())
    report = final_report(cluster, source_epoch=0, target_epoch=0)
    free = with_set(with_set(cluster, "s", epoch=0), "t", epoch=0)
    assert not steps.is_handed_over(free, move_of(cluster), report)


# --- any order of steps ---------------------------------------------------------------------------


def random_step(cluster: Cluster, chance: random.Random) -> Step | None:
    open_moves = [move for move in cluster.moves.values() if move.is_open]
    if not open_moves or chance.random() < 0.4:
        at_rest = [each for each in cluster.buckets if each.move_id is None]
        if not at_rest:
            return None
        found = chance.choice(at_rest)
        low = chance.randint(found.start, found.end)
        high = chance.randint(low, found.end)
        source = found.current_replicaset
        target = chance.choice([name for name in "stu" if name != source])
        return steps.start(cluster, "default", Wanted(low, high, source, target), "", "")
    move = chance.choice(open_moves)
    match move.phase:
        case Phase.COPYING:
            if chance.random() < 0.3:
                return steps.abort(cluster, move, "", "")
            return steps.freeze(cluster, move, "")
        case Phase.FROZEN:
            if chance.random() < 0.3:
                return steps.thaw(cluster, move, "", "")
            return steps.copied(cluster, move, final_report(cluster, move.id), "")
        case Phase.COPIED:
            return steps.finish(cluster, move, "")
        case _:
            return steps.aborted(cluster, move, "")


def test_every_bucket_is_in_one_row_and_has_one_owner_whatever_steps_are_made() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        cluster = cluster_of(row(1, 12, "s"), row(13, 30, "t"), sets="stu")
        for _ in range(60):
            before, step = cluster, random_step(cluster, chance)
            if step is None:
                continue
            cluster = applied(cluster, step)
            ranges.check_cover(cluster.buckets, 30)
            assert {each.owner for each in cluster.buckets} <= set("stu"), f"seed {seed}"
            for bucket in range(1, 31):
                if owner_of(cluster, bucket) != owner_of(before, bucket):
                    assert ": handed over" in step.say, f"seed {seed}: {step.say}"
            moving = [each.move_id for each in cluster.buckets if each.move_id is not None]
            opened = [move.id for move in cluster.moves.values() if move.is_open]
            assert sorted(moving) == sorted(opened), f"seed {seed}: {step.say}"
