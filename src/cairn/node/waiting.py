"""How an instance waits: for a condition, for a signal, for what a callback brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cairn.model.errors import CairnError

LOOK_S = 0.02
T = TypeVar("T")


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


async def on_thread(work: Callable[..., T], *args: Any) -> T:
    """As `asyncio.to_thread`, for what others use too: who stops waiting goes when the thread is
    done with it, not before."""
    running = asyncio.get_running_loop().run_in_executor(None, work, *args)
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))


def as_future(start: Callable[[Callable[[T | CairnError], None]], None]) -> asyncio.Future[T]:
    """What `start` answers by a callback, once. Who stopped waiting is told nothing."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    start(teller(future))
    return future


def teller(future: asyncio.Future[T]) -> Callable[[T | CairnError], None]:
    """A callback that ends a future, unless it has ended."""

    def done(result: T | CairnError) -> None:
        if future.done():
            return
        if isinstance(result, CairnError):
            future.set_exception(result)
        else:
            future.set_result(result)

    return done
