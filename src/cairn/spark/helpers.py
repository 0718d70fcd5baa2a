"""Small functions for users' own Spark programs. PySpark is imported when they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cairn.spark.reads import own_scans


def read_table(
    spark: Any,
    dsn: str,
    table: str,
    *,
    columns: Sequence[str] = (),
    where: str | None = None,
    **options: Any,
) -> Any:
    """A data frame of some columns and rows, both chosen by the server.

    `where` is SQL of the server: it takes conditions that Spark does not push down (OR, functions).
    """
    own_scans.install(spark)
    reader = spark.read.format("cairn").option("dsn", dsn).option("table", table)
    if columns:
        reader = reader.option("columns", ",".join(columns))
    if where:
        reader = reader.option("where", where)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def moment(dsn: str, table: str) -> str:
    """One moment of the whole cluster, for whoever may read `table`.

    The text is for `option("snapshot", …)` of any number of tables: all are read as of then. A
    stream with `option("startingOffset", …)` tells what came after it.
    """
    from cairn.spark.plainly import plainly
    from cairn.spark.reads import snapshot_read

    with plainly():
        return snapshot_read.moment(dsn, table)


def register(
    spark: Any, dsn: str, *, prefix: str = "", system: bool = False, **options: Any
) -> list[str]:
    """Every table of the cluster as a view of this session; the names of the views.

    They are read when a query names them. `system`: also those that begin with _. Call it again
    for tables that were made, changed or dropped since.
    """
    from cairn.model.tables.system_tables import LOCAL_TABLES
    from cairn.spark import cluster
    from cairn.spark.plainly import plainly

    with plainly():
        rows = cluster.pool(dsn).fetch("SELECT name, opts FROM _pico_table WHERE operable")
    names = [name for name, opts in rows if not any("sequence" in each for each in opts or ())]
    if system:
        names += [table.name for table in LOCAL_TABLES]
    else:
        hidden = ("_", "cairn_spark_")
        names = [name for name in names if not name.startswith(hidden)]
    for name in names:
        read_table(spark, dsn, name, **options).createOrReplaceTempView(prefix + name)
    return sorted(prefix + name for name in names)


def bucket_id(dsn: str, table: str) -> Any:
    """A function from the columns of the table's distribution key to the bucket of each row."""
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import IntegerType

    from cairn.spark.tables import describe

    info = describe(dsn, table)

    def compute(*columns: pa.Array) -> pa.Array:
        from cairn.model.sharding.bucket_columns import bucket_ids

        return pa.array(
            bucket_ids(columns, info.key_types, info.bucket_count, info.hash_version),
            type=pa.int32(),
        )

    return arrow_udf(compute, IntegerType())


def repartition_by_owner(frame: Any, dsn: str, table: str) -> Any:
    """Rows of one replicaset in one partition: worth its shuffle when there are many of them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType

    from cairn.spark import cluster
    from cairn.spark.tables import describe

    info = describe(dsn, table)
    assert info.tier is not None
    owners = cluster.owners(dsn, info.tier)

    def compute(*columns: pa.Array) -> pa.Array:
        from cairn.spark.writes.splitting import Splitter

        return pa.array(Splitter(info, owners).numbers(columns), type=pa.int32())

    number = f.arrow_udf(compute, IntegerType())(*[f.col(name) for name in info.key])
    return frame.repartitionById(len(owners), number)
