"""Clocks of instances that differ: told, because people and time columns go by them.

Nothing in the cluster is decided by wall clocks; rows with now() and timestamps of events are.
"""

from __future__ import annotations

APART_S = 30.0  # more than any network delay, less than a wrong time zone


def clock_problem(name: str, ahead_s: float) -> str | None:
    """What to say of an instance whose clock is so far ahead of ours; None: it is near enough."""
    if abs(ahead_s) < APART_S:
        return None
    way = "ahead of" if ahead_s > 0 else "behind"
    return f"the clock of {name} is {_span(abs(ahead_s))} {way} this one's: run NTP on both"


def _span(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds:.0f} seconds"
