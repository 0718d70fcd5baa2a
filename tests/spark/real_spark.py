"""A driver in a process of its own with two executors in two more, as on a real Spark cluster.

`session(…)` allows one master per process, so the jobs here run in a child. The functions that
reach the executors are nested: those are sent by value, and executors need only `cairn`.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

MASTER = "local-cluster[2,1,1024]"
PADDING = ":" + "x" * 200  # pipes between processes hold 64 KB: less would never reach the writer


class RealSpark:
    """Runs jobs one after another; knows the process ids of its executors."""

    def __init__(self, folder: Path) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start, (str(folder),))
        self._driver = self._pool.submit(os.getpid).result(120)

    def run(self, job: Any, *arguments: Any) -> Future[Any]:
        return self._pool.submit(job, *arguments)

    def executors(self) -> list[int]:
        return sorted(
            pid
            for pid in _descendants(self._driver)
            if b"CoarseGrainedExecutorBackend" in _command(pid)
        )

    def kill_an_executor(self) -> None:
        os.kill(self.executors()[0], signal.SIGKILL)

    def close(self) -> None:
        try:
            self._pool.submit(_stop).result(30)
        except TimeoutError:  # a job of a failed test still waits for its mark
            os.kill(self._driver, signal.SIGKILL)
        self._pool.shutdown()


def _start(folder: str) -> None:
    from cairn.spark import session

    os.environ["SPARK_WORKER_DIR"] = folder
    settings = {
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    session(MASTER, name="cairn tests on a cluster", settings=settings)


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


def _waiting(marks: str, after: int) -> Any:
    """Lets rows through; after some of them says so in a file and waits for the file `go`."""

    def through(rows: Any) -> Any:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        part = TaskContext.get().partitionId()
        for at, row in enumerate(rows):
            if at == after:
                Path(marks, f"half-{part}").touch()
                until = time.monotonic() + 60
                while not Path(marks, "go").exists() and time.monotonic() < until:
                    time.sleep(0.02)
            yield row

    return through
