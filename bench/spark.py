"""Spark on Cairn against Spark JDBC on PostgreSQL, in the same run on the same machine.

    python bench/spark.py [--rows 2000000] [--no-postgres]

Read: rows of (bigint, 32 characters, double) into `noop`, 4 partitions. Write: the same rows,
4 partitions, into an empty table. JDBC is tuned: fetchsize 10000, batchsize 10000 and
reWriteBatchedInserts. Ratios are what to look at: the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from postgres import Postgres, binaries

JARS = ("/usr/share/java/postgresql.jar", os.environ.get("PGJDBC", ""))
CAIRN = [sys.executable, "-m", "cairn.cli.main"]
COLUMNS = "id INTEGER PRIMARY KEY, name TEXT, v DOUBLE"
PARTITIONS = 4


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


class Cairn:
    """A cluster of two instances, each a replicaset of its own."""

    def __init__(self, port: int) -> None:
        self.dir = tempfile.mkdtemp(prefix="cairn-bench-spark-")
        command = [*CAIRN, "demo", "--instances", "2", "--replication-factor", "1"]
        command += ["--base-port", str(port), "--dir", self.dir, "--detach"]
        subprocess.run(command, check=True, capture_output=True)
        facts = json.loads((Path(self.dir) / "demo.json").read_text())
        self.dsn = facts["dsns"]
        self.pids = [
            int((Path(self.dir) / each["name"] / "cairn.pid").read_text().split()[1])
            for each in facts["instances"]
        ]

    def close(self) -> None:
        subprocess.run([*CAIRN, "demo", "--stop", "--dir", self.dir], check=False)

    def run(self, sql: str) -> None:
        from cairn.spark import cluster

        cluster.pool(self.dsn).execute(sql)

    def write(self, frame: Any, commit: str) -> float:
        self.run("TRUNCATE TABLE bench")
        writer = frame.write.format("cairn").option("dsn", self.dsn).option("table", "bench")
        return timed(lambda: writer.option("commit", commit).mode("append").save())

    def read(self, spark: Any) -> float:
        reader = spark.read.format("cairn").option("dsn", self.dsn).option("table", "bench")
        frame = reader.option("splits", PARTITIONS // 2).load()
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


class Jdbc:
    """PostgreSQL with the same table."""

    def __init__(self, server: Postgres) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=server.port, user="admin", dbname="postgres", autocommit=True
        ) as plain:
            plain.execute(
                "CREATE TABLE bench (id bigint PRIMARY KEY, name text, v double precision)"
            )
        self._url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        self._options = {
            "user": "admin", "dbtable": "bench", "driver": "org.postgresql.Driver",
            "fetchsize": "10000", "batchsize": "10000", "truncate": "true",
        }  # fmt: skip

    def write(self, frame: Any) -> float:
        writer = frame.write.format("jdbc").options(**self._options)
        writer = writer.option("url", f"{self._url}?reWriteBatchedInserts=true")
        return timed(lambda: writer.mode("overwrite").save())

    def read(self, spark: Any, rows: int) -> float:
        reader = spark.read.format("jdbc").options(**self._options).option("url", self._url)
        reader = reader.option("partitionColumn", "id").option("numPartitions", PARTITIONS)
        frame = reader.option("lowerBound", 0).option("upperBound", rows).load()
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def best(work: Callable[[], float], times: int = 3) -> float:
    return min(work() for _ in range(times))


def line(name: str, rows: int, seconds: float, against: float | None) -> None:
    ratio = "" if against is None else f"{against / seconds:8.2f}x"
    print(f"{name:<34} {seconds:8.2f} s {rows / seconds:12,.0f} rows/s {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--port", type=int, default=28_327)
    parser.add_argument("--no-postgres", action="store_true")
    wanted = parser.parse_args()
    from pyspark.sql import functions as f

    from cairn.spark import cluster, session

    jar = next((path for path in JARS if path and Path(path).exists()), None)
    settings = {"spark.log.level": "OFF", "spark.driver.memory": "3g"}
    if jar:
        settings["spark.jars"] = jar
    spark = session("local[2,4]", settings=settings)
    rows = wanted.rows
    frame = spark.range(0, rows, 1, PARTITIONS).select(
        "id", f.md5(f.col("id").cast("string")).alias("name"), (f.col("id") * 0.5).alias("v")
    )
    frame = frame.cache()
    frame.count()
    cairn = Cairn(wanted.port)
    server = None
    try:
        jdbc = None
        if not wanted.no_postgres and jar and binaries() is not None:
            server = Postgres()
            jdbc = Jdbc(server)
        cairn.run(f"CREATE TABLE bench ({COLUMNS})")
        measure(spark, frame, rows, cairn, jdbc)
    finally:
        cluster.close_all()
        cairn.close()
        if server is not None:
            server.stop()
        spark.stop()


def measure(spark: Any, frame: Any, rows: int, cairn: Cairn, jdbc: Jdbc | None) -> None:
    print(f"{rows:,} rows (bigint, 32 characters, double), {PARTITIONS} partitions, local[2]")
    warm = frame.limit(20_000)
    cairn.write(warm, "direct")
    peer = None
    if jdbc is not None:
        jdbc.write(warm)
        peer = jdbc.write(frame)
        line("write  JDBC, tuned", rows, peer, None)
    line("write  cairn, staged", rows, cairn.write(frame, "staged"), peer)
    line("write  cairn, direct", rows, cairn.write(frame, "direct"), peer)
    peer = None
    if jdbc is not None:
        peer = best(lambda: jdbc.read(spark, rows))
        line("read   JDBC, fetchsize 10000", rows, peer, None)
    before = [rss_mb(pid) for pid in cairn.pids]
    line("read   cairn", rows, best(lambda: cairn.read(spark)), peer)
    after = [rss_mb(pid) for pid in cairn.pids]
    grown = ", ".join(f"{a:.0f} → {b:.0f} MB" for a, b in zip(before, after, strict=True))
    print(f"memory of the instances over three reads: {grown}")


if __name__ == "__main__":
    main()
