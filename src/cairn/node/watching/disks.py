"""Disks that take nothing any more: an instance whose writer stands still says so, and then ends.

Reads and Raft's heartbeats need no disk, so peers would take it for a healthy one for ever: as a
master nobody could write, as a leader nothing could be decided. Whoever ends is replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping

from cairn.storage.files.writer import Disk

log = logging.getLogger("cairn.disks")

LOOK_S = 1.0
TOLD_S = 5.0  # before anybody is told
STALLED_S = 20.0  # a failover and a start cost less than waiting any longer


class Stall:
    """For how long one writer has stood still, by what it says at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before: Hashable | None = None

    def looked(self, standing: Hashable | None, since_s: float) -> float:
        """`since_s` is the time since the last look; a long one means that we stood still, too."""
        stood = standing is not None and standing == self._before
        self.seconds = self.seconds + min(since_s, LOOK_S) if stood else 0.0
        self._before = standing
        return self.seconds


class Disks:
    """`disks` by the name of their file; `end` ends the instance."""

    def __init__(
        self,
        name: str,
        disks: Mapping[str, Disk],
        limit_s: float,
        end: Callable[[Exception], None],
    ) -> None:
        self._name, self._disks, self._end = name, disks, end
        self._limit_s = min(limit_s, STALLED_S)  # 0: never
        self._stalls = {file: Stall() for file in disks}
        self._told: set[str] = set()

    def problems(self) -> list[str]:
        return [self._said(file) for file in sorted(self._told)]

    def _said(self, file: str) -> str:
        seconds = self._stalls[file].seconds
        return f"{self._name}: the disk of {file} has taken nothing for {seconds:.0f} s"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            self._look(now - before)
            before = now

    def _look(self, since_s: float) -> None:
        for file, stall in self._stalls.items():
            seconds = stall.looked(self._disks[file].standing(), since_s)
            if seconds < TOLD_S:
                self._told.discard(file)
                continue
            if file not in self._told:
                self._told.add(file)
                log.error("%s; this instance ends at %g s", self._said(file), self._limit_s)
            if 0 < self._limit_s <= seconds:
                self._end(TimeoutError(self._said(file)))
