"""The service on a real cluster of two instances, with the tables of its migrations."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cairn.client import connect
from cairn.testing import Cluster

pytest_plugins = ["cairn.testing.fixtures"]
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orders import Orders  # noqa: E402

Story = Callable[[Orders], Coroutine[Any, Any, None]]


@pytest.fixture(scope="session")
def migrated(cairn_cluster: Cluster) -> Cluster:
    """Once for all tests: the queue of migrations remembers what it has run."""
    files = sorted(map(str, (ROOT / "migrations").glob("*.sql")))
    command = [sys.executable, "-m", "cairn.cli.main", "migrate", *files, "--wait"]
    subprocess.run([*command, "--dsn", cairn_cluster.dsn], check=True, capture_output=True)
    return cairn_cluster


@pytest.fixture
def run(migrated: Cluster, cairn: Cluster) -> Callable[[Story], None]:
    """Runs a story against the service, with empty tables."""
    cairn.empty()

    def go(story: Story) -> None:
        async def told() -> None:
            async with await connect(cairn.dsn) as pool:
                await story(Orders(pool))

        asyncio.run(told())

    return go
