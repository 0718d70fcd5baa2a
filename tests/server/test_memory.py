"""What a session keeps is bounded by settings, and what is long is not understood on the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node
from tests.server.raw import Raw, fields, message
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
        assert 20 < [kind for kind, _ in told].count(b"1") < 30  # ParseComplete
        raw.send(message(b"Q", b"DEALLOCATE ALL\0")).until(b"Z")
        raw.send(message(b"P", b"again\0SELECT '%s'\0\0\0" % (b"y" * 50_000)), message(b"S"))
        assert raw.until(b"Z")[0][0] == b"1"


WIDE = b", ".join(b"%d" % at for at in range(1_000))
LONG_NAME = b"n" * 400_000


def parsed(at: int, text: bytes = b"SELECT 1", name: bytes = b"") -> bytes:
    return message(b"P", name + b"%d\0" % at + text + b"\0\0\0")


def bound(at: int, statement: bytes, value: bytes, name: bytes = b"") -> bytes:
    size = len(value).to_bytes(4, "big")
    return message(b"B", name + b"%d\0" % at + statement + b"\0\0\0\0\1" + size + value + b"\0\0")


def asked(text: bytes) -> bytes:
    return message(b"Q", text + b"\0")


def extended(sent: bytes) -> bytes:
    return sent + message(b"S")


KEPT = {
    "plans": lambda at: extended(parsed(at, b"SELECT %d, " % at + WIDE)),
    "names of statements": lambda at: extended(parsed(at, name=LONG_NAME)),
    "names of portals": lambda at: extended(bound(at, b"s", b"1", LONG_NAME)),
    "plans of cursors": lambda at: asked(b"DECLARE c%d CURSOR FOR SELECT %s" % (at, WIDE)),
    "settings": lambda at: asked(b"SET my.own%d = '%s'" % (at, b"x" * 400_000)),
    "reads of a block": lambda at: extended(
        message(b"B", b"\0s\0\0\0\0\1\0\6\x1a\x80" + b"x" * 400_000 + b"\0\0")
        + message(b"E", b"\0\0\0\0\0")
    ),
}


@pytest.mark.parametrize("kind", KEPT)
def test_whatever_a_session_keeps_counts(cluster: Cluster, kind: str) -> None:
    """100,000 statements with plans kept 420 MB, and were counted as a tenth of that."""
    node = cluster["i1"]
    with limits(node, pg_session_bytes_max=5_000_000), Raw(node.pg_port) as raw:
        raw.log_in()
        raw.send(message(b"P", b"s\0SELECT length($1::text)\0\0\0"), message(b"S")).until(b"Z")
        raw.send(asked(b"BEGIN")).until(b"Z")
        for at in range(60):
            raw.send(KEPT[kind](at))
            told = raw.until(b"Z")
            if refused := [fields(body) for tag, body in told if tag == b"E"]:
                break
        assert refused and refused[0]["C"] == "53400", told
        assert 3 <= at <= 30
        raw.send(asked(b"ROLLBACK")).until(b"Z")
        raw.send(asked(b"DISCARD ALL")).until(b"Z")
        raw.send(asked(b"BEGIN")).until(b"Z")
        raw.send(message(b"P", b"s\0SELECT length($1::text)\0\0\0"), message(b"S")).until(b"Z")
        raw.send(KEPT[kind](99))  # what is over makes room
        assert b"E" not in [tag for tag, _ in raw.until(b"Z")]


def test_a_message_on_its_way_counts_from_its_first_bytes_on(cluster: Cluster) -> None:
    node = cluster["i1"]
    with limits(node, pg_session_bytes_max=5_000_000), Raw(node.pg_port) as raw:
        raw.log_in()
        text = b"SELECT length('" + b"x" * 4_000_000 + b"')"
        for _ in range(3):
            raw.send(asked(text))
            assert [tag for tag, _ in raw.until(b"Z")] == [b"T", b"D", b"C", b"Z"]
        raw.send(b"Q" + (6_000_000).to_bytes(4, "big") + b"SELECT")
        [refused] = [fields(body) for tag, body in raw.until(b"never") if tag == b"E"]
        assert refused["C"] == "53400"


def test_all_sessions_of_an_instance_share_what_it_keeps(cluster: Cluster) -> None:
    node = cluster["i1"]
    with (
        users(node, "keeper", "other"),
        limits(node, pg_instance_bytes_max=10_000_000),
        session(node, "keeper") as first,
        session(node, "other") as second,
    ):
        assert opened(first, CURSOR, 6) == 6
        assert opened(second, CURSOR, 40) in range(2, 6)


def test_sessions_of_a_user_keep_the_same_plan_once(cluster: Cluster) -> None:
    """A pool prepares the same statements on every connection."""
    node = cluster["i1"]
    text = b"SELECT 7, " + WIDE  # about 350 KB
    with limits(node, pg_user_bytes_max=2_000_000), ExitStack() as stack:
        pool = [stack.enter_context(Raw(node.pg_port)) for _ in range(10)]
        for raw in pool:
            raw.log_in()
            raw.send(parsed(1, text), message(b"S"))
            assert raw.until(b"Z")[0][0] == b"1"
        for raw in pool[:9]:
            raw.send(message(b"C", b"S1\0"), message(b"S")).until(b"Z")
        told = []
        for at in range(10):  # the one that is left still counts
            pool[0].send(parsed(at + 10, b"SELECT %d, " % at + WIDE), message(b"S"))
            told += pool[0].until(b"Z")
        assert 3 <= [tag for tag, _ in told].count(b"1") <= 5


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
