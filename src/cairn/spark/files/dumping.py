"""A frame to files that `cairn load`, and others, read as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.spark.files.loading import CSV

#: By what people say: Spark's format, and options of it.
_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "parquet": ("parquet", {}),
    # NULL is nothing at all, an empty text is a pair of quotes, as PostgreSQL writes it.
    "csv": ("csv", CSV | {"emptyValue": '""'}),
    "jsonl": ("json", {"ignoreNullFields": "false"}),
}


def dump(
    spark: Any, frame: Any, to: str, kind: str, partition_by: Sequence[str], *, overwrite: bool
) -> int:
    """The number of rows that were written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    form, options = _KINDS[kind]
    writer = frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format(form)
    writer = writer.options(**options).mode("overwrite" if overwrite else "error")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(to)
    return int(seen.get.get("rows", 0))
