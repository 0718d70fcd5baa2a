"""Records of moves at replicas, old rows that go, what the writer may do, and any history."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cairn.model.errors import NoMaster, NotOwner
from cairn.model.members.moves import Move
from cairn.moves.delta import MoveRefused
from cairn.storage.data_db import moving_out
from cairn.storage.data_db.fence import Fence
from cairn.storage.data_db.full_copy import CopySource, CopyTarget
from cairn.storage.data_db.moving_in import behind
from tests.moves.builders import MOVE, MoveSite, Pair, filled
from tests.replication.builders import TABLE

# --- replicas -------------------------------------------------------------------------------------


def test_a_replica_of_the_target_has_rows_and_progress_with_each_record(pair: Pair) -> None:
    filled(pair)
    pair.t.put(4, 99, "of an earlier owner")
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)
    pair.s.put(3, 30, "newer")
    pair.s.operation("once", [4], [(4, 44, "x")])
    pair.t.pull(pair.s)
    pair.replicate()
    assert pair.t2.content(1, 10) == pair.t.content(1, 10) == pair.s.content()
    assert pair.t2.progress() == pair.t.progress()
    assert pair.t2.done() == {"once": ((4, 4),)}


def test_a_new_master_of_the_target_goes_on_where_its_own_rows_stand(pair: Pair) -> None:
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)
    pair.replicate()
    pair.s.put(3, 30, "not replicated")
    pair.t.pull(pair.s)
    cut = dict(pair.t2.store.vclock)
    pair.t2.enter(2, **cut)
    pair.t2.become(2, incoming=((MOVE.id, 3, 6),))
    pair.t2.pull_all(pair.s)
    assert pair.t2.content() == pair.s.content()


def handed_over(pair: Pair) -> None:
    """S gave the buckets away, as its master knows; its replica may not have heard of it."""
    filled(pair)
    pair.replicate()
    rest = ((1, 2), (7, 10))
    pair.s.become(1, ranges=rest, owned=rest, last_move=1)


def orphaned(pair: Pair) -> None:
    """T has rows of buckets 3…6, which others own, and no move brings them."""
    filled(pair)
    pair.t.begin(pair.s)
    pair.t.pull_all(pair.s)
    pair.replicate()
    pair.t.become(1, ranges=((7, 10),), owned=((7, 10),), last_move=1)
    pair.t.put(7, 70, "owned")


def test_rows_that_belong_to_others_are_swept_in_pieces_at_replicas_too(pair: Pair) -> None:
    orphaned(pair)
    assert pair.t.gives.first_of(((1, 2), (3, 4), (5, 6))) == (3, 4)
    pieces = 0
    while pair.t.sweep(3, 6, 1):
        pieces += 1
    assert pieces == 4
    assert pair.t.gives.first_of(((1, 2), (3, 6))) is None
    pair.t2.store.fence = Fence(1, last_move=1)
    pair.replicate()
    assert pair.t.content(1, 10) == pair.t2.content(1, 10) == [(7, 70, "owned")]


def test_rows_that_are_owned_or_on_their_way_are_not_swept(pair: Pair) -> None:
    orphaned(pair)
    with pytest.raises(NotOwner, match="ours"):
        pair.t.sweep(6, 7)
    pair.t.become(1, incoming=((2, 6, 9),))
    with pytest.raises(NotOwner, match="on their way"):
        pair.t.sweep(3, 6)
    assert len(pair.t.content(1, 10)) == 5


def test_a_replica_sweeps_when_it_knows_of_the_moves_that_its_master_knew(pair: Pair) -> None:
    orphaned(pair)
    pair.t.sweep(3, 6)
    pair.t2.store.fence = Fence(1, last_move=0)
    pair.replicate()
    assert len(pair.t2.content()) == 4
    pair.t2.store.fence = Fence(1, last_move=1)
    pair.replicate()
    assert pair.t2.content() == []


def test_old_rows_go_in_pieces_until_none_is_left(pair: Pair) -> None:
    handed_over(pair)
    left = []
    while pair.s.drop(limit=2):
        left.append(pair.s.content())
    assert left == [[(5, 50, "v5"), (6, 60, "v6")], []]
    assert [row[0] for row in pair.s.content(1, 10)] == [1, 2, 7, 8]


def test_rows_that_are_owned_are_not_dropped(pair: Pair) -> None:
    filled(pair)
    with pytest.raises(NotOwner):
        pair.s.drop()
    assert len(pair.s.content()) == 4


def test_a_replica_drops_old_rows_only_when_it_knows_of_the_hand_over(pair: Pair) -> None:
    handed_over(pair)
    pair.s2.store.fence = Fence(1, ranges=((1, 10),), owned=((1, 10),))  # before the start
    pair.s.drop()
    assert pair.s2.follow(pair.s) == 0
    whole = ((1, 10),)
    pair.s2.store.fence = Fence(1, ranges=whole, owned=whole, giving=(1,), last_move=1)
    assert pair.s2.follow(pair.s) == 0
    assert len(pair.s2.content()) == 4
    pair.s2.store.fence = Fence(1, ranges=((1, 2), (7, 10)), owned=((1, 2), (7, 10)), last_move=1)
    assert pair.s2.follow(pair.s) == 1
    assert pair.s2.content() == []


def test_a_replica_that_was_away_while_a_range_left_and_came_back_goes_on(pair: Pair) -> None:
    """Its map is of today, its rows are of before: the range is its own again, the drop is old."""
    handed_over(pair)
    pair.s.drop()
    back = Move(2, "default", 3, 6, "t", "s")
    pair.s.become(1, ranges=((1, 2), (7, 10)), incoming=((2, 3, 6),), last_move=2)
    pair.t.put(4, 44, "of T")
    pair.s.begin(pair.t, back)
    pair.s.pull_all(pair.t, move=back)
    pair.s2.store.fence = Fence(1, ranges=((1, 10),), owned=((1, 10),), last_move=2)
    pair.s2.follow(pair.s)
    assert pair.s2.content() == [(4, 44, "of T")]
    assert pair.s2.store.vclock == pair.s.store.vclock


def test_a_drop_can_be_applied_to_rows_that_are_gone(pair: Pair) -> None:
    handed_over(pair)
    gone = ((1, 2), (7, 10))
    pair.s2.store.fence = Fence(1, ranges=gone, owned=gone, last_move=1)
    pair.s2.group(lambda: pair.s2.store.connection.execute("DELETE FROM " + TABLE.physical_name))
    pair.s.drop()
    assert pair.s2.follow(pair.s) == 1


def test_a_full_copy_in_the_middle_of_a_move_has_its_progress(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_out, "ROWS_MAX", 2)
    filled(pair)
    pair.s.operation("once", [4], [(4, 44, "x")])
    pair.t.begin(pair.s)
    pair.t.pull(pair.s)
    t3 = MoveSite(tmp_path, "t3")
    source, target = CopySource(pair.t.path), CopyTarget(t3.store, "t1")
    t3.group(lambda: target.begin(source.head))
    while (chunk := source.chunk(1 << 20)) is not None:
        t3.group(lambda found=chunk: target.rows(*found))  # type: ignore[misc]
    t3.group(lambda: target.finish(source.head))
    assert t3.progress() == pair.t.progress()
    t3.become(2, incoming=((MOVE.id, 3, 6),))
    pair.s.put(3, 30, "newer")
    t3.pull_all(pair.s)
    assert t3.content() == pair.s.content()
    assert t3.done() == {"once": ((4, 4),)}
    t3.close()


# --- any history ----------------------------------------------------------------------------------


def statement(site: MoveSite, chance: random.Random) -> None:
    """Something a client might do to few keys in ten buckets."""
    bucket, key = chance.randint(1, 10), chance.randint(1, 12)
    text = f"w{chance.randrange(10**6)}"
    match chance.randrange(8):
        case 0 | 1:
            site.put(bucket, key, text)
        case 2:
            site.change("DELETE FROM t WHERE bucket_id = ?", bucket)
        case 3:
            site.change("UPDATE t SET c1 = ? WHERE c0 = ?", text, key)
        case 4:  # over every mark
            other = chance.randint(1, 10)
            site.change(
                "UPDATE OR REPLACE t SET bucket_id = ?, c0 = ? WHERE bucket_id = ?",
                *(other, key, bucket),
            )
        case 5:
            site.change("UPDATE OR REPLACE t SET c0 = c0 + 1")
        case 6:
            have = {(row[0], row[1]) for row in site.content(1, 10)}
            wanted = [(bucket, key, text), (chance.randint(1, 10), key + 20, text)]
            site.bulk([row for row in wanted if row[:2] not in have])
        case 7:
            site.operation(text, [bucket], [(bucket, key, text)])


@pytest.mark.parametrize("block", range(5))
def test_whatever_happens_at_the_source_the_target_ends_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    for seed in range(block * 12, block * 12 + 12):
        chance = random.Random(seed)
        (tmp_path / str(seed)).mkdir()
        pair = Pair(tmp_path / str(seed))
        masters: list[Any] = [pair.s, pair.s2]
        epoch = 1
        try:
            for _ in range(10):
                statement(masters[0], chance)
            pair.t.begin(masters[0])
            for _ in range(25):
                match chance.randrange(10):
                    case 0 | 1 | 2 | 3 | 4:
                        statement(masters[0], chance)
                    case 5:  # a planned change of the source's master
                        masters[1].follow(masters[0])
                        masters[1].follow(masters[0], masters[1].name)
                        masters.reverse()
                        epoch += 1
                        cut = dict(masters[0].store.vclock)
                        for site in masters:
                            site.enter(epoch, **cut)
                        masters[0].owns(epoch)
                        masters[1].store.fence = Fence(epoch)
                    case _:
                        monkeypatch.setattr(moving_out, "ROWS_MAX", chance.choice([1, 2, 5]))
                        pair.t.pull(masters[0], chance.choice([0, 100, 1000]))
            pair.t.pull_all(masters[0])
            pair.t2.follow(pair.t)
            assert pair.t.content(1, 10) == masters[0].content(), f"seed {seed}"
            assert pair.t2.content(1, 10) == pair.t.content(1, 10), f"seed {seed}"
            wanted = {
                name: cut
                for name, buckets in masters[0].done().items()
                if (cut := tuple(each for each in buckets if 3 <= each[0] <= 6))
            }
            assert pair.t.done() == wanted, f"seed {seed}"
        finally:
            pair.close()


def test_the_last_position_is_told_from_behind_the_freeze_alone(pair: Pair) -> None:
    filled(pair)
    pair.s.owns(1)
    with pytest.raises(MoveRefused):
        behind(pair.s.store, MOVE, 12)
    pair.s.owns(1, (1, 2), (7, 10), frozen=((MOVE.id, 11),))
    with pytest.raises(MoveRefused):  # of another freeze
        behind(pair.s.store, MOVE, 12)
    pair.s.owns(1, (1, 2), (7, 10), frozen=((MOVE.id, 12),))
    assert behind(pair.s.store, MOVE, 12) == pair.s.store.vclock
    pair.s.store.fence = Fence(2, frozen=((MOVE.id, 12),))
    with pytest.raises(NoMaster):
        behind(pair.s.store, MOVE, 12)


# --- what the writer may do -----------------------------------------------------------------------


def test_what_the_newest_fence_takes_away_is_refused_before_the_writer_has_it(pair: Pair) -> None:
    """A lease may be of a later picture than the one that the writer still works with."""
    store = pair.s.store
    store.fence = Fence(1, is_master=True, ranges=((1, 10),), owned=((1, 10),))
    store.newest = Fence(1, is_master=True, ranges=((1, 2),), owned=((1, 2),))
    store.check_buckets([1, 2])
    store.check_ranges([(1, 2)])
    with pytest.raises(NotOwner):
        store.check_buckets([3])
    with pytest.raises(NotOwner):
        store.check_ranges([(1, 3)])
    store.fence, store.newest = store.newest, store.fence  # nor what it gives
    with pytest.raises(NotOwner):
        store.check_buckets([3])
