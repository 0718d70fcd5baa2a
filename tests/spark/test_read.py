"""Batch reads: exact types, filters that Spark would agree with, no row lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cairn.client.logic import flows
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError
from cairn.spark import cluster, read_table
from cairn.spark.options import read_options
from cairn.spark.reads.reader import BucketPartition, TableReader, cut
from cairn.spark.tables import describe

ALL = (
    "id INTEGER PRIMARY KEY, b BOOLEAN, u UNSIGNED, d DOUBLE, n DECIMAL, s TEXT, g UUID, w DATETIME"
)
WHEN = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
ROWS = [
    (1, True, 2**63 - 1, 0.1, Decimal("12345678901234567890.123456789012345678"), "ä'\"\\\n,",
     UUID(int=7), WHEN),
    (2, None, None, None, None, None, None, None),
    (3, False, 0, -1e300, Decimal("-0.5"), "", UUID(int=2**128 - 1), WHEN.replace(year=1952)),
]  # fmt: skip


@pytest.fixture
def typed(pool: SyncPool, table: Callable[[str], str]) -> str:
    name = table(ALL)
    for row in ROWS:
        pool.execute(f"INSERT INTO {name} VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row)
    return name


@pytest.fixture
def numbers(pool: SyncPool, table: Callable[[str], str]) -> str:
    name = table("id INTEGER PRIMARY KEY, s TEXT, d DOUBLE")
    pool.executemany(
        f"INSERT INTO {name} VALUES ($1, $2, $3)",
        [(i, None if i % 7 == 0 else f"s{i % 50:02d}", i / 4) for i in range(1000)],
    )
    return name


def test_every_type_arrives_exactly(typed: str, reading: Callable[..., Any]) -> None:
    rows = sorted(tuple(row) for row in reading(typed).load().collect())
    naive = [
        tuple(
            str(v) if isinstance(v, UUID) else v.replace(tzinfo=None) if isinstance(v, datetime)
            else v
            for v in row
        )
        for row in ROWS
    ]  # fmt: skip
    told = [
        tuple(v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v for v in row)
        for row in rows
    ]
    assert told == naive


def test_a_decimal_that_does_not_fit_is_named(typed: str, reading: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match='column "n" does not fit'):
        reading(typed, decimalScale=2).load().collect()


CONDITIONS = (
    "id = 5", "id IN (1, 2, 999, 5000)", "id BETWEEN 10 AND 20 AND s IS NOT NULL",
    "NOT s = 's03'", "s LIKE 's1%'", "d = 2.25 AND id = 9", "id = 1 AND id = 2", "s <=> NULL",
    "s > 's45' AND id NOT IN (95, 96)", "s = 'it''s'",
)  # fmt: skip


def test_pushed_filters_leave_what_spark_itself_would_leave(
    spark: Any, numbers: str, reading: Callable[..., Any]
) -> None:
    ours = reading(numbers).load()
    theirs = spark.createDataFrame(ours.collect(), ours.schema).cache()

    def content(frame: Any) -> list[Any]:
        return sorted(map(tuple, frame.collect()), key=str)

    for condition in CONDITIONS:
        assert content(ours.where(condition)) == content(theirs.where(condition)), condition


def test_a_condition_for_the_server_is_an_option(spark: Any, dsn: str, numbers: str) -> None:
    frame = read_table(spark, dsn, numbers, where="id < 100 AND (s = 's07' OR id = 3)")
    assert sorted(row.id for row in frame.collect()) == [3, 57]


def test_splits_are_partitions_of_each_replicaset(
    numbers: str, reading: Callable[..., Any]
) -> None:
    assert reading(numbers, splits=4).load().rdd.getNumPartitions() == 8


def test_columns_are_chosen_by_option_or_schema(
    spark: Any, dsn: str, numbers: str, reading: Callable[..., Any]
) -> None:
    assert reading(numbers, columns="s, id").load().columns == ["s", "id"]
    assert reading(numbers).schema("id int").load().where("id < 3").count() == 3
    assert read_table(spark, dsn, numbers, columns=["d"]).count() == 1000


def test_a_query_is_a_source(spark: Any, dsn: str, numbers: str) -> None:
    sql = f"SELECT s, count(*) AS n FROM {numbers} WHERE s IS NOT NULL GROUP BY s"
    frame = spark.read.format("cairn").option("dsn", dsn).option("query", sql).load()
    assert frame.agg({"n": "sum"}).collect()[0][0] == 857


def test_an_empty_table_and_a_global_one_are_read(
    spark: Any, pool: SyncPool, table: Callable[[str], str], reading: Callable[..., Any]
) -> None:
    assert reading(table("id INTEGER PRIMARY KEY")).load().count() == 0
    assert reading("_pico_tier").load().count() == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "nowhere"}, 'table with name "nowhere" not found'),
        ({"table": "_pico_tier", "columns": "nix"}, 'no column "nix"'),
        ({"table": "_pico_tier", "splits": "many"}, "splits=many"),
        ({"table": "_pico_tier", "spilts": "4"}, "unknown option spilts"),
        ({}, "say what to read"),
    ],
)
def test_wrong_options_get_one_clear_sentence(
    spark: Any, dsn: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        spark.read.format("cairn").option("dsn", dsn).options(**options).load().collect()


def test_a_wrong_password_is_said(spark: Any, dsn: str) -> None:
    wrong = dsn.replace(":T0psecret1@", ":wrong@")
    with pytest.raises(Exception, match="28P01"):
        spark.read.format("cairn").option("dsn", wrong).option("table", "t").load()


# --- ownership ------------------------------------------------------------------------------------


def test_ranges_are_cut_evenly_and_completely() -> None:
    assert cut(((1, 10),), 3) == [((1, 4),), ((5, 7),), ((8, 10),)]
    assert cut(((1, 2), (8, 9)), 2) == [((1, 2),), ((8, 9),)]
    assert cut(((5, 5),), 4) == [((5, 5),)]


def test_only_an_owner_answers_for_buckets(dsn: str, pool: SyncPool, numbers: str) -> None:
    one, other = cluster.owners(dsn, "default")
    low, high = one.ranges[0]
    sql = f"COPY (SELECT id FROM {numbers} WHERE bucket_id BETWEEN {low} AND {high}) TO STDOUT"
    with pool.wire(other.addresses[0]) as wire, pytest.raises(CairnError) as caught:
        wire.talk(flows.copy_out(wire.pg, f"{sql} (FORMAT arrow)"), 10)
    assert caught.value.sqlstate == "PC001"


def test_a_task_with_a_stale_plan_finds_the_rows_where_they_are(
    spark: Any, dsn: str, numbers: str
) -> None:
    """As after a move: the partition names an instance that does not own its buckets."""
    info = describe(dsn, numbers)
    from cairn.spark.tables import spark_schema

    reader = TableReader(
        read_options({"dsn": dsn, "table": numbers}), info, spark_schema(info, (), 18)
    )
    one, other = cluster.owners(dsn, "default")
    stale = BucketPartition(((1, 3000),), other.addresses)
    wrong = BucketPartition(one.ranges, other.addresses)
    rows = pa.Table.from_batches(list(reader.read(stale)))
    assert sorted(rows.column("id").to_pylist()) == list(range(1000))
    assert 0 < sum(batch.num_rows for batch in reader.read(wrong)) < 1000


def test_an_address_that_is_dead_is_replaced_by_a_live_one(dsn: str, numbers: str) -> None:
    info = describe(dsn, numbers)
    from cairn.spark.tables import spark_schema

    reader = TableReader(
        read_options({"dsn": dsn, "table": numbers}), info, spark_schema(info, (), 18)
    )
    dead = BucketPartition(((1, 3000),), ("127.0.0.1:1",))
    assert sum(batch.num_rows for batch in reader.read(dead)) == 1000


def test_labels_of_an_enum_are_texts_to_spark(
    pool: SyncPool, table: Callable[[str], str], reading: Callable[..., Any]
) -> None:
    """Spark compares texts: a filter that is pushed must not follow the declared order."""
    pool.execute("CREATE TYPE spark_mood AS ENUM ('sad', 'ok', 'happy')")
    name = table("id INTEGER PRIMARY KEY, m spark_mood")
    try:
        pool.execute(f"INSERT INTO {name} VALUES (1, 'sad'), (2, 'ok'), (3, 'happy'), (4, NULL)")
        found = reading(name).load()
        assert found.schema["m"].dataType.simpleString() == "string"
        assert sorted(row.id for row in found.where("m > 'ok'").collect()) == [1]
        assert sorted(row.id for row in found.where("m < 'ok'").collect()) == [3]
        assert sorted(row.id for row in found.where("m = 'none'").collect()) == []
        assert sorted(row.id for row in found.where("m IN ('sad', 'none')").collect()) == [1]
    finally:
        pool.execute(f"ALTER TABLE {name} DROP COLUMN m")
        pool.execute("DROP TYPE spark_mood")
