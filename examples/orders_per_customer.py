"""A job for `spark-submit`: orders are added up by customer, and the sums written back.

CAIRN_DSN says where the cluster is. Run it again and the table has the new sums: each run replaces
it whole, and readers see the old sums until the new ones are complete.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import cairn.spark
from cairn.client.sync import connect

TABLE = "CREATE TABLE IF NOT EXISTS customer_totals (customer TEXT PRIMARY KEY, total DECIMAL)"


def main() -> None:
    dsn = os.environ["CAIRN_DSN"]
    # No master here: spark-submit says which one.
    builder = SparkSession.builder.appName("orders per customer")
    spark = cairn.spark.session_conf(builder).getOrCreate()
    with connect(dsn) as connection:
        connection.cursor().execute(TABLE + " DISTRIBUTED GLOBALLY")
    orders = cairn.spark.read_table(
        spark, dsn, "orders", columns=["customer", "total"], snapshot="true"
    )
    sums = orders.groupBy("customer").agg(f.sum("total").cast("decimal(38,18)").alias("total"))
    writer = sums.write.format("cairn").option("dsn", dsn).option("table", "customer_totals")
    writer.mode("overwrite").save()
    spark.stop()


if __name__ == "__main__":
    main()
