"""Times counted in steps that grow: four to each doubling, so that a quantile is right to 12 %."""

from __future__ import annotations

from collections.abc import Sequence

STEPS = 4  # of one doubling
FIRST = -19  # exponent of the shortest: 2⁻²⁰ s is a microsecond
DOUBLINGS = 27  # up to 128 s; what takes longer is counted with those
COUNT = DOUBLINGS * STEPS


def bound_s(at: int) -> float:
    """Where step `at` ends."""
    octave, step = divmod(at, STEPS)
    low = 2.0 ** (FIRST + octave - 1)
    return low * (1 + (step + 1) / STEPS)


BOUNDS_S: tuple[float, ...] = tuple(bound_s(at) for at in range(COUNT))


def quantile_s(counts: Sequence[int], share: float) -> float:
    """The time below which `share` of all was, evenly spread inside a step; 0 without any."""
    total = sum(counts)
    if not total:
        return 0.0
    wanted, seen = share * total, 0
    for at, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = BOUNDS_S[at - 1] if at else 0.0
            return low + (BOUNDS_S[at] - low) * max(wanted - seen, 0.0) / count
        seen += count
    return BOUNDS_S[-1]
