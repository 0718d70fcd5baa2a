"""How far a move has come, as people see it."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from cairn.cli.steering.rebalance import moves_table
from cairn.model.members.moves import Move, MoveReport, MoveSeen, Phase
from cairn.moves import seen
from cairn.moves.decide import decide
from cairn.moves.shares import Wanted
from tests.moves.maps import begun, cluster_of, view

MOVE = Move(1, "default", 3, 6, "s", "t", started="noon")
HALF = MoveReport(
    *(1, "t1"), attempt=2, rows=500, bytes=9_000, total=(2_000, 40_000), rows_per_s=100.0, lag=7
)
SEEN = MoveSeen(
    tier="default",
    start=3,
    end=6,
    source="s",
    target="t",
    phase="copying",
    id=1,
    started="noon",
    attempt=2,
    rows=500,
    rows_to_do=1_500,
    bytes=9_000,
    bytes_to_do=31_000,
    rows_per_s=100.0,
    eta_s=15.0,
    records_behind=7,
    waits_for="its disk",
)


def test_a_move_tells_what_is_done_what_is_to_do_and_when_it_ends() -> None:
    assert seen.under_way(MOVE, HALF, "its disk") == SEEN


def test_rows_that_came_since_the_count_do_not_make_less_than_nothing_to_do() -> None:
    more = msgspec.structs.replace(HALF, rows=2_100, bytes=50_000)
    found = seen.under_way(MOVE, more)
    assert (found.rows_to_do, found.bytes_to_do, found.eta_s) == (0, 0, 0.0)


def test_without_a_word_or_a_count_nothing_is_made_up() -> None:
    silent = seen.under_way(MOVE, None)
    assert (silent.rows, silent.rows_to_do, silent.eta_s, silent.records_behind) == (
        *(0, None, None, None),
    )
    uncounted = seen.under_way(MOVE, msgspec.structs.replace(HALF, total=None))
    assert (uncounted.rows, uncounted.rows_to_do, uncounted.eta_s) == (500, None, None)


def test_a_range_that_was_handed_over_has_nothing_to_do() -> None:
    copied = msgspec.structs.replace(MOVE, phase=Phase.COPIED)
    found = seen.under_way(copied, HALF)
    assert (found.rows, found.rows_to_do, found.rows_per_s, found.eta_s) == (500, 0, 0.0, None)


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = seen.Rate()
    found = [rate.at(float(second), rows) for second, rows in enumerate([0, 10, 20, 20, 20, 20])]
    assert found == [0.0, 10.0, 10.0, 20 / 3, 5.0, 4.0]
    assert rate.at(20.0, 20) == 0.0
    assert rate.at(21.0, 5) == 0.0  # it began anew
    assert rate.at(22.0, 35) == 30.0


def test_what_each_move_waits_for_and_what_follows_is_decided_with_the_steps() -> None:
    found = decide(view(begun(cluster_of())))
    assert found.of_moves == {1: "no word of t yet"}
    assert found.waits == ["buckets 11–20 of default from s to t: no word of t yet"]
    assert found.plan == [("default", Wanted(26, 30, "s", "t"))]
    assert seen.planned(*found.plan[0]).phase == "planned"


def test_the_command_shows_it() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(moves_table([msgspec.to_builtins(SEEN)]))
    cells = [each.strip() for each in console.export_text().splitlines()[4].strip("│").split("│")]
    assert cells == (
        ["3–6", "s", "t", "copying", "500", "1500", "0.0", "100", "15 s", "7", "its disk"]
    )
