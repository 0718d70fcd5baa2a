"""Clocks that are far apart are told; those that are near are not."""

from __future__ import annotations

from cairn.node.steering.clocks import clock_problem


def test_only_clocks_that_are_far_apart_are_told() -> None:
    assert clock_problem("i2", 29.0) is None
    assert clock_problem("i2", -29.0) is None
    told = "the clock of i2 is 60 seconds ahead of this one's: run NTP on both"
    assert clock_problem("i2", 60.0) == told
    told = "the clock of i2 is 3.0 hours behind this one's: run NTP on both"
    assert clock_problem("i2", -3 * 3600.0) == told
