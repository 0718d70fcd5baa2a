"""What unmodified drivers send on their own, verbatim (smart-clients.md 1.3)."""

from __future__ import annotations

import pytest

from cairn.model.types.values import OIDS
from cairn.sql.api import prepare

from .harness import Cluster

Q1 = """
            SELECT r.uuid AS replicaset_uuid, r.tier, m.uuid AS current_master_uuid
            FROM _pico_replicaset r
            LEFT JOIN _pico_instance m ON r.current_master_name = m.name;
"""
Q2 = """
            SELECT i.uuid AS instance_uuid, r.uuid AS replicaset_uuid, i.current_state, p.address
            FROM _pico_instance i
            JOIN _pico_replicaset r ON i.replicaset_name = r.name
            JOIN _pico_peer_address p ON i.raft_id = p.raft_id
            WHERE p.connection_type = 'pgproto';
"""
Q3 = "SELECT name, bucket_count FROM _pico_tier;"
Q4 = "SELECT _pico_bucket($1) AS buckets;"
Q5 = "SELECT distribution, format FROM _pico_table WHERE name = $1;"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = Cluster()
    state = ["Online", 5]
    found.put(
        "_pico_instance",
        [
            ("i1", "u-i1", 1, "r1", "u-r1", state, state, {}, "default", "26.1"),
            ("i2", "u-i2", 2, "r1", "u-r1", state, state, {}, "default", "26.1"),
        ],
    )
    found.put(
        "_pico_replicaset",
        [
            ("r1", "u-r1", "i1", "i1", "default", 1.0, "auto", "ready", 0, 0, {}, 1, ["i1"]),
            ("r2", "u-r2", "", "", "default", 0.0, "auto", "not-ready", 0, 0, {}, 1, []),
        ],
    )
    found.put(
        "_pico_peer_address",
        [(1, "127.0.0.1:4327", "pgproto"), (1, "127.0.0.1:3301", "iproto"), (2, "h:1", "pgproto")],
    )
    found.put("_pico_tier", [("default", 1, True, 0, 0, True, 3000, True, 2, "async")])
    distribution = {"ShardedImplicitly": [["id"], "murmur3", "default"]}
    found.put("_pico_table", [(1024, "t", distribution, [{"name": "id"}], 1, True, "memtx", 1, "")])
    return found


def test_replicasets_come_with_their_masters(cluster: Cluster) -> None:
    names = [column.name for column in prepare(Q1, cluster.catalog, user_id=1).columns]
    assert names == ["replicaset_uuid", "tier", "current_master_uuid"]
    assert cluster.run(Q1) == [("u-r1", "default", "u-i1"), ("u-r2", "default", None)]


def test_instances_come_with_their_addresses(cluster: Cluster) -> None:
    assert cluster.run(Q2) == [
        ("u-i1", "u-r1", ["Online", 5], "127.0.0.1:4327"),
        ("u-i2", "u-r1", ["Online", 5], "h:1"),
    ]


def test_tiers_tell_their_bucket_count(cluster: Cluster) -> None:
    assert cluster.run(Q3) == [("default", 3000)]


def test_the_parameter_of_pico_bucket_is_text(cluster: Cluster) -> None:
    prepared = prepare(Q4, cluster.catalog, user_id=1)
    assert [OIDS[type_] for type_ in prepared.param_types] == [25]
    assert [column.name for column in prepared.columns] == ["buckets"]
    assert cluster.run(Q4, ["default"]) == [([{"tier_name": "default"}],)]


def test_the_sharding_key_of_a_table_can_be_asked(cluster: Cluster) -> None:
    assert cluster.run(Q5, ["t"]) == [
        ({"ShardedImplicitly": [["id"], "murmur3", "default"]}, [{"name": "id"}])
    ]


def test_events_are_pulled_by_position(cluster: Cluster) -> None:
    text = (
        "SELECT term, index, body FROM _cairn_event WHERE (term, index) > ($1, $2) "
        "ORDER BY term, index, n LIMIT 10"
    )
    cluster.put("_cairn_event", [(1, 5, 0, "0.1", "t", "a"), (2, 1, 0, "0.1", "t", "b")])
    assert cluster.run(text, [1, 5]) == [(2, 1, "b")]


def test_json_of_system_tables_can_be_taken_apart(cluster: Cluster) -> None:
    text = "SELECT current_state[1]::text, current_state[2]::int FROM _pico_instance LIMIT 1"
    assert cluster.run(text) == [("Online", 5)]
