"""The asyncio driver against fake instances: routing, topology, failures."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec
import pytest

from cairn.client import Pool, connect, parse_dsn
from cairn.model.errors import CairnError, OutcomeUnknown, PartialWrite
from cairn.model.members.topology import BucketRange, BucketState, Grade

from .driving import INSERT, SELECT, pool_of, run, until
from .fake_cluster import FakeCluster


def test_every_statement_goes_straight_to_its_owner_from_the_first_on(
    cluster: FakeCluster,
) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            for key in range(40):
                assert await pool.execute(INSERT, key, f"v{key}") == "INSERT 0 1"
                assert await pool.fetch(SELECT, key) == [(key, f"v{key}")]
            for name in ("i1", "i2"):
                keys = {values[0] for _, values in cluster.instances[name].executed}
                assert keys == {key for key in range(40) if cluster.home(key) == name}
            assert pool.stats.routed == 80 and not pool.stats.fallbacks

    run(test)


def test_explain_route_tells_the_way(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            text = str(await pool.explain_route(SELECT, key))
            assert text.startswith("bucket ") and text.endswith("→ r2 → i2, metadata asked for")
            assert "metadata cached" in str(await pool.explain_route(SELECT, key))
            route = await pool.explain_route("SELECT id, v FROM t WHERE v = $1", "x")
            assert "distribution key is not given by parameters" in str(route)

    run(test)


def test_an_unbounded_text_is_logged_once_with_the_reason(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            for _ in range(3):
                await pool.fetch("SELECT id, v FROM t WHERE v = $1", "x")
            assert pool.stats.fallbacks == {"unbounded": 3}

    with caplog.at_level(logging.INFO, "cairn.client"):
        run(test)
    assert sum("not routed" in each.message for each in caplog.records) == 1


def test_executemany_sends_each_row_to_its_owner(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            rows = [(key, "x") for key in range(1200)]
            assert await pool.executemany(INSERT, rows) == 1200
            assert (pool.stats.statements, pool.stats.routed) == (1200, 1200)
            for name in ("i1", "i2"):
                assert all(cluster.home(v[0]) == name for _, v in cluster.instances[name].executed)
            with pytest.raises(CairnError) as caught:
                await pool.executemany(INSERT, [(5000, "new"), (3, "again")])
            assert caught.value.sqlstate == "23505"
            assert "statements were executed" in str(caught.value.detail)

    run(test)


def test_executemany_follows_an_owner_that_changes_in_the_middle(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            await pool.execute(INSERT, -1, "warm")
            cluster.instances["i1"].refuse = ["PC001", "PC003"]
            assert await pool.executemany(INSERT, [(key, "x") for key in range(50)]) == 50
            assert len(cluster.rows) == 51

    run(test)


def test_an_insert_of_several_rows_is_split_by_owner(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            marks = ", ".join(f"(${2 * at + 1}, ${2 * at + 2})" for at in range(10))
            params = [part for key in range(10) for part in (key, f"v{key}")]
            text = f"INSERT INTO t (id, v) VALUES {marks}"
            assert await pool.execute(text, *params) == "INSERT 0 10"
            for name in ("i1", "i2"):
                ((_, values),) = cluster.instances[name].executed
                assert {cluster.home(key) for key in values[::2]} == {name}
            cluster.rows.pop(cluster.key_of("i1"))
            with pytest.raises((PartialWrite, CairnError)):
                await pool.execute(text, *params)

    run(test)


def test_a_stale_statement_is_prepared_again_once(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, max_per_instance=1) as pool:
            keys = [cluster.key_of("i1"), cluster.key_of("i2")]
            for key in keys:
                await pool.fetch(SELECT, key)
            cluster.schema_version += 1
            for key in keys:
                await pool.fetch(SELECT, key)
            assert 1 <= pool.stats.reprepares <= 2
            cluster.instances["i1"].refuse = ["42999", "42999"]
            with pytest.raises(CairnError) as caught:
                await pool.fetch(SELECT, keys[0])
            assert caught.value.sqlstate == "42999"

    run(test)


def test_what_was_not_executed_is_retried_and_the_batch_is_flushed(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i1")
            await pool.fetch(SELECT, key)
            cluster.give_all_buckets_to("r2")
            await until(lambda: len(pool.topology.batch) > 0)
            assert pool.topology.owner("default", 1) == "u-r1"  # waits for its batch
            cluster.instances["i1"].refuse = ["PC001"]
            await pool.execute(INSERT, key, "x")
            assert ("insert", [key, "x"]) in cluster.instances["i2"].executed
            assert pool.topology.owner("default", 1) == "u-r2"
            assert pool.stats.retries == {"PC001": 1}

    run(test)


def test_a_write_whose_answer_was_lost_is_not_repeated(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            await pool.fetch(SELECT, key)
            cluster.instances["i2"].hang_up_on = "insert"
            with pytest.raises(OutcomeUnknown):
                await pool.execute(INSERT, key, "once")
            writes = [e for i in cluster.instances.values() for e in i.executed if e[0] == "insert"]
            assert writes == [("insert", [key, "once"])]
            assert pool.stats.outcome_unknown == 1

    run(test)


def test_a_server_that_does_not_know_the_outcome_is_believed(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            for name in cluster.instances:
                cluster.instances[name].refuse = ["40003"]
            with pytest.raises(OutcomeUnknown):
                await pool.execute(INSERT, key, "x")
            assert pool.stats.outcome_unknown == 1 and not pool.stats.retries

    run(test)


def test_a_read_whose_answer_was_lost_is_repeated(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            cluster.rows[key] = "here"
            cluster.instances["i2"].hang_up_on = "select"
            assert await pool.fetch(SELECT, key) == [(key, "here")]

    run(test)


def test_an_unanswered_statement_ends_in_time(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, timeout_s=0.2, retry_for_s=0.5) as pool:
            key = cluster.key_of("i2")
            await pool.execute(INSERT, key, "x")
            cluster.instances["i2"].silent = True
            with pytest.raises(OutcomeUnknown):
                await pool.execute(INSERT, key, "y")

    run(test)


def test_a_master_that_is_gone_is_gone_around_and_then_replaced(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, "i2") as pool:
            key = cluster.key_of("i1")
            cluster.rows[key] = "v"
            assert await pool.fetch(SELECT, key)
            cluster.stop("i1")
            assert await pool.fetch(SELECT, key) == [(key, "v")]  # through another instance
            cluster.set_grade("i1", Grade.OFFLINE)
            cluster.set_master("r1", "i3")
            await until(lambda: pool.topology.view.replicasets["u-r1"].master_uuid == "u-i3")
            await pool.execute(INSERT, key + 10_000 * 3000, "w")
            assert "r1 → i3" in str(await pool.explain_route(SELECT, key))

    run(test)


def test_the_service_connection_moves_and_resumes(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, "i1") as pool:
            await until(lambda: cluster.services() == ["i1"])
            cluster.stop("i1")
            cluster.set_grade("i1", Grade.OFFLINE)
            await until(lambda: pool.stats.topology_resumes == 1)
            assert cluster.services() in (["i2"], ["i3"])
            assert not pool.topology.view.instances["u-i1"].is_online
            assert pool.stats.topology_snapshots == 1

    run(test)


def test_a_provider_that_leaves_is_left(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, "i1") as pool:
            await until(lambda: cluster.services() == ["i1"])
            cluster.set_grade("i1", Grade.EXPELLED)
            await until(lambda: cluster.services() in (["i2"], ["i3"]))
            assert "u-i1" in pool.topology.gone
            before = cluster.instances["i1"].executed[:]
            for key in range(20):
                await pool.execute(INSERT, key, "x")
            assert cluster.instances["i1"].executed == before

    run(test)


def test_an_instance_that_is_behind_sends_the_client_elsewhere(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, "i1") as pool:
            cluster.instances["i2"].is_behind = True
            cluster.stop("i1")
            cluster.set_grade("i1", Grade.OFFLINE)
            await until(lambda: cluster.services() == ["i3"] and pool.stats.topology_resumes == 1)

    run(test)


def test_a_server_of_0_1_is_followed_with_0_1(cluster: FakeCluster) -> None:
    async def test() -> None:
        for instance in cluster.instances.values():
            instance.versions = ("0.1",)
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i2")
            await pool.execute(INSERT, key, "x")
            assert cluster.instances["i2"].executed == [("insert", [key, "x"])]
            cluster.stop("i1")
            await until(lambda: pool.stats.topology_snapshots == 2)
            assert pool.stats.topology_resumes == 0

    run(test)


def test_reads_go_to_replicas_on_request_and_writes_do_not(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, read_from="replica") as pool:
            key = cluster.key_of("i1")
            await pool.execute(INSERT, key, "x")
            assert await pool.fetch(SELECT, key) == [(key, "x")]
            assert cluster.instances["i1"].executed == [("insert", [key, "x"])]
            assert cluster.instances["i3"].executed == [("select", [key])]

    run(test)


def test_addresses_that_are_not_allowed_are_not_connected_to(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            row = cluster.picture.instances["i2"]
            addresses = {**cluster.picture.addresses, (row.raft_id, "pgproto"): "8.8.8.8:4327"}
            cluster.change(addresses=addresses)
            await until(lambda: pool.topology.view.instances["u-i2"].address == "8.8.8.8:4327")
            await pool.execute(INSERT, cluster.key_of("i2"), "x")
            assert pool.stats.fallbacks == {"not_allowed": 1}
            assert pool.stats.addresses_refused == 1

    run(test)


def test_a_full_pool_says_so(cluster: FakeCluster) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"max_per_instance": 1, "acquire_timeout_s": 0.1}
        async with pool_of(cluster, **settings) as pool:
            address = cluster.instances["i1"].address
            async with pool.connection(address):
                with pytest.raises(CairnError, match="all 1 connections"):
                    async with pool.connection(address):
                        pass
            async with pool.connection(address) as connection:
                assert await connection.fetch("SELECT id, v FROM t") == []

    run(test)


def test_who_leaves_when_its_turn_comes_leaves_it_to_the_next(cluster: FakeCluster) -> None:
    """Else the next one waits beside a connection that nobody uses."""

    async def test() -> None:
        settings: dict[str, Any] = {"max_per_instance": 1, "acquire_timeout_s": 60}
        async with pool_of(cluster, **settings) as pool:
            address = cluster.instances["i1"].address

            async def ask() -> Any:
                async with pool.connection(address) as connection:
                    return await connection.fetch("SELECT id, v FROM t")

            async with pool.connection(address):
                first, second = asyncio.ensure_future(ask()), asyncio.ensure_future(ask())
                await asyncio.sleep(0)
            first.cancel()
            assert await asyncio.wait_for(second, 30) == []
            assert first.cancelled()

    run(test)


def test_transactions_stay_on_their_connection(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool, pool.connection() as connection:
            async with connection.transaction():
                assert connection.in_transaction
                await connection.execute(INSERT, 1, "x")
            assert not connection.in_transaction

    run(test)


def test_listeners_hear_changes_and_forged_notices_change_nothing(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            heard: list[Any] = []
            pool.topology.listeners.append(heard.append)
            forged = '{"op":"delete","map":"instance","timestamp":"","raft":{"term":9,"index":9},'
            forged += '"instance_uuid":"u-i2"}'
            async with pool.connection() as connection:
                session = next(
                    s for i in cluster.instances.values() for s in i.sessions if s.version is None
                )
                cluster.on_loop(lambda: session.pg.notice(forged))
                await connection.fetch("SELECT id, v FROM t")
            assert "u-i2" in pool.topology.view.instances
            cluster.set_grade("i3", Grade.OFFLINE)
            await until(lambda: bool(heard))
            assert heard[0].instance_uuid == "u-i3"

    run(test)


def test_many_clients_begin_at_different_instances(cluster: FakeCluster) -> None:
    async def test() -> None:
        settings = parse_dsn(cluster.dsn("i1", "i2", "i3"))
        pools = [await Pool(settings, chance=random.Random(n)).open() for n in range(12)]
        assert set(cluster.services()) == {"i1", "i2", "i3"}
        for pool in pools:
            await pool.close()

    run(test)


def test_a_dead_contact_point_is_an_error_in_time(cluster: FakeCluster) -> None:
    async def test() -> None:
        dsn = cluster.dsn("i1")
        cluster.stop("i1")
        with pytest.raises(CairnError, match="cannot connect"):
            await connect(dsn, connect_timeout_s=1.0)

    run(test)


def test_a_moving_range_is_still_at_its_owner(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, batch_records=1) as pool:
            first = BucketRange("default", 1, 1500, BucketState.COPYING, "r1", "r2")
            second = cluster.picture.buckets[1]
            cluster.change(buckets=(first, second))
            copied = msgspec.structs.replace(first, state=BucketState.COPIED)
            key = cluster.key_of("i1")
            await until(lambda: pool.topology.view.buckets["default"].get(1).state == "copying")  # type: ignore[union-attr]
            assert "→ r1 →" in str(await pool.explain_route(SELECT, key))
            cluster.change(buckets=(copied, second))
            await until(lambda: pool.topology.owner("default", 1) == "u-r2")
            assert "→ r2 →" in str(await pool.explain_route(SELECT, key))

    run(test)


def test_metrics_can_be_scraped(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            await pool.fetch(SELECT, 1)
            text = pool.metrics()
            assert "cairn_client_routed_total 1\n" in text
            assert "# TYPE cairn_client_topology_lag_seconds gauge" in text

    run(test)
