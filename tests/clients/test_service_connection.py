"""The smart-client protocol of a real server, byte by byte: snapshot, events, resume, metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from struct import pack
from typing import Any

import pytest

from tests.cluster.as_peer import AsPeer
from tests.cluster.harness import Cluster, Node, eventually
from tests.server.raw import Raw, fields, message, startup_packet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SEED_FIELDS = {
    "replicaset": {"op", "map", "timestamp", "raft", "replicaset_uuid", "current_master_uuid"},
    "instance": {
        *("op", "map", "timestamp", "raft", "tier", "replicaset_uuid", "instance_uuid"),
        *("current_state", "address"),
    },
    "bucket": {
        *("op", "map", "timestamp", "raft", "tier", "state", "bucket_id"),
        "current_replicaset_uuid",
    },
}


class Service(Raw):
    """A service connection: what came before ReadyForQuery, and what comes after."""

    def __init__(self, node: Node, **keys: str) -> None:
        super().__init__(node.pg_port)
        self.opening: list[dict[str, Any]] = []
        self.log_in(**keys)

    def until(self, *kinds: bytes) -> list[tuple[bytes, bytes]]:
        found = super().until(*kinds)
        self.opening += [json.loads(fields(body)["M"]) for kind, body in found if kind == b"N"]
        return found

    def next_event(self) -> dict[str, Any]:
        while True:
            kind, body = self.read()
            assert kind == b"N", (kind, body)
            told = fields(body)
            assert (told["S"], told["C"]) == ("NOTICE", "00000")
            event: dict[str, Any] = json.loads(told["M"])
            if event["map"] != "heartbeat":
                return event


@pytest.mark.parametrize(
    "keys",
    [
        {"smart_connector": "0.1"},
        {"options": "smart_connector=0.1"},
        {"options": "application_name=x,smart_connector=0.1"},
        {"options": "-c smart_connector=0.1"},
        {"_pq_.smart_connector": "0.1"},
        {"picodata_catalog_cdc": "1"},
    ],
    ids=lambda keys: next(f"{name}={value}" for name, value in keys.items()),
)
def test_the_0_1_snapshot_is_the_seeds_to_the_letter(
    cluster: Cluster, keys: dict[str, str]
) -> None:
    with Service(cluster["i1"], **keys) as service:
        events = service.opening
    order = ["replicaset", "instance", "bucket"]
    maps = [event["map"] for event in events]
    assert maps == sorted(maps, key=order.index) and set(maps) == set(order)
    assert len({json.dumps(event["raft"]) for event in events}) == 1
    for event in events:
        assert set(event) == SEED_FIELDS[event["map"]] and event["op"] == "replace"
        assert event["timestamp"].endswith("+00:00")
    buckets = [event for event in events if event["map"] == "bucket"]
    ids = sorted((event["bucket_id"]["start"], event["bucket_id"]["end"]) for event in buckets)
    assert ids[0][0] == 1 and ids[-1][1] == 3000
    assert all(left[1] + 1 == right[0] for left, right in pairwise(ids))
    assert {event["state"] for event in buckets} == {"active"}


@pytest.mark.parametrize(
    "keys",
    [
        {"smart_connector": "7.0"},
        {"smart_connector": ""},
        {"options": "smart_connector="},
        {"options": "smart_connector"},
        {"_pq_.smart_connector": "0"},
    ],
)
def test_a_version_that_is_not_spoken_is_refused_with_those_that_are(
    cluster: Cluster, keys: dict[str, str]
) -> None:
    """A user who forgot it would wait for notices that never come."""
    with Raw(cluster["i1"].pg_port) as raw:
        raw.send(startup_packet(user="admin", **keys))
        with pytest.raises(AssertionError) as caught:
            raw.answer_scram()
        told = caught.value.args[0]
        assert (told["S"], told["C"]) == ("FATAL", "22023")
        assert told["H"] == "write smart_connector=0.1 or 0.2"


@contextmanager
def moved_address(cluster: Cluster, to: str) -> Iterator[dict[str, Any]]:
    """i3's address is told to be another one, and then what it was."""
    node = cluster["i1"]
    ((uuid, raft_id),) = node.sql("SELECT uuid, raft_id FROM _pico_instance WHERE name = 'i3'")
    where = (raft_id, "pgproto")
    query = "SELECT address FROM _pico_peer_address WHERE raft_id = %s AND connection_type = %s"
    ((was,),) = node.sql(query, where)
    as_peer = AsPeer([each.peer for each in cluster.nodes.values()], cluster.name)
    as_peer.set_address(raft_id, to)
    try:
        yield {"op": "replace", "map": "instance", "instance_uuid": uuid, "address": to}
    finally:
        as_peer.set_address(raft_id, was)


