"""What may be applied when: epochs, cuts, seals and lsns (data-plane rules 1–3)."""

from __future__ import annotations

import pytest

from cairn.model.records import Vclock
from cairn.replication.applier import (
    History,
    LogGap,
    NotHistory,
    Verdict,
    WrongOrigin,
    check_origins,
    diverged,
    judge,
)
from tests.replication.builders import packed

CUT = {"A": 10}


@pytest.mark.parametrize(
    ("origin", "epoch", "lsn", "vclock", "history", "verdict"),
    [
        ("A", 1, 11, {"A": 10}, History(1), Verdict.APPLY),
        ("A", 1, 10, {"A": 10}, History(1), Verdict.SKIP),  # it came by another link before
        ("A", 1, 11, {"A": 10}, History(1, {}, promised=2), Verdict.WAIT),  # sealed
        ("A", 1, 10, {"A": 9}, History(2, CUT, promised=2), Verdict.APPLY),  # inside the cut
        ("B", 2, 1, {"A": 9}, History(2, CUT), Verdict.WAIT),  # epoch 1 is not complete here
        ("B", 2, 1, {"A": 10}, History(2, CUT), Verdict.APPLY),
        ("B", 2, 1, {"A": 10}, History(1), Verdict.WAIT),  # its naming was not applied here yet
        ("B", 2, 1, {"A": 10}, History(2, CUT, promised=3), Verdict.WAIT),
    ],
)
def test_a_record_is_applied_in_its_epoch_after_all_before_it(
    origin: str, epoch: int, lsn: int, vclock: Vclock, history: History, verdict: Verdict
) -> None:
    assert judge(packed(origin, epoch, lsn), vclock, history) is verdict


def test_a_record_past_the_cut_is_refused_by_name() -> None:
    with pytest.raises(NotHistory) as refused:
        judge(packed("A", 1, 11), {"A": 10}, History(2, CUT))
    assert str(refused.value) == "record A:11 of epoch 1 is past the cut of epoch 2"


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
