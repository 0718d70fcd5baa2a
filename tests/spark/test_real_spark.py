"""On separate executors: nothing is lost or doubled when one of them, or an instance, is killed."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.writes.staging import COMMIT, STAGE
from tests.cluster.harness import Cluster, eventually
from tests.spark import real_spark
from tests.spark.real_spark import (
    SMALL,
    RealSpark,
    content,
    half_way,
    has_everything,
    owner_of_all,
    put,
    wanted,
)

pytestmark = pytest.mark.slow  # three JVMs: more than a minute
Rows = list[tuple[int, str]]
STARTED_S = 180  # executors and their Python workers, on a busy machine
NAMES = ("i1", "i2", "i3")  # one replicaset of two with all buckets, and one more voter


def in_files(folder: Path) -> Rows:
    found = pq.read_table(folder)
    return sorted(zip(found["id"].to_pylist(), found["s"].to_pylist(), strict=True))


def test_rows_written_by_executors_are_read_by_executors(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, tmp_path: Path
) -> None:
    pairs_pool.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, s TEXT)")
    real.run(real_spark.write, pairs_dsn, "plain", 5000, {}, None).result(120)
    assert content(pairs_pool, "plain") == wanted(5000)
    real.run(
        real_spark.read, pairs_dsn, "plain", str(tmp_path / "out"), {"splits": "3"}, None
    ).result(120)
    assert in_files(tmp_path / "out") == wanted(5000)


def test_a_staged_write_survives_the_death_of_an_executor(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, marks: Path
) -> None:
    pairs_pool.execute("CREATE TABLE killed (id INTEGER PRIMARY KEY, s TEXT)")
    job = real.run(real_spark.write, pairs_dsn, "killed", 20_000, SMALL, str(marks))
    eventually(lambda: half_way(marks, job), "both tasks half-way", STARTED_S)
    eventually(lambda: pairs_pool.fetch(f"SELECT count(*) FROM {STAGE}")[0][0] > 0, "staged chunks")
    real.kill_an_executor()
    (marks / "go").touch()
    job.result(120)
    assert content(pairs_pool, "killed") == wanted(20_000)
    assert pairs_pool.fetch(f"SELECT count(*) FROM {STAGE}") == [(0,)]


def test_a_direct_write_survives_a_stage_that_is_run_again(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, marks: Path
) -> None:
    """Shuffled rows are lost with an executor: the stage begins anew, its tasks at attempt 0.

    So many that the server stores some before the tasks are half-way.
    """
    pairs_pool.execute("CREATE TABLE shuffled (id INTEGER PRIMARY KEY, s TEXT)")
    options = {"commit": "direct", **SMALL}
    job = real.run(real_spark.write, pairs_dsn, "shuffled", 200_000, options, str(marks), True)
    eventually(lambda: half_way(marks, job), "both tasks half-way", STARTED_S)
    eventually(
        lambda: pairs_pool.fetch("SELECT count(*) FROM shuffled")[0][0] > 0, "rows of both tasks"
    )
    real.kill_an_executor()
    (marks / "go").touch()
    job.result(120)
    assert content(pairs_pool, "shuffled") == wanted(200_000)
    assert pairs_pool.fetch(f"SELECT count(*) FROM {COMMIT} WHERE state = 'begun'") == [(0,)]


def test_a_read_survives_the_death_of_an_executor(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, marks: Path, tmp_path: Path
) -> None:
    pairs_pool.execute("CREATE TABLE read_again (id INTEGER PRIMARY KEY, s TEXT)")
    put(pairs_pool, "read_again", range(20_000))
    out = str(tmp_path / "out")
    job = real.run(real_spark.read, pairs_dsn, "read_again", out, {"splits": "2"}, str(marks))
    eventually(lambda: half_way(marks, job), "both tasks reading", STARTED_S)
    real.kill_an_executor()
    (marks / "go").touch()
    assert job.result(120) == 2
    assert in_files(tmp_path / "out") == wanted(20_000)


def test_a_read_survives_the_death_of_the_instance_it_reads_from(
    real: RealSpark,
    pairs: Cluster,
    pairs_pool: SyncPool,
    pairs_dsn: str,
    marks: Path,
    tmp_path: Path,
) -> None:
    """The rows are far more than what fits between the instance and the waiting tasks."""
    pairs_pool.execute("CREATE TABLE wide (id INTEGER PRIMARY KEY, s TEXT)")
    rows = [(number, f"{number}:" + "x" * 400) for number in range(100_000)]
    pairs_pool.copy_in("COPY wide FROM STDIN", [f"{key}\t{word}\n".encode() for key, word in rows])
    owner = owner_of_all(pairs)
    eventually(lambda: has_everything(pairs, owner), "the replica has all rows")
    job = real.run(
        real_spark.read, pairs_dsn, "wide", str(tmp_path / "out"), {"splits": "2"}, str(marks)
    )
    eventually(lambda: half_way(marks, job), "both tasks reading", STARTED_S)
    pairs[owner["master"]].kill()
    (marks / "go").touch()
    assert job.result(120) == 2
    assert in_files(tmp_path / "out") == rows
    assert [name for name in owner["members"] if name != owner["master"]] == [
        owner_of_all(pairs)["master"]
    ]
