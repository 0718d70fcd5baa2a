"""Statements as if each of them were long: of every two rows that one changes a record is made
while it runs, or of each row one when it ends, and replicas are sent one record at a time.

So whatever a trial judges is judged of statements of which a replica has only a part, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cairn.node.rows import relay
from cairn.sim.cluster.history import Result
from cairn.storage.data_db import data_store
from cairn.storage.data_db.long import gathering

_PARTS: list[tuple[Any, str, int]] = [
    (gathering, "PART_BYTES", 1),
    (data_store, "ONE_RECORD_BYTES", 1),
    (relay, "BATCH_BYTES", 1),
]
_WHILE_IT_RUNS = (gathering, "LOOK_EVERY", 2)


@contextmanager
def short_records(*, while_it_runs: bool = True) -> Iterator[None]:
    changed = [*_PARTS, _WHILE_IT_RUNS] if while_it_runs else _PARTS
    before = [getattr(module, name) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            setattr(module, name, value)


def in_parts(run: Callable[[int], Result]) -> Callable[[int], Result]:
    def short(seed: int) -> Result:
        with short_records(while_it_runs=seed % 2 == 0):
            return run(seed)

    return short
