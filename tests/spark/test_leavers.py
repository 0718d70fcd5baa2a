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


def drain(cluster: Cluster, instance: str = "i2", *, drops: bool = True) -> None:
    """Its replicaset gives its buckets to the other, and drops its old rows."""
    first = cluster["i1"]
    [(name,)] = first.sql(f"SELECT replicaset_name FROM _pico_instance WHERE name = '{instance}'")
    first.sql(f"CALL cairn_rebalance('drain', '{name}')")

    def is_empty() -> bool:
        status = first.sql("CALL cairn_rebalance()")[0][0]
        rows = {row["name"]: row["buckets"] for row in first.status()["replicasets"]}
        return rows[name] == 0 and not (drops and status["moves"])

    eventually(is_empty, "the buckets to move", 60.0)


def expel(cluster: Cluster, name: str = "i2") -> None:
    cluster["i1"].sql(f"CALL cairn_expel('{name}')")
    assert cluster[name].wait_exit() == 5


def join(cluster: Cluster, name: str) -> None:
    """Another instance takes the place and the name of the replicaset that left, and its share."""
    first = cluster["i1"]
    eventually(lambda: len(first.status()["replicasets"]) == 1, "its rows to be deleted", 30.0)
    cluster.add(name).start()
    cluster.wait_online(name)
    wait_for_shares(cluster)


def wait_for_shares(cluster: Cluster) -> None:
    first = cluster["i1"]

    def has_some() -> bool:
        rows = {row["name"]: row["buckets"] for row in first.status()["replicasets"]}
        return min(rows.values()) == 1500 and not first.sql("CALL cairn_rebalance()")[0][0]["moves"]

    eventually(has_some, "its share of the buckets", 60.0)


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
    # Who owns nothing and has told all is not asked again: its log may go as it likes.
    assert (len(drained["rs"]), len(end["rs"])) == (1, 1)


def test_another_replicaset_under_the_name_of_one_that_left_is_another_one(
    spark: Any, cluster: Cluster
) -> None:
    """Moves of the first with this name hold nothing back and are no beginning for the second."""
    insert(cluster, range(50))
    source = stream(cluster)
    _, middle = told(source, source.initialOffset())
    drain(cluster)
    _, drained = told(source, middle)
    expel(cluster)
    join(cluster, "i3")
    insert(cluster, range(50, 80))
    rows, end = told(source, drained)
    assert rows == inserts(range(50, 80))
    assert len(end["rs"]) == 2
    drain(cluster, "i3")  # and it gives as itself
    insert(cluster, range(80, 90))
    rows, end = told(source, end)
    assert rows == inserts(range(80, 90))


def test_who_gave_all_away_and_gets_some_back_begins_there(spark: Any, cluster: Cluster) -> None:
    insert(cluster, range(50))
    source = stream(cluster)
    _, middle = told(source, source.initialOffset())
    drain(cluster)
    _, drained = told(source, middle)
    [(name,)] = cluster["i1"].sql("SELECT replicaset_name FROM _pico_instance WHERE name = 'i2'")
    cluster["i1"].sql(f"CALL cairn_rebalance('weight', '{name}', 1)")
    wait_for_shares(cluster)
    insert(cluster, range(50, 90))
    rows, end = told(source, drained)
    assert rows == inserts(range(50, 90))
    assert (len(drained["rs"]), len(end["rs"])) == (1, 2)


def test_a_batch_that_was_planned_before_an_expel_is_read_after_it(
    spark: Any, cluster: Cluster
) -> None:
    insert(cluster, range(50))
    source = stream(cluster)
    _, middle = told(source, source.initialOffset())
    drain(cluster)
    insert(cluster, range(50, 60))
    end = latest(source, middle)
    assert latest(source, middle) == end  # dropping old rows is no news
    expel(cluster)
    rows = [
        (row["op"], json.loads(row["new"])["id"])
        for partition in source.partitions(middle, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]
    assert sorted(rows) == inserts(range(50, 60))


def test_who_took_buckets_and_left_between_two_batches_is_missed(
    spark: Any, cluster: Cluster
) -> None:
    insert(cluster, range(20))
    source = stream(cluster)
    drain(cluster)
    _, drained = told(source, source.initialOffset())
    expel(cluster)
    join(cluster, "i3")
    insert(cluster, range(20, 40))
    drain(cluster, "i3")
    expel(cluster, "i3")
    with pytest.raises(CairnSparkError, match=r"PC005.*has left with changes unread"):
        latest(source, drained)
    rows, _ = told(stream(cluster, failOnDataLoss="false"), drained)
    assert rows == [("reset", 0), *(("snapshot", number) for number in range(40))]


def test_a_snapshot_that_was_planned_before_a_move_is_told_by_who_had_the_rows(
    spark: Any, cluster: Cluster
) -> None:
    cluster["i1"].sql("ALTER SYSTEM SET rebalance_drop_delay = 60")
    insert(cluster, range(50))
    source = stream(cluster, startingOffset="snapshot")
    start = source.initialOffset()
    end = latest(source, start)
    drain(cluster, drops=False)
    insert(cluster, range(50, 60))  # after its moment, at the new owner
    rows = [
        (row["op"], json.loads(row["new"])["id"])
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]
    assert sorted(rows) == [("snapshot", number) for number in range(50)]
    rows, _ = told(source, end)
    assert rows == inserts(range(50, 60))


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
