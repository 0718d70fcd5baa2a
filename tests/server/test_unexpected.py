"""What nobody foresaw ends a statement: the instance, its sessions and their rows go on."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster.harness import Cluster

#: Values that a function of SQL refuses when it sees them.
BAD = ('{"name":"\\ud800"}', '{"name":"\\u0000"}', "[" * 3_000, "no json")


@pytest.fixture
def docs(cluster: Cluster) -> Iterator[Cluster]:
    node = cluster["i1"]
    node.sql("CREATE TABLE docs (id INT PRIMARY KEY, d TEXT, n INT) DISTRIBUTED BY (id)")
    yield cluster
    node.sql("DROP TABLE docs")


def test_a_stored_value_that_a_function_refuses_ends_no_instance(docs: Cluster) -> None:
    pids = [node.child_pid for node in docs.nodes.values()]
    with docs["i1"].connect() as connection:
        for at in range(32):  # some on each replicaset
            connection.execute("INSERT INTO docs VALUES (%s, %s, 0)", (at, BAD[at % len(BAD)]))
        for text in (
            "SELECT d::json ->> 'name' FROM docs",
            "SELECT d::json ->> 'name' FROM docs WHERE id = {at}",
            "SELECT count(*) FROM docs WHERE d::json ->> 'name' = 'x'",
            "SELECT make_date(9223372036854775807, id, 1) FROM docs WHERE id = {at}",
            "SELECT id FROM docs WHERE d ~ repeat('(', id + 1)",
            "UPDATE docs SET d = d::json ->> 'name' WHERE id = {at}",
            "UPDATE docs SET d = chr(55296) WHERE id = {at}",
            "UPDATE docs SET n = 9223372036854775807 + id + 1",
            "INSERT INTO docs SELECT id + 100, d::json ->> 'name', 0 FROM docs",
            "DELETE FROM docs WHERE id = {at} AND d::json ->> 'name' = 'x'",
        ):
            for at in range(1, 9):
                with pytest.raises(psycopg.Error) as refused:
                    connection.execute(text.replace("{at}", str(at)))
                assert refused.value.sqlstate != "XX000", (text, refused.value)
        assert connection.execute("SELECT count(*), sum(n) FROM docs").fetchone() == (32, 0)
    assert [node.child_pid for node in docs.nodes.values()] == pids
