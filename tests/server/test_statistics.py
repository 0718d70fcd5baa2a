"""What the cluster does is seen from any instance, in one query."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.server.test_activity import LONG
from tests.server.test_users import session, users


@pytest.fixture
def table(cluster: Cluster) -> Iterator[str]:
    node = cluster["i1"]
    node.sql("CREATE TABLE counted (id INT PRIMARY KEY, word TEXT) DISTRIBUTED BY (id)")
    yield "counted"
    node.sql("DROP TABLE counted")


def counted(node: Node, query: str, columns: str) -> list[tuple[Any, ...]]:
    with node.connect() as connection:
        ask = f"SELECT {columns} FROM _cairn_statements WHERE query = %s ORDER BY instance"
        return connection.execute(ask, (query,)).fetchall()


def test_statements_are_counted_on_the_instance_that_got_them(cluster: Cluster, table: str) -> None:
    for number, name in enumerate(("i1", "i2", "i1")):
        cluster[name].sql(f"INSERT INTO counted VALUES ({number}, 'one')")
    shown = "INSERT INTO counted VALUES ($1, $2)"
    for name in ("i1", "i2"):
        assert counted(cluster[name], shown, "instance, usename, kind, calls, rows") == [
            ("i1", "admin", "insert", 2, 2),
            ("i2", "admin", "insert", 1, 1),
        ]
    [(mean, most, total)] = cluster["i2"].sql(
        "SELECT max(mean_ms), max(max_ms), sum(total_ms) FROM _cairn_statements "
        f"WHERE query = '{shown}' AND instance = 'i1'"
    )
    assert 0 < mean <= most <= total <= 2 * most


def test_hops_bytes_errors_and_plans_are_counted(cluster: Cluster, table: str) -> None:
    node = cluster["i1"]
    node.sql("INSERT INTO counted VALUES " + ", ".join(f"({n}, 'word')" for n in range(40)))
    with node.connect() as connection:
        query = "SELECT word FROM counted WHERE id = $1"
        for number in range(40):
            assert connection.execute(query.replace("$1", "%s"), (number,)).fetchall() == [
                ("word",)
            ]
    [(calls, rows, hops, size, hits)] = counted(node, query, "calls, rows, hops, bytes, cache_hits")
    assert (calls, rows) == (40, 40)
    assert 0 < hops < 40  # some of the rows are here
    assert size >= 40 * len("word")
    assert hits >= 35  # psycopg prepares after some runs: two plans, all the others were found
    with node.connect() as connection:
        for _ in range(3):
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO counted (word, id) VALUES ('again', 1)")
    failing = "INSERT INTO counted (word, id) VALUES ($1, $2)"
    [(calls, errors)] = counted(node, failing, "calls, errors")
    assert (calls, errors) == (0, 3)


def test_rows_that_are_fetched_in_parts_are_all_counted(cluster: Cluster, table: str) -> None:
    node = cluster["i1"]
    node.sql("INSERT INTO counted VALUES " + ", ".join(f"({n}, 'word')" for n in range(700)))
    for query in ("SELECT id, 1 FROM counted", "SELECT id FROM counted LIMIT 3"):
        with node.connect() as connection:
            connection.execute(query).fetchall()
    assert counted(node, "SELECT id, $1 FROM counted", "kind, calls, rows") == [
        ("select_wide", 1, 700)
    ]
    assert counted(node, "SELECT id FROM counted LIMIT $1", "calls, rows") == [(1, 3)]
    with node.connect() as connection, connection.cursor() as cursor:
        with cursor.copy("COPY counted TO STDOUT") as copy:
            assert len(b"".join(copy).splitlines()) == 700
        with cursor.copy("COPY counted FROM STDIN") as copy:
            copy.write("1000\tcopied\n1001\tcopied\n")
    assert counted(node, "COPY counted TO STDOUT", "kind, calls, rows") == [("copy", 1, 700)]
    assert counted(node, "COPY counted FROM STDIN", "kind, calls, rows") == [("copy", 1, 2)]


def test_statements_of_a_transaction_are_counted_one_by_one(cluster: Cluster, table: str) -> None:
    node = cluster["i1"]
    node.sql("COMMIT")  # others have had theirs, and some of them were told 40001
    [(before, failed)] = counted(node, "COMMIT", "sum(calls), sum(errors)")
    with node.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO counted VALUES (71, 'kept')")
        connection.execute("UPDATE counted SET word = 'changed' WHERE id = 71")
    assert node.sql("SELECT word FROM counted WHERE id = 71") == [("changed",)]
    shown = "UPDATE counted SET word = $1 WHERE id = $2"
    assert counted(node, shown, "kind, calls, errors, rows") == [("update", 1, 0, 1)]
    assert counted(node, "COMMIT", "sum(calls), sum(errors)") == [(before + 1, failed)]


def test_others_do_not_see_what_one_runs(cluster: Cluster) -> None:
    node = cluster["i1"]
    with users(node, "ann"), session(node, "ann") as ann, node.connect() as admin:
        admin.execute("SELECT 'of the admin', 17")
        ann.execute("SELECT 'of ann', 17, 18")
        ask = "SELECT DISTINCT usename, query FROM _cairn_statements WHERE query LIKE 'SELECT $1,%'"
        assert ("ann", "SELECT $1, $2, $3") in admin.execute(ask).fetchall()
        seen = ann.execute("SELECT DISTINCT usename, query FROM _cairn_statements").fetchall()
        assert ("ann", "SELECT $1, $2, $3") in seen
        assert {query for user, query in seen if user != "ann"} == {"<insufficient privilege>"}
        others = ann.execute("SELECT query FROM _cairn_sessions WHERE usename = 'admin'").fetchall()
        assert set(others) == {("<insufficient privilege>",)}


def test_sessions_of_all_instances_are_seen_and_ended_from_any(cluster: Cluster) -> None:
    here, there = cluster["i1"], cluster["i2"]
    with there.connect(application_name="far away") as watched, here.connect() as operator:
        ask = (
            "SELECT instance, pid, usename, state, query FROM _cairn_sessions "
            "WHERE application_name = 'far away'"
        )
        pid = watched.info.backend_pid
        problems: list[psycopg.Error] = []

        def run() -> None:
            try:
                watched.execute(LONG)
            except psycopg.Error as problem:
                problems.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        running = [("i2", pid, "admin", "active", LONG)]
        eventually(lambda: operator.execute(ask).fetchall() == running, "it runs")
        answer = operator.execute("CALL cairn_cancel('i2', %s)", (pid,)).fetchall()
        assert answer == [({"done": True},)]
        thread.join(10)
        assert [problem.sqlstate for problem in problems] == ["57014"]
        assert operator.execute("CALL cairn_terminate('i2', %s)", (pid,)).fetchall() == answer
        eventually(lambda: operator.execute(ask).fetchall() == [], "it is gone")
        gone = operator.execute("CALL cairn_terminate('i2', %s)", (pid,)).fetchall()
        assert gone == [({"done": False},)]
        with pytest.raises(psycopg.errors.UndefinedObject):
            operator.execute("CALL cairn_cancel('nobody', 1)")


def test_a_user_does_not_end_what_others_do_on_another_instance(cluster: Cluster) -> None:
    here, there = cluster["i1"], cluster["i2"]
    with users(here, "ann"), there.connect() as admin, session(here, "ann") as ann:
        for call in ("cairn_cancel", "cairn_terminate"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ann.execute(f"CALL {call}('i2', {admin.info.backend_pid})")
        assert admin.execute("SELECT 1").fetchall() == [(1,)]


def test_tables_are_shown_with_the_share_of_each_replicaset(cluster: Cluster, table: str) -> None:
    node = cluster["i2"]
    node.sql("INSERT INTO counted VALUES " + ", ".join(f"({n}, 'word')" for n in range(1_000)))
    node.sql("CREATE TABLE known (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    node.sql("INSERT INTO known VALUES (1), (2), (3)")
    ask = (
        "SELECT table_name, count(*), sum(rows), min(bytes) >= 4096 FROM _cairn_table_stats "
        "WHERE table_name IN ('counted', 'known') GROUP BY table_name ORDER BY table_name"
    )
    expected = [("counted", 2, 1_000, 1), ("known", 1, 3, 1)]
    eventually(lambda: node.sql(ask) == expected, "sizes that were measured anew", 30)
    parts = node.sql(
        "SELECT rows, share, skew FROM _cairn_table_stats WHERE table_name = 'counted'"
    )
    fullest = max(rows for rows, _, _ in parts)
    assert [share for _, share, _ in parts] == [rows / 1_000 for rows, _, _ in parts]
    assert {skew for _, _, skew in parts} == {fullest * 2 / 1_000}
    with users(node, "ann"), session(node, "ann") as ann:
        assert ann.execute("SELECT * FROM _cairn_table_stats").fetchall() == []
    node.sql("DROP TABLE known")


def test_a_slow_statement_is_noted_with_its_plan(cluster: Cluster, table: str) -> None:
    node = cluster["i1"]
    node.sql("ALTER SYSTEM SET slow_statement_ms = 50")
    try:
        slow = "SELECT count(*) FROM counted, generate_series(1, 1000000) a WHERE word <> 'secret'"
        node.sql("INSERT INTO counted VALUES (1, 'x')")
        node.sql(slow)
        shown = "SELECT count(*) FROM counted, generate_series($1, $2) a WHERE word <> $3"

        def told() -> list[tuple[Any, ...]]:
            ask = (
                "SELECT instance, usename, query, rows, took_ms > 50, plan "
                "FROM _cairn_slow_statements"
            )
            return [row for row in cluster["i2"].sql(ask) if row[2] == shown]

        [row] = eventually(told, "the slow one")
        assert row[:5] == ("i1", "admin", shown, 1, 1)
        assert "counted" in row[5]
        lines = (node.dir / "slow.log").read_text().splitlines()
        [line] = [each for each in map(json.loads, lines) if each["statement"] == shown]
        assert (line["user"], line["rows"], line["plan"]) == ("admin", 1, row[5].split("\n"))
        assert "secret" not in (node.dir / "slow.log").read_text()
        assert "1000000" not in (node.dir / "slow.log").read_text()
    finally:
        node.sql("ALTER SYSTEM RESET slow_statement_ms")


def test_slow_statements_of_each_instance_are_told_by_every_other_one(
    cluster: Cluster, table: str
) -> None:
    """One whose hops were told as true or false hid all slow ones of its instance from others."""
    node = cluster["i1"]
    node.sql("ALTER SYSTEM SET slow_statement_ms = 1")
    try:
        for key in range(20):  # plain writes and points, here and there
            node.sql(f"INSERT INTO counted VALUES ({key}, repeat('x', 300000))")
            node.sql(f"SELECT length(repeat(word, 20)) FROM counted WHERE id = {key}")
        mine = "SELECT took_ms, hops, query FROM _cairn_slow_statements WHERE instance = 'i1'"

        def same() -> bool:
            told = node.sql(mine)
            return len(told) > 5 and cluster["i2"].sql(mine)[: len(told)] == told

        eventually(same, "the same at both")
    finally:
        node.sql("ALTER SYSTEM RESET slow_statement_ms")


def test_a_slow_statement_of_any_kind_is_noted(cluster: Cluster) -> None:
    node = cluster["i1"]
    node.sql("ALTER SYSTEM SET slow_statement_ms = 1")
    try:
        node.sql("CREATE TABLE made_slowly (id INT PRIMARY KEY)")
        node.sql("CALL cairn_status()")
        node.sql("SELECT count(*) FROM pg_class")
        node.sql("DROP TABLE made_slowly")
        asked = "SELECT query FROM _cairn_slow_statements"
        eventually(lambda: "DROP TABLE made_slowly" in str(node.sql(asked)), "all of them")
    finally:
        node.sql("ALTER SYSTEM RESET slow_statement_ms")
    assert "cairn.bug" not in node.log()


def test_an_administrator_begins_counting_anew(cluster: Cluster) -> None:
    node = cluster["i1"]
    for name in ("i1", "i2"):
        cluster[name].sql("SELECT 1, 2, 3, 4, 5")
    shown = "SELECT $1, $2, $3, $4, $5"
    assert counted(node, shown, "instance, calls") == [("i1", 1), ("i2", 1)]
    denied = pytest.raises(psycopg.errors.InsufficientPrivilege)
    with users(node, "ann"), session(node, "ann") as ann, denied:
        ann.execute("CALL cairn_forget_statements()")
    assert node.sql("CALL cairn_forget_statements()") == [({"forgotten": "i1"},)]
    assert counted(node, shown, "instance, calls") == [("i2", 1)]
    node.sql("SELECT 1, 2, 3, 4, 5")  # by the plan that was made before
    assert counted(node, shown, "instance, calls") == [("i1", 1), ("i2", 1)]


def test_an_instance_says_that_it_is_no_standby(cluster: Cluster) -> None:
    ask = "SELECT pg_is_in_recovery(), pg_postmaster_start_time() < now()"
    assert cluster["i1"].sql(ask) == [(False, True)]
    assert cluster["i1"].sql("SELECT pg_last_wal_replay_lsn()") == [(None,)]
