"""The oracle of memory over many rounds."""

from __future__ import annotations

import pytest

from tests.fuzz.growth import Growth, verdict

#: Rounds of a run that nobody was told of: it was only seen in a list at its end.
UNTOLD = [163, 165, 168, 172, 179, 200, 240, 360, 430, 499, 515, 521, 510]
LEVEL = [190, 180, 198, 193, 184, 207, 203, 212, 211, 196, 223, 208, 202, 213, 203]


def test_what_stays_after_many_rounds_is_told_with_the_kind_that_left_it() -> None:
    told = verdict(UNTOLD, {"http": 40.0, "binary": 300.0})
    assert told == "342 MB stay after 13 rounds, most of them since binary"


@pytest.mark.parametrize(
    "rounds",
    [LEVEL, UNTOLD[:5], [100, 100, 100, 600, 110, 105], [80, 90, 100]],
    ids=["level", "few rounds", "a peak", "no rounds after the first ones"],
)
def test_caches_that_fill_and_peaks_are_no_growth(rounds: list[float]) -> None:
    assert verdict(rounds, {"sql": 100.0}) is None


def test_each_slice_is_counted_for_its_kind() -> None:
    growth = Growth(100)
    for kind, now in (("sql", 130), ("copy", 120), ("sql", 150)):
        growth.after(kind, now)
    growth.round_is_over()
    assert (growth.by_kind, growth.rounds) == ({"sql": 60, "copy": -10}, [150])
