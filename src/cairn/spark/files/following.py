"""A table's changes into Parquet files, each change once for whoever reads the files.

Every micro-batch becomes one directory `batch=N`, written aside and then renamed. A batch that was
interrupted at any moment is repeated with the same number and the same changes, and replaces what
it had left: unlike with Spark's own file sink no list of valid files has to be consulted, so
pandas, DuckDB and `cat` read the same rows as Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn.model.errors import InvalidParameter

CHECKPOINT = "_checkpoint"
DRAFT = "_draft"  # names that begin with _ are left out by readers of Parquet directories


def follow(
    spark: Any, dsn: str, table: str, to: str, *, starting: str, every_s: float, once: bool
) -> Any:
    """The query that does it, started: from where the last one to the same place has ended."""
    _check_place(spark, to)
    stream = spark.readStream.format("cairn").option("dsn", dsn)
    stream = stream.option("stream", f"table:{table}").option("startingOffset", starting)
    writer = stream.load().writeStream.foreachBatch(batch_writer(spark, to))
    writer = writer.option("checkpointLocation", f"{to}/{CHECKPOINT}")
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()


def _check_place(spark: Any, to: str) -> None:
    """Batches are counted by the checkpoint: without it their numbers would begin anew."""
    paths, conf = spark._jvm.org.apache.hadoop.fs.Path, spark._jsc.hadoopConfiguration()
    files = paths(to).getFileSystem(conf)
    if files.exists(paths(f"{to}/{CHECKPOINT}")):
        return
    if list(files.globStatus(paths(f"{to}/batch=*")) or ()):
        raise InvalidParameter(
            f"{to} has changes of an earlier run, but not its {CHECKPOINT}",
            hint="choose another directory, or empty this one to start anew",
        )


def batch_writer(spark: Any, to: str) -> Callable[[Any, int], None]:
    paths = spark._jvm.org.apache.hadoop.fs.Path
    conf = spark._jsc.hadoopConfiguration()

    def write(frame: Any, number: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        draft, final = paths(f"{to}/{DRAFT}"), paths(f"{to}/batch={number:08d}")
        files = draft.getFileSystem(conf)
        frame = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
        frame.write.mode("overwrite").parquet(f"{to}/{DRAFT}")
        files.delete(final, True)
        if not seen.get["rows"]:  # other tables have moved the position
            files.delete(draft, True)
        elif not files.rename(draft, final):
            raise OSError(f"cannot rename {draft} to {final}")

    return write
