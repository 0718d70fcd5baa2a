"""One moment of the cluster: all partitions read it, whatever is written meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark import moment, register
from cairn.spark.options import read_options
from cairn.spark.reads.reader import TableReader
from cairn.spark.reads.snapshot_read import SnapshotReader
from cairn.spark.tables import describe, spark_schema

WHEN = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


def insert(pool: SyncPool, table: str, numbers: range) -> None:
    """One after the other: each is there before the next one begins."""
    for number in numbers:
        pool.execute(f"INSERT INTO {table} VALUES ($1)", number)


def numbers_read_while_others_write(reader: Any, pool: SyncPool, table: str) -> list[int]:
    """Between any two partitions more rows are written, and some are taken away."""
    found, at = [], 100
    for partition in reader.partitions():
        found += [row["id"] for batch in reader.read(partition) for row in batch.to_pylist()]
        insert(pool, table, range(at, at + 20))
        pool.execute(f"DELETE FROM {table} WHERE id = $1", at - 100)
        at += 20
    return sorted(found)


@pytest.mark.parametrize("kind", [SnapshotReader, TableReader])
def test_partitions_read_one_moment_while_others_write(
    kind: Any, pool: SyncPool, dsn: str, table: Callable[[str], str]
) -> None:
    """A plain read is the proof that the moment makes the difference."""
    name = table("id INTEGER PRIMARY KEY")
    insert(pool, name, range(100))
    given = {"dsn": dsn, "table": name, "splits": "2"}
    options = read_options({**given, "snapshot": "true"} if kind is SnapshotReader else given)
    info = describe(dsn, name)
    reader = kind(options, info, spark_schema(info, (), 18))
    found = numbers_read_while_others_write(reader, pool, name)
    assert (found == [*range(100)]) == (kind is SnapshotReader)


def test_a_stream_goes_on_exactly_behind_a_moment(
    pool: SyncPool,
    dsn: str,
    table: Callable[[str], str],
    reading: Callable[..., Any],
    run: Callable[..., list[Any]],
) -> None:
    """And two tables are read as of the same moment."""
    name, other = table("id INTEGER PRIMARY KEY"), table("id INTEGER PRIMARY KEY")
    insert(pool, name, range(50))
    at = moment(dsn, name)
    insert(pool, name, range(50, 70))
    insert(pool, other, range(5))
    pool.execute(f"DELETE FROM {name} WHERE id = 3")
    rows = reading(name, snapshot=at).load().collect()
    assert sorted(row.id for row in rows) == [*range(50)]
    assert reading(other, snapshot=at).load().collect() == []
    told = [row for batch in run(f"table:{name}", startingOffset=at) for row in batch]
    assert sorted((row.op, json.loads(row.key)["id"]) for row in told) == [
        ("delete", 3),
        *(("insert", number) for number in range(50, 70)),
    ]


def test_every_type_of_a_moment_is_that_of_a_plain_read(
    pool: SyncPool, table: Callable[[str], str], reading: Callable[..., Any]
) -> None:
    name = table(
        "id INTEGER PRIMARY KEY, b BOOLEAN, d DOUBLE, n DECIMAL, s TEXT, g UUID, w DATETIME, "
        "t TIMESTAMP, a DATE, i INTERVAL, j JSON, l INTEGER[]"
    )
    row = (1, True, 0.5, Decimal("12.25"), "ä", UUID(int=7), WHEN)
    pool.execute(
        f"INSERT INTO {name} VALUES ($1, $2, $3, $4, $5, $6, $7, '2024-02-29 10:00:00', "
        "'2024-02-29', '1 day', '{\"a\": [1]}', '{1,NULL}')",
        *row,
    )
    pool.execute(f"INSERT INTO {name} (id) VALUES (2)")
    plain = sorted(reading(name).load().collect(), key=lambda each: each.id)
    found = sorted(reading(name, snapshot="true").load().collect(), key=lambda each: each.id)
    assert [json_read(each) for each in found] == [json_read(each) for each in plain]


def json_read(row: Any) -> dict[str, Any]:
    """JSON has no one way to write spaces."""
    told = row.asDict()
    return told | {"j": None if told["j"] is None else json.loads(told["j"])}


def test_a_moment_that_is_none_is_refused(dsn: str, table: Callable[[str], str]) -> None:
    info = describe(dsn, table("id INTEGER PRIMARY KEY"))
    for word, said in (("yes", "is not known"), ('{"rs": {}}', "is not known")):
        options = read_options({"dsn": dsn, "table": info.name, "snapshot": word})
        with pytest.raises(Exception, match=said):
            SnapshotReader(options, info, spark_schema(info, (), 18)).partitions()


def test_all_tables_of_a_cluster_are_views_by_one_call(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table("id INTEGER PRIMARY KEY, town TEXT")
    pool.execute(f"INSERT INTO {name} VALUES (1, 'Bonn'), (2, 'Ulm')")
    names = register(spark, dsn, prefix="c_")
    assert f"c_{name}" in names and not any(each.startswith("c__") for each in names)
    told = spark.sql(f"SELECT town FROM c_{name} WHERE id = 2 UNION SELECT town FROM c_{name}")
    assert sorted(row.town for row in told.collect()) == ["Bonn", "Ulm"]
