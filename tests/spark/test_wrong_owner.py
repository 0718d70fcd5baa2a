"""Buckets that change their owner between planning and doing: nothing is lost or doubled.

Online moves are not there yet: what they do is done here by hand. Rows are copied and the owner
is changed by one compare-and-swap on `_pico_bucket`, as the last step of a move will do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError
from cairn.spark import cluster
from cairn.spark.options import read_options
from cairn.spark.reads.reader import TableReader
from cairn.spark.tables import describe, spark_schema
from cairn.spark.writes.staging import STAGE
from tests.cluster.as_peer import AsPeer
from tests.cluster.harness import eventually
from tests.spark.real_spark import _waiting

Rows = list[tuple[Any, ...]]
COLUMNS = "id INTEGER PRIMARY KEY, s TEXT"


class Buckets:
    """The first range, which one replicaset gives to the other."""

    def __init__(self, pool: SyncPool, as_peer: AsPeer) -> None:
        self._pool, self._as_peer = pool, as_peer
        self.one, self.other = sorted(
            name for (name,) in pool.fetch("SELECT name FROM _pico_replicaset")
        )
        [(self.end,)] = pool.fetch(
            "SELECT bucket_id_end FROM _pico_bucket WHERE bucket_id_start = 1"
        )

    def give(self, name: str) -> None:
        self._as_peer.give_buckets(name)

    def move(self, *tables: str) -> None:
        """As a move ends: the new owner has the rows, the old one keeps a copy of no meaning."""
        copied = {table: self._rows_of(table) for table in tables}
        self.give(self.other)
        for table, rows in copied.items():
            if rows:
                marks = ", ".join(f"${at + 1}" for at in range(len(rows[0])))
                self._pool.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def _rows_of(self, table: str) -> Rows:
        step = 100  # a query may gather 5000 rows
        return [
            row
            for low in range(1, self.end + 1, step)
            for row in self._pool.fetch(
                f"SELECT * FROM {table} WHERE bucket_id BETWEEN {low} AND "
                f"{min(low + step - 1, self.end)}"
            )
        ]


@pytest.fixture
def buckets(pool: SyncPool, dsn: str, demo: dict[str, Any]) -> Iterator[Buckets]:
    secret = (Path(demo["dir"]) / "service.password").read_text()
    found = Buckets(pool, AsPeer([each["peer"] for each in demo["instances"]], "demo", secret))
    cluster.call(dsn, "CALL cairn_rebalance('pause')")  # or they would move back by themselves
    yield found
    found.give(found.one)
    eventually(lambda: len(cluster.owners(dsn, "default")) == 2, "the owners of old")
    cluster.call(dsn, "CALL cairn_rebalance('resume')")
    with suppress(CairnError):  # what its first owner still has of the stage is in nobody's way
        pool.execute(f"DELETE FROM {STAGE}")


@pytest.fixture
def planned(spark: Any, dsn: str) -> Callable[..., tuple[TableReader, list[Any]]]:
    def plan(table: str, splits: int = 2) -> tuple[TableReader, list[Any]]:
        info = describe(dsn, table)
        options = read_options({"dsn": dsn, "table": table, "splits": str(splits)})
        reader = TableReader(options, info, spark_schema(info, (), 18))
        return reader, reader.partitions()

    return plan


def rows_of(reader: TableReader, partitions: list[Any]) -> Rows:
    return sorted(
        tuple(row.values())
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def fill(pool: SyncPool, table: str, count: int, word: str = "s") -> Rows:
    rows: Rows = [(at, f"{word}{at}") for at in range(count)]
    pool.copy_in(f"COPY {table} FROM STDIN", [f"{a}\t{b}\n".encode() for a, b in rows])
    return rows


def content(pool: SyncPool, table: str) -> Rows:
    text = b"".join(pool.copy_out(f"COPY {table} TO STDOUT")).decode()
    return sorted((int(key), word) for key, word in (x.split("\t") for x in text.splitlines()))


def test_a_planned_read_finds_an_empty_range_at_its_new_owner(
    pool: SyncPool, table: Callable[[str], str], buckets: Buckets, planned: Any
) -> None:
    name = table(COLUMNS)
    fill(pool, name, 500)
    pool.execute(f"DELETE FROM {name} WHERE bucket_id <= {buckets.end}")
    left = content(pool, name)
    reader, partitions = planned(name)
    buckets.move(name)
    assert rows_of(reader, partitions) == left


def test_a_planned_read_finds_copied_rows_once(
    pool: SyncPool, table: Callable[[str], str], buckets: Buckets, planned: Any
) -> None:
    name = table(COLUMNS)
    rows = fill(pool, name, 500)
    reader, partitions = planned(name)
    buckets.move(name)
    assert rows_of(reader, partitions) == rows


def test_ranges_that_meet_after_a_move_are_read_as_one(
    pool: SyncPool, table: Callable[[str], str], buckets: Buckets, planned: Any, dsn: str
) -> None:
    name = table(COLUMNS)
    rows = fill(pool, name, 500)
    buckets.move(name)
    eventually(lambda: len(cluster.owners(dsn, "default")) == 1, "one owner of all")
    reader, partitions = planned(name, splits=1)
    assert [each.ranges for each in partitions] == [((1, 3000),)]
    assert rows_of(reader, partitions) == rows


def test_rows_that_move_while_they_are_read_are_told_to_their_end(
    pool: SyncPool, table: Callable[[str], str], buckets: Buckets, planned: Any
) -> None:
    name = table(COLUMNS)
    rows = fill(pool, name, 60_000, "x" * 1000)  # more than fits between server and client
    reader, partitions = planned(name, splits=1)
    [mine, *others] = sorted(partitions, key=lambda each: each.ranges[0][0] != 1)
    batches = reader.read(mine)
    told = [next(batches)]
    buckets.give(buckets.other)
    told += batches
    found = [row for batch in told for row in zip(*batch.to_pydict().values(), strict=True)]
    buckets.give(buckets.one)
    assert sorted(found + rows_of(reader, others)) == rows


@pytest.mark.parametrize("commit", ["direct", "staged"])
def test_a_write_whose_buckets_move_half_way_is_complete(
    spark: Any, pool: SyncPool, table: Callable[[str], str], writing: Callable[..., None],
    buckets: Buckets, commit: str, tmp_path: Path,
) -> None:  # fmt: skip
    name = table(COLUMNS)
    writing(spark.range(0).selectExpr("id", "'' AS s"), name)  # makes the stage
    frame = spark.range(0, 20_000, 1, 2).selectExpr("id", "concat('s', id, repeat('x', 200)) AS s")
    slow = spark.createDataFrame(
        frame.rdd.mapPartitions(_waiting(str(tmp_path), 8_000)), "id bigint, s string"
    )

    def move_half_way() -> None:
        try:
            eventually(lambda: len(list(tmp_path.glob("half-*"))) == 2, "half-way", 60)
            if commit == "staged":
                eventually(lambda: pool.fetch(f"SELECT count(*) FROM {STAGE}")[0][0] > 0, "chunks")
            buckets.move(name, STAGE)
        finally:
            (tmp_path / "go").touch()

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        with ThreadPoolExecutor(1) as thread:
            moved = thread.submit(move_half_way)
            writing(slow, name, commit=commit, batchBytes=500_000)
            moved.result()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
    assert content(pool, name) == [(at, f"s{at}" + "x" * 200) for at in range(20_000)]
