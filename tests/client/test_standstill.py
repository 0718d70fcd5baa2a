"""One instance stands still (SIGSTOP): whoever waits for it notices, and asks another where it may.

No statement here has a limit that would end it: what a test waits for is that it ends nevertheless.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.talking import Talk, TalkProblem, Target
from cairn.client import connect, standstill
from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import OutcomeUnknown, Unreachable
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
NO_LIMIT = {"timeout_s": 3600.0, "retry_for_s": 60.0}
READ = "SELECT v FROM t WHERE id = $1"
COUNT_UP = "UPDATE t SET v = v + 1 WHERE id = $1"
ROWS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("still"), "test", "--init-replication-factor", "2")
    found.start("i1", "i2", "i3", "i4")
    found["i1"].sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for number in range(ROWS):
        found["i1"].sql(f"INSERT INTO t VALUES ({number}, 0)")
    yield found
    found.close()


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("client.sync_wire", "client.aio_wire", "cli.talking"):
        monkeypatch.setattr(f"cairn.{place}.ASK_AFTER_S", 0.3)
    monkeypatch.setattr(standstill, "ANSWER_S", 0.7)


@pytest.fixture(autouse=True)
def all_online(cluster: Cluster) -> Iterator[None]:
    """Rows of a replicaset that was left with one instance are safe again."""
    yield
    for node in cluster.nodes.values():
        node.resume()
    eventually(lambda: are_online(cluster), "all Online, and all of them know it")


def are_online(cluster: Cluster) -> bool:
    """One that just woke up takes itself for what it was."""
    sql = "SELECT name, current_state FROM _pico_instance ORDER BY 1"
    told = [node.sql(sql) for node in cluster.nodes.values()]
    return all(each == told[0] for each in told) and {row[1][0] for row in told[0]} == {"Online"}


def dsn_of(*nodes: Node) -> str:
    hosts = ",".join(f"127.0.0.1:{node.pg_port}" for node in nodes)
    return f"postgresql://admin:{PASSWORD}@{hosts}/cairn"


def all_of(cluster: Cluster) -> str:
    return dsn_of(*cluster.nodes.values())


def address(node: Node) -> str:
    return f"127.0.0.1:{node.pg_port}"


@contextmanager
def driver(dsn: str, **settings: Any) -> Iterator[SyncPool]:
    with SyncPool(parse_dsn(dsn, **NO_LIMIT | settings)).open() as pool:
        yield pool


def master_and_key(cluster: Cluster, pool: SyncPool, but: str = "") -> tuple[Node, int]:
    """A master other than the one that tells the pool of changes, and a row that it has."""
    for number in range(ROWS):
        route = pool.explain_route(READ, number)
        node = next(each for each in cluster.nodes.values() if address(each) == route.address)
        if route.address not in (pool._service.address, but):
            return node, number
    raise AssertionError("no row lies elsewhere")


def test_a_read_that_waits_for_it_is_answered_by_another(cluster: Cluster) -> None:
    with driver(all_of(cluster)) as pool:
        master, key = master_and_key(cluster, pool)
        [before] = pool.fetch(READ, key)  # its connection is open, and the text is known there
        master.pause()
        assert pool.fetch(READ, key) == [before]


def test_a_read_of_asyncio_that_waits_for_it_is_answered_by_another(cluster: Cluster) -> None:
    with driver(all_of(cluster)) as pool:
        master, key = master_and_key(cluster, pool)

    async def work() -> None:
        async with await connect(all_of(cluster), **NO_LIMIT) as pool:
            [before] = await pool.fetch(READ, key)
            master.pause()
            assert await pool.fetch(READ, key) == [before]

    asyncio.run(work())


def test_a_write_that_waits_for_it_is_not_repeated_and_its_end_is_unknown(
    cluster: Cluster,
) -> None:
    with driver(all_of(cluster)) as pool:
        master, key = master_and_key(cluster, pool)
        pool.execute(COUNT_UP, key)
        [(before,)] = pool.fetch(READ, key)
        master.pause()
        with pytest.raises(OutcomeUnknown, match="stands still"):
            pool.execute(COUNT_UP, key)
        master.resume()
        [(after,)] = pool.fetch(READ, key)
        assert after <= before + 1


def test_a_write_waits_while_the_cluster_does_not_miss_the_instance(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a slow disk: an end that can be known is better than one that cannot."""
    monkeypatch.setattr("cairn.client.sync_wire.ASK_AFTER_S", 0.1)
    monkeypatch.setattr(standstill, "ANSWER_S", 0.1)
    cluster["i1"].sql("ALTER SYSTEM SET automatic_failover = false")
    try:
        with driver(all_of(cluster)) as pool:
            master, key = master_and_key(cluster, pool)
            pool.execute(COUNT_UP, key)
            asked: list[str] = []
            lives = standstill.lives

            def look(at: str, *rest: Any) -> bool:
                asked.append(at)
                if len(asked) == 5:
                    master.resume()
                return lives(at, *rest)

            monkeypatch.setattr("cairn.client.sync_wire.lives", look)
            master.pause()
            assert pool.execute(COUNT_UP, key) == "UPDATE 1"
            assert len(asked) >= 5
    finally:
        master.resume()
        cluster["i1"].sql("ALTER SYSTEM SET automatic_failover = true")


