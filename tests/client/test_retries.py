"""What the driver tries again by itself, and what it tells instead."""

from __future__ import annotations

import pytest

import cairn.client
from cairn.client import ServerError, sync

from .driving import INSERT, SELECT, pool_of, run
from .fake_cluster import FakeCluster


@pytest.mark.parametrize("code", ["58000", "08006", "PC002", "PC003"])
def test_a_read_that_nobody_could_answer_is_tried_again(cluster: FakeCluster, code: str) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i1")
            await pool.execute(INSERT, key, "x")
            cluster.instances["i1"].refuse = [code, code]
            assert await pool.fetchval("SELECT id, v FROM t WHERE id = $1", key) == key
            for instance in cluster.instances.values():
                instance.refuse = [code]
            assert await pool.fetch("SELECT id, v FROM t") == [(key, "x")]  # goes anywhere
            assert pool.stats.retries[code] >= 3

    run(test)


def test_a_write_is_not_repeated_when_another_instance_did_not_answer(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i1")
            await pool.fetch(SELECT, key)
            cluster.instances["i1"].refuse = ["58000"]
            with pytest.raises(ServerError) as caught:
                await pool.execute(INSERT, key, "x")
            assert caught.value.sqlstate == "58000" and not pool.stats.retries

    run(test)


def test_a_read_gives_up_when_its_time_is_over(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, retry_for_s=0.2) as pool:
            for instance in cluster.instances.values():
                instance.refuse = ["58000"] * 1000
            with pytest.raises(ServerError, match="refused with 58000"):
                await pool.fetch(SELECT, 1)
            assert pool.stats.retries["58000"] > 1

    run(test)


def test_the_blocking_face_tries_reads_again_too(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn(), timeout_s=3.0, retry_for_s=3.0) as connection:
        key = cluster.key_of("i2")
        connection.cursor().execute("INSERT INTO t VALUES ($1, $2)", (key, "y"))
        cluster.instances["i2"].refuse = ["58000"]
        assert connection.pool.fetchval(SELECT, key) == key
        assert connection.pool.stats.retries == {"58000": 1}


def test_errors_can_be_caught_by_names_of_the_package() -> None:
    client = cairn.client
    assert issubclass(client.SomeUnknown, client.OutcomeUnknown)
    for kind in (client.ServerError, client.OutcomeUnknown, client.SomeWritten, client.Unreachable):
        assert issubclass(kind, client.CairnError)
    assert set(client.__all__) <= set(dir(client))