def test_a_change_is_told_everywhere_with_only_what_changed(cluster: Cluster) -> None:
    services = [Service(cluster[name], smart_connector="0.1") for name in ("i1", "i2", "i3")]
    newer = Service(cluster["i2"], smart_connector="0.2")
    with moved_address(cluster, "127.0.0.1:1") as expected:
        positions = set()
        for service in services:
            event = service.next_event()
            assert event.pop("timestamp")
            positions.add(json.dumps(event.pop("raft")))
            assert event == expected
        event = newer.next_event()
        assert (event.pop("n"), event.pop("last")) == (1, True)
        positions.add(json.dumps(event.pop("raft")))
        assert len(positions) == 1
    for service in (*services, newer):
        service.socket.close()


def test_0_2_says_hello_and_marks_its_end(cluster: Cluster) -> None:
    with Service(cluster["i1"], smart_connector="0.2") as service:
        first, *_, last = service.opening
        assert (first["map"], first["version"]) == ("hello", "0.2")
        assert first["tiers"] == [{"name": "default", "bucket_count": 3000, "hash_version": 2}]
        assert (last["map"], last["reset"]) == ("snapshot_end", True)
        kind, body = service.read()
        assert kind == b"N" and json.loads(fields(body)["M"])["map"] == "heartbeat"


def test_a_client_that_comes_back_is_told_only_what_it_missed(cluster: Cluster) -> None:
    with Service(cluster["i1"], smart_connector="0.2") as service:
        raft = service.opening[-1]["raft"]
    after = f"{raft['term']}:{raft['index']}"
    with moved_address(cluster, "127.0.0.1:2") as expected:
        keys = {"smart_connector": "0.2", "smart_connector_after": after}
        told = eventually(lambda: missed(cluster["i2"], keys), "the event at i2")
        assert [event["map"] for event in told] == ["hello", "instance", "snapshot_end"]
        assert expected.items() <= told[1].items() and told[2]["reset"] is False
    ahead = {"smart_connector": "0.2", "smart_connector_after": f"{raft['term']}:99999999"}
    with pytest.raises(AssertionError) as caught:
        Service(cluster["i1"], **ahead)
    assert caught.value.args[0]["C"] == "PC005"


def missed(node: Node, keys: dict[str, str]) -> list[dict[str, Any]]:
    with Service(node, **keys) as service:
        return service.opening if len(service.opening) > 2 else []


def test_subscribers_are_seen_with_how_far_they_were_told(cluster: Cluster) -> None:
    with Service(cluster["i1"], smart_connector="0.2"):
        ((seen,),) = cluster["i1"].sql("CALL cairn_subscribers()")
        mine = seen[-1]
        assert (mine["user"], mine["version"], mine["lag"]) == ("admin", "0.2", 0)
        assert {"pid", "term", "index", "unsent_bytes", "events_sent"} <= set(mine)
    eventually(
        lambda: mine["pid"] not in {each["pid"] for each in subscribers(cluster)}, "it is gone"
    )


def subscribers(cluster: Cluster) -> list[dict[str, Any]]:
    ((found,),) = cluster["i1"].sql("CALL cairn_subscribers()")
    return list(found)


# --- query metadata and invalidation --------------------------------------------------------------


def parse(name: bytes, text: str) -> bytes:
    return message(b"P", name + b"\0" + text.encode() + b"\0\0\0")


def run(name: bytes) -> bytes:
    bind = message(b"B", b"\0" + name + b"\0\0\0\0\0\0\0")
    return bind + message(b"E", b"\0" + pack("!I", 0)) + message(b"S")


def kinds(raw: Raw, *data: bytes) -> list[bytes]:
    return [kind for kind, _ in raw.send(*data).until(b"Z")]


SYNC = message(b"S")


