"""Streams of global tables: Raft positions, any instance tells the same, nothing is invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark import cluster
from cairn.spark.options import read_options
from cairn.spark.plainly import CairnSparkError
from cairn.spark.streams.global_stream import GlobalStream
from cairn.spark.streams.streams import GLOBAL_ROWS

Told = list[tuple[str, Any]]
Make = Callable[..., GlobalStream]


@pytest.fixture
def stream(dsn: str) -> Make:
    """The source itself, without the machinery of a query around it."""
    from pyspark.sql.types import _parse_datatype_string

    def make(table: str, **options: str) -> GlobalStream:
        given = {"dsn": dsn, "stream": f"table:{table}", **options}
        return GlobalStream(read_options(given), table, _parse_datatype_string(GLOBAL_ROWS))

    return make


@pytest.fixture
def name(pool: SyncPool, request: pytest.FixtureRequest) -> Any:
    made = f"g{abs(hash(request.node.nodeid)) % 10**8}"
    pool.execute(f"CREATE TABLE {made} (id INTEGER PRIMARY KEY, s TEXT) DISTRIBUTED GLOBALLY")
    yield made
    pool.execute(f"DROP TABLE {made}")


def told(source: GlobalStream, start: Any, end: Any) -> Told:
    return [
        (row["op"], json.loads(row["new"] or row["old"] or "null"))
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def everything(source: GlobalStream, start: Any) -> Told:
    return told(source, start, source.latestOffset(start, source.getDefaultReadLimit()))


def test_a_query_tells_each_change_once_and_goes_on_where_it_was(
    run: Callable[..., list[Any]], pool: SyncPool, name: str
) -> None:
    pool.execute(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    pool.execute(f"UPDATE {name} SET s = 'c' WHERE id = 1")
    first = [row for batch in run(f"table:{name}", maxRowsPerTrigger=2) for row in batch]
    assert [(row.op, row.key, row.n) for row in first[:2]] == [
        ("insert", '{"id": 1}', 1), ("insert", '{"id": 2}', 2),
    ]  # fmt: skip
    [update] = first[2:]
    assert (json.loads(update.old), json.loads(update.new)) == (
        {"id": 1, "s": "a"}, {"id": 1, "s": "c"},
    )  # fmt: skip
    assert update["index"] > first[0]["index"] and update.timestamp is not None
    pool.execute(f"DELETE FROM {name} WHERE id = 2")
    [[again]] = run(f"table:{name}")
    assert (again.op, json.loads(again.old)) == ("delete", {"id": 2, "s": "b"})


def test_what_is_told_leads_to_what_a_system_table_has(
    stream: Make, pool: SyncPool, name: str
) -> None:
    """The history of the governor's queue from the first entry: a table was made just now."""
    source = stream("_pico_governor_queue")
    rows: dict[int, Any] = {}
    for op, row in everything(source, source.initialOffset()):
        rows[row["id"]] = None if op == "delete" else row
    queue = pool.fetch("SELECT id, status, op_format FROM _pico_governor_queue ORDER BY id")
    assert queue and queue == [
        (row["id"], row["status"], row["op_format"]) for _, row in sorted(rows.items()) if row
    ]


def test_a_snapshot_is_told_as_it_was_however_late(stream: Make, pool: SyncPool, name: str) -> None:
    pool.execute(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    source = stream(name, startingOffset="snapshot")
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    pool.execute(f"UPDATE {name} SET s = 'z' WHERE id = 1")
    pool.execute(f"DELETE FROM {name} WHERE id = 2")
    pool.execute(f"INSERT INTO {name} VALUES (3, 'c')")
    rows = sorted(told(source, start, end), key=str)
    assert rows == [("snapshot", {"id": 1, "s": "a"}), ("snapshot", {"id": 2, "s": "b"})]
    assert [op for op, _ in everything(source, end)] == ["update", "delete", "insert"]


def test_every_instance_tells_the_same(dsn: str, pool: SyncPool, name: str) -> None:
    pool.execute(f"INSERT INTO {name} VALUES (1, 'a')")
    pool.execute(f"TRUNCATE {name}")
    pool.execute(f"INSERT INTO {name} VALUES (1, 'b')")
    last = cluster.call(dsn, f"CALL cairn_changes('{name}')")["last"][1]
    told = []
    for each in pool.topology.online():
        answer = cluster.call(dsn, f"CALL cairn_changes('{name}', 0, 100)", each.address)
        told.append([change for change in answer["changes"] if change["index"] <= last])
    assert [change["op"] for change in told[0]] == ["insert", "truncate", "insert"]
    assert len(told) == 2 and told[0] == told[1]


def test_a_history_that_is_gone_is_said_or_replaced_by_a_snapshot(
    stream: Make, pool: SyncPool, name: str
) -> None:
    source = stream(name)
    start = source.initialOffset()
    pool.execute("ALTER SYSTEM SET global_log_max = 10")
    try:
        values = ", ".join(f"({at}, 'x')" for at in range(1100))  # pruned after every thousand
        pool.execute(f"INSERT INTO {name} VALUES {values}")
        pool.execute(f"DELETE FROM {name} WHERE id >= 3")
    finally:
        pool.execute("ALTER SYSTEM SET global_log_max = 100000")
    with pytest.raises(CairnSparkError, match=r"\[PC005\] the history of .* begins after entry"):
        source.latestOffset(start, source.getDefaultReadLimit())
    patient = stream(name, failOnDataLoss="false")
    rows = everything(patient, start)
    assert rows[0] == ("reset", None)
    assert sorted(row["id"] for _, row in rows[1:]) == [0, 1, 2]


def test_who_may_not_read_the_table_is_told_nothing(
    stream: Make, pool: SyncPool, name: str, demo: dict[str, Any]
) -> None:
    user = f"u_{name}"
    pool.execute(f"CREATE USER {user} WITH PASSWORD 'Sesame123'")
    try:
        hosts = demo["dsns"].rpartition("@")[2]
        with pytest.raises(Exception, match="denied"):
            cluster.call(
                f"postgresql://{user}:Sesame123@{hosts}", f"CALL cairn_changes('{name}', 0, 9)"
            )
    finally:
        pool.execute(f"DROP USER {user}")


def test_a_copy_of_a_checkpoint_is_refused_by_another_cluster(stream: Make, name: str) -> None:
    source = stream(name)
    foreign = {**source.initialOffset(), "cluster": "another"}
    with pytest.raises(CairnSparkError, match="belongs to cluster another"):
        source.latestOffset(foreign, source.getDefaultReadLimit())
