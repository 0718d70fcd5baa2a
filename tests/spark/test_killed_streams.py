"""Streams and writes on separate executors: somebody is killed in the middle, nothing is lost.

The tables refuse a key that comes twice: a row that is told or written again fails the job. Tasks
that Spark runs twice at once cannot be had here: it never runs both on one host.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark.writes.staging import STAGE
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAMES = ("i1", "i2", "i3")  # one replicaset of two with all buckets, and one more voter
STARTED_S = 180  # executors and their Python workers, on a busy machine
ENDED_S = 300
SNAPSHOT = {"startingOffset": "snapshot"}
TABLE = "(id INTEGER PRIMARY KEY, s TEXT)"


@pytest.fixture
def tables(pairs_pool: SyncPool, request: pytest.FixtureRequest) -> tuple[str, str]:
    """One with 20,000 rows, and an empty one."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"
    for each in (f"{name}_from", f"{name}_into"):
        pairs_pool.execute(f"CREATE TABLE {each} {TABLE}")
    put(pairs_pool, f"{name}_from", range(20_000))
    return f"{name}_from", f"{name}_into"


@pytest.fixture
def victim(pairs: Cluster) -> Iterator[Any]:
    """Kills the master of the replicaset with the buckets; it is back when the test has ended."""
    killed: list[str] = []

    def kill() -> None:
        owner = owner_of_all(pairs)
        eventually(lambda: has_everything(pairs, owner), "the replica has all rows")
        pairs[owner["master"]].kill()
        killed.append(owner["master"])

    yield kill
    for name in killed:
        pairs[name].start()
        pairs.wait_online(*NAMES, via=next(each for each in NAMES if each != name))


def staged_chunks(pool: SyncPool) -> int:
    return int(pool.fetch(f"SELECT count(*) FROM {STAGE}")[0][0])


def nothing_is_left(pool: SyncPool) -> None:
    assert staged_chunks(pool) == 0


@pytest.mark.parametrize("who", ["executor", "master"])
def test_a_stream_of_a_snapshot_and_of_the_changes_after_it(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, tables: tuple[str, str], marks: Path,
    tmp_path: Path, victim: Any, who: str,
) -> None:  # fmt: skip
    first, into = tables
    for number, (tasks, count) in enumerate([(2, 20_000), (1, 40_000)]):
        at = marks / str(number)
        at.mkdir()
        if number:
            put(pairs_pool, first, range(20_000, 40_000))
        job = real.run(
            real_spark.stream, pairs_dsn, first, into, str(tmp_path / "cp"), SNAPSHOT, str(at)
        )
        eventually(partial(half_way, at, job, tasks), "all tasks half-way", STARTED_S)
        if who == "executor":
            real.kill_executor_of(next(at.glob("half-*")))
        elif not number:
            victim()
        (at / "go").touch()
        job.result(ENDED_S)
        assert content(pairs_pool, into) == wanted(count)
        nothing_is_left(pairs_pool)


@pytest.mark.parametrize("commit", ["staged", "direct"])
def test_a_write_whose_master_is_killed(
    real: RealSpark, pairs_pool: SyncPool, pairs_dsn: str, tables: tuple[str, str], marks: Path,
    victim: Any, commit: str,
) -> None:  # fmt: skip
    options = {"commit": commit, **SMALL}
    job = real.run(real_spark.write, pairs_dsn, tables[1], 60_000, options, str(marks))
    eventually(lambda: half_way(marks, job), "both tasks half-way", STARTED_S)
    victim()
    (marks / "go").touch()
    job.result(ENDED_S)
    assert content(pairs_pool, tables[1]) == wanted(60_000)


def test_a_stream_whose_driver_is_killed_and_started_again(
    tmp_path_factory: pytest.TempPathFactory, pairs_pool: SyncPool, pairs_dsn: str,
    tables: tuple[str, str], marks: Path, tmp_path: Path,
) -> None:  # fmt: skip
    first, into = tables
    arguments = (pairs_dsn, first, into, str(tmp_path / "cp"), SNAPSHOT)
    killed = RealSpark(tmp_path_factory.mktemp("killed"))
    job = killed.run(real_spark.stream, *arguments, str(marks))
    eventually(lambda: half_way(marks, job), "two tasks half-way", STARTED_S)
    eventually(lambda: staged_chunks(pairs_pool) > 0, "staged chunks")
    killed.kill_the_driver()
    killed.close()
    put(pairs_pool, first, range(20_000, 25_000))
    again = RealSpark(tmp_path_factory.mktemp("again"))
    try:
        again.run(real_spark.stream, *arguments, None).result(ENDED_S)
    finally:
        again.close()
    assert content(pairs_pool, into) == wanted(25_000)
    nothing_is_left(pairs_pool)
