"""Statements as if each of them were long: of every two rows that one changes a record is made
while it runs, or of each row one when it ends, and replicas are sent one record at a time.

So whatever a trial judges is judged of statements of which a replica has only a part, too. In some
trials the disks have no room for these parts, now at one instance and now at another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from cairn.node.rows import relay
from cairn.sim.cluster.changed import changed
from cairn.sim.cluster.history import Result
from cairn.storage.data_db import data_store
from cairn.storage.data_db.long import gathering
from cairn.storage.files.spill import Room

_PARTS: list[tuple[Any, str, Any]] = [
    (gathering, "PART_BYTES", 1),
    (data_store, "ONE_RECORD_BYTES", 1),
    (relay, "BATCH_BYTES", 1),
]
_WHILE_IT_RUNS = (gathering, "LOOK_EVERY", 2)
CRAMPED_S, OF_S = 2, 7  # without room, of so many seconds
FROM_S, UNTIL_S = 2.5, 9  # not while tables are made, nor in the end


def _is_short(room: Room, more: int) -> bool:
    now = asyncio.get_running_loop().time()
    phase = crc32(room._directory.name.encode()) % OF_S
    return FROM_S < now < UNTIL_S and (now + phase) % OF_S < CRAMPED_S


@contextmanager
def short_records(*, while_it_runs: bool = True, is_cramped: bool = False) -> Iterator[None]:
    values = list(_PARTS)
    if while_it_runs:
        values.append(_WHILE_IT_RUNS)
    if is_cramped:
        values.append((Room, "is_short", _is_short))
    with changed(values):
        yield


def in_parts(run: Callable[[int], Result]) -> Callable[[int], Result]:
    def short(seed: int) -> Result:
        with short_records(while_it_runs=seed % 2 == 0, is_cramped=seed % 3 == 0):
            return run(seed)

    return short
