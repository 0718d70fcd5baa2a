"""A statement can be followed through all instances that take part in it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually
from tests.server.collector import Collector, Told, collecting
from tests.server.test_rules import setting

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
INSERT = "INSERT INTO traced VALUES ($1, $2)"


@pytest.fixture
def collector(cluster: Cluster) -> Iterator[Collector]:
    node = cluster["i1"]
    node.sql("CREATE TABLE traced (id INT PRIMARY KEY, word TEXT) DISTRIBUTED BY (id)")
    with (
        collecting() as (found, address),
        setting(node, "trace_sample_ratio", "1"),
        setting(node, "trace_endpoint", f"'{address}'"),
    ):
        other = cluster["i2"]
        eventually(lambda: other.sql("SHOW trace_endpoint") == [(address,)], "the setting on i2")
        yield found
    node.sql("DROP TABLE traced")
    assert found.problems == []


def tree(spans: list[Told]) -> set[tuple[str, str, str]]:
    """Each span with its instance and the name of the span around it."""
    names = {each.id: each.name for each in spans}
    return {(each.instance, each.name, names.get(each.parent, "")) for each in spans}


def test_an_insert_shows_its_hop_and_its_commit_where_the_row_is(
    cluster: Cluster, collector: Collector
) -> None:
    with cluster["i1"].connect() as connection:
        for number in range(20):
            connection.execute("INSERT INTO traced VALUES (%s, %s)", (number, "secret"))
    hopped = {
        ("i1", "insert", ""),
        ("i1", "ask write_rows", "insert"),
        ("i2", "write_rows", "ask write_rows"),
        ("i2", "write and commit", "write_rows"),
    }
    here = {("i1", "insert", ""), ("i1", "write and commit", "insert")}

    def are_complete() -> bool:
        trees = [tree(spans) for spans in collector.of(INSERT)]
        return len(trees) == 20 and all(each in (hopped, here) for each in trees)

    eventually(are_complete, "all spans of twenty statements")
    assert {len(spans) for spans in collector.of(INSERT)} == {2, 4}  # some here, some there
    for spans in collector.of(INSERT):
        [whole] = [each for each in spans if each.name == "insert"]
        assert whole.attributes == {
            "db.system.name": "cairn",
            "db.query.text": INSERT,
            "user.name": "admin",
            "client.address": "127.0.0.1",
            "db.response.returned_rows": 1,
            "cairn.hops": 1 if len(spans) == 4 else 0,
        }
        assert (whole.kind, whole.error) == (2, "")
        for each in spans:  # one machine, one clock
            assert whole.began <= each.began <= each.ended <= whole.ended


def test_a_wide_read_shows_the_part_of_every_owner(cluster: Cluster, collector: Collector) -> None:
    cluster["i1"].sql("SELECT count(*) FROM traced")
    wanted = {
        ("i1", "select_wide", ""),
        ("i1", "read here", "select_wide"),
        ("i1", "ask read_rows", "select_wide"),
        ("i2", "read_rows", "ask read_rows"),
    }

    def is_complete() -> bool:
        found = collector.of("SELECT count(*) FROM traced")
        return len(found) == 1 and tree(found[0]) == wanted

    eventually(is_complete, "the spans of both owners")


def test_the_trace_of_a_client_goes_on(cluster: Cluster, collector: Collector) -> None:
    with cluster["i1"].connect(cursor_factory=psycopg.ClientCursor) as simple:
        simple.execute(f"SELECT 1 AS a1 FROM traced WHERE id = 1 /*traceparent='{PARENT}'*/")
        simple.execute(f"SELECT 1 AS b1; SELECT 1 AS b2 /*app='x',traceparent='{PARENT}'*/ ;")
        simple.execute(f"SELECT 1 AS c1 /*traceparent='{PARENT}'*/; SELECT 1 AS c2;")
    with cluster["i1"].connect() as extended:
        extended.execute(f"SELECT %s AS d1 /*traceparent='{PARENT}'*/", (1,))
        extended.execute("SELECT %s AS e1", (1,))
        extended.execute(f"SET traceparent = '{PARENT}'")
        extended.execute("SELECT %s AS f1", (1,))
        extended.execute("RESET traceparent")
        extended.execute("SELECT %s AS g1", (1,))

    def told() -> dict[str, bool]:
        """By the name of its column: is it part of the client's trace?"""
        return {
            found[0]: (each.trace, each.parent) == (TRACE, SPAN)
            for each in collector.spans
            if (found := re.findall(r"AS ([a-g][12])\b", each.attributes.get("db.query.text", "")))
        }

    eventually(lambda: "g1" in told(), "the last one")
    assert told() == {
        "a1": True,
        "b1": True,
        "b2": True,
        "d1": True,
        "f1": True,
        "c1": False,
        "c2": False,
        "e1": False,
        "g1": False,  # in the middle: just a comment
    }


