"""EXPLAIN at a real cluster: who does what, and with ANALYZE what it took."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster

Connection = psycopg.Connection[tuple[Any, ...]]
OWNERS = r"i\d \(default_\d_?\d*\), i\d \(default_\d_?\d*\)"


def connect(cluster: Cluster, user: str = "admin") -> Connection:
    dsn = f"postgresql://{user}:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    return psycopg.connect(dsn, autocommit=True)


@pytest.fixture
def sql(cluster: Cluster) -> Iterator[Connection]:
    with connect(cluster) as connection:
        connection.execute("DROP TABLE IF EXISTS trip")
        connection.execute("CREATE TABLE trip (id INT PRIMARY KEY, km INT)")
        connection.execute("INSERT INTO trip SELECT k, k % 7 FROM generate_series(1, 2000) k")
        yield connection
        connection.execute("DROP TABLE trip")


def plan(connection: Connection, text: str, *values: Any) -> list[str]:
    return [line for (line,) in connection.execute(text, values).fetchall()]  # type: ignore[arg-type]


def told(connection: Connection, text: str) -> dict[str, Any]:
    row = connection.execute(text).fetchone()  # type: ignore[arg-type]
    assert row is not None
    [found] = row[0]
    return dict(found)


def count(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM trip").fetchone()
    assert row is not None
    return int(row[0])


def test_owners_make_partial_aggregates_and_the_asker_merges_them(sql: Connection) -> None:
    lines = plan(sql, "EXPLAIN SELECT km, count(*) FROM trip GROUP BY km")
    asked = [line.strip() for line in lines[: lines.index("execution options:")]]
    motion = next(at for at, line in enumerate(asked) if line.startswith("motion"))
    assert "group by" in asked[motion - 1]
    assert re.fullmatch(rf"motion \[policy: full\] from {OWNERS}", asked[motion])
    assert asked[motion + 1 :] == [
        'projection ("trip"."km"::int -> "km", count(*) -> "count_2")',
        'group by ("trip"."km"::int)',
        'scan "trip"',
    ]


def test_a_row_by_its_key_is_read_at_its_owner(sql: Connection) -> None:
    first, *rest = plan(sql, "EXPLAIN SELECT km FROM trip WHERE id = %s", 4)
    assert re.fullmatch(
        r'projection \("trip"\."km"::int -> "km"\) at i\d \(default_\d_?\d*\)', first
    )
    assert rest[1] == '        scan "trip" by primary key (id=?)'


def test_analyze_tells_rows_bytes_and_time_of_each_owner(sql: Connection) -> None:
    found = told(sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT km, count(*) FROM trip GROUP BY km")
    motion, merge = found["Stages"]
    assert {work["Instance"] for work in motion["Instances"]} == {"i1", "i2"}
    assert [work["Rows"] for work in motion["Instances"]] == [7, 7]
    here, there = sorted(motion["Instances"], key=lambda work: not work["Here"])
    assert here["Bytes"] == 0 < there["Bytes"] == motion["Bytes"] < 100
    assert (merge["Stage"], merge["Rows"], found["Rows"], found["Hops"]) == ("merge at i1", 7, 7, 1)
    times = [merge["Time"], *(work["Time"] for work in motion["Instances"])]
    assert all(0 < time <= found["Execution Time"] for time in times)


def test_a_long_answer_is_counted_to_its_end(sql: Connection) -> None:
    found = told(sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT *, repeat('x', 3000) FROM trip")
    [motion] = found["Stages"]
    assert found["Rows"] == motion["Rows"] == sum(w["Rows"] for w in motion["Instances"]) == 2000
    away = next(work for work in motion["Instances"] if not work["Here"])
    assert away["Requests"] > 1
    assert away["Bytes"] > 3000 * away["Rows"]


def test_analyze_shows_its_numbers_in_the_text_and_leaves_times_out_when_asked(
    sql: Connection,
) -> None:
    lines = plan(sql, "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) SELECT count(*) FROM trip")
    text = "\n".join(lines)
    assert re.search(rf"motion \[policy: full\] from {OWNERS} \(actual rows=2 bytes=\d+\)", text)
    stages = lines[lines.index("stages:") :]
    assert re.fullmatch(r"    motion 1: rows=2 bytes=\d+", stages[1])
    assert stages[-3:] == ["    merge at i1: rows=1", "rows: 1", "hops: 1"]
    assert "time" not in text.lower().replace("timing", "")
    assert plan(sql, "EXPLAIN ANALYZE SELECT count(*) FROM trip")[-1].startswith("Execution Time: ")


def test_analyze_of_a_write_really_writes(sql: Connection) -> None:
    found = told(sql, "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM trip WHERE km = 3")
    assert found["Rows"] == 286
    [write] = found["Stages"]
    assert (write["Stage"], write["Rows"]) == ("write", 286)
    assert count(sql) == 2000 - 286
    plan(sql, "EXPLAIN DELETE FROM trip")
    assert count(sql) == 2000 - 286


def test_a_block_takes_back_what_analyze_wrote(sql: Connection) -> None:
    with sql.transaction(force_rollback=True):
        lines = plan(sql, "EXPLAIN ANALYZE UPDATE trip SET km = 100 WHERE id = 5")
        assert "rows: 1" in lines
        assert sql.execute("SELECT km FROM trip WHERE id = 5").fetchone() == (100,)
    assert sql.execute("SELECT km FROM trip WHERE id = 5").fetchone() == (5,)


def test_analyze_of_a_write_needs_the_right_to_write(cluster: Cluster, sql: Connection) -> None:
    sql.execute("DROP USER IF EXISTS reader")
    sql.execute(f"CREATE USER reader WITH PASSWORD '{PASSWORD}'")
    sql.execute("GRANT READ ON TABLE trip TO reader")
    with connect(cluster, "reader") as reader:
        assert "rows: 1" in plan(reader, "EXPLAIN ANALYZE SELECT count(*) FROM trip")
        for text in ("EXPLAIN ANALYZE DELETE FROM trip", "EXPLAIN DELETE FROM trip"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(text)
    assert count(sql) == 2000
    sql.execute("DROP USER reader")


def test_analyze_in_a_read_only_block_writes_nothing(sql: Connection) -> None:
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), sql.transaction():
        sql.execute("SET TRANSACTION READ ONLY")
        sql.execute("EXPLAIN ANALYZE DELETE FROM trip")
    assert count(sql) == 2000


@pytest.mark.parametrize(
    ("options", "sqlstate"),
    [
        ("(NOTHING)", "42601"),
        ("(ANALYZE maybe)", "42601"),
        ("(FORMAT csv)", "22023"),
        ("(FORMAT xml)", "0A000"),
        ("(TIMING)", "22023"),
        ("(WAL)", "22023"),
        ("(ANALYZE, BUCKETS)", "0A000"),
        ("(FORMAT)", "42601"),
        ("()", "42601"),
        ("VERBOSE ANALYZE", "42601"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    sql: Connection, options: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as problem:
        sql.execute(f"EXPLAIN {options} DELETE FROM trip")  # type: ignore[arg-type]
    assert problem.value.sqlstate == sqlstate
    assert count(sql) == 2000


def test_options_of_postgresql_are_taken_and_what_they_cannot_show_is_said(
    sql: Connection,
) -> None:
    said: list[str] = []
    sql.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    plan(sql, "EXPLAIN (ANALYZE off, COSTS 1, BUFFERS TRUE, TIMING off, FORMAT 'text') SELECT 1")
    assert [text.partition(":")[0] for text in said] == [
        "EXPLAIN (COSTS) shows nothing",
        "EXPLAIN (BUFFERS) shows nothing",
    ]
    for text in ("EXPLAIN (SELECT 1)", "EXPLAIN ((VALUES (1)))", "EXPLAIN (VERBOSE) SELECT 1"):
        assert plan(sql, text)


def test_analyze_of_a_global_table_and_of_its_change(sql: Connection) -> None:
    sql.execute("DROP TABLE IF EXISTS town")
    sql.execute("CREATE TABLE town (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    first = plan(sql, "EXPLAIN ANALYZE INSERT INTO town VALUES (1), (2)")
    assert first[0] == 'insert into "town" on conflict: fail through raft'
    found = told(sql, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id FROM town")
    [read] = found["Stages"]
    assert (read["Stage"], read["Rows"], read["Bytes"], found["Hops"]) == ("read", 2, 0, 0)
    sql.execute("DROP TABLE town")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(DISTINCT id), sum(km) FROM trip",
        "SELECT sum(trip.km + stop.minutes) FROM trip JOIN stop ON stop.id = trip.id",
        "SELECT count(*) FROM trip WHERE EXISTS (SELECT 1 FROM stop WHERE stop.id = trip.id)",
        "SELECT sum(town.size) FROM trip JOIN town ON town.id = trip.km",
        "SELECT count(town.size) FROM trip LEFT JOIN town ON town.id = trip.km",
    ],
)
def test_owners_join_and_count_what_they_have_and_send_one_row_each(
    sql: Connection, text: str
) -> None:
    sql.execute("DROP TABLE IF EXISTS stop, town")
    sql.execute("CREATE TABLE stop (id INT PRIMARY KEY, minutes INT)")
    sql.execute("CREATE TABLE town (id INT PRIMARY KEY, size INT) DISTRIBUTED GLOBALLY")
    sql.execute("INSERT INTO stop SELECT k, 1 FROM generate_series(1, 1000) k")
    sql.execute("INSERT INTO town VALUES (1, 10), (2, 20)")
    found = told(sql, f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")
    motion = found["Stages"][0]
    assert [work["Rows"] for work in motion["Instances"]] == [1, 1]
    assert motion["Bytes"] < 50
    sql.execute("DROP TABLE stop, town")
