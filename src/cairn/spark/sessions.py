"""A Spark session with the settings that the connector needs."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from cairn.spark.java import java_home
from cairn.spark.launchers import python_for_workers
from cairn.spark.reads import own_scans

SETTINGS: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # cheaper than TCP for rows; 4.1 and later
}
_WHY: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": (
        "without it Spark reads whole tables and filters them itself"
    ),
    "spark.speculation": "a write task that runs twice at once may be denied its commit",
}


def session_conf(builder: Any) -> Any:
    """A `SparkSession.builder` with our settings added."""
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder


def session(
    master: str = "local[*,4]", name: str = "cairn", settings: dict[str, str] | None = None
) -> Any:
    """A session that is ready for `format("cairn")`; an existing one is taken and checked.

    `local[*,4]`: Spark repeats a failed task up to four times, as on a real cluster.
    """
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession()
    if known is not None:
        check(known)
        own_scans.install(known)
        return known
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    is_here = master == "local" or master.startswith("local[")
    python = python_for_workers() if is_here else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", str(python))
    builder = session_conf(SparkSession.builder.master(master).appName(name))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.ui.enabled", "false"
        )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    own_scans.install(made)
    return made


def check(spark: Any) -> list[str]:
    """What an existing session lacks; set where that can be done now, else warned about."""
    lacking = []
    for name, why in _WHY.items():
        if str(spark.conf.get(name, "false")).lower() == SETTINGS[name]:
            continue
        try:
            spark.conf.set(name, SETTINGS[name])
        except Exception:
            lacking.append(f"{name} should be {SETTINGS[name]}: {why}")
    for sentence in lacking:
        warnings.warn(sentence, stacklevel=2)
    return lacking
