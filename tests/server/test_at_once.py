"""Bind, [Describe,] Execute and Sync of one row: one answer, the same as message by message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import pack

import pytest

from cairn.model.sharding.buckets import bucket_of
from cairn.model.types.values import ColumnType
from tests.cluster.harness import Cluster
from tests.server.raw import Raw, fields, message

pytestmark = pytest.mark.cluster

DESCRIBE = message(b"D", b"P\0")
EXECUTE = message(b"E", b"\0" + pack("!i", 0))
SYNC = message(b"S")
BOUND, NO_DATA, READY = message(b"2"), message(b"n"), message(b"Z", b"I")
INSERT = b"INSERT INTO once VALUES ($1, $2)"
SELECT = b"SELECT name FROM once WHERE id = $1"


def bind(statement: bytes, *values: bytes) -> bytes:
    params = b"".join(pack("!i", len(value)) + value for value in values)
    return message(b"B", b"\0" + statement + pack("!xhh", 0, len(values)) + params + pack("!h", 0))


def tag(text: bytes) -> bytes:
    return message(b"C", text + b"\0")


@pytest.fixture(scope="module")
def table(cluster: Cluster) -> Iterator[Cluster]:
    cluster["i1"].sql("CREATE TABLE once (id INT PRIMARY KEY, name TEXT) DISTRIBUTED BY (id)")
    yield cluster
    cluster["i1"].sql("DROP TABLE once")


@pytest.fixture
def raw(table: Cluster, port: int) -> Iterator[Raw]:
    table["i1"].sql("DELETE FROM once")
    with Raw(port) as made:
        made.log_in()
        for name, text in ((b"put", INSERT), (b"get", SELECT)):
            made.send(message(b"P", name + b"\0" + text + b"\0\0\0"), SYNC).until(b"Z")
        yield made


def whole(raw: Raw, *data: bytes) -> bytes:
    """The answer as one string, up to ReadyForQuery."""
    return b"".join(message(*each) for each in raw.send(*data).until(b"Z"))


def keys_of(cluster: Cluster, name: str, count: int) -> list[bytes]:
    """Keys of rows that live at an instance."""
    [(replicaset,)] = cluster["i1"].sql(
        f"SELECT replicaset_name FROM _pico_instance WHERE name = '{name}'"
    )
    ranges = cluster["i1"].sql(
        "SELECT bucket_id_start, bucket_id_end FROM _pico_bucket "
        f"WHERE current_replicaset_name = '{replicaset}'"
    )
    types = [ColumnType.INTEGER]
    here = (
        str(key).encode()
        for key in range(10_000)
        if any(start <= bucket_of(types, [key]) <= end for start, end in ranges)
    )
    found = list(islice(here, count))
    assert len(found) == count
    return found


@pytest.mark.parametrize("described", [b"", DESCRIBE], ids=["bare", "described"])
def test_rows_here_and_elsewhere_are_written_and_read_alike(raw: Raw, described: bytes) -> None:
    for key in map(str, range(40)):
        row = (key.encode(), b"row " + key.encode())
        answer = whole(raw, bind(b"put", *row), described, EXECUTE, SYNC)
        assert answer == BOUND + (NO_DATA if described else b"") + tag(b"INSERT 0 1") + READY
        read = raw.send(bind(b"get", row[0]), EXECUTE, SYNC).until(b"Z")
        assert [kind for kind, _ in read] == [b"2", b"D", b"C", b"Z"]
        assert read[1][1] == pack("!hi", 1, len(row[1])) + row[1]


@pytest.mark.parametrize("described", [b"", DESCRIBE], ids=["bare", "described"])
def test_a_duplicate_is_an_error_behind_what_went_well(raw: Raw, described: bytes) -> None:
    once = bind(b"put", b"7", b"seven") + described + EXECUTE + SYNC
    whole(raw, once)
    answer = raw.send(once).until(b"Z")
    kinds = [kind for kind, _ in answer]
    assert kinds == [b"2", *([b"n"] if described else []), b"E", b"Z"]
    assert fields(answer[-2][1])["C"] == "23505"
    assert whole(raw, bind(b"put", b"8", b"eight"), EXECUTE, SYNC).endswith(READY)


def test_a_pipeline_is_answered_in_its_order(raw: Raw) -> None:
    steps = []
    for key in (b"1", b"2", b"2", b"3"):
        steps += [bind(b"put", key, b"x"), EXECUTE, SYNC, bind(b"get", key), EXECUTE, SYNC]
    raw.send(*steps)
    kinds = [b"".join(kind for kind, _ in raw.until(b"Z")) for _ in range(8)]
    assert kinds == [b"2CZ", b"2DCZ", b"2CZ", b"2DCZ", b"2EZ", b"2DCZ", b"2CZ", b"2DCZ"]


def test_an_insert_is_answered_in_one_piece(raw: Raw, table: Cluster) -> None:
    """Two pieces would cost a system call at each end of the line."""
    for key in keys_of(table, "i1", 5):
        raw.send(bind(b"put", key, b"x"), DESCRIBE, EXECUTE, SYNC)
        assert raw.socket.recv(65536) == BOUND + NO_DATA + tag(b"INSERT 0 1") + READY


def test_inside_a_block_the_status_is_the_blocks(raw: Raw) -> None:
    raw.query("BEGIN")
    answer = whole(raw, bind(b"put", b"1", b"one"), EXECUTE, SYNC)
    assert answer == BOUND + tag(b"INSERT 0 1") + message(b"Z", b"T")
    raw.query("COMMIT")


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


@pytest.mark.parametrize("where", ["i1", "i2"], ids=["here", "one hop away"])
def test_a_text_of_one_row_is_answered_as_ever(raw: Raw, table: Cluster, where: str) -> None:
    """Such a text needs no task either; what goes wrong ends the text, not the connection."""
    key, other = (each.decode() for each in keys_of(table, where, 2))
    ((oid,),) = table["i1"].sql("SELECT id FROM _pico_table WHERE name = 'once'")
    column = b"name\0" + pack("!IhIhih", oid, 2, 25, -1, -1, 0)
    row = message(b"T", pack("!h", 1) + column)

    def found(value: str) -> bytes:
        return row + message(b"D", pack("!hi", 1, len(value)) + value.encode())

    assert whole(raw, query(f"INSERT INTO once VALUES ({key}, 'a')")) == tag(b"INSERT 0 1") + READY
    asked = query(f"SELECT name FROM once WHERE id = {key}")
    assert whole(raw, asked) == found("a") + tag(b"SELECT 1") + READY
    change = query(f"UPDATE once SET name = name || 'b' WHERE id = {key}")
    assert whole(raw, change) == tag(b"UPDATE 1") + READY
    # Two in one packet are answered in turn.
    assert whole(raw, change, asked) == tag(b"UPDATE 1") + READY
    assert whole(raw) == found("abb") + tag(b"SELECT 1") + READY
    refused, ready = raw.send(query(f"INSERT INTO once VALUES ({key}, 'c')")).until(b"Z")
    assert (fields(refused[1])["C"], message(*ready)) == ("23505", READY)
    # In a block it is part of the block, and of its end.
    in_block, failed = message(b"Z", b"T"), message(b"Z", b"E")
    assert whole(raw, query("BEGIN")) == tag(b"BEGIN") + in_block
    assert whole(raw, change) == tag(b"UPDATE 1") + in_block
    assert whole(raw, asked) == found("abbb") + tag(b"SELECT 1") + in_block
    refused, ready = raw.send(query(f"INSERT INTO once VALUES ({key}, 'c')")).until(b"Z")
    assert (fields(refused[1])["C"], message(*ready)) == ("23505", failed)
    assert whole(raw, query("ROLLBACK")) == tag(b"ROLLBACK") + READY
    assert whole(raw, asked) == found("abb") + tag(b"SELECT 1") + READY
    gone = query(f"DELETE FROM once WHERE id = {other}")
    assert whole(raw, gone) == tag(b"DELETE 0") + READY
