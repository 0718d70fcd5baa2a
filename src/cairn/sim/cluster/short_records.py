"""Statements as if each of them were long: every two rows that one changes are a record, and
replicas are sent one record at a time.

So whatever a trial judges is judged of statements of which a replica has only a part, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.node.rows import relay
from cairn.sim.cluster.history import Result
from cairn.storage.data_db.long import gathering

ROWS = 2


@contextmanager
def short_records() -> Iterator[None]:
    before = gathering.FIRST_LOOK, gathering.PART_BYTES, relay.BATCH_BYTES
    gathering.FIRST_LOOK, gathering.PART_BYTES, relay.BATCH_BYTES = ROWS, 1, 1
    try:
        yield
    finally:
        gathering.FIRST_LOOK, gathering.PART_BYTES, relay.BATCH_BYTES = before


def in_parts(run: Callable[[int], Result]) -> Callable[[int], Result]:
    def short(seed: int) -> Result:
        with short_records():
            return run(seed)

    return short
