""" "You are one hop away": a hint makes the driver look, never believe."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cairn.client import sync
from cairn.client.logic.hints import GRACE_S, Hints
from cairn.client.stats import Stats
from cairn.model.members.events import decode
from cairn.topology.routing_table import RoutingTable

from .driving import INSERT, SELECT, pool_of, run, until
from .fake_cluster import FakeCluster


def hint(replicaset: str, instance: str, index: int, bucket: int = 1, **more: Any) -> str:
    told = {
        "map": "hop",
        "tier": "default",
        "bucket_id": bucket,
        "replicaset_uuid": replicaset,
        "instance_uuid": instance,
        "address": "8.8.8.8:4327",
        "raft": {"term": 1, "index": index},
    }
    return json.dumps(told | more)


def event(index: int, **fields: Any) -> Any:
    text = {"op": "replace", "timestamp": "", "raft": {"term": 1, "index": index}, **fields}
    found = decode(json.dumps(text))
    assert found is not None
    return found


def owned(index: int, replicaset: str) -> Any:
    return event(
        index,
        map="bucket",
        tier="default",
        state="active",
        bucket_id={"start": 1, "end": 3000},
        current_replicaset_uuid=replicaset,
    )


def known_table() -> RoutingTable:
    """r1 with master i1 owns all buckets, at 1:10; r2 has master i2."""
    table = RoutingTable()
    table.connecting()
    for name in ("1", "2"):
        about = {"map": "replicaset", "replicaset_uuid": f"r{name}"}
        table.receive(event(10, **about, current_master_uuid=f"i{name}"), 0.0)
    table.receive(owned(10, "r1"), 0.0)
    table.ready(0.0)
    return table


def hints_over(table: RoutingTable) -> tuple[Hints, Stats]:
    stats = Stats()
    return Hints(table, stats, random.Random(1)), stats


def test_a_hint_that_says_what_we_know_is_only_counted() -> None:
    hints, stats = hints_over(known_table())
    assert hints.heard(hint("r1", "i1", 99)) is None
    assert stats.hints == {"known": 1}


def test_a_hint_makes_waiting_bucket_events_count() -> None:
    table = known_table()
    hints, stats = hints_over(table)
    table.receive(owned(11, "r2"), 1.0)
    assert table.owner("default", 1) == "r1"
    assert hints.heard(hint("r2", "i2", 11)) is None
    assert table.owner("default", 1) == "r2"
    assert stats.hints == {"flushed": 1}


def test_a_hint_older_than_our_table_is_stale() -> None:
    hints, stats = hints_over(known_table())
    assert hints.heard(hint("r2", "i2", 9)) is None
    assert stats.hints == {"stale": 1} and not hints.is_behind()


def test_one_doubt_at_a_time_and_events_settle_it() -> None:
    table = known_table()
    hints, stats = hints_over(table)
    delay = hints.heard(hint("r2", "i2", 12))
    assert delay is not None and GRACE_S <= delay <= 2 * GRACE_S
    assert hints.heard(hint("r2", "i2", 13)) is None
    table.receive(owned(12, "r2"), 1.0)
    table.flush()
    assert not hints.is_behind()
    assert stats.topology_refreshes == 0


def test_a_provider_left_in_vain_is_doubted_later_each_time() -> None:
    table = known_table()
    hints, stats = hints_over(table)
    delays = []
    for _ in range(10):
        delay = hints.heard(hint("r2", "i2", 999))
        assert delay is not None and hints.is_behind()
        delays.append(delay)
    assert delays[1] > 1.3 * GRACE_S and 300 <= delays[-1] <= 600
    assert stats.topology_refreshes == 10
    assert table.owner("default", 1) == "r1"  # nothing of a hint enters the table


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"hop"',
        '{"map":"hop"}',
        hint("r2", "i2", 12, map="bucket"),
        hint("r2", "i2", 12, bucket_id="1"),
        hint("r2", "i2", 12, raft={"term": 1}),
    ],
)
def test_what_is_no_hint_is_nothing(text: str) -> None:
    hints, stats = hints_over(known_table())
    assert hints.heard(text) is None
    assert not stats.hints and not hints.is_behind()


def test_the_driver_asks_for_hints_and_flushes_on_one(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster) as pool:
            key = cluster.key_of("i1")
            await pool.execute(INSERT, key, "x")
            asked = [s.options for s in cluster.instances["i1"].sessions if s.version is None]
            assert {each.get("smart_connector_hints") for each in asked} == {"true"}
            cluster.give_all_buckets_to("r2")
            await until(lambda: len(pool.topology.batch) > 0)
            told = hint("u-r2", "u-i2", 11)
            cluster.instances["i1"].hints = [told]
            await pool.fetch(SELECT, key)
            assert pool.stats.hints == {"flushed": 1}
            assert "r2 → i2" in str(await pool.explain_route(SELECT, key))
            assert 'cairn_client_hints_total{verdict="flushed"} 1' in pool.metrics()

    run(test)


def test_a_provider_that_does_not_tell_is_left_for_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with pool_of(cluster, "i1") as pool:
            key = cluster.key_of("i1")
            await pool.fetch(SELECT, key)
            await until(lambda: cluster.services() == ["i1"])
            pool._core.hints._grace_s = 0.01
            for instance in cluster.instances.values():
                instance.hints = [hint("u-r2", "u-i2", 500)]
            await pool.fetch(SELECT, key)
            await until(lambda: pool.stats.topology_resumes == 1)
            await until(lambda: cluster.services() in (["i2"], ["i3"]))
            assert pool.stats.topology_refreshes == 1
            assert pool.topology.owner("default", 1) == "u-r1"

    run(test)


def test_the_blocking_face_weighs_hints_too(cluster: FakeCluster) -> None:
    with sync.connect(cluster.dsn("i1"), timeout_s=3.0) as connection:
        pool = connection.pool
        key = cluster.key_of("i1")
        pool.fetch(SELECT, key)
        pool._core.hints._grace_s = 0.01
        cluster.instances["i1"].hints = [hint("u-r2", "u-i2", 500)]
        pool.fetch(SELECT, key)
        assert pool.stats.hints == {"doubted": 1}
        for _ in range(500):
            if pool.stats.topology_resumes == 1:
                break
            pool._wait(0.01, for_news=True)
        assert pool.stats.topology_refreshes == 1 and cluster.services() != ["i1"]


def test_reads_that_go_to_replicas_on_purpose_need_no_hints(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with pool_of(cluster, read_from="replica") as pool:
            cluster.instances["i3"].hints = [hint("u-r1", "u-i1", 500)]
            await pool.fetch(SELECT, cluster.key_of("i1"))
            assert not pool.stats.hints

    run(test)
