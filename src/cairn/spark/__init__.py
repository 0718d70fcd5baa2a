"""The data pipeline on Spark: `format("cairn")` and the helpers around it.

    spark = cairn.spark.session()
    orders = cairn.spark.read_table(spark, dsn, "orders", columns=["id", "total"])

Imports only the client side of Cairn; needs `pip install ".[spark]"`.
"""

from cairn.spark.helpers import bucket_id, moment, read_table, register, repartition_by_owner
from cairn.spark.plainly import CairnSparkError
from cairn.spark.sessions import check, session, session_conf

__all__ = [
    "CairnSparkError", "bucket_id", "check", "moment", "read_table", "register",
    "repartition_by_owner", "session", "session_conf",
]  # fmt: skip