def test_texts_that_differ_in_their_trace_only_are_planned_once(
    cluster: Cluster, collector: Collector
) -> None:
    with cluster["i1"].connect() as connection:
        for number in range(30):
            parent = f"00-{TRACE}-{number + 1:016x}-01"
            connection.execute(
                f"SELECT word FROM traced WHERE id = %s /*traceparent='{parent}'*/", (number,)
            )
        [(calls, plans)] = connection.execute(
            "SELECT sum(calls), sum(calls - cache_hits) FROM _cairn_statements "
            "WHERE query = 'SELECT word FROM traced WHERE id = $1'"
        ).fetchall()
    assert (calls, plans) == (30, 1)


def test_a_client_that_is_not_sampled_leaves_no_trace(
    cluster: Cluster, collector: Collector
) -> None:
    with cluster["i1"].connect() as connection:
        for number in range(20):
            text = f"SELECT word FROM traced WHERE id = %s /*traceparent='{PARENT[:-1]}0'*/"
            connection.execute(text, (number,))
        connection.execute("SELECT count(*) FROM traced")
    eventually(lambda: collector.of("SELECT count(*) FROM traced"), "a later statement")
    assert not collector.of("SELECT word FROM traced WHERE id = $1")


def test_a_ratio_of_zero_leaves_only_what_clients_want(
    cluster: Cluster, collector: Collector
) -> None:
    node = cluster["i1"]
    node.sql("ALTER SYSTEM SET trace_sample_ratio = 0")
    with node.connect() as connection:
        connection.execute("SELECT count(*) FROM traced")
        connection.execute(f"SELECT max(id) FROM traced /*traceparent='{PARENT}'*/")
    eventually(lambda: collector.of("SELECT max(id) FROM traced"), "the one that was wanted")
    assert not collector.of("SELECT count(*) FROM traced")


def test_an_error_is_told_by_its_code_and_has_no_values(
    cluster: Cluster, collector: Collector
) -> None:
    node = cluster["i1"]
    node.sql("INSERT INTO traced VALUES (%s, %s)", (1, "x"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        node.sql("INSERT INTO traced VALUES (%s, %s)", (1, "secret"))

    def failed() -> list[Told]:
        return [each for each in collector.spans if each.name == "insert" and each.error]

    eventually(failed, "the span of the error")
    assert [each.error for each in failed()] == ["23505"]
    assert "secret" not in repr(collector.spans)


def test_a_collector_that_never_answers_keeps_nobody_waiting(cluster: Cluster) -> None:
    node = cluster["i1"]
    with socket.socket() as deaf:  # connections come to stand in its line
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with (
            setting(node, "trace_sample_ratio", "1"),
            setting(node, "trace_endpoint", f"'{address}'"),
            node.connect() as connection,
        ):
            connection.execute("SET statement_timeout = '5s'")
            for number in range(1_000):
                assert connection.execute("SELECT %s::int", (number,)).fetchall() == [(number,)]
            assert deaf.accept()  # it was asked


@pytest.mark.parametrize(
    "address",
    [
        "collector:4318",
        "ftp://collector",
        "http://",
        "http://me:pw@collector",
        "http://h:99999",
        "http://h/a b",
    ],
)
def test_an_address_that_is_none_is_refused(cluster: Cluster, address: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="trace_endpoint"):
        cluster["i1"].sql(f"ALTER SYSTEM SET trace_endpoint = '{address}'")


def test_a_ratio_above_one_and_a_parent_that_is_none_are_refused(cluster: Cluster) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="0 to 1"):
        cluster["i1"].sql("ALTER SYSTEM SET trace_sample_ratio = 1.5")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="traceparent"):
        cluster["i1"].sql("SET traceparent = '00-12-34-01'")
