"""Tables that are not sharded: global ones are read and written, local ones read from everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cairn.client.sync_pool import SyncPool
from cairn.model.tables.system_tables import GLOBAL_TABLES, LOCAL_TABLES
from cairn.spark import cluster
from cairn.spark.options import read_options
from cairn.spark.tables import describe
from cairn.spark.writes import global_write

Make = Callable[[str], str]
WHEN = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture
def small(pool: SyncPool, request: pytest.FixtureRequest) -> Iterator[str]:
    """A global table (id, s)."""
    name = f"small{abs(hash(request.node.nodeid)) % 10**8}"
    pool.execute(
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, s TEXT, n DECIMAL, w DATETIME, g UUID) "
        "DISTRIBUTED GLOBALLY"
    )
    yield name
    pool.execute(f"DROP TABLE {name}")


def content(pool: SyncPool, name: str) -> list[tuple[Any, ...]]:
    return pool.fetch(f"SELECT id, s FROM {name} ORDER BY id")


def raft_index(pool: SyncPool) -> int:
    return int(pool.fetchval("CALL cairn_status()")["raft"]["index"])


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [each.name for each in (*GLOBAL_TABLES, *LOCAL_TABLES)])
def test_every_system_table_has_a_schema(dsn: str, name: str) -> None:
    assert [column.name for column in describe(dsn, name).columns]


def test_a_local_table_is_read_from_every_instance(
    pool: SyncPool, dsn: str, reading: Callable[..., Any]
) -> None:
    told = {
        (each.name, *row)
        for each in pool.topology.online()
        for row in cluster.ask_at(dsn, each.address, "SELECT term, raft_id FROM _cairn_leader")
    }
    frame = reading("_cairn_leader").load()
    assert frame.columns == ["told_by", "term", "raft_id", "instance", "since"]
    rows = {(row.told_by, row.term, row.raft_id) for row in frame.collect()}
    assert rows == told
    assert {row[0] for row in rows} == {"i1", "i2"}


def test_a_read_of_a_local_table_says_which_instance_told_a_row(
    reading: Callable[..., Any],
) -> None:
    rows = reading("governor_status").load().collect()
    assert sorted((row.told_by, row.instance) for row in rows) == [("i1", "i1"), ("i2", "i2")]
    events = reading("_cairn_event", columns="instance").load()
    assert {row.instance for row in events.distinct().collect()} == {"i1", "i2"}


def test_a_condition_may_name_the_instance(reading: Callable[..., Any]) -> None:
    frame = reading("_cairn_event", where="instance = 'i2' AND n = 1", columns="n,instance").load()
    assert {tuple(row) for row in frame.collect()} == {(1, "i2")}


@pytest.mark.parametrize("name", ["_routing", "_cairn_link", "_cairn_traffic", "_cairn_diverged"])
def test_tables_without_rows_are_there(name: str, reading: Callable[..., Any]) -> None:
    frame = reading(name).load()
    assert frame.columns[0] == "instance"
    assert frame.count() >= 0


def test_what_the_cluster_makes_when_asked_is_read_once(
    dsn: str, reading: Callable[..., Any]
) -> None:
    frame = reading("pg_catalog.pg_class", where="relname = '_pico_tier'", columns="relname")
    assert [tuple(row) for row in frame.load().collect()] == [("_pico_tier",)]
    assert {row.instance for row in reading("_cairn_sessions").load().collect()} == {"i1", "i2"}


def test_what_does_not_exist_is_named(dsn: str) -> None:
    with pytest.raises(Exception, match='table with name "_cairn_nothing" not found'):
        describe(dsn, "_cairn_nothing")


def test_an_instance_that_has_gone_since_the_plan_is_left_out(dsn: str) -> None:
    from cairn.spark.reads.local_read import InstancePartition, LocalReader
    from cairn.spark.tables import spark_schema

    table = describe(dsn, "_cairn_leader")
    options = read_options({"dsn": dsn, "table": "_cairn_leader"})
    reader = LocalReader(options, table, spark_schema(table, (), 18))
    gone = InstancePartition("nobody", "127.0.0.1:1")
    assert list(reader.read(gone)) == []
    moved = InstancePartition("i1", "127.0.0.1:1")  # it has another address by now
    assert {row["told_by"] for batch in reader.read(moved) for row in batch.to_pylist()} == {"i1"}


# --- writing --------------------------------------------------------------------------------------


def frame_of(spark: Any, rows: list[tuple[int, str | None]]) -> Any:
    return spark.createDataFrame(rows, "id bigint, s string").repartition(2)


def test_rows_are_added_to_a_global_table_by_one_entry_of_the_log(
    spark: Any, pool: SyncPool, small: str, writing: Callable[..., None]
) -> None:
    writing(frame_of(spark, [(1, "a")]), small)  # makes the table of ids, too
    before = raft_index(pool)
    writing(frame_of(spark, [(i, f"s{i}") for i in range(2, 2000)]), small)
    assert content(pool, small) == [(1, "a"), *((i, f"s{i}") for i in range(2, 2000))]
    assert raft_index(pool) - before <= 4  # the rows, the end of the id, and what goes on anyway
    assert pool.fetch(f"SELECT count(*) FROM {global_write.DONE}") == [(0,)]


def test_all_types_go_into_a_global_table_and_come_back(
    spark: Any, small: str, writing: Callable[..., None], reading: Callable[..., Any]
) -> None:
    row = (7, "ä'\"\n", Decimal("1234567890.5"), WHEN, str(UUID(int=7)))
    columns = "id bigint, s string, n decimal(38,18), w timestamp, g string"
    writing(spark.createDataFrame([row], columns), small)
    [found] = reading(small).load().collect()
    assert (*found[:3], found[3].astimezone(UTC), found[4]) == row


def test_a_conflict_in_a_global_table_leaves_it_as_it_was(
    spark: Any, pool: SyncPool, small: str, writing: Callable[..., None]
) -> None:
    pool.execute(f"INSERT INTO {small} (id, s) VALUES (5, 'old')")
    rows = frame_of(spark, [(4, "new"), (5, "new"), (6, "new")])
    with pytest.raises(Exception, match="23505"):
        writing(rows, small)
    with pytest.raises(Exception, match="23505"):
        writing(frame_of(spark, [(8, "x"), (8, "y")]), small)
    assert content(pool, small) == [(5, "old")]
    writing(rows, small, onConflict="ignore")
    assert content(pool, small) == [(4, "new"), (5, "old"), (6, "new")]
    writing(rows, small, onConflict="replace")
    assert content(pool, small) == [(4, "new"), (5, "new"), (6, "new")]


def test_an_overwrite_of_a_global_table_is_one_step(
    spark: Any, pool: SyncPool, small: str, writing: Callable[..., None]
) -> None:
    pool.execute(f"CREATE UNIQUE INDEX {small}_s ON {small} (s)")
    pool.execute(f"INSERT INTO {small} (id, s) VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(Exception, match="23505"):
        writing(frame_of(spark, [(1, "x"), (3, "x")]), small, "overwrite")
    assert content(pool, small) == [(1, "a"), (2, "b")]
    writing(frame_of(spark, [(3, "a"), (2, "c")]), small, "overwrite")
    assert content(pool, small) == [(2, "c"), (3, "a")]
    writing(frame_of(spark, []), small, "overwrite")
    assert content(pool, small) == []


def test_a_global_write_that_is_repeated_later_changes_nothing(
    spark: Any, dsn: str, pool: SyncPool, small: str, writing: Callable[..., None]
) -> None:
    for commit in ("staged", "direct"):
        word = {"writeId": f"{small}{commit}", "onConflict": "replace", "commit": commit}
        writing(frame_of(spark, [(1, "a"), (2, "b")]), small, "overwrite", **word)
        pool.execute(f"UPDATE {small} SET s = 'later' WHERE id = 1")
        writing(frame_of(spark, [(1, "a"), (2, "b")]), small, "overwrite", **word)
        assert content(pool, small) == [(1, "later"), (2, "b")]
        global_write.forget(dsn, word["writeId"])


def test_a_write_that_is_too_large_for_one_entry_is_direct(
    spark: Any, pool: SyncPool, small: str, writing: Callable[..., None], dsn: str
) -> None:
    """Rows that no compression makes small, so that the message is as large as the entry."""
    wide = frame_of(spark, [(i, None) for i in range(40)]).selectExpr(
        "id",
        "concat_ws('', transform(sequence(1, 4000), x -> sha2(cast(x * id AS string), 256))) s",
    )
    with pytest.raises(Exception, match=r"commit.*direct"):
        writing(wide, small)
    assert content(pool, small) == []
    writing(wide, small, commit="direct")
    assert pool.fetch(f"SELECT count(*), count(s) FROM {small}") == [(40, 40)]


def test_a_stream_into_a_global_table_writes_each_batch_once(
    spark: Any, dsn: str, pool: SyncPool, small: str, tmp_path: Any
) -> None:
    (tmp_path / "in").mkdir()

    def run() -> None:
        frame = spark.readStream.schema("id bigint, s string").json(str(tmp_path / "in"))
        writer = frame.writeStream.format("cairn").option("dsn", dsn).option("table", small)
        writer = writer.option("checkpointLocation", str(tmp_path / "place"))
        writer.trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "in" / "1.json").write_text('{"id": 1, "s": "a"}\n{"id": 2, "s": "b"}\n')
    run()
    commits = list((tmp_path / "place" / "commits").glob("*0*"))
    for each in commits:  # as if the driver had died before the checkpoint knew of the batch
        each.unlink()
    run()
    (tmp_path / "in" / "2.json").write_text('{"id": 3, "s": "c"}\n')
    run()
    assert content(pool, small) == [(1, "a"), (2, "b"), (3, "c")]


def test_the_catalogue_is_not_written(spark: Any, writing: Callable[..., None]) -> None:
    rows = spark.createDataFrame([("a", "1")], "key string, value string")
    with pytest.raises(Exception, match="_pico_property cannot be written by SQL"):
        writing(rows, "_pico_property")
    with pytest.raises(Exception, match="it can be read, not written"):
        writing(spark.range(1).selectExpr("id AS term"), "_cairn_leader")


def test_a_queue_of_operations_is_filled_like_any_global_table(
    spark: Any, pool: SyncPool, writing: Callable[..., None]
) -> None:
    words = "id bigint, batch_id string, op string, op_format string, status string, kind string"
    row = (9_000_001, "b", "DROP TABLE IF EXISTS nothing_here", "sql", "pending", "custom", "d")
    writing(spark.createDataFrame([row], f"{words}, description string"), "_pico_governor_queue")
    told = pool.fetch("SELECT op FROM _pico_governor_queue WHERE id = 9000001")
    assert told == [("DROP TABLE IF EXISTS nothing_here",)]
