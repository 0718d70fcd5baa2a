"""A statement that takes too long is cancelled on the server, or its connection is given up."""

from __future__ import annotations

import asyncio

import pytest

from cairn.client import sync
from cairn.model.errors import CairnError, OutcomeUnknown

from .driving import INSERT, SELECT, pool_of, run, until
from .fake_cluster import FakeCluster


def test_a_cancelled_statement_says_so_and_its_connection_lives_on(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, timeout_s=0.2) as pool:
            key = cluster.key_of("i2")
            cluster.rows[key] = "x"
            await pool.fetch(SELECT, key)
            opened = pool.stats.connections_opened
            cluster.instances["i2"].stuck = True
            with pytest.raises(CairnError, match="the statement was cancelled") as caught:
                await pool.fetch(SELECT, key)
            assert caught.value.sqlstate == "57014"
            assert cluster.instances["i2"].cancels == 1 and pool.stats.cancels == 1
            cluster.instances["i2"].stuck = False
            assert await pool.fetch(SELECT, key) == [(key, "x")]
            assert pool.stats.connections_opened == opened

    run(test)


def test_a_server_that_does_not_answer_even_that_is_given_up(cluster: FakeCluster) -> None:
    async def test() -> None:
        settings = {"timeout_s": 0.2, "cancel_wait_s": 0.1, "retry_for_s": 0.3}
        async with pool_of(cluster, **settings) as pool:
            key = cluster.key_of("i2")
            await pool.execute(INSERT, key, "x")
            cluster.instances["i2"].silent = True
            with pytest.raises(OutcomeUnknown):
                await pool.execute(INSERT, key, "y")
            assert pool.stats.outcome_unknown == 1 and pool.stats.cancels == 1

    run(test)


def test_a_task_that_is_cancelled_cancels_its_statement(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            await pool.fetch(SELECT, key)
            cluster.instances["i2"].stuck = True
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pool.fetch(SELECT, key), 0.1)
            await until(lambda: cluster.instances["i2"].cancels == 1)

    run(test)


def test_the_blocking_face_cancels_as_well(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn(), timeout_s=0.2, cancel_wait_s=0.3) as connection:
        pool = connection.pool
        key = cluster.key_of("i2")
        pool.fetch(SELECT, key)
        opened = pool.stats.connections_opened
        cluster.instances["i2"].stuck = True
        with pytest.raises(CairnError, match="the statement was cancelled"):
            pool.fetch(SELECT, key)
        cluster.instances["i2"].stuck = False
        assert pool.fetch(SELECT, key) == []
        assert pool.stats.connections_opened == opened and pool.stats.cancels == 1
        pool.execute(INSERT, key, "x")
        cluster.instances["i2"].silent = True
        with pytest.raises(OutcomeUnknown):
            pool.execute(INSERT, key, "y")
