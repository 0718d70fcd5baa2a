"""`cairn follow`: wherever it is interrupted, each change is in the files once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq
import pytest

from cairn.cli.data import pipeline
from cairn.cli.data.spark_runs import Bar
from cairn.client.sync_pool import SyncPool
from cairn.spark.files import following
from tests.spark.conftest import CAIRN


def told(to: Path) -> list[int]:
    """The keys in all files there are, as somebody reads them who knows nothing of Spark."""
    found: list[int] = []
    for path in sorted(to.glob("batch=*/*.parquet")):
        table = pq.ParquetFile(path).read(columns=["key"])
        found += [json.loads(key)["id"] for key in table.column("key").to_pylist()]
    return sorted(found)


def insert(pool: SyncPool, name: str, start: int, count: int = 10) -> None:
    rows = [(start + at,) for at in range(count)]
    pool.executemany(f"INSERT INTO {name} VALUES ($1)", rows)


def test_changes_are_followed_from_where_the_last_run_ended(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str], tmp_path: Path
) -> None:
    name, to = table("id INTEGER PRIMARY KEY"), tmp_path / "changes"
    for start in (0, 10):
        insert(pool, name, start)
        assert pipeline.follow(name, str(to), dsn=dsn, once=True) == 0
    assert told(to) == [*range(20)]
    assert spark.read.parquet(str(to)).count() == 20


CRASHES = ("before it", "draft written", "renamed")


def crashing(spark: Any, to: str, where: str) -> Callable[[Any, int], None]:
    """A batch that is interrupted before Spark notes that it is done."""
    write = following.batch_writer(spark, to)

    def go(frame: Any, number: int) -> None:
        if where == "draft written":
            frame.limit(3).write.mode("overwrite").parquet(f"{to}/{following.DRAFT}")
        elif where == "renamed":
            write(frame, number)
        raise RuntimeError(f"killed: {where}")

    return go


def test_a_batch_that_was_interrupted_is_there_once(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str], tmp_path: Path
) -> None:
    name, to = table("id INTEGER PRIMARY KEY"), str(tmp_path / "changes")
    for at, where in enumerate(CRASHES):
        insert(pool, name, at * 10)
        stream = spark.readStream.format("cairn").option("dsn", dsn)
        query = (
            stream.option("stream", f"table:{name}").load()
            .writeStream.foreachBatch(crashing(spark, to, where))
            .option("checkpointLocation", f"{to}/{following.CHECKPOINT}")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        with pytest.raises(Exception, match=f"killed: {where}"):
            query.awaitTermination()
        assert pipeline.follow(name, to, dsn=dsn, once=True) == 0
        assert told(Path(to)) == [*range((at + 1) * 10)]


def test_batches_without_their_checkpoint_are_not_written_over(
    spark: Any, dsn: str, table: Callable[[str], str], tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "batch=00000000").mkdir()
    name = table("id INTEGER PRIMARY KEY")
    assert pipeline.follow(name, str(tmp_path), dsn=dsn, once=True) == 1
    assert "has changes of an earlier run, but not its _checkpoint" in capfd.readouterr().err


@contextmanager
def following_process(
    dsn: str, name: str, to: Path, words: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    command = [*CAIRN, "follow", name, "--to", str(to), "--every", "0", "--master", "local[1]"]
    command += [] if words is None else ["--json"]
    environment = {**os.environ, "CAIRN_DSN": dsn}
    process = subprocess.Popen(command, env=environment, stdout=words, stderr=words)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cairn.cli.data.spark_runs.TOLD_EVERY_S", 0.0)
    words = StringIO()
    with Bar("following t", words) as bar:
        for state in ("0 changes", "0 changes", "7 changes"):
            bar.tell(state)
    assert words.getvalue().splitlines() == [
        "cairn: following t: 0 changes",
        "cairn: following t: 7 changes",
    ]


@pytest.mark.slow
def test_progress_is_told_to_a_file_and_the_end_on_sigterm(
    dsn: str, pool: SyncPool, table: Callable[[str], str], tmp_path: Path
) -> None:
    name, words = table("id INTEGER PRIMARY KEY"), tmp_path / "words"
    insert(pool, name, 0)
    with words.open("wb") as file, following_process(dsn, name, tmp_path / "to", file) as process:
        until = time.monotonic() + 120
        while f"cairn: following {name}: 10 changes" not in words.read_text():
            assert process.poll() is None and time.monotonic() < until, words.read_text()
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert json.loads(words.read_text().splitlines()[-1])["changes"] == 10
    assert told(tmp_path / "to") == [*range(10)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_process_that_is_killed_again_and_again_loses_and_repeats_nothing(
    spark: Any, dsn: str, pool: SyncPool, table: Callable[[str], str], tmp_path: Path
) -> None:
    """Killed when a draft is there, when a batch is there, and when its commit is there."""
    name, to = table("id INTEGER PRIMARY KEY"), tmp_path / "changes"
    signs = (f"{following.DRAFT}/*", "batch=*", f"{following.CHECKPOINT}/commits/*")
    count = 0
    for sign in signs:
        before = set(to.glob(sign))
        with following_process(dsn, name, to) as process:
            until = time.monotonic() + 240
            while not set(to.glob(sign)) - before:
                assert process.poll() is None and time.monotonic() < until
                insert(pool, name, count, 1)
                count += 1
            process.send_signal(signal.SIGKILL)
    assert pipeline.follow(name, str(to), dsn=dsn, once=True) == 0
    assert told(to) == [*range(count)]
