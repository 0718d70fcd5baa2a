"""Spark on Cairn against Spark JDBC on PostgreSQL, in the same run on the same machine.

    python bench/spark.py [--rows 2000000] [--big 10000000] [--no-postgres] [--where]

Read: rows of six columns into `noop`, 4 partitions, all of them and one in a hundred. Write: the
same rows, 4 partitions, into an empty table. JDBC is tuned: fetchsize 10000, batchsize 10000 and
reWriteBatchedInserts. Each takes its turn, several times. Ratios are what to look at: the machine
is shared. Then hashing end to end, the latency of streams, and the memory of the instances while
many more rows are read. `--where` tells instead where the time of each goes: CPU by process, bytes
over loopback and to the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from postgres import Postgres, binaries

JARS = ("/usr/share/java/postgresql.jar", os.environ.get("PGJDBC", ""))
CAIRN = [sys.executable, "-m", "cairn.cli.main"]
COLUMNS = (
    "id BIGINT PRIMARY KEY, customer BIGINT, name TEXT, state TEXT, price DOUBLE, at TIMESTAMPTZ"
)
STATE = "state = 'state 7'"  # of one row in a hundred
PARTITIONS, CORES = 4, 2
WRITE_ROUNDS, READ_ROUNDS = 3, 8  # reads are short: the JVM compiles for the first few


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rss_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(found[0].split()[1]) / 1024 if found else 0.0


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

    def give_buckets(self, owner: str) -> None:
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("SET unsafe_system_writes = on")
            admin.execute(
                "UPDATE _pico_bucket SET current_replicaset_name = %s WHERE bucket_id_start = 1",
                (owner,),
            )

    def write(self, frame: Any, commit: str) -> float:
        self.run("TRUNCATE TABLE bench")
        writer = frame.write.format("cairn").option("dsn", self.dsn).option("table", "bench")
        return timed(lambda: writer.option("commit", commit).mode("append").save())

    def read(self, spark: Any, where: str = "") -> float:
        reader = spark.read.format("cairn").option("dsn", self.dsn).option("table", "bench")
        if where:
            reader = reader.option("where", where)
        frame = reader.option("splits", PARTITIONS // 2).load()
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


class Jdbc:
    """PostgreSQL with the same table."""

    def __init__(self, server: Postgres) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=server.port, user="admin", dbname="postgres", autocommit=True
        ) as plain:
            plain.execute(f"CREATE TABLE bench ({COLUMNS.replace('DOUBLE', 'DOUBLE PRECISION')})")
        self._url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        self._options = {
            "user": "admin", "dbtable": "bench", "driver": "org.postgresql.Driver",
            "fetchsize": "10000", "batchsize": "10000", "truncate": "true",
        }  # fmt: skip

    def write(self, frame: Any) -> float:
        writer = frame.write.format("jdbc").options(**self._options)
        writer = writer.option("url", f"{self._url}?reWriteBatchedInserts=true")
        return timed(lambda: writer.mode("overwrite").save())

    def read(self, spark: Any, rows: int, where: str = "") -> float:
        reader = spark.read.format("jdbc").options(**self._options).option("url", self._url)
        reader = reader.option("partitionColumn", "id").option("numPartitions", PARTITIONS)
        frame = reader.option("lowerBound", 0).option("upperBound", rows).load()
        if where:
            frame = frame.where(where)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def made(spark: Any, rows: int) -> Any:
    """Rows as an application has them."""
    from pyspark.sql import functions as f

    return spark.range(0, rows, 1, PARTITIONS).select(
        "id",
        (f.col("id") % 10_007).alias("customer"),
        f.md5(f.col("id").cast("string")).alias("name"),
        f.concat(f.lit("state "), f.col("id") % 100).alias("state"),
        (f.col("id") * 0.25).alias("price"),
        f.timestamp_seconds(f.col("id") + 1_700_000_000).alias("at"),
    )


def in_turn(rounds: int, works: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Seconds of each, one after the other, again and again: load and a warming JVM hit all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(work())
    return times


def table(rows: int, times: dict[str, list[float]], peer: str) -> None:
    """The best of each, with ratios of the best and of the medians to the peer's."""
    for name, mine in times.items():
        ratio = ""
        if name != peer and peer in times:
            of_best = min(times[peer]) / min(mine)
            ratio = f"{of_best:8.2f}x ({median(times[peer]) / median(mine):.2f}x of medians)"
        print(f"{name:<34} {min(mine):8.2f} s {rows / min(mine):12,.0f} rows/s {ratio}", flush=True)


