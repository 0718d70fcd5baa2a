"""What a simulated client hears of a process that may die, stand still or take for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cairn.sim.cluster.node import SimNode
from cairn.sim.cluster.world import World


async def heard(
    world: World,
    node: SimNode,
    work: Callable[[], Any],
    patience_s: float,
    *,
    is_left: bool = False,
) -> asyncio.Task[Any] | None:
    """The work as it ended inside the process; None: it died, or the client has gone away.

    `is_left`: then it goes on by itself.
    """
    process = node.process
    assert process is not None
    until = world.loop.time() + patience_s

    async def run() -> Any:
        return await work()

    task = world.loop.create_task(run(), context=process.context)
    while not task.done():
        if node.process is not process or not node.is_running:
            return None
        if world.loop.time() >= until:
            if not is_left:
                task.cancel()
            return None
        await asyncio.wait({task}, timeout=min(0.1, until - world.loop.time()))
    return task
