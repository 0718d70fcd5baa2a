"""Masters that are killed: a job that starts right then neither loses nor doubles a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.spark import cluster as connections
from tests.cluster.harness import PASSWORD, Cluster, eventually

NAMES = ("i1", "i2", "i3", "i4")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two replicasets of two."""
    made = Cluster(tmp_path_factory.mktemp("pairs"), "pairs", "--init-replication-factor", "2")
    made.start(*NAMES)
    eventually(lambda: len(masters(made)) == 2, "buckets on both replicasets")
    yield made
    connections.close_all()
    made.close()


@pytest.fixture(scope="module")
def dsn(pairs: Cluster) -> str:
    hosts = ",".join(f"127.0.0.1:{pairs[name].pg_port}" for name in NAMES)
    return f"postgresql://admin:{PASSWORD}@{hosts}/cairn"


@pytest.fixture(scope="module")
def pool(dsn: str) -> Iterator[SyncPool]:
    with SyncPool(parse_dsn(dsn)).open() as found:
        yield found


def masters(cluster: Cluster) -> list[str]:
    """Of the replicasets with buckets, as somebody who lives tells it."""
    node = next(each for each in cluster.nodes.values() if each.process.poll() is None)
    return [each["master"] for each in node.status()["replicasets"] if each["buckets"]]


def write(frame: Any, dsn: str, table: str, commit: str) -> None:
    writer = frame.write.format("cairn").option("dsn", dsn).option("table", table)
    writer.option("commit", commit).mode("append").save()


@pytest.mark.parametrize("commit", ["direct", "staged"])
def test_a_write_right_after_a_master_was_killed_is_complete(
    spark: Any, pairs: Cluster, dsn: str, pool: SyncPool, commit: str
) -> None:
    table = f"after_{commit}"
    pool.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, s TEXT)")
    frame = spark.range(0, 30_000, 1, 3).selectExpr("id", "concat('s', id) AS s")
    write(frame.where("id < 0"), dsn, table, commit)  # Spark is warm, its workers know the masters
    lost = masters(pairs)[0]
    pairs[lost].kill()
    write(frame, dsn, table, commit)
    text = b"".join(pool.copy_out(f"COPY {table} TO STDOUT")).decode()
    assert sorted(text.splitlines()) == sorted(f"{at}\ts{at}" for at in range(30_000))
    pairs[lost].start()
    pairs.wait_online(*NAMES, via=next(name for name in NAMES if name != lost))
