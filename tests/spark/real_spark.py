"""A driver in a process of its own with two executors in two more, as on a real Spark cluster.

`session(…)` allows one master per process, so the jobs here run in a child. The functions that
reach the executors are nested: those are sent by value, and executors need only `cairn`.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.client.sync_pool import SyncPool

if TYPE_CHECKING:  # a job's process needs no cluster
    from tests.cluster.harness import Cluster

MASTER = "local-cluster[2,1,1024]"
SMALL = {"batchBytes": "500000"}  # some rows leave before the tasks are half-way
PADDING = ":" + "x" * 200  # pipes between processes hold 64 KB: less would never reach the writer


class RealSpark:
    """Runs jobs one after another; knows the process ids of its executors."""

    def __init__(self, folder: Path) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start, (str(folder),))
        self._driver = self._pool.submit(os.getpid).result(300)

    def run(self, job: Any, *arguments: Any) -> Future[Any]:
        return self._pool.submit(_told, job, *arguments)

    def executors(self) -> list[int]:
        return sorted(
            pid
            for pid in _descendants(self._driver)
            if b"CoarseGrainedExecutorBackend" in _command(pid)
        )

    def kill_an_executor(self) -> None:
        os.kill(self.executors()[0], signal.SIGKILL)

    def kill_executor_of(self, mark: Path) -> None:
        """The one whose task has left this mark."""
        pid = int(mark.read_text())
        while b"CoarseGrainedExecutorBackend" not in _command(pid):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)

    def kill_the_driver(self) -> None:
        """With its executors, as when a machine goes off."""
        for pid in [*_descendants(self._driver), self._driver]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        try:
            self._pool.submit(_stop).result(30)
        except TimeoutError:  # a job of a failed test still waits for its mark
            os.kill(self._driver, signal.SIGKILL)
        except BrokenProcessPool:
            pass  # killed by a test
        self._pool.shutdown()


def _start(folder: str) -> None:
    from cairn.spark import session

    os.environ["SPARK_WORKER_DIR"] = folder
    settings = {
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # the driver's
    }
    session(MASTER, name="cairn tests on a cluster", settings=settings)


def _told(job: Any, *arguments: Any) -> Any:
    """Spark's own errors do not survive the way from one process to another."""
    try:
        return job(*arguments)
    except Exception as problem:
        raise RuntimeError(str(problem)) from None


def _spark() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _stop() -> None:
    _spark().stop()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


# --- what is there, and what should be ------------------------------------------------------------


def half_way(marks: Path, job: Future[Any], tasks: int = 2) -> bool:
    """Whether so many tasks have left their mark; a job that has ended never will."""
    if job.done():
        raise RuntimeError(f"the job has ended before: {job.result()}")
    return len(list(marks.glob("half-*"))) == tasks


def content(pool: SyncPool, table: str) -> list[tuple[int, str]]:
    text = b"".join(pool.copy_out(f"COPY {table} TO STDOUT")).decode()
    return sorted((int(key), word) for key, word in (x.split("\t") for x in text.splitlines()))


def wanted(count: int) -> list[tuple[int, str]]:
    return [(number, f"{number}{PADDING}") for number in range(count)]


def put(pool: SyncPool, table: str, numbers: range) -> None:
    lines = [f"{number}\t{number}{PADDING}\n".encode() for number in numbers]
    pool.copy_in(f"COPY {table} FROM STDIN", lines)


def owner_of_all(cluster: Cluster) -> dict[str, Any]:
    """The replicaset that has the buckets, as somebody who lives tells it."""
    node = next(each for each in cluster.nodes.values() if each.process.poll() is None)
    return next(each for each in node.status()["replicasets"] if each["buckets"])


def has_everything(cluster: Cluster, owner: dict[str, Any]) -> bool:
    clocks = [
        cluster[name].sql("CALL cairn_replication()")[0][0]["vclock"] for name in owner["members"]
    ]
    return all(clock == clocks[0] for clock in clocks)


# --- jobs, run in the driver's process ------------------------------------------------------------


def write(
    dsn: str, table: str, count: int, options: dict[str, str], marks: str | None,
    shuffle: bool = False,
) -> None:  # fmt: skip
    """Rows (i, TEXT of i) of two tasks; each waits half-way, with `marks`, until it may go on."""
    spark = _spark()
    frame = spark.range(0, count, 1, 2).selectExpr("id", f"concat(id, '{PADDING}') AS s")
    if shuffle:
        frame = frame.repartition(2, "id")
    if marks is not None:
        frame = spark.createDataFrame(
            frame.rdd.mapPartitions(_waiting(marks, count // 4)), frame.schema
        )
    writer = frame.write.format("cairn").option("dsn", dsn).option("table", table)
    writer.options(**options).mode("append").save()


def read(dsn: str, table: str, to: str, options: dict[str, str], marks: str | None) -> int:
    """The table to Parquet; each task waits, with `marks`, after its first rows."""
    spark = _spark()
    reader = spark.read.format("cairn").option("dsn", dsn).option("table", table)
    frame = reader.options(**options).load()
    tasks: int = frame.rdd.getNumPartitions()
    if marks is not None:
        frame = spark.createDataFrame(frame.rdd.mapPartitions(_waiting(marks, 10)), frame.schema)
    frame.write.parquet(to)
    return tasks


def stream(
    dsn: str, table: str, into: str, checkpoint: str, options: dict[str, str], marks: str | None
) -> None:
    """What happened to a table into another one, until it has told all there is.

    Each task of a micro-batch waits, with `marks`, after its first 4,500 rows.
    """
    source = _spark().readStream.format("cairn").option("dsn", dsn)
    source = source.option("stream", f"table:{table}").options(**options)
    frame = source.load().selectExpr("new")
    if marks is not None:
        frame = frame.select(_waiting_function(marks, 4500)("new").alias("new"))
    frame = frame.selectExpr(
        "CAST(get_json_object(new, '$.id') AS bigint) AS id", "get_json_object(new, '$.s') AS s"
    )
    writer = frame.writeStream.format("cairn").option("dsn", dsn).option("table", into)
    writer = writer.options(**SMALL).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def _waiting_function(marks: str, after: int) -> Any:
    """The same for a stream, whose rows go through no RDD: a function of Python that waits."""
    from pyspark.sql.functions import udf

    waiting = _waiting(marks, after)
    seen: dict[int, Any] = {}

    def through(value: Any) -> Any:
        from pyspark import TaskContext

        attempt = TaskContext.get().taskAttemptId()
        if attempt not in seen:
            box: list[Any] = []
            seen[attempt] = (box, waiting(iter(box.pop, None)))
        box, passed = seen[attempt]
        box.append(value)
        return next(passed)

    return udf(through, "string").asNondeterministic()


def _waiting(marks: str, after: int) -> Any:
    """Lets rows through; after some of them leaves its process id in a file and waits for `go`."""

    def through(rows: Any) -> Any:
        import os
        import time
        from pathlib import Path

        from pyspark import TaskContext

        part = TaskContext.get().partitionId()
        for at, row in enumerate(rows):
            if at == after and not Path(marks, "go").exists():
                draft = Path(marks, f"draft-{part}")
                draft.write_text(str(os.getpid()))
                draft.rename(Path(marks, f"half-{part}"))
                until = time.monotonic() + 120
                while not Path(marks, "go").exists() and time.monotonic() < until:
                    time.sleep(0.02)
            yield row

    return through