def line(name: str, rows: int, seconds: float) -> None:
    table(rows, {name: [seconds]}, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", action="store_true", help="where the time goes, and no more")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--big", type=int, default=10_000_000, help="rows read for memory; 0: none")
    parser.add_argument("--port", type=int, default=28_327)
    parser.add_argument("--no-postgres", action="store_true")
    wanted = parser.parse_args()
    from cairn.spark import cluster, session

    jar = next((path for path in JARS if path and Path(path).exists()), None)
    settings = {"spark.log.level": "OFF", "spark.driver.memory": "3g"}
    settings["spark.ui.showConsoleProgress"] = "false"
    if jar:
        settings["spark.jars"] = jar
    spark = session("local[2,4]", settings=settings)
    rows = wanted.rows
    frame = made(spark, rows)
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
        if wanted.where:
            measure_where(spark, frame, rows, cairn, jdbc, server)
            return
        measure(spark, frame, rows, cairn, jdbc)
        frame.unpersist()
        if wanted.big:
            measure_memory(spark, wanted.big, cairn)
        cairn.run("TRUNCATE TABLE bench")
        measure_streams(spark, cairn)
    finally:
        cluster.close_all()
        cairn.close()
        if server is not None:
            server.stop()
        spark.stop()


def measure(spark: Any, frame: Any, rows: int, cairn: Cairn, jdbc: Jdbc | None) -> None:
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{rows:,} rows of six columns ({COLUMNS}), {PARTITIONS} partitions, local[2]")
    print(f"load average before: {load}")
    warm = frame.limit(20_000)
    cairn.write(warm, "direct")
    cairn.write(warm, "staged")
    writes: dict[str, Callable[[], float]] = {
        "write  cairn, staged": lambda: cairn.write(frame, "staged"),
        "write  cairn, direct": lambda: cairn.write(frame, "direct"),
    }
    reads: dict[str, Callable[[], float]] = {"read   cairn": lambda: cairn.read(spark)}
    some: dict[str, Callable[[], float]] = {"1 %    cairn": lambda: cairn.read(spark, STATE)}
    if jdbc is not None:
        jdbc.write(warm)
        writes = {"write  JDBC, tuned": lambda: jdbc.write(frame), **writes}
        reads = {"read   JDBC, fetchsize 10000": lambda: jdbc.read(spark, rows), **reads}
        some = {"1 %    JDBC": lambda: jdbc.read(spark, rows, STATE), **some}
    table(rows, in_turn(WRITE_ROUNDS, writes), "write  JDBC, tuned")
    table(rows, in_turn(READ_ROUNDS, reads), "read   JDBC, fetchsize 10000")
    table(rows // 100, in_turn(READ_ROUNDS, some), "1 %    JDBC")
    hashed = min(hash_all(frame, cairn) for _ in range(3))
    line("hash   bucket_id() in Spark, per core", rows // CORES, hashed)


def hash_all(frame: Any, cairn: Cairn) -> float:
    from cairn.spark import bucket_id

    chosen = frame.select(bucket_id(cairn.dsn, "bench")("id").alias("bucket"))
    return timed(lambda: chosen.write.format("noop").mode("overwrite").save())


# --- where the time goes --------------------------------------------------------------------------


def cpu_s(pids: list[int]) -> float:
    """Of processes, all that they started, and what of these has ended."""
    total, waiting = 0, list(pids)
    while waiting:
        pid = waiting.pop()
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, words[11:15]))
        waiting += children(pid)
    return total / os.sysconf("SC_CLK_TCK")


def written_mb(pids: list[int]) -> float:
    found = [Path(f"/proc/{pid}/io").read_text() for pid in pids]
    return sum(int(text.split("write_bytes: ")[1].split()[0]) for text in found) / 1e6


