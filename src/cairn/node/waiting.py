"""How an instance waits: for a condition, or for a signal. Every wait has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_S = 0.02


async def until(condition: Callable[[], bool], timeout_s: float, look_s: float = LOOK_S) -> bool:
    """Whether it came true in time. Nobody tells: it is looked at every `look_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(look_s)
    return True


async def signalled(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it was set in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
