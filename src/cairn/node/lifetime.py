"""Why and how an instance ends, and the runners that are kept up until then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from cairn.model.unexpected import owned
from cairn.node.runtime import spawn
from cairn.storage.files.sqlite import explained

log = logging.getLogger("cairn.instance")

FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 10.0  # before a runner that stumbled begins anew
Work = Callable[[], Awaitable[None]]


class Ending(Enum):
    """Why an instance may stop by itself. Whatever else goes wrong ends a statement, a connection
    or one turn of a runner, and the instance goes on (docs/explanation-failures.md)."""

    DURABILITY = "a file cannot be written any more"  # a failed fsync is never tried again
    STALLED = "its disk takes nothing any more"  # it is started again
    RAFT = "what Raft knows in memory and its log may differ"
    EXPELLED = "this instance was expelled"
    REPAIR = "its rows are damaged and are taken anew from the master"  # it is started again


#: Nobody can be answered any more: the others find a new master the sooner this one is gone.
_AT_ONCE = (Ending.DURABILITY, Ending.STALLED, Ending.RAFT)
AGAIN = 75  # the exit code of an instance that wants to be started again
_CODES = {Ending.EXPELLED: 5, Ending.REPAIR: AGAIN, Ending.STALLED: AGAIN}


class Lifetime:
    """`exit_code` is set when the instance has to end."""

    def __init__(self) -> None:
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_broken = False  # it ends, and nothing that it still does counts
        self.restart_asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def end(self, why: Ending, problem: BaseException | None = None) -> None:
        """The one place where an instance decides to stop; `Ending` lists the reasons."""
        if why is Ending.RAFT and problem is not None:
            owned(problem, "Raft")
        text = "" if problem is None else f": {explained(problem)}"
        log.critical("stopping, %s%s", why.value, text)
        self.is_broken = self.is_broken or why in _AT_ONCE
        if not self.exit_code.done():
            self.exit_code.set_result(_CODES.get(why, 1))

    def keep_up(self, work: Work, name: str) -> None:
        self._tasks.append(spawn(_kept_up(work, name), name))

    def stop_runners(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _kept_up(work: Work, name: str) -> None:
    """A runner that stumbles begins anew, later each time: half an instance is worse."""
    pause_s = FIRST_PAUSE_S
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        try:
            await work()
            return
        except Exception as problem:
            owned(problem, name)
        if loop.time() - begun > LAST_PAUSE_S:
            pause_s = FIRST_PAUSE_S
        log.error("%s begins anew in %g s", name, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
