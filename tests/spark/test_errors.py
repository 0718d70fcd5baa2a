"""What is wrong is said in one sentence of ours, before anything that Spark adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.writes.staging import STAGE

PLACES = 2  # Spark's own first line may be "An exception was thrown from the Python worker:"
MISTAKES: dict[str, tuple[str, Callable[[Any, str, str], object]]] = {
    "a missing table": (
        '[42P01] table with name "nowhere" not found',
        lambda spark, dsn, table: load(spark, dsn, "nowhere"),
    ),
    "a missing column": (
        '[42703] table {table} has no column "zz"; it has id, s',
        lambda spark, dsn, table: load(spark, dsn, table, columns="id,zz"),
    ),
    "a type that does not fit": (
        '[42804] column "s" does not fit int64, it comes as string',
        lambda spark, dsn, table: load(spark, dsn, table, schema="id bigint, s bigint").collect(),
    ),
    "a wrong password": (
        "[28P01] authentication failed for user",
        lambda spark, dsn, table: load(spark, dsn.replace("T0psecret1", "wrong"), table),
    ),
    "nobody there": (
        "[58000] cannot connect to 127.0.0.1:1",
        lambda spark, dsn, table: load(spark, "postgresql://admin@127.0.0.1:1/cairn", table),
    ),
    "a query that is wrong": (
        '[42703] column with name "nope" not found',
        lambda spark, dsn, table: load(spark, dsn, None, query=f"SELECT nope FROM {table}"),
    ),
    "columns of the frame": (
        '[42703] table {table} has no column "zz"; it has id, s',
        lambda spark, dsn, table: save(spark, dsn, table, "1L AS id, 'a' AS zz"),
    ),
    "types of the frame": (
        '[42804] column "id": the data frame has string, the table has integer',
        lambda spark, dsn, table: save(spark, dsn, table, "'1' AS id, 'a' AS s"),
    ),
    "NULL in a key": (
        '[23502] null value in column "id" of the distribution key',
        lambda spark, dsn, table: save(spark, dsn, table, "CAST(NULL AS bigint) AS id, 'a' AS s"),
    ),
    "a key that is there": (
        "[23505] Duplicate key exists in unique index",
        lambda spark, dsn, table: save(spark, dsn, table, "1L AS id, 'b' AS s"),
    ),
    "a key that is there, directly": (
        "[23505] Duplicate key exists in unique index",
        lambda spark, dsn, table: save(spark, dsn, table, "1L AS id, 'b' AS s", commit="direct"),
    ),
}


def load(spark: Any, dsn: str, table: str | None, schema: str | None = None, **options: str) -> Any:
    reader = spark.read.format("cairn").option("dsn", dsn).options(**options)
    reader = reader if table is None else reader.option("table", table)
    return (reader if schema is None else reader.schema(schema)).load()


def save(spark: Any, dsn: str, table: str, columns: str, **options: str) -> None:
    writer = spark.sql(f"SELECT {columns}").write.format("cairn").option("dsn", dsn)
    writer.option("table", table).options(**options).mode("append").save()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_first_thing_said_is_what_is_wrong(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str], mistake: str
) -> None:
    name = table("id INTEGER PRIMARY KEY, s TEXT")
    save(spark, dsn, name, "1L AS id, 'a' AS s", commit="staged")  # makes the stage too
    sentence, make = MISTAKES[mistake]
    with pytest.raises(Exception) as caught:
        make(spark, dsn, name)
    said = str(caught.value).splitlines()
    assert "CairnSparkError: " + sentence.format(table=name) in " ".join(said[:PLACES])
    assert not any(line.startswith(("Traceback", "  File")) for line in said)
    assert pool.fetch(f"SELECT id, s FROM {name}") == [(1, "a")]
    assert pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]
