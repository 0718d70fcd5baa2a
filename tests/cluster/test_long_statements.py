"""A statement that changes much is whole or not at all, whenever its master is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually
from tests.cluster.test_replication import config, master_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ROWS = 60_000


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_all_rows_are_as_before_or_as_after(
    new_cluster: Callable[..., Cluster], tmp_path: Any, mode: str
) -> None:
    cluster = new_cluster("--config", config(tmp_path, mode)).start("i1", "i2", "i3")
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY, n INT, text TEXT)")
    fill = f"INSERT INTO t SELECT g, 0, repeat('x', 80) FROM generate_series(1, {ROWS}) g"
    cluster["i1"].sql(fill)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice, value = random.Random(seed), 0
    for number in range(1, 6):
        old = master_of(cluster, "i1")
        acknowledged: list[int] = []

        def write(at: str, number: int, acknowledged: list[int]) -> None:
            try:
                cluster[at].sql(f"UPDATE t SET n = {number}")
                acknowledged.append(number)
            except psycopg.Error:
                return

        writing = threading.Thread(target=write, args=(old, number, acknowledged))
        writing.start()
        time.sleep(dice.uniform(0.05, 1.5))  # somewhere in it
        cluster[old].kill()
        writing.join()
        others = [name for name in cluster.nodes if name != old]
        eventually(lambda old=old, at=others[0]: master_of(cluster, at) not in ("", old), "one")
        found: list[Any] = []

        def is_told(at: str = others[0], found: list[Any] = found) -> bool:
            found[:] = cluster[at].sql("SELECT n, count(*) FROM t GROUP BY n")
            return True

        eventually(is_told, "rows at the new master")
        assert found in ([(value, ROWS)], [(number, ROWS)]), (old, acknowledged)
        if mode == "sync" and acknowledged:
            assert found == [(number, ROWS)]
        value = found[0][0]
        cluster[old].start()
        cluster.wait_online("i1", "i2", "i3", via=others[0])
    query = "SELECT n, count(*) FROM t GROUP BY n OPTION (read_preference = any)"
    for name in cluster.nodes:
        eventually(
            lambda name=name: cluster[name].sql(query) == [(value, ROWS)], f"the rows at {name}"
        )