def sent_mb() -> float:
    """All over loopback: clients with instances, and Spark's own processes among themselves."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:")) / 1e6


def measure_where(
    spark: Any, frame: Any, rows: int, cairn: Cairn, jdbc: Jdbc | None, server: Postgres | None
) -> None:
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    works: dict[str, tuple[list[int], Callable[[], float]]] = {
        "cairn, staged write": (cairn.pids, lambda: cairn.write(frame, "staged")),
        "cairn, direct write": (cairn.pids, lambda: cairn.write(frame, "direct")),
        "cairn, read": (cairn.pids, lambda: cairn.read(spark)),
        "cairn, read of 1 %": (cairn.pids, lambda: cairn.read(spark, STATE)),
    }
    if jdbc is not None and server is not None:
        works["JDBC, write"] = (server.pids[:1], lambda: jdbc.write(frame))
        works["JDBC, read"] = (server.pids[:1], lambda: jdbc.read(spark, rows))
        works["JDBC, read of 1 %"] = (server.pids[:1], lambda: jdbc.read(spark, rows, STATE))
    print(f"{rows:,} rows, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
    names = ("seconds", "CPU server", "CPU JVM", "CPU Python", "MB over loopback", "MB to disk")
    print("| | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))

    def now(pids: list[int]) -> tuple[float, ...]:
        workers = cpu_s(children(java))
        of_java = cpu_s([java]) - workers
        here = sum(os.times()[:2])  # the driver's Python
        written = written_mb([each for pid in pids for each in (pid, *children(pid))])
        return cpu_s(pids), of_java, workers + here, sent_mb(), written

    for name, (pids, work) in works.items():
        work()  # once for the caches and the JVM's compiler
        before = now(pids)
        seconds = work()
        after = now(pids)
        told = [f"{seconds:.2f}", *(f"{b - a:.1f}" for a, b in zip(before, after, strict=True))]
        print(f"| {name} | " + " | ".join(told) + " |", flush=True)


# --- streams --------------------------------------------------------------------------------------


def measure_streams(spark: Any, cairn: Cairn) -> None:
    """From a committed change of topology to its row in Spark, and what a micro-batch costs."""
    seen: list[float] = []
    stream = spark.readStream.format("cairn").option("dsn", cairn.dsn)
    stream = stream.option("stream", "topology").option("startingOffset", "latest").load()
    with tempfile.TemporaryDirectory() as folder:
        query = (
            stream.writeStream.foreachBatch(lambda batch, _: note(batch, seen))
            .option("checkpointLocation", folder)
            .start()
        )
        try:
            waits = [wait_for_event(cairn, seen, at) for at in range(6)]
        finally:
            query.stop()
        floors = [
            each["durationMs"]["triggerExecution"] for each in query.recentProgress
            if each["numInputRows"]
        ]  # fmt: skip
    warm = sorted(waits[1:])
    print(f"stream topology event to Spark row   {warm[len(warm) // 2]:.2f} s median, "
          f"{warm[-1]:.2f} s worst, first {waits[0]:.1f} s")  # fmt: skip
    print(f"stream micro-batch with rows         {min(floors) / 1000:.2f} s at least")


def note(batch: Any, seen: list[float]) -> None:
    if batch.collect():
        seen.append(time.perf_counter())


def wait_for_event(cairn: Cairn, seen: list[float], at: int) -> float:
    """Buckets of an empty range get another owner: one event. A query that has just been started
    may begin after it: then the next one counts."""
    known = len(seen)
    for again in range(20):
        owner = ("r2", "r1")[(at + again) % 2]
        cairn.give_buckets(owner)
        begun = time.perf_counter()
        while len(seen) == known and time.perf_counter() - begun < 5:
            time.sleep(0.005)
        if len(seen) > known:
            return seen[known] - begun
    raise TimeoutError("the event did not reach Spark")


# --- memory ---------------------------------------------------------------------------------------


def measure_memory(spark: Any, rows: int, cairn: Cairn) -> None:
    frame = made(spark, rows)
    line("write  cairn, direct", rows, cairn.write(frame, "direct"))
    with Sampler(cairn.pids) as sampler:
        took = cairn.read(spark)
    line("read   cairn", rows, took)
    for pid in cairn.pids:
        own, workers = sampler.own[pid], sampler.workers[pid]
        print(f"memory of an instance during it: {own[0]:.0f} MB before, at most {max(own):.0f}, "
              f"{own[-1]:.0f} at the end; scan workers at most {max(workers):.0f} MB")  # fmt: skip


class Sampler:
    """Memory of processes and of their children, looked at five times a second."""

    def __init__(self, pids: list[int]) -> None:
        self.own: dict[int, list[float]] = {pid: [rss_mb(pid)] for pid in pids}
        self.workers: dict[int, list[float]] = {pid: [0.0] for pid in pids}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for pid in self.own:
                self.own[pid].append(rss_mb(pid))
                self.workers[pid].append(sum(rss_mb(child) for child in children(pid)))


def children(pid: int) -> list[int]:
    """Any thread may have started them."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


if __name__ == "__main__":
    main()
