"""A cluster that was restored from a copy has another history: streams of the old one end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from cairn.spark import CairnSparkError
from cairn.spark import cluster as pools
from cairn.spark.options import read_options
from cairn.spark.streams.row_stream import RowStream
from cairn.spark.streams.streams import ROWS
from tests.cluster.harness import PASSWORD, Cluster, Node

_TYPES = {"string": StringType, "int": IntegerType, "bigint": LongType, "timestamp": TimestampType}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Cluster(tmp_path).start("i1")
    yield found["i1"]
    pools.close_all()
    found.close()


def source(node: Node) -> RowStream:
    wanted = StructType()
    for field in ROWS.split(", "):
        name, kind = field.split()
        wanted.add(name, _TYPES[kind]())
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"
    options = {"dsn": dsn, "stream": "table:t", "startingOffset": "earliest"}
    return RowStream(read_options(options), "t", wanted)


def told(stream: RowStream, start: Any) -> tuple[int, Any]:
    """How many changes follow, and the offset after them."""
    end = stream.latestOffset(start, ReadAllAvailable())
    pieces = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return sum(batch.num_rows for batch in pieces), end


def write(node: Node, first: int, count: int) -> None:
    for start in range(first, first + count, 50):
        node.sql("INSERT INTO t VALUES " + ", ".join(f"({k})" for k in range(start, start + 50)))


def began_anew(node: Node, *, by_command: bool) -> tuple[RowStream, Any]:
    """100 rows, a copy, 200 more that a stream reads; then the copy again, and 300 others."""
    node.sql("CREATE TABLE t (k INT PRIMARY KEY)")
    write(node, 0, 100)
    copy = node.dir.with_name("copy")
    node.stop()
    shutil.copytree(node.dir, copy)
    node.start()
    node.cluster.wait_online("i1")
    write(node, 1000, 200)
    stream = source(node)
    count, offset = told(stream, stream.initialOffset())
    assert count == 300
    node.stop()
    shutil.rmtree(node.dir)
    shutil.copytree(copy, node.dir)
    if by_command:
        command = [sys.executable, "-m", "cairn.cli.main", "restore", str(node.dir)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    node.start()
    node.cluster.wait_online("i1")
    write(node, 5000, 300)
    return stream, offset


def test_a_stream_of_the_old_history_ends_with_a_word_and_a_new_one_begins(node: Node) -> None:
    before, offset = began_anew(node, by_command=True)
    pools.close_all()  # as after a restart of the query
    stream = source(node)
    with pytest.raises(CairnSparkError, match=r"belongs to cluster .* restored .*snapshot"):
        told(stream, offset)
    assert told(stream, stream.initialOffset())[0] == 400
    # A task that was planned before the restore and begins after it.
    with pytest.raises(CairnSparkError, match="belongs to cluster"):
        for part in before.partitions(before.initialOffset(), offset):
            list(before.read(part))
