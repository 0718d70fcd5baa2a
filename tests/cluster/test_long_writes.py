"""A range is not frozen while its source is busy with a long write: everybody would wait for it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
LONG = (
    "UPDATE t SET n = (SELECT count(*) FROM generate_series(1, 30000) a, generate_series(1, 700) b "
    "WHERE a > id) WHERE id < 6"
)


def test_moves_wait_for_a_long_write_and_freeze_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path).start("i1")
    first = cluster["i1"]
    try:
        first.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
        first.sql("INSERT INTO t SELECT g, 0 FROM generate_series(1, 2000) g")
        first.sql("CALL cairn_rebalance('pause')")
        cluster.add("i2").start()
        cluster.wait_online("i2")
        took: list[float] = []

        def write() -> None:
            begun = time.monotonic()
            first.sql(LONG)
            took.append(time.monotonic() - begun)

        writing = threading.Thread(target=write)
        writing.start()
        time.sleep(0.3)
        first.sql("CALL cairn_rebalance('resume')")
        waits = eventually(
            lambda: (
                [
                    move["waits_for"]
                    for move in first.sql("CALL cairn_rebalance()")[0][0]["moves"]
                    if "long write" in str(move["waits_for"])
                ]
                or (took and ["it was over"])
            ),
            "a move to wait",
            60.0,
        )
        writing.join()
        eventually(
            lambda: (
                first.sql("SELECT count(*) FROM _cairn_move WHERE phase = 'done'")[0][0] > 0
                or first.sql("SELECT count(*) FROM _cairn_move WHERE phase = 'copied'")[0][0] > 0
            ),
            "buckets to move afterwards",
            60.0,
        )
        thaws = first.sql("SELECT max(thaws) FROM _cairn_move")[0][0]
        assert (thaws, "long write" in waits[0]) == (0, True), took
    finally:
        cluster.close()
