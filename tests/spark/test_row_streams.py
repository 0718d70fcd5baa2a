"""Streams of a table: where they begin, what becomes of a lost position, order across owners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.spark import cluster
from cairn.spark.options import read_options
from cairn.spark.streams.row_stream import RowStream
from cairn.spark.streams.streams import ROWS
from tests.cluster.harness import eventually

Run = Callable[..., list[Any]]
COLUMNS = "id INTEGER PRIMARY KEY, s TEXT"


@pytest.fixture
def shorten_log(pool: SyncPool) -> Iterator[Callable[[], None]]:
    def shorten() -> None:
        pool.execute("ALTER SYSTEM SET row_log_max = 5")

    yield shorten
    pool.execute("ALTER SYSTEM SET row_log_max = 1000000")


@pytest.fixture
def stream(spark: Any, dsn: str) -> Callable[..., RowStream]:
    """The source itself, without the machinery of a query around it."""
    from pyspark.sql.types import _parse_datatype_string

    def make(table: str, **options: str) -> RowStream:
        given = {"dsn": dsn, "stream": f"table:{table}", **options}
        return RowStream(read_options(given), table, _parse_datatype_string(ROWS))

    return make


def told(source: RowStream, start: Any, end: Any) -> list[tuple[str, Any]]:
    """(op, row) of all partitions of a micro-batch."""
    return [
        (row["op"], json.loads(row["new"] or row["old"] or "null"))
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def insert(pool: SyncPool, table: str, numbers: range) -> None:
    pool.executemany(f"INSERT INTO {table} VALUES ($1, $2)", [(i, f"s{i}") for i in numbers])


def rows(numbers: Any, word: str = "s") -> list[dict[str, Any]]:
    return [{"id": i, "s": f"{word}{i}"} for i in numbers]


def only(changes: list[tuple[str, Any]], op: str) -> list[Any]:
    return sorted((row for each, row in changes if each == op), key=lambda row: row["id"])


def everything(source: RowStream) -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return lambda start: source.latestOffset(start, ReadAllAvailable())


def test_a_snapshot_is_told_and_then_the_changes_after_it(
    run: Run, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table(COLUMNS)
    insert(pool, name, range(50))
    pool.execute(f"DELETE FROM {name} WHERE id < 10")
    first = [row for batch in run(f"table:{name}", startingOffset="snapshot") for row in batch]
    assert {row.op for row in first} == {"snapshot"}
    assert sorted(json.loads(row.new)["id"] for row in first) == [*range(10, 50)]
    insert(pool, name, range(50, 60))
    later = [row for batch in run(f"table:{name}", startingOffset="snapshot") for row in batch]
    assert sorted((row.op, json.loads(row.new)["id"]) for row in later) == [
        ("insert", number) for number in range(50, 60)
    ]


def test_a_snapshot_is_the_same_however_late_it_is_read(
    stream: Callable[..., RowStream], pool: SyncPool, table: Callable[[str], str]
) -> None:
    """What was changed after the cut is told as a change, never as part of the snapshot."""
    name = table(COLUMNS)
    insert(pool, name, range(30))
    source = stream(name, startingOffset="snapshot")
    latest = everything(source)
    start = source.initialOffset()
    cut = latest(start)
    pool.execute(f"UPDATE {name} SET s = 'new' WHERE id = 3")
    pool.execute(f"UPDATE {name} SET s = 'newer' WHERE id = 3")
    pool.execute(f"DELETE FROM {name} WHERE id = 4")
    insert(pool, name, range(30, 33))
    for _ in range(2):  # a restart asks for the same micro-batch once more
        assert only(told(source, start, cut), "snapshot") == rows(range(30))
    after = told(source, cut, latest(cut))
    assert only(after, "insert") == rows(range(30, 33))
    assert only(after, "delete") == rows([4])
    assert [row["s"] for op, row in after if op == "update"] == ["new", "newer"]


@pytest.mark.parametrize(("start", "wanted"), [("earliest", 20), ("latest", 0)])
def test_a_table_stream_starts_where_it_is_told(
    run: Run, pool: SyncPool, table: Callable[[str], str], start: str, wanted: int
) -> None:
    name = table(COLUMNS)
    insert(pool, name, range(20))
    assert sum(map(len, run(f"table:{name}", start, startingOffset=start))) == wanted


def test_a_table_stream_starts_at_a_position(
    run: Run, stream: Callable[..., RowStream], pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table(COLUMNS)
    insert(pool, name, range(5))
    source = stream(name, startingOffset="latest")
    position = json.dumps({"rs": source.initialOffset()["rs"]})
    insert(pool, name, range(5, 8))
    found = [row for batch in run(f"table:{name}", startingOffset=position) for row in batch]
    assert sorted(json.loads(row.new)["id"] for row in found) == [5, 6, 7]


def test_truncate_is_an_event_of_each_replicaset(
    run: Run, pool: SyncPool, table: Callable[[str], str]
) -> None:
    name = table(COLUMNS)
    insert(pool, name, range(10))
    pool.execute(f"TRUNCATE TABLE {name}")
    insert(pool, name, range(2))
    found = [row for batch in run(f"table:{name}") for row in batch]
    for replicaset in {row.replicaset for row in found}:
        ops = [row.op for row in sorted(found, key=lambda r: (r.epoch, r.lsn, r.n))
               if row.replicaset == replicaset]  # fmt: skip
        assert ops.count("truncate") == 1
        assert set(ops[: ops.index("truncate")]) == {"insert"}
    assert sum(row.op == "insert" for row in found) == 12


def test_a_position_that_the_log_has_forgotten_is_an_error_unless_a_snapshot_is_allowed(
    run: Run, stream: Callable[..., RowStream], pool: SyncPool, table: Callable[[str], str],
    shorten_log: Callable[[], None],
) -> None:  # fmt: skip
    name = table(COLUMNS)
    insert(pool, name, range(10))
    begun = stream(name, startingOffset="latest").initialOffset()
    assert sum(map(len, run(f"table:{name}", "kept"))) == 10
    shorten_log()
    for start in range(10, 400, 10):
        insert(pool, name, range(start, start + 10))

    def is_forgotten() -> bool:
        oldest = stream(name).initialOffset()["rs"]
        return all(
            max(oldest[uuid].values()) > max(of.values()) for uuid, of in begun["rs"].items()
        )

    eventually(is_forgotten, "the logs to be cut")
    with pytest.raises(Exception, match=r"not in the row log.*failOnDataLoss"):
        run(f"table:{name}", "kept")
    found = [row for batch in run(f"table:{name}", "kept", failOnDataLoss="false") for row in batch]
    resets = [json.loads(row.new)["buckets"] for row in found if row.op == "reset"]
    assert sorted(resets) == sorted([[low, high]] for low, high in ((1, 1500), (1501, 3000)))
    assert sorted(json.loads(r.new)["id"] for r in found if r.op == "snapshot") == [*range(400)]


@pytest.fixture
def drained(dsn: str, pool: SyncPool) -> Iterator[Callable[[str], None]]:
    """Moves everything that a replicaset owns to others, rows and all; in the end it goes back."""
    names = sorted(name for (name,) in pool.fetch("SELECT name FROM _pico_replicaset"))

    def is_calm() -> bool:
        status = cluster.call(dsn, "CALL cairn_rebalance()")
        return not status["moves"] and not any(tier["wanted"] for tier in status["tiers"])

    def drain(name: str) -> None:
        cluster.call(dsn, f"CALL cairn_rebalance('drain', '{name}')")
        eventually(is_calm, f"{name} to be drained", 60.0)
        for each in names:
            if each != name:
                cluster.call(dsn, f"CALL cairn_rebalance('weight', '{each}', 1.0)")

    cluster.call(dsn, "CALL cairn_rebalance('resume')")
    yield drain
    for each in names:
        cluster.call(dsn, f"CALL cairn_rebalance('weight', '{each}', 1.0)")
    eventually(is_calm, "everybody to have its share again", 60.0)


@pytest.mark.slow
def test_changes_of_a_key_come_in_order_while_its_bucket_moves_there_and_back(
    stream: Callable[..., RowStream], pool: SyncPool, table: Callable[[str], str],
    drained: Callable[[str], None],
) -> None:  # fmt: skip
    """The new owner's changes wait until the old one has told all of its own."""
    name = table("id INTEGER PRIMARY KEY, n INTEGER")
    one, other = sorted(row[0] for row in pool.fetch("SELECT name FROM _pico_replicaset"))
    source = stream(name, startingOffset="latest", maxRowsPerTrigger="7")
    offsets = [source.initialOffset()]
    pool.executemany(f"INSERT INTO {name} VALUES ($1, 0)", [(i,) for i in range(40)])

    def count(n: int) -> None:
        pool.execute(f"UPDATE {name} SET n = {n} WHERE id >= 0")

    count(1)
    drained(one)
    count(2)
    cluster.call(source._options.dsn, f"CALL cairn_rebalance('weight', '{one}', 1.0)")
    drained(other)
    count(3)
    seen: dict[int, list[int]] = {i: [] for i in range(40)}
    others: list[str] = []
    while (end := source.latestOffset(offsets[-1], source.getDefaultReadLimit())) != offsets[-1]:
        batch: dict[int, list[int]] = {}
        for op, row in told(source, offsets[-1], end):
            if op == "update":
                batch.setdefault(row["id"], []).append(row["n"])
            elif op != "insert":
                others.append(op)
        for key, values in batch.items():
            seen[key] += values
        offsets.append(end)
    assert seen == {i: [1, 2, 3] for i in range(40)}
    assert others == []  # neither the copies nor what was dropped is told
    assert len(offsets) > 5


def test_a_table_checkpoint_of_another_cluster_is_refused(
    stream: Callable[..., RowStream], table: Callable[[str], str]
) -> None:
    source = stream(table(COLUMNS))
    with pytest.raises(Exception, match="belongs to cluster another"):
        everything(source)({**source.initialOffset(), "cluster": "another"})


def test_the_key_of_a_change_is_the_primary_key(pool: SyncPool, run: Run) -> None:
    """And not the columns that rows are distributed by: those do not tell rows apart."""
    pool.execute("CREATE TABLE keyed (a INTEGER, b TEXT, PRIMARY KEY (a, b)) DISTRIBUTED BY (a)")
    try:
        pool.execute("INSERT INTO keyed VALUES (1, 'ä')")
        [[snapshot]] = run("table:keyed", "first", startingOffset="snapshot")
        pool.execute("DELETE FROM keyed WHERE a = 1")
        told = [snapshot.key, *(row.key for batch in run("table:keyed", "second") for row in batch)]
        assert [json.loads(key) for key in told] == [{"a": 1, "b": "ä"}] * 3
    finally:
        pool.execute("DROP TABLE keyed")
