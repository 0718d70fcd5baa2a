"""What may be applied when: epochs, cuts, seals and lsns."""

from __future__ import annotations

import pytest

from cairn.model.log.records import Vclock
from cairn.replication.applier import (
    CutForgotten,
    History,
    LogGap,
    NotHistory,
    Verdict,
    WrongOrigin,
    check_origins,
    diverged,
    judge,
    why_waits,
)
from tests.replication.builders import packed

CUT = {"A": 10}
#: A led epoch 1 up to 10 and B epoch 2 up to 3; now A leads again.
BACK = History(3, {"A": 10, "B": 3}, {1: {}, 2: CUT})


@pytest.mark.parametrize(
    ("origin", "epoch", "lsn", "vclock", "history", "verdict"),
    [
        ("A", 1, 11, {"A": 10}, History(1), Verdict.APPLY),
        ("A", 1, 10, {"A": 10}, History(1), Verdict.SKIP),  # it came by another link before
        ("A", 1, 11, {"A": 10}, History(1, {}, promised=2), Verdict.WAIT),  # sealed
        ("A", 1, 10, {"A": 9}, History(2, CUT, {1: {}}, promised=2), Verdict.APPLY),  # in the cut
        ("B", 2, 1, {"A": 9}, History(2, CUT), Verdict.WAIT),  # epoch 1 is not complete here
        ("B", 2, 1, {"A": 10}, History(2, CUT), Verdict.APPLY),
        ("B", 2, 1, {"A": 10}, History(1), Verdict.WAIT),  # its naming was not applied here yet
        ("B", 2, 1, {"A": 10}, History(2, CUT, promised=3), Verdict.WAIT),
        ("B", 2, 1, {"A": 9}, BACK, Verdict.WAIT),  # of two earlier epochs the first goes first
        ("A", 1, 10, {"A": 9}, BACK, Verdict.APPLY),
        ("B", 2, 1, {"A": 10}, BACK, Verdict.APPLY),
        ("A", 3, 11, {"A": 10, "B": 2}, BACK, Verdict.WAIT),
    ],
)
def test_a_record_is_applied_in_its_epoch_after_all_before_it(
    origin: str, epoch: int, lsn: int, vclock: Vclock, history: History, verdict: Verdict
) -> None:
    assert judge(packed(origin, epoch, lsn), vclock, history) is verdict


def test_who_waits_can_say_for_what() -> None:
    assert why_waits(packed("B", 2, 1), {"A": 9}, BACK) == ("record B:1 of epoch 2 waits for A:10")
    for record, history in (
        (packed("B", 2, 1), History(1)),
        (packed("A", 1, 11), History(1, promised=2)),
    ):
        said = why_waits(record, {"A": 10}, history)
        assert said.endswith("waits for the naming of a master")


def test_a_record_past_the_cut_is_refused_by_name() -> None:
    with pytest.raises(NotHistory) as refused:
        judge(packed("A", 1, 11), {"A": 10}, History(2, CUT))
    assert str(refused.value) == "record A:11 of epoch 1 is past the cut of epoch 2"


def test_a_record_past_any_later_cut_is_refused() -> None:
    """Async: the heir of epoch 3 had less than epoch 2 began with, and A wrote on from there."""
    history = History(4, {"A": 20}, {1: {}, 2: CUT, 3: {"A": 5}})
    with pytest.raises(NotHistory):
        judge(packed("A", 1, 6), {"A": 5}, history)
    assert judge(packed("A", 3, 6), {"A": 5}, history) is Verdict.APPLY
    assert diverged({"A": 7}, history, {"A": 1}) == {"A": 5}
    assert diverged({"A": 7}, history, {"A": 3}) == {}


def test_a_record_of_an_epoch_that_nobody_remembers_is_refused_by_name() -> None:
    with pytest.raises(CutForgotten) as refused:
        judge(packed("A", 4, 1), {}, History(6, CUT, {5: CUT}))
    assert str(refused.value) == "record A:1 is of epoch 4, whose cut is forgotten"


def test_a_gap_is_refused_by_name() -> None:
    with pytest.raises(LogGap) as refused:
        judge(packed("A", 1, 13), {"A": 10}, History(1))
    assert str(refused.value) == "row log of A: expected lsn 11, received 13"


def test_rows_that_nobody_asked_for_are_refused_by_name() -> None:
    check_origins([packed("A", 1, 1)], ("A",), "C")
    check_origins([packed("A", 1, 1)], (), "C")
    for origin, asked in (("B", ("A",)), ("C", ()), ("C", ("C",))):
        with pytest.raises(WrongOrigin) as refused:
            check_origins([packed(origin, 1, 7)], asked, "C")
        assert str(refused.value) == f"record {origin}:7 is of an origin that was not asked for"


def test_what_goes_past_the_cut_is_found_per_origin() -> None:
    vclock, epochs = {"A": 12, "B": 3, "C": 9}, {"A": 1, "B": 2, "C": 1}
    assert diverged(vclock, History(2, {"A": 10, "C": 9}), epochs) == {"A": 10}