def test_who_is_busy_with_a_long_statement_does_not_stand_still(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairn.client.sync_wire.ASK_AFTER_S", 0.05)
    with driver(dsn_of(cluster["i1"])) as pool:
        sql = "SELECT count(*) FROM generate_series(1, 3000) a, generate_series(1, 1000) b"
        assert pool.fetch(sql) == [(3_000_000,)]
        assert pool.stats.retries.total() == 0


class First(random.Random):
    """Always the first one that could be asked."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def test_a_driver_opens_although_the_first_host_stands_still(cluster: Cluster) -> None:
    still, other = cluster["i1"], cluster["i2"]
    settings = parse_dsn(dsn_of(still, other))
    still.pause()
    with SyncPool(settings, chance=First()).open() as pool:
        assert pool.fetch("SELECT count(*) FROM t") == [(ROWS,)]


def test_rows_of_a_copy_that_nobody_takes_are_not_sent_for_ever(cluster: Cluster) -> None:
    async def work() -> None:
        async with await connect(all_of(cluster), **NO_LIMIT) as pool:
            while pool._service.address is None:
                await asyncio.sleep(0.01)
            nodes = cluster.nodes.values()
            still = next(each for each in nodes if address(each) != pool._service.address)

            def rows() -> Iterator[bytes]:
                still.pause()
                while True:
                    yield b"1000\t1\n" * 10_000

            async with pool.connection(address(still)) as connection:
                await connection.copy_in("COPY t FROM STDIN", rows())

    with pytest.raises(Unreachable):
        asyncio.run(work())


def test_a_command_says_that_it_stands_still_and_not_that_it_failed(cluster: Cluster) -> None:
    talk = Talk(Target(all_of(cluster), None))
    try:
        cluster["i1"].pause()
        with pytest.raises(TalkProblem, match="stands still") as left:
            talk.run("UPDATE t SET v = v + 1")
        assert left.value.exit_code == 4
        with pytest.raises(TalkProblem, match="the connection was lost"):
            talk.call("CALL cairn_status()")
    finally:
        talk.close()


@pytest.mark.slow
def test_cairn_watch_goes_on_with_another_instance(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cairn.cli.main", "watch", "--dsn", all_of(cluster)]
    said, heard = tmp_path / "said", tmp_path / "heard"
    with said.open("wb") as words, heard.open("wb") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=words)
    try:
        eventually(lambda: heard.stat().st_size, "the first events")
        cluster["i1"].pause()
        other = f"following {address(cluster['i2'])}"
        eventually(lambda: other in said.read_text(), "another instance")
    finally:
        process.terminate()
        process.wait()
