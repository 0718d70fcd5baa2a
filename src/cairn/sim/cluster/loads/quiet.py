"""Where clients may write now.

A write that waits for a majority holds up the reads behind it: a master that was cut off would tell
nobody anything. One that nobody writes to shows whether it still may answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.sim.cluster.node import SimNode

ENDED_S = 10.0  # until writes that are under way have ended
LOOK_S = 0.02


class Quiet:
    def __init__(self) -> None:
        self._writing = 0
        self._is_held = False
        self._left: SimNode | None = None  # through it nobody writes

    def may_write(self, node: SimNode) -> bool:
        return not self._is_held and node is not self._left

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1

    async def leave_to_readers(self, node: SimNode, cut: Callable[[], None]) -> bool:
        """Cut it off while no write is under way; False: there is always one."""
        loop = asyncio.get_running_loop()
        until, self._is_held = loop.time() + ENDED_S, True
        while self._writing and loop.time() < until:
            await asyncio.sleep(LOOK_S)
        if not self._writing:
            self._left = node
            cut()
        self._is_held = False
        return self._left is node

    def end(self) -> None:
        self._left = None
