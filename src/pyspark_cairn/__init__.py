"""Spark finds data sources only in top-level modules called `pyspark_…`: this is ours."""

from cairn.spark.source import CairnSource as DefaultSource

__all__ = ["DefaultSource"]
