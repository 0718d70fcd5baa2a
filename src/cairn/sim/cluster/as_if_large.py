"""Small tables and files treated as large ones are: indexes are filled a few rows at a time before
they are made, and files are used before they are read whole."""

from __future__ import annotations

from collections.abc import Callable

from cairn.node.rows.upkeep import filling
from cairn.sim.cluster.changed import changed
from cairn.sim.cluster.history import Result
from cairn.storage.files import sqlite

_LARGE = [
    (sqlite, "WHOLE_BYTES", 0),
    (filling, "SMALL_ROWS", 0),
    (filling, "STEP_ROWS", 2),
    (filling, "PIECE_ROWS", 5),
]


def as_if_large(run: Callable[[int], Result]) -> Callable[[int], Result]:
    def large(seed: int) -> Result:
        with changed(_LARGE):
            return run(seed)

    return large
