"""How rows and bytes lie: by bucket, counted by the cluster; by key, counted in Spark."""

from __future__ import annotations

import json
from typing import Any

from cairn.model.quoting import identifier
from cairn.model.types.values import ColumnType
from cairn.spark import cluster
from cairn.spark.helpers import read_table
from cairn.spark.tables import TableInfo, describe

BUCKETS_AT_ONCE = 2_000  # the cluster gathers at most 5000 groups
HOT = 10
_TEXTS = (ColumnType.STRING, ColumnType.MAP, ColumnType.ARRAY, ColumnType.ANY)
_SIZES = {ColumnType.BOOLEAN: 1, ColumnType.UUID: 16}  # 8 for all others
Skew = dict[str, list[tuple[int, int, int]]]
HotKeys = dict[str, list[tuple[str, int]]]


def measure(spark: Any, dsn: str) -> tuple[Skew, HotKeys, dict[str, Any]]:
    """Of every table of users: rows and bytes per bucket, keys with most rows, and the frames."""
    known = cluster.pool(dsn).fetch("SELECT name, distribution FROM _pico_table WHERE id >= 1024")
    skew: Skew = {}
    hot: HotKeys = {}
    frames: dict[str, Any] = {}
    for name, distribution in sorted(known):
        if "ShardedImplicitly" not in distribution or name.startswith("cairn_spark_"):
            continue
        table = describe(dsn, name)
        skew[name] = sorted(_by_bucket(dsn, table))
        schema = "bucket int, row_count bigint, byte_count bigint"
        frames[f"buckets_{name}"] = spark.createDataFrame(skew[name], schema)
        if skew[name]:
            frames[f"keys_{name}"] = keys = _by_key(spark, dsn, table)
            hot[name] = [(_text(row), row["row_count"]) for row in keys.limit(HOT).collect()]
    return skew, hot, frames


def _by_bucket(dsn: str, table: TableInfo) -> list[tuple[int, int, int]]:
    texts = [each for each in table.columns if each.type in _TEXTS]
    fixed = sum(_SIZES.get(each.type, 8) for each in table.columns if each.type not in _TEXTS)
    lengths = " + ".join(f"coalesce(sum(length({_as_text(each)})), 0)" for each in texts)
    found = []
    for low in range(1, table.bucket_count + 1, BUCKETS_AT_ONCE):
        sql = (
            f"SELECT bucket_id, count(*), {lengths or 0} FROM {identifier(table.name)} "
            f"WHERE bucket_id BETWEEN {low} AND {low + BUCKETS_AT_ONCE - 1} GROUP BY bucket_id"
        )
        rows = cluster.pool(dsn).fetch(sql)
        found += [(bucket, count, int(size) + fixed * count) for bucket, count, size in rows]
    return found


def _as_text(column: Any) -> str:
    name = identifier(column.name)
    return name if column.type is ColumnType.STRING else f"CAST({name} AS text)"


def _by_key(spark: Any, dsn: str, table: TableInfo) -> Any:
    """Only where a key can have several rows does it say anything."""
    from pyspark.sql import functions as f

    keys = read_table(spark, dsn, table.name, columns=table.key)
    counted = keys.groupBy(*table.key).agg(f.count("*").alias("row_count"))
    return counted.where("row_count > 1").orderBy(f.desc("row_count"), *table.key)


def _text(row: Any) -> str:
    values = [value for name, value in row.asDict().items() if name != "row_count"]
    return ", ".join(json.dumps(value, default=str, ensure_ascii=False) for value in values)
