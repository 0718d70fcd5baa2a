"""Ending a write that somebody does not want any more, without leaving them in doubt.

A write to one replicaset is whole or not at all, so it may be ended until it is committed. Who
stops waiting for it is still told what became of it: taken back, or done after all.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar

from cairn.model.errors import OutcomeUnknown, QueryCanceled
from cairn.node.statements.context import ASKED
from cairn.storage.readers import Cancelled

T = TypeVar("T")
LAST_WORD_S = 10.0  # for a verdict that is on its way; taking back takes milliseconds


class Ticket:
    """One long write behind the writer. `stopped` ends it while it runs."""

    def __init__(self, stopped: Cancelled) -> None:
        self.stopped = stopped
        self._lock = threading.Lock()  # the writer's thread begins, the event loop gives up
        self._is_begun = self._is_over = False

    def begin(self) -> None:
        with self._lock:
            if self._is_over or self.stopped.is_set():
                self._is_over = True
                raise QueryCanceled(ASKED)
            self._is_begun = True

    def give_up(self) -> bool:
        """True: it has not begun and never will. Others may hold the writer for long."""
        self.stopped.set()
        with self._lock:
            self._is_over = not self._is_begun
            return self._is_over


async def to_its_end(future: asyncio.Future[T], ticket: Ticket) -> T:
    """The verdict, also for who is cancelled while it waits."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if ticket.give_up():
            raise QueryCanceled(ASKED) from None
    loop = asyncio.get_running_loop()
    until = loop.time() + LAST_WORD_S
    while not future.done() and (left_s := until - loop.time()) > 0:
        try:
            await asyncio.wait({future}, timeout=left_s)
        except asyncio.CancelledError:  # it is being ended already
            continue
    if not future.done():
        raise OutcomeUnknown(
            "the write was told to end and has not answered",
            hint="look whether the rows are there before trying again",
        )
    return future.result()
