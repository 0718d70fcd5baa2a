"""`examples/pipeline` as its README has it; a master is killed, and the sums are right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync import connect
from cairn.client.sync_pool import SyncPool
from tests.cluster.harness import Cluster, eventually
from tests.spark.real_spark import has_everything, owner_of_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAMES = ("i1", "i2", "i3")  # one replicaset of two with all buckets, and one more voter
FOLDER = Path(__file__).parents[2] / "examples" / "pipeline"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGGREGATED_S = 300  # Spark starts on a busy machine
Order = tuple[int, str, int, datetime]


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def orders(numbers: range) -> list[Order]:
    """One every 2 seconds, of seven customers."""
    return [(n, f"c{n % 7}", n * 10, NOON + timedelta(seconds=2 * n)) for n in numbers]


def wanted(placed: list[Order]) -> dict[tuple[str, datetime], tuple[int, int]]:
    found: dict[tuple[str, datetime], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for _, customer, cents, at in placed:
        key = (customer, at.replace(second=0))
        found[key] = (found[key][0] + 1, found[key][1] + cents)
    return dict(found)


def sums(pool: SyncPool) -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = pool.fetch("SELECT customer, minute, orders, cents FROM orders_per_minute")
    return {(customer, minute): (count, cents) for customer, minute, count, cents in rows}


@pytest.fixture
def job(pairs_dsn: str, pairs_pool: SyncPool, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    for statement in (FOLDER / "tables.sql").read_text().split(";"):
        if statement.strip():
            pairs_pool.execute(statement)
    command = [sys.executable, str(FOLDER / "aggregate.py"), "--checkpoint", str(tmp_path / "cp")]
    with (tmp_path / "job.log").open("wb") as log:
        started = subprocess.Popen(
            command, env=os.environ | {"CAIRN_DSN": pairs_dsn}, stdout=log, stderr=log
        )
    yield started
    started.terminate()
    started.wait(60)


def test_the_sums_are_right_after_a_failover_and_late_orders_are_left_out(
    pairs: Cluster, pairs_pool: SyncPool, pairs_dsn: str, job: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:  # fmt: skip
    place = loaded("place_orders").place

    def arrive(right: dict[Any, Any]) -> None:
        def is_right() -> bool:
            assert job.poll() is None, (tmp_path / "job.log").read_text()[-2000:]
            return sums(pairs_pool) == right

        eventually(is_right, "the sums of all orders", AGGREGATED_S)

    first, second = orders(range(200)), orders(range(200, 400))
    with connect(pairs_dsn) as shop:
        for order in first:
            place(shop, order)
        arrive(wanted(first))
        owner = owner_of_all(pairs)
        eventually(lambda: has_everything(pairs, owner), "the replica has all rows")
        for order in second[:100]:
            place(shop, order)
        eventually(lambda: has_everything(pairs, owner), "the replica has all rows")
        pairs[owner["master"]].kill()
        for order in second[100:]:
            place(shop, order)
        arrive(wanted(first + second))
        place(shop, (1000, "late", 1, NOON))  # its minute was closed long ago
        last = (1001, "c0", 5, second[-1][3])
        place(shop, last)
        arrive(wanted([*first, *second, last]))
    shown = subprocess.run(
        [sys.executable, str(FOLDER / "dashboard.py")], env=os.environ | {"CAIRN_DSN": pairs_dsn},
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    money = sum(cents for _, _, cents, _ in [*first, *second, last])
    best = shown.splitlines()[-5:]
    assert len(best) == 5 and all(line.startswith("c") for line in best)
    assert sum(float(line.split()[-1]) for line in shown.splitlines()[:10]) <= money / 100
