"""Spark's parent of Python workers, with the imports of a worker done before it forks them.

Spark's own imports nothing before a fork, so that no library can start a thread there. Ours start
none, and each query of a test has three to six workers whose imports take 0.4 s of a core.
"""

import importlib
import sys

from pyspark.daemon import manager

import cairn.spark.helpers
import cairn.spark.reads.reader
import cairn.spark.source
import cairn.spark.writes.writer  # noqa: F401

if __name__ == "__main__":
    if sys.argv[1:]:
        importlib.import_module(sys.argv[1])
    manager()
