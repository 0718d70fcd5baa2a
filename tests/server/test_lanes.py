"""A row by its key has a shorter way from its second reading on: nobody can tell by the answer."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

import pytest

from tests.cluster.harness import PASSWORD, Cluster
from tests.server.raw import Raw, fields, message
from tests.server.test_at_once import DESCRIBE, EXECUTE, READY, SYNC, bind, keys_of, whole

pytestmark = pytest.mark.cluster

FLUSH = message(b"H")  # in front of a request: it takes the ordinary way
SELECT = b"SELECT id, name, x FROM lane WHERE id = $1"


@pytest.fixture(scope="module")
def key(cluster: Cluster) -> Iterator[bytes]:
    """Of a row at the instance that is asked."""
    one = cluster["i1"]
    one.sql("CREATE TABLE lane (id INT PRIMARY KEY, name TEXT, x DOUBLE) DISTRIBUTED BY (id)")
    found = keys_of(cluster, "i1", 1)[0]
    one.sql(f"INSERT INTO lane VALUES ({found.decode()}, 'first', 0.5)")
    yield found
    one.sql("DROP TABLE lane")


@pytest.fixture
def raw(key: bytes, port: int) -> Iterator[Raw]:
    with Raw(port) as made:
        made.log_in()
        parse(made, b"get", SELECT)
        yield made


def parse(raw: Raw, name: bytes, text: bytes) -> None:
    raw.send(message(b"P", name + b"\0" + text + b"\0\0\0"), SYNC).until(b"Z")


def asked(key: bytes, described: bytes = b"", name: bytes = b"get") -> bytes:
    return bind(name, key) + described + EXECUTE + SYNC


def error(answer: list[tuple[bytes, bytes]]) -> str:
    return next(fields(body)["C"] for kind, body in answer if kind == b"E")


@pytest.mark.parametrize("described", [b"", DESCRIBE], ids=["bare", "described"])
def test_it_is_told_the_same_each_time(raw: Raw, key: bytes, described: bytes) -> None:
    ordinary = whole(raw, FLUSH, asked(key, described))
    assert [whole(raw, asked(key, described)) for _ in range(4)] == [ordinary] * 4


def test_a_row_that_is_elsewhere_or_nowhere_is_found_as_ever(
    raw: Raw, key: bytes, cluster: Cluster
) -> None:
    for _ in range(3):
        whole(raw, asked(key))
    for other in (*keys_of(cluster, "i2", 2), b"-7", b"x", b"99999999999999999999"):
        assert raw.send(asked(other)).until(b"Z") == raw.send(FLUSH, asked(other)).until(b"Z")


def test_what_was_written_since_is_told(raw: Raw, key: bytes, cluster: Cluster) -> None:
    for name in ("second", "third", "first"):
        cluster["i1"].sql(f"UPDATE lane SET name = '{name}' WHERE id = {key.decode()}")
        assert name.encode() in whole(raw, asked(key))
        assert name.encode() in whole(raw, asked(key))


def test_requests_in_pieces_and_in_a_row_are_answered_in_their_order(raw: Raw, key: bytes) -> None:
    one = whole(raw, asked(key))
    assert whole(raw, asked(key)) == one
    raw.send(asked(key)[:9]).send(asked(key)[9:], asked(key), asked(key)[:30])
    raw.send(asked(key)[30:])
    got = b"".join(message(*each) for _ in range(3) for each in raw.until(b"Z"))
    assert got == one * 3


def test_in_a_block_the_status_is_the_blocks_and_its_own_writes_are_seen(
    raw: Raw, key: bytes
) -> None:
    whole(raw, asked(key))
    whole(raw, asked(key))
    raw.query("BEGIN")
    raw.query(f"UPDATE lane SET name = 'mine' WHERE id = {key.decode()}")
    answer = whole(raw, asked(key))
    assert b"mine" in answer and answer.endswith(message(b"Z", b"T"))
    raw.query("ROLLBACK")
    answer = whole(raw, asked(key))
    assert b"first" in answer and answer.endswith(READY)


def test_a_failed_block_answers_nothing(raw: Raw, key: bytes) -> None:
    whole(raw, asked(key))
    whole(raw, asked(key))
    raw.query("BEGIN")
    raw.query("SELECT 1 / 0")
    assert error(raw.send(asked(key)).until(b"Z")) == "25P02"
    raw.query("ROLLBACK")
    assert whole(raw, asked(key)).endswith(READY)


def test_another_statement_of_the_same_name_has_its_own_answer(raw: Raw, key: bytes) -> None:
    for _ in range(3):
        whole(raw, asked(key))
    raw.query("DEALLOCATE get")
    assert error(raw.send(asked(key)).until(b"Z")) == "26000"
    parse(raw, b"get", b"SELECT 'other', id FROM lane WHERE id = $1")
    for _ in range(3):
        assert b"other" in whole(raw, asked(key))


def test_a_changed_table_is_read_as_it_is(raw: Raw, key: bytes, cluster: Cluster) -> None:
    parse(raw, b"all", b"SELECT * FROM lane WHERE id = $1")
    for _ in range(3):
        whole(raw, asked(key, name=b"all"))
    cluster["i1"].sql("ALTER TABLE lane ADD COLUMN more TEXT")
    assert whole(raw, asked(key, name=b"all")) == whole(raw, FLUSH, asked(key, name=b"all"))
    cluster["i1"].sql(f"UPDATE lane SET more = 'new' WHERE id = {key.decode()}")
    whole(raw, asked(key))
    assert b"first" in whole(raw, asked(key))


def test_a_limit_and_a_preference_of_the_session_are_obeyed(raw: Raw, key: bytes) -> None:
    whole(raw, asked(key))
    whole(raw, asked(key))
    raw.query("SET sql_vdbe_opcode_max = 1")
    assert error(raw.send(asked(key)).until(b"Z")) == "54000"
    raw.query("RESET sql_vdbe_opcode_max")
    assert whole(raw, asked(key)).endswith(READY)


def test_a_right_that_was_taken_away_is_missed_at_once(
    key: bytes, cluster: Cluster, port: int
) -> None:
    one = cluster["i1"]
    one.sql(f"CREATE USER lane_reader WITH PASSWORD '{PASSWORD}'")
    one.sql("GRANT READ ON TABLE lane TO lane_reader")
    with Raw(port) as raw:
        raw.log_in("lane_reader")
        parse(raw, b"get", SELECT)
        for _ in range(3):
            assert b"first" in whole(raw, asked(key))
        one.sql("REVOKE READ ON TABLE lane FROM lane_reader")
        assert error(raw.send(asked(key)).until(b"Z")) == "42501"
    one.sql("DROP USER lane_reader")


def test_it_is_counted_like_any_other(raw: Raw, key: bytes, cluster: Cluster) -> None:
    parse(raw, b"counted", b"SELECT x FROM lane WHERE id = $1 AND id > -5")
    for _ in range(7):
        whole(raw, bind(b"counted", key), EXECUTE, SYNC)
    rows = cluster["i1"].sql(
        "SELECT calls, rows FROM _cairn_statements WHERE query LIKE '%> -5%' OR query LIKE '%id >%'"
    )
    assert (7, 7) in [tuple(map(int, row)) for row in rows]


def test_binary_values_are_told_alike(raw: Raw, key: bytes) -> None:
    body = b"\0get\0" + pack("!hhh", 1, 1, 1) + pack("!iq", 8, int(key)) + pack("!hh", 1, 1)
    request = message(b"B", body) + DESCRIBE + EXECUTE + SYNC
    ordinary = whole(raw, FLUSH, request)
    # The type of a parameter is what the statement says: eight bytes.
    assert [whole(raw, request) for _ in range(3)] == [ordinary] * 3
    assert pack("!iq", 8, int(key)) in ordinary
