"""Indexes as if every table were large: filled a few rows at a time before they are made."""

from __future__ import annotations

from collections.abc import Callable

from cairn.node.rows import filling
from cairn.sim.cluster.changed import changed
from cairn.sim.cluster.history import Result

_STEPS = [(filling, "SMALL_ROWS", 0), (filling, "STEP_ROWS", 2), (filling, "PIECE_ROWS", 5)]


def with_filled_indexes(run: Callable[[int], Result]) -> Callable[[int], Result]:
    def filled(seed: int) -> Result:
        with changed(_STEPS):
            return run(seed)

    return filled
