"""A table's stream goes on when a replicaset has given its buckets away and left the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.spark import CairnSparkError
from cairn.spark import cluster as shared
from cairn.spark.options import read_options
from cairn.spark.streams.row_stream import RowStream
from cairn.spark.streams.streams import ROWS
from tests.cluster.harness import PASSWORD, Cluster, eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path).start("i1", "i2")
    made["i1"].sql("CREATE TABLE t (id INT PRIMARY KEY, s TEXT) DISTRIBUTED BY (id)")
    made["i1"].sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    yield made
    shared.close_all()
    made.close()


def stream(cluster: Cluster, **options: str) -> RowStream:
    from pyspark.sql.types import _parse_datatype_string

    hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in cluster.nodes.values())
    dsn = f"postgresql://admin:{PASSWORD}@{hosts}/cairn"
    given = {"dsn": dsn, "stream": "table:t", "startingOffset": "earliest", **options}
    return RowStream(read_options(given), "t", _parse_datatype_string(ROWS))


def latest(source: RowStream, start: Any) -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return source.latestOffset(start, ReadAllAvailable())


def told(source: RowStream, start: Any) -> tuple[list[tuple[str, int]], Any]:
    """(op, id) of as many batches as there are, and where they end."""
    found: list[tuple[str, int]] = []
    for _ in range(20):
        end = latest(source, start)
        if end == start:
            return sorted(found), end
        for partition in source.partitions(start, end):
            for batch in source.read(partition):
                for row in batch.to_pylist():
                    number = 0 if row["op"] == "reset" else json.loads(row["new"])["id"]
                    found.append((row["op"], number))
        start = end
    raise AssertionError("batches without an end")


def inserts(numbers: range) -> list[tuple[str, int]]:
    return [("insert", number) for number in numbers]


def insert(cluster: Cluster, numbers: range) -> None:
    cluster["i1"].sql("INSERT INTO t VALUES " + ", ".join(f"({n}, 's')" for n in numbers))


def drain(cluster: Cluster) -> None:
    """The replicaset of i2 gives its buckets to the other."""
    first = cluster["i1"]
    [(name,)] = first.sql("SELECT replicaset_name FROM _pico_instance WHERE name = 'i2'")
    first.sql(f"CALL cairn_rebalance('drain', '{name}')")

    def is_empty() -> bool:
        status = first.sql("CALL cairn_rebalance()")[0][0]
        rows = {row["name"]: row["buckets"] for row in first.status()["replicasets"]}
        return rows[name] == 0 and not status["moves"]

    eventually(is_empty, "the buckets to move", 60.0)


def expel(cluster: Cluster) -> None:
    cluster["i1"].sql("CALL cairn_expel('i2')")
    assert cluster["i2"].wait_exit() == 5


def test_nothing_is_missing_and_nothing_told_twice(spark: Any, cluster: Cluster) -> None:
    insert(cluster, range(50))
    source = stream(cluster)
    rows, middle = told(source, source.initialOffset())
    assert rows == inserts(range(50))
    drain(cluster)
    insert(cluster, range(50, 60))
    rows, drained = told(source, middle)
    assert rows == inserts(range(50, 60))
    expel(cluster)
    insert(cluster, range(60, 70))
    rows, end = told(source, drained)
    assert rows == inserts(range(60, 70))
    assert (len(drained["rs"]), len(end["rs"])) == (2, 1)


def test_changes_that_left_with_it_are_told_as_lost_or_the_rows_anew(
    spark: Any, cluster: Cluster
) -> None:
    insert(cluster, range(20))
    source = stream(cluster)
    _, middle = told(source, source.initialOffset())
    insert(cluster, range(20, 50))
    drain(cluster)
    expel(cluster)
    with pytest.raises(CairnSparkError, match=r"PC005.*has left the cluster with changes"):
        latest(source, middle)
    rows, _ = told(stream(cluster, failOnDataLoss="false"), middle)
    assert rows == [("reset", 0), *(("snapshot", number) for number in range(50))]
