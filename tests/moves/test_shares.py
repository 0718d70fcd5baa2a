"""As few buckets as possible travel, and everybody gets its share."""

from __future__ import annotations

import random

import pytest

from cairn.model.members.topology import BucketRange, BucketState
from cairn.moves import ranges, shares

COUNT = 3000


def row(
    start: int, end: int, owner: str, state: str = "active", to: str | None = None
) -> BucketRange:
    return BucketRange(
        "default", start, end, BucketState(state), owner, to, move_id=None if to is None else 7
    )


def after(rows: list[BucketRange], moves: list[shares.Wanted]) -> list[BucketRange]:
    """The rows once all moves are done."""
    for move in moves:
        old = ranges.of(rows, move.start, move.end)
        assert old is not None and old.current_replicaset == move.source
        rows = ranges.merged(ranges.replaced(rows, row(move.start, move.end, move.target)))
        ranges.check_cover(rows, COUNT)
    return rows


def test_a_third_replicaset_takes_a_third_from_both_and_nothing_else_moves() -> None:
    rows = [row(1, 1500, "a"), row(1501, 3000, "b")]
    moves = shares.plan(rows, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert sum(move.end - move.start + 1 for move in moves) == 1000
    assert {move.target for move in moves} == {"c"}
    assert shares.held(after(rows, moves)) == {"a": 1000, "b": 1000, "c": 1000}
    assert len(after(rows, moves)) <= 4


def test_a_weight_of_zero_drains() -> None:
    rows = [row(1, 1000, "a"), row(1001, 2000, "b"), row(2001, 3000, "c")]
    moves = shares.plan(rows, {"a": 0.0, "b": 1.0, "c": 1.0})
    assert sum(move.end - move.start + 1 for move in moves) == 1000
    assert shares.held(after(rows, moves)) == {"b": 1500, "c": 1500}


def test_who_leaves_gives_everything_however_little_it_has() -> None:
    rows = [row(1, 5, "a"), row(6, 3000, "b")]
    moves = shares.plan(rows, {"a": 0.0, "b": 1.0})
    assert [(move.start, move.end, move.target) for move in moves] == [(1, 5, "b")]


def test_small_differences_move_nothing() -> None:
    rows = [row(1, 1505, "a"), row(1506, 3000, "b")]
    assert shares.plan(rows, {"a": 1.0, "b": 1.0}) == []


def test_moves_under_way_count_as_done() -> None:
    rows = [row(1, 1000, "a"), row(1001, 1500, "a", "copying", "b"), row(1501, 3000, "b")]
    assert shares.plan(rows, {"a": 1.0, "b": 2.0}) == []


def test_without_any_weight_nothing_is_planned() -> None:
    assert shares.plan([row(1, 3000, "a")], {"a": 0.0, "b": 0.0}) == []


@pytest.mark.parametrize("seed", range(200))
def test_random_weights_are_reached_with_the_fewest_buckets(seed: int) -> None:
    chance = random.Random(seed)
    names = "abcdef"[: chance.randint(2, 6)]
    rows, start = [], 1
    while start <= COUNT:
        end = min(start + chance.randint(0, 900), COUNT)
        rows.append(row(start, end, chance.choice(names)))
        start = end + 1
    rows = ranges.merged(rows)
    weights = {name: chance.choice((0.0, 0.5, 1.0, 1.0, 2.0, 7.0)) for name in names}
    moves = shares.plan(rows, weights)
    if not any(weights.values()):
        assert moves == []
        return
    share = shares.shares(weights, COUNT)
    assert sum(share.values()) == COUNT
    end_state = shares.held(after(rows, moves))
    if moves:
        assert end_state == {name: want for name, want in share.items() if want}
        over = [max(shares.held(rows).get(name, 0) - share[name], 0) for name in names]
        assert sum(move.end - move.start + 1 for move in moves) == sum(over)
        assert max(move.end - move.start + 1 for move in moves) <= shares.PIECE
    else:
        assert all(shares.is_near(end_state.get(name, 0), share[name]) for name in names)


def test_a_piece_costs_the_same_however_many_ranges_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader plans between two heartbeats, and a map may have a range for each bucket."""
    looked = 0
    touches = shares._Resting._touches

    def counted(resting: shares._Resting, at: int) -> bool:
        nonlocal looked
        looked += 1
        return touches(resting, at)

    monkeypatch.setattr(shares._Resting, "_touches", counted)
    rows = [row(at, at, "ab"[at % 2]) for at in range(1, COUNT + 1)]
    moves = shares.plan(rows, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert (len(moves), looked < 4 * COUNT) == (COUNT // 3, True), looked
