"""The job: what customers ordered in each minute, kept current in Cairn.

It follows the changes of `shop_orders`, adds them up by customer and minute of the order, and
replaces the sums that have changed. An order that comes more than two minutes late is left out:
that is how long Spark keeps a minute open.

    spark-submit aggregate.py --checkpoint /var/lib/shop/checkpoint

The checkpoint remembers how far it has come. Kill it and start it again: no order is counted twice.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import cairn.spark

ORDER = "id bigint, customer string, cents bigint, placed string"
LATE = "2 minutes"


def sums(changes: Any) -> Any:
    """Orders and money by customer and minute, from a stream of changes."""
    order = f.from_json("new", ORDER)
    orders = changes.where("op IN ('insert', 'snapshot')").select(order.alias("o")).select("o.*")
    timed = orders.withColumn("placed", f.to_timestamp("placed")).withWatermark("placed", LATE)
    per_minute = timed.groupBy("customer", f.window("placed", "1 minute"))
    counted = per_minute.agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    return counted.selectExpr("customer", "window.start AS minute", "orders", "cents")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--checkpoint", required=True)
    words.add_argument("--every", default="2 seconds")
    given = words.parse_args()
    dsn = os.environ["CAIRN_DSN"]
    spark: Any = SparkSession.getActiveSession() or cairn.spark.session(
        "local[2,4]", name="orders per minute", settings={"spark.sql.shuffle.partitions": "2"}
    )

    def replace(changed: Any, _number: int) -> None:
        """Sums that are written twice are the same: a repeated batch does no harm."""
        writer = changed.write.format("cairn").option("dsn", dsn)
        writer = writer.option("table", "orders_per_minute").option("onConflict", "replace")
        writer.mode("append").save()

    source = spark.readStream.format("cairn").option("dsn", dsn)
    changes = source.option("stream", "table:shop_orders").load()
    query = (
        sums(changes)
        .writeStream.outputMode("update")
        .foreachBatch(replace)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime=given.every)
        .start()
    )
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    query.awaitTermination()


if __name__ == "__main__":
    main()
