"""What a session keeps is bounded by settings, and what is long is not understood on the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node
from tests.server.raw import Raw, message
from tests.server.test_users import session, users

CURSOR = "DECLARE c{} CURSOR WITH HOLD FOR SELECT repeat('x', 9000) FROM generate_series(1, 100)"
LONG = "DECLARE c{} CURSOR WITH HOLD FOR SELECT repeat('x', 900) FROM generate_series(1, 10000)"


@contextmanager
def limits(node: Node, **settings: int) -> Iterator[None]:
    for name, value in settings.items():
        node.sql(f"ALTER SYSTEM SET {name} = {value}")
    try:
        yield
    finally:
        for name in settings:
            node.sql(f"ALTER SYSTEM RESET {name}")


def opened(connection: psycopg.Connection[object], text: str, most: int) -> int:
    """How many cursors could be opened before one was refused."""
    for at in range(most):
        try:
            connection.execute(text.format(at))
        except psycopg.errors.ConfigurationLimitExceeded:
            return at
    return most


@pytest.mark.parametrize(("text", "expected"), [(CURSOR, range(10, 14)), (LONG, range(2, 3))])
def test_cursors_of_a_session_keep_no_more_than_its_setting(
    cluster: Cluster, text: str, expected: range
) -> None:
    node = cluster["i1"]
    with limits(node, pg_session_bytes_max=12_000_000), node.connect() as connection:
        count = opened(connection, text, 40)
        assert count in expected
        # Those that are closed make room, and those that are open still have their rows.
        connection.execute("CLOSE c0")
        connection.execute(text.format(99))
        assert len(connection.execute("FETCH 100 FROM c1").fetchall()) == 100
        connection.execute("CLOSE ALL")
        assert opened(connection, text, 40) == count


def test_sessions_of_a_user_share_what_the_user_may_keep(cluster: Cluster) -> None:
    node = cluster["i1"]
    with (
        users(node, "keeper", "other"),
        limits(node, pg_user_bytes_max=10_000_000),
        session(node, "other") as other,
    ):
        with session(node, "keeper") as first, session(node, "keeper") as second:
            assert opened(first, CURSOR, 6) == 6
            assert opened(second, CURSOR, 40) in range(2, 6)
            assert opened(other, CURSOR, 6) == 6  # somebody else has their own
        with session(node, "keeper") as third:  # what was kept went with its sessions
            assert opened(third, CURSOR, 6) == 6


def test_portals_and_prepared_statements_count_as_well(cluster: Cluster) -> None:
    node = cluster["i1"]
    value = b"x" * 1_000_000
    with limits(node, pg_session_bytes_max=5_000_000), Raw(node.pg_port) as raw:
        raw.log_in()
        raw.send(message(b"Q", b"BEGIN\0")).until(b"Z")
        raw.send(message(b"P", b"s\0SELECT length($1::text)\0\0\0"))
        for at in range(10):
            head = b"p%d\0s\0\0\0\0\1" % at + len(value).to_bytes(4, "big")
            raw.send(message(b"B", head + value + b"\0\0"))
        raw.send(message(b"S"))
        told = raw.until(b"Z")
        assert [kind for kind, _ in told].count(b"2") == 4  # BindComplete
        assert b"C53400" in next(body for kind, body in told if kind == b"E")
        raw.send(message(b"Q", b"ROLLBACK\0")).until(b"Z")
        for at in range(40):
            raw.send(message(b"P", b"t%d\0SELECT '%s'\0\0\0" % (at, b"y" * 50_000)))
            raw.send(message(b"S"))
        told = [each for _ in range(40) for each in raw.until(b"Z")]
        assert 25 < [kind for kind, _ in told].count(b"1") < 35  # ParseComplete
        raw.send(message(b"Q", b"DEALLOCATE ALL\0")).until(b"Z")
        raw.send(message(b"P", b"again\0SELECT '%s'\0\0\0" % (b"y" * 50_000)), message(b"S"))
        assert raw.until(b"Z")[0][0] == b"1"


def test_a_long_prepared_statement_follows_a_schema_change(cluster: Cluster) -> None:
    """It is understood anew on a thread, and bound as if nothing had happened."""
    node = cluster["i1"]
    node.sql("CREATE TABLE grows (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    many = ", ".join(str(at) for at in range(3_000)).encode()
    try:
        with Raw(node.pg_port) as raw:
            raw.log_in()
            text = b"SELECT count(*) FROM grows WHERE id IN (" + many + b")"
            raw.send(message(b"P", b"long\0" + text + b"\0\0\0"), message(b"S")).until(b"Z")
            node.sql("ALTER TABLE grows ADD COLUMN w INT")
            bound = message(b"B", b"\0long\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")
            raw.send(bound * 2, message(b"S"))
            assert [kind for kind, _ in raw.until(b"Z")] == [b"2", b"D", b"C"] * 2 + [b"Z"]
    finally:
        node.sql("DROP TABLE grows")
