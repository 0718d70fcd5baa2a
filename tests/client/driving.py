"""How tests drive the asyncio face against fake instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from cairn.client import Pool, connect

from .fake_cluster import FakeCluster

INSERT = "INSERT INTO t VALUES ($1, $2)"
SELECT = "SELECT id, v FROM t WHERE id = $1"


@asynccontextmanager
async def pool_of(cluster: FakeCluster, *names: str, **settings: Any) -> AsyncIterator[Pool]:
    settings = {"retry_for_s": 3.0, "timeout_s": 3.0} | settings
    pool = await connect(cluster.dsn(*names), **settings)
    try:
        yield pool
    finally:
        await pool.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")
