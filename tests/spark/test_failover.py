"""Masters that are killed: a job that starts right then neither loses nor doubles a row."""

from __future__ import annotations

from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from tests.cluster.harness import Cluster, eventually

NAMES = ("i1", "i2", "i3", "i4")  # two replicasets


def masters(cluster: Cluster) -> list[str]:
    """Of the replicasets with buckets, as somebody who lives tells it."""
    node = next(each for each in cluster.nodes.values() if each.process.poll() is None)
    return [each["master"] for each in node.status()["replicasets"] if each["buckets"]]


def write(frame: Any, dsn: str, table: str, commit: str) -> None:
    writer = frame.write.format("cairn").option("dsn", dsn).option("table", table)
    writer.option("commit", commit).mode("append").save()


@pytest.mark.parametrize("commit", ["direct", "staged"])
def test_a_write_right_after_a_master_was_killed_is_complete(
    spark: Any, pairs: Cluster, pairs_dsn: str, pairs_pool: SyncPool, commit: str
) -> None:
    table = f"after_{commit}"
    eventually(lambda: len(masters(pairs)) == 2, "buckets on both replicasets")
    pairs_pool.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, s TEXT)")
    frame = spark.range(0, 30_000, 1, 3).selectExpr("id", "concat('s', id) AS s")
    write(
        frame.where("id < 0"), pairs_dsn, table, commit
    )  # Spark is warm, its workers know the masters
    lost = masters(pairs)[0]
    pairs[lost].kill()
    write(frame, pairs_dsn, table, commit)
    text = b"".join(pairs_pool.copy_out(f"COPY {table} TO STDOUT")).decode()
    assert sorted(text.splitlines()) == sorted(f"{at}\ts{at}" for at in range(30_000))
    pairs[lost].start()
    pairs.wait_online(*NAMES, via=next(name for name in NAMES if name != lost))
