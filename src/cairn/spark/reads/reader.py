"""Batch reads: each partition is a range of buckets, read straight from a member of its owner.

Each replicaset answers from one snapshot of its own; there is none across replicasets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cairn.model.errors import CairnError, Unreachable
from cairn.model.quoting import identifier
from cairn.spark import cluster
from cairn.spark.cluster import MOVED, REPLAN_S, Owner
from cairn.spark.options import Options
from cairn.spark.plainly import plainly
from cairn.spark.reads.filters import Pushed
from cairn.spark.tables import TableInfo, as_wanted, wanted_schema

Ranges = tuple[tuple[int, int], ...]
ROWS_PER_SPLIT = 500_000
MAX_SPLITS = 16
SAMPLE_BUCKETS = 30


class BucketPartition(InputPartition):  # type: ignore[misc]
    """Buckets of one replicaset, with where they were when the read was planned."""

    def __init__(self, ranges: Ranges, addresses: tuple[str, ...]) -> None:
        self.ranges, self.addresses = ranges, addresses
        self.value = (ranges, addresses)


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads a table. Holds no connection: it is pickled to every task."""

    def __init__(self, options: Options, table: TableInfo, schema: Any) -> None:
        self._options, self._table, self._schema = options, table, schema
        self._conditions: list[str] = [options.where] if options.where else []
        self._buckets: set[int] | None = None

    # --- on the driver --------------------------------------------------------------------------

    def partitions(self) -> list[Any]:
        with plainly():
            return self._partitions()

    def _partitions(self) -> list[Any]:
        table = self._table
        if table.tier is None:
            return [InputPartition("global")]
        owners = cluster.owners(self._options.dsn, table.tier, self._options.read_from)
        found: list[Any] = []
        if self._buckets is not None:
            for owner in owners:
                mine = tuple((b, b) for b in sorted(self._buckets) if _owns(owner, b))
                if mine:
                    found.append(BucketPartition(_merged(mine), owner.addresses))
            return found
        splits = self._options.splits or self._automatic_splits(len(owners))
        for owner in owners:
            found += [BucketPartition(part, owner.addresses) for part in cut(owner.ranges, splits)]
        return found

    def _automatic_splits(self, owner_count: int) -> int:
        """By size, guessed from the rows of a few buckets."""
        table = self._table
        step = max(table.bucket_count // SAMPLE_BUCKETS, 1)
        sample = list(range(1, table.bucket_count + 1, step))
        sql = (
            f"SELECT count(*) FROM {identifier(table.name)} "
            f"WHERE bucket_id IN ({', '.join(map(str, sample))})"
        )
        [(counted,)] = cluster.pool(self._options.dsn).fetch(sql)
        rows = int(counted) * table.bucket_count / len(sample) / max(owner_count, 1)
        return max(1, min(MAX_SPLITS, math.ceil(rows / ROWS_PER_SPLIT)))

    # --- in a task ------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[Any]:
        cluster.settle()
        want = wanted_schema(self._schema)
        if isinstance(partition, BucketPartition):
            yield from self._read_ranges(partition, want)
        elif partition.value == "global":
            yield from _from_anybody(self._options, self._sql(None), want)
        # Else no bucket can hold a matching row: Spark asks with one partition of None.

    def _read_ranges(self, partition: BucketPartition, want: Any) -> Iterator[Any]:
        """What was moved before its first row is asked for again where it is now."""
        waiting = [(ask, partition.addresses) for ask in _asks(partition.ranges)]
        until = time.monotonic() + REPLAN_S
        while waiting:
            ranges, addresses = waiting.pop()
            is_begun = False
            try:
                if not addresses:
                    raise Unreachable("the replicaset has no instance to read from")
                for batch in _batches(self._options, self._sql(ranges), addresses[0], want):
                    is_begun = True
                    yield batch
            except CairnError as problem:
                if is_begun or problem.sqlstate not in MOVED or time.monotonic() > until:
                    raise  # Spark repeats the whole task: never go on in the middle
                cluster.wait_for_news(self._options.dsn, 0.2)
                waiting += self._replanned(ranges)

    def _replanned(self, ranges: Ranges) -> list[tuple[Ranges, tuple[str, ...]]]:
        assert self._table.tier is not None
        owners = cluster.owners(self._options.dsn, self._table.tier, self._options.read_from)
        return [
            (ask, owner.addresses)
            for owner in owners
            for ask in _asks(_common(ranges, owner.ranges))
        ]

    def _sql(self, ranges: Ranges | None) -> str:
        names = ", ".join(identifier(field.name) for field in self._schema.fields)
        conditions = [f"({text})" for text in self._conditions]
        if ranges is not None:
            conditions.insert(0, _bucket_condition(ranges))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        table = identifier(self._table.name)
        return f"COPY (SELECT {names} FROM {table}{where}) TO STDOUT (FORMAT arrow)"


class PushingReader(TableReader):
    """With filter pushdown; a class of its own, because Spark looks whether it is overridden.

    Right only for a source that has one scan, which `own_scans` sees to.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        pushed = Pushed(self._table, filters)
        given = [self._options.where] if self._options.where else []
        self._conditions, self._buckets = given + pushed.conditions, pushed.buckets()
        return pushed.left


class QueryReader(DataSourceReader):  # type: ignore[misc]
    """Reads what the cluster computes itself: one partition, from any instance."""

    def __init__(self, options: Options, schema: Any) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[Any]:
        return [InputPartition("query")]

    def read(self, partition: Any) -> Iterator[Any]:
        with plainly():
            yield from self._read()

    def _read(self) -> Iterator[Any]:
        sql = f"COPY ({self._options.query}) TO STDOUT (FORMAT arrow)"
        yield from _from_anybody(self._options, sql, wanted_schema(self._schema))


def query_schema(options: Options) -> Any:
    """The Arrow schema of a query's result, from its first message."""
    sql = f"COPY (SELECT * FROM ({options.query}) AS q LIMIT 0) TO STDOUT (FORMAT arrow)"
    for stream in _asked_of_anybody(options, sql, "master"):
        return stream.schema
    raise Unreachable("the query was not answered")


# --- what an instance answers ---------------------------------------------------------------------


def _streams(options: Options, sql: str, address: str, read_from: str) -> Iterator[Any]:
    for data in cluster.copy_out(options.dsn, address, sql, options.timeout_s, read_from):
        yield pa.ipc.open_stream(pa.py_buffer(data))


def _batches(options: Options, sql: str, address: str, want: Any) -> Iterator[Any]:
    for stream in _streams(options, sql, address, options.read_from):
        yield from _wanted(stream, want)


def _from_anybody(options: Options, sql: str, want: Any) -> Iterator[Any]:
    for stream in _asked_of_anybody(options, sql, options.read_from):
        yield from _wanted(stream, want)


def _wanted(stream: Any, want: Any) -> Iterator[Any]:
    for batch in stream:
        if batch.num_rows:
            yield as_wanted(batch, want)


def _asked_of_anybody(options: Options, sql: str, read_from: str) -> Iterator[Any]:
    """What any instance can answer: who does not begin to is passed over."""
    until = time.monotonic() + REPLAN_S
    turn = 0
    while True:
        is_begun = False
        try:
            address = cluster.any_address(options.dsn, turn)
            for stream in _streams(options, sql, address, read_from):
                is_begun = True
                yield stream
            return
        except CairnError as problem:
            if is_begun or problem.sqlstate not in MOVED or time.monotonic() > until:
                raise
        turn += 1
        cluster.wait_for_news(options.dsn, 0.2)


# --- ranges ---------------------------------------------------------------------------------------


def _owns(owner: Owner, bucket: int) -> bool:
    return any(low <= bucket <= high for low, high in owner.ranges)


def _asks(ranges: Ranges) -> list[Ranges]:
    """What is asked by one COPY each: a wide range, or all the single buckets together."""
    singles = tuple(each for each in ranges if each[0] == each[1])
    wide = [(each,) for each in ranges if each[0] != each[1]]
    return [*wide, singles] if singles else [*wide]


def _bucket_condition(ranges: Ranges) -> str:
    if len(ranges) == 1:
        return f"bucket_id BETWEEN {ranges[0][0]} AND {ranges[0][1]}"
    return f"bucket_id IN ({', '.join(str(low) for low, _ in ranges)})"


def _merged(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        if found and found[-1][1] + 1 == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)


def _common(some: Ranges, others: Ranges) -> Ranges:
    return tuple(
        (max(low, start), min(high, end))
        for low, high in some
        for start, end in others
        if max(low, start) <= min(high, end)
    )


def cut(ranges: Ranges, parts: int) -> list[Ranges]:
    """The buckets of one owner in `parts` pieces of nearly equal number."""
    total = sum(high - low + 1 for low, high in ranges)
    parts = max(1, min(parts, total))
    found: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    at, left = 0, total // parts + (1 if total % parts else 0)
    for low, high in ranges:
        start = low
        while start <= high:
            end = min(high, start + left - 1)
            found[at].append((start, end))
            left -= end - start + 1
            start = end + 1
            if left == 0 and at + 1 < parts:
                at += 1
                left = total // parts + (1 if at < total % parts else 0)
    return [tuple(piece) for piece in found if piece]
