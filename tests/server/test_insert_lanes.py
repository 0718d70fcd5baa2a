"""A new row has a shorter way from the second one on: nobody can tell by answers or by rows."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from cairn.native.library import library
from tests.cluster.harness import PASSWORD, Cluster
from tests.server.raw import Raw, message
from tests.server.test_at_once import (
    BOUND,
    DESCRIBE,
    EXECUTE,
    NO_DATA,
    READY,
    SYNC,
    bind,
    keys_of,
    tag,
    whole,
)
from tests.server.test_lanes import FLUSH, error, parse

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(library() is None, reason="there was no compiler"),
]

INSERT = b"INSERT INTO fresh VALUES ($1, $2, 5)"
QUIET = b"INSERT INTO fresh (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"
DONE = BOUND + tag(b"INSERT 0 1") + READY


@pytest.fixture(scope="module")
def keys(cluster: Cluster) -> Iterator[list[bytes]]:
    """Of rows at the instance that is asked."""
    cluster["i1"].sql(
        "CREATE TABLE fresh (id INT PRIMARY KEY, name TEXT NOT NULL, n INT CHECK (n > 0)) "
        "DISTRIBUTED BY (id)"
    )
    yield keys_of(cluster, "i1", 60)
    cluster["i1"].sql("DROP TABLE fresh")


@pytest.fixture
def raw(keys: list[bytes], cluster: Cluster, port: int) -> Iterator[Raw]:
    """Two statements that have been used: the next row takes the lane."""
    cluster["i1"].sql("DELETE FROM fresh")
    with Raw(port) as made:
        made.log_in()
        for at, (name, text) in enumerate(((b"put", INSERT), (b"quiet", QUIET))):
            parse(made, name, text)
            assert whole(made, put(keys[-1 - at], name=name)) == DONE
        yield made


def put(key: bytes, value: bytes = b"x", described: bytes = b"", name: bytes = b"put") -> bytes:
    return bind(name, key, value) + described + EXECUTE + SYNC


def rows(cluster: Cluster) -> list[tuple[int, str]]:
    """At the master that was asked; the two first ones left out."""
    found = cluster["i1"].sql("SELECT id, name FROM fresh ORDER BY id")
    return [(key, name) for key, name in found][:-2]


def compiled(cluster: Cluster) -> int:
    """How many rows took the lane."""
    address = f"http://127.0.0.1:{cluster['i1'].http_port}/metrics"
    with urllib.request.urlopen(address, timeout=10) as page:
        found = re.search(r"^cairn_writes_compiled_total (\d+)", page.read().decode(), re.M)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("described", [b"", DESCRIBE], ids=["bare", "described"])
def test_rows_are_stored_and_told_as_ever(
    raw: Raw, keys: list[bytes], cluster: Cluster, described: bytes
) -> None:
    before = compiled(cluster)
    told = BOUND + (NO_DATA if described else b"") + tag(b"INSERT 0 1") + READY
    for key in keys[:20]:
        assert whole(raw, put(key, b"row " + key, described)) == told
    assert rows(cluster) == [(int(key), f"row {key.decode()}") for key in keys[:20]]
    assert compiled(cluster) == before + 20


def test_a_row_that_is_there_is_kept_and_not_counted(raw: Raw, keys: list[bytes]) -> None:
    assert whole(raw, put(keys[0], b"one", name=b"quiet")) == DONE
    again = whole(raw, put(keys[0], b"two", name=b"quiet"))
    assert again == BOUND + tag(b"INSERT 0 0") + READY
    assert raw.query(f"SELECT name FROM fresh WHERE id = {keys[0].decode()}")[1][1].endswith(b"one")


def test_what_is_refused_is_told_as_ever_and_leaves_nothing(
    raw: Raw, keys: list[bytes], cluster: Cluster
) -> None:
    assert whole(raw, put(keys[0])) == DONE
    parse(raw, b"judged", b"INSERT INTO fresh VALUES ($1, $2, $3)")
    assert whole(raw, bind(b"judged", keys[1], b"x", b"1"), EXECUTE, SYNC) == DONE
    for request, code in (
        (put(keys[0]), "23505"),
        (bind(b"judged", keys[2], b"x", b"-1") + EXECUTE + SYNC, "23514"),
        (put(b"nonsense"), "22P02"),
        (put(keys[2], b"\xff"), "22021"),
    ):
        assert raw.send(request).until(b"Z") == raw.send(FLUSH, request).until(b"Z")
        assert error(raw.send(request).until(b"Z")) == code
        assert whole(raw, put(keys[3], name=b"quiet")).endswith(READY)  # and the session goes on
    assert len(rows(cluster)) == 3


def test_requests_behind_it_are_answered_in_their_order(
    raw: Raw, keys: list[bytes], cluster: Cluster
) -> None:
    """Also behind one that is refused, in pieces, and while it is on its way to the disk."""
    line = [put(keys[0]), put(keys[0]), put(keys[1]), put(keys[1]), put(keys[2])]
    raw.send(line[0]).send(line[1]).send(line[2])
    raw.send(line[3][:11]).send(line[3][11:], line[4])
    ends = [[kind for kind, _ in raw.until(b"Z")] for _ in line]
    done, refused = [b"2", b"C", b"Z"], [b"2", b"E", b"Z"]
    assert ends == [done, refused, done, refused, done]
    assert len(rows(cluster)) == 3


def test_several_sessions_at_once_share_what_c_knows_of_a_statement(
    raw: Raw, keys: list[bytes], cluster: Cluster, port: int
) -> None:
    others = [Raw(port) for _ in range(4)]
    try:
        for other in others:
            other.log_in()
            parse(other, b"put", INSERT)
        for at in range(0, 40, 4):
            for other, key in zip(others, keys[at : at + 4], strict=True):
                other.send(put(key, b"of " + key))
            for other in others:
                assert other.until(b"Z")[-2] == (b"C", b"INSERT 0 1\0")
    finally:
        for other in others:
            other.socket.close()
    assert rows(cluster) == [(int(key), f"of {key.decode()}") for key in keys[:40]]


def test_a_row_of_another_owner_goes_there(raw: Raw, cluster: Cluster) -> None:
    for key in keys_of(cluster, "i2", 3):
        assert whole(raw, put(key)) == DONE
        assert error(raw.send(put(key)).until(b"Z")) == "23505"


def test_in_a_block_it_is_part_of_the_block(raw: Raw, keys: list[bytes], cluster: Cluster) -> None:
    raw.query("BEGIN")
    assert whole(raw, put(keys[0])).endswith(message(b"Z", b"T"))
    raw.query("ROLLBACK")
    assert rows(cluster) == []


def test_a_changed_table_gets_rows_as_it_is(raw: Raw, keys: list[bytes], cluster: Cluster) -> None:
    assert whole(raw, put(keys[0], name=b"quiet")) == DONE
    cluster["i1"].sql("ALTER TABLE fresh ADD COLUMN more TEXT DEFAULT 'much'")
    try:
        assert whole(raw, put(keys[1], name=b"quiet")) == DONE
        assert whole(raw, put(keys[2], name=b"quiet")) == DONE
        assert cluster["i1"].sql("SELECT DISTINCT more FROM fresh") == [("much",)]
        cluster["i1"].sql("CREATE UNIQUE INDEX fresh_once ON fresh (id, name)")
        assert whole(raw, put(keys[3], name=b"quiet")) == DONE
    finally:
        cluster["i1"].sql("DROP INDEX IF EXISTS fresh_once")
        cluster["i1"].sql("ALTER TABLE fresh DROP COLUMN more")
    assert whole(raw, put(keys[4], name=b"quiet")) == DONE
    assert whole(raw, put(keys[5], name=b"quiet")) == DONE


def test_a_right_that_was_taken_away_is_missed_at_once(
    raw: Raw, keys: list[bytes], cluster: Cluster, port: int
) -> None:
    one = cluster["i1"]
    one.sql(f"CREATE USER lane_writer WITH PASSWORD '{PASSWORD}'")
    one.sql("GRANT INSERT ON TABLE fresh TO lane_writer")
    with Raw(port) as other:
        other.log_in("lane_writer")
        parse(other, b"put", INSERT)
        for key in keys[:3]:
            assert whole(other, put(key)) == DONE
        one.sql("REVOKE INSERT ON TABLE fresh FROM lane_writer")
        assert error(other.send(put(keys[3])).until(b"Z")) == "42501"
    one.sql("DROP USER lane_writer")
    assert len(rows(cluster)) == 3


def test_a_time_limit_takes_the_way_that_watches_the_clock(
    raw: Raw, keys: list[bytes], cluster: Cluster
) -> None:
    before = compiled(cluster)
    raw.query("SET statement_timeout = 5000")
    assert whole(raw, put(keys[0])) == DONE
    assert compiled(cluster) == before
    raw.query("RESET statement_timeout")
    assert whole(raw, put(keys[1])) == DONE
    assert compiled(cluster) == before + 1