def test_metadata_comes_before_parse_complete_and_only_when_asked_for(
    cluster: Cluster, fresh: str
) -> None:
    text = f"INSERT INTO {fresh} (name, id) VALUES ($1, $2)"
    with Raw(cluster["i1"].pg_port).log_in() as plain:
        assert kinds(plain, parse(b"s", text), SYNC) == [b"1", b"Z"]
    for key in ("picodata_stmt_invalidation", "pico_query_metadata"):
        with Raw(cluster["i1"].pg_port).log_in(**{key: "true"}) as raw:
            notice, *rest = raw.send(parse(b"s", text), SYNC).until(b"Z")
            assert [kind for kind, _ in rest] == [b"1", b"Z"]
            assert json.loads(fields(notice[1])["M"]) == {
                "type": "PreparedStatementMetadata",
                "query": text,
                "tier": "default",
                "dk_cols": [1],
                "dk_meta": [[2, 20]],
                "hash_version": 2,
            }


def test_a_stale_statement_is_refused_at_bind_for_those_who_asked(
    cluster: Cluster, fresh: str
) -> None:
    text = f"SELECT id FROM {fresh}"
    with (
        Raw(cluster["i1"].pg_port).log_in(picodata_stmt_invalidation="true") as smart,
        Raw(cluster["i1"].pg_port).log_in() as plain,
    ):
        for raw in (smart, plain):
            kinds(raw, parse(b"s", text), parse(b"all", f"SELECT * FROM {fresh}"), SYNC)
        cluster["i1"].sql(f"ALTER TABLE {fresh} ADD COLUMN more INTEGER WAIT APPLIED GLOBALLY")
        answer = smart.send(run(b"s")).until(b"Z")
        assert [kind for kind, _ in answer] == [b"E", b"Z"]  # no BindComplete before it
        told = fields(answer[0][1])
        assert told["C"] == "42999"
        assert told["M"] == "prepared statement has been invalidated, reprepare is required"
        assert kinds(plain, run(b"s")) == [b"2", b"C", b"Z"]  # planned anew, quietly
        answer = plain.send(run(b"all")).until(b"Z")  # but it has another column now
        assert fields(answer[0][1])["M"] == "cached plan must not change result type"


SEED_UNBOUNDED: list[tuple[list[str], list[str]]] = [
    (
        ["CREATE TABLE foo(a INT PRIMARY KEY, b TEXT) USING MEMTX DISTRIBUTED BY (a);"],
        ["SELECT * from foo;", "UPDATE foo SET b = $1::text;"],
    ),
    (
        ["CREATE TABLE foo(a INT PRIMARY KEY, b INT, c DECIMAL) USING MEMTX DISTRIBUTED BY (a,b);"],
        ["SELECT a,b FROM foo WHERE a = $1::integer;"],
    ),
    (
        [
            "CREATE TABLE foo(a INT PRIMARY KEY, b TEXT) USING MEMTX DISTRIBUTED BY (a);",
            "CREATE TABLE bar(b TEXT PRIMARY KEY, c DOUBLE) USING MEMTX DISTRIBUTED BY (b);",
        ],
        ["SELECT foo.a, foo.b FROM foo JOIN bar ON foo.b = bar.b;"],
    ),
    (
        [
            "CREATE TABLE foo(a INT PRIMARY KEY, b TEXT) USING MEMTX DISTRIBUTED BY (a);",
            "CREATE TABLE bar(b INT PRIMARY KEY, c double) USING MEMTX DISTRIBUTED BY (b);",
        ],
        [
            "INSERT INTO foo (a,b) VALUES ((SELECT cast(max(c) AS INT) FROM bar WHERE b > "
            "$1::integer), $2::text);",
            "SELECT a FROM foo WHERE a > (SELECT cast(max(c) AS INT) FROM bar WHERE b > "
            "$1::integer);",
        ],
    ),
]


@pytest.mark.parametrize(
    ("tables", "statements"),
    SEED_UNBOUNDED,
    ids=["no filter", "half a key", "distributed join", "subquery"],
)
def test_the_seeds_unbounded_queries_verbatim(
    cluster: Cluster, tables: list[str], statements: list[str]
) -> None:
    node = cluster["i1"]
    for name in ("foo", "bar"):
        node.sql(f"DROP TABLE IF EXISTS {name}")
    for text in tables:
        node.sql(text)
    try:
        with Raw(node.pg_port).log_in(picodata_stmt_invalidation="true") as raw:
            for text in statements:
                notice, (parsed, _), _ = raw.send(parse(b"", text), SYNC).until(b"Z")
                told = json.loads(fields(notice[1])["M"])
                assert parsed == b"1" and told["query"] == text
                assert (told["dk_cols"], told["dk_meta"]) == ([], [])
    finally:
        for name in ("foo", "bar"):
            node.sql(f"DROP TABLE IF EXISTS {name}")
