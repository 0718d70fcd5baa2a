"""When sync mode was certainly in force, in a world in which somebody changes the mode.

It is from the moment at which every instance that runs knows of it (who does not run has no lease,
and gets one only for a picture that has the change) to the moment at which the first one applies
the change back: until then nobody may acknowledge or name a master by the rules of async mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cairn.sim.cluster.world import World
from cairn.sim.linear import FOREVER

LOOK_S = 0.05


class SyncTimes:
    def __init__(self, world: World, mode: str) -> None:
        self._world = world
        self._since: float | None = 0.0 if mode == "sync" else None
        self._is_sync = mode == "sync"  # as the last entry that anybody applied says
        self.periods: list[tuple[float, float]] = []

    async def watch(self) -> None:
        """For ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        changes = self._world.checks.modes
        while changes:
            at, mode = changes.pop(0)
            if mode != "sync" and self._since is not None:
                self.periods.append((self._since, at))
                self._since = None
            self._is_sync = mode == "sync"
        if self._is_sync and self._since is None and self._all_know():
            self._since = self._world.loop.time()

    def _all_know(self) -> bool:
        for node in self._world.running():
            tiers = {} if node.instance is None else node.instance.state.cluster.tiers
            if [each.replication_mode for each in tiers.values()] != ["sync"]:
                return False
        return True

    def losing(self, namings: Sequence[float]) -> list[float]:
        """The moments at which rows may have been lost: namings while async mode may have been in
        force; and what was there when sync mode began may have been with its master alone.
        """
        self.look()
        open_ = [] if self._since is None else [(self._since, float(FOREVER))]
        periods = [*self.periods, *open_]
        outside = [at for at in namings if not any(a < at < b for a, b in periods)]
        return sorted([*outside, *(begin for begin, _ in periods if begin > 0)])
