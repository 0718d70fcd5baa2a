"""CREATE INDEX on a table with many rows: nobody waits for it, and the index has all rows."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from cairn.node.rows.upkeep.filling import SMALL_ROWS
from cairn.sql.functions.functions import register
from tests.cluster.harness import Cluster, Node, eventually

pytestmark = pytest.mark.cluster
ROWS = 3 * SMALL_ROWS  # in two replicasets
FILLED = "SELECT count(*) FROM t WHERE {} BETWEEN 20 AND 30"
QUEUED = (
    "INSERT INTO _pico_governor_queue (id, batch_id, op, op_format, status, kind, description) "
    "VALUES (200, 'b', 'CREATE INDEX t_queued ON t (n)', 'sql', 'pending', 'custom', '')"
)


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    made = new_cluster().start("i1", "i2")
    made["i1"].sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, s TEXT) DISTRIBUTED BY (id)")
    made["i1"].sql("CREATE TABLE other (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
    made["i1"].sql(
        f"INSERT INTO t SELECT g, g % 1000, 's' || g FROM generate_series(1, {ROWS}) AS g (g)"
    )
    return made


def write_until(stop: threading.Event, node: Node, problems: list[str]) -> None:
    """Every kind of write, also to rows that have no entry yet."""
    texts = (
        "UPDATE t SET n = 25 WHERE id = %s",
        "DELETE FROM t WHERE id = %s",
        "INSERT INTO t VALUES (%s, 21, 'again') ON CONFLICT (id) DO UPDATE SET n = t.n + 1",
        "UPDATE t SET s = 'x' WHERE id = %s",
        "INSERT INTO other VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = other.n + 1",
    )
    with node.connect() as connection:
        number = 0
        while not stop.is_set():
            number += 7919
            try:
                connection.execute(texts[number % 5].encode(), (number % ROWS + 1,))
            except psycopg.Error as problem:
                problems.append(str(problem))


def while_writing(cluster: Cluster, work: Callable[[], Any]) -> list[str]:
    stop, problems = threading.Event(), []
    writer = threading.Thread(target=write_until, args=(stop, cluster["i2"], problems))
    writer.start()
    try:
        work()
    finally:
        stop.set()
        writer.join()
    return problems


def check_whole(cluster: Cluster, index: str) -> None:
    """By what the index finds."""
    by_index, by_rows = (cluster["i1"].sql(FILLED.format(n)) for n in ("n", "(n + 0)"))
    assert by_index == by_rows
    assert by_index[0][0] > ROWS // 100
    found = cluster["i1"].sql("SELECT name FROM _pico_index WHERE name = %s", (index,))
    assert found == [(index,)]


def problems_of(directory: Path) -> list[str]:
    copy = directory / "copy"
    copy.mkdir()
    for name in ("data.db", "data.db-wal"):
        if (directory / name).exists():
            shutil.copy(directory / name, copy / name)
    connection = apsw.Connection(str(copy / "data.db"))
    register(connection)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    found: list[Any] = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    shutil.rmtree(copy)
    return [text for (text,) in found if text != "ok"]


def test_writes_go_on_while_an_index_is_filled(cluster: Cluster) -> None:
    problems = while_writing(cluster, lambda: cluster["i1"].sql("CREATE INDEX t_n ON t (n)"))
    assert problems == []
    cluster["i1"].stop()
    cluster["i2"].stop()
    assert [problems_of(cluster[name].dir) for name in ("i1", "i2")] == [[], []]
    cluster.start("i1", "i2")
    check_whole(cluster, "t_n")


def test_an_index_of_the_queue_is_filled_first_as_well(cluster: Cluster) -> None:
    def queue() -> None:
        cluster["i1"].sql(QUEUED)
        query = "SELECT status FROM _pico_governor_queue WHERE id = 200"
        eventually(lambda: cluster["i1"].sql(query) == [("done",)], "the end of the operation")

    assert while_writing(cluster, queue) == []
    check_whole(cluster, "t_queued")


def test_rows_that_are_equal_refuse_a_unique_index_until_they_are_gone(cluster: Cluster) -> None:
    node, made = cluster["i1"], "CREATE UNIQUE INDEX u_n ON u (n)"
    node.sql("CREATE TABLE u (n INT, id INT, PRIMARY KEY (n, id)) DISTRIBUTED BY (n)")
    node.sql(f"INSERT INTO u SELECT g, 1 FROM generate_series(1, {ROWS}) AS g (g)")
    node.sql("INSERT INTO u VALUES (77, 2)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        node.sql(made)
    node.sql("DELETE FROM u WHERE n = 77 AND id = 2")
    node.sql(made)
    with pytest.raises(psycopg.errors.UniqueViolation):
        node.sql("INSERT INTO u VALUES (77, 2)")
    assert node.sql("SELECT count(*) FROM u") == [(ROWS,)]


def test_several_indexes_of_one_table_follow_each_other_at_once(cluster: Cluster) -> None:
    """Nothing of the first one is waited for; whoever asks is forgotten after 15 s (UNASKED_S)."""
    for table in ("other", "t"):
        with cluster["i1"].connect() as connection:
            connection.execute("SET statement_timeout = '14s'")
            for column in ("n", "id", "n, id"):
                connection.execute(f"CREATE INDEX ON {table} ({column})".encode())
    assert cluster["i1"].sql("SELECT count(*) FROM _pico_index WHERE name LIKE '%_idx'") == [(6,)]


def test_two_indexes_of_one_table_that_are_made_at_once_do_not_wait_for_each_other(
    cluster: Cluster,
) -> None:
    """Each instance fills one at a time: which is first has to be the same everywhere."""
    problems: list[str] = []
    both = threading.Barrier(2)

    def make(name: str, column: str) -> None:
        with cluster[name].connect() as connection:
            connection.execute("SET statement_timeout = '40s'")
            both.wait()
            try:
                connection.execute(f"CREATE INDEX t_{column} ON t ({column})".encode())
            except psycopg.Error as problem:
                problems.append(f"{name}: {problem}")

    makers = [threading.Thread(target=make, args=each) for each in (("i1", "n"), ("i2", "s"))]
    for each in makers:
        each.start()
    for each in makers:
        each.join()
    assert problems == []
    assert cluster["i1"].sql("SELECT count(*) FROM _pico_index WHERE name LIKE 't__'") == [(2,)]


def test_a_kill_in_the_middle_leaves_nothing_that_is_not_whole(cluster: Cluster) -> None:
    node = cluster["i2"]
    making = threading.Thread(target=attempt, args=(cluster["i1"], "CREATE INDEX t_n ON t (n)"))
    making.start()
    eventually(lambda: "x" in hidden_in(node.dir), "a hidden index at i2")
    node.kill()
    node.start()
    making.join()
    cluster.wait_online("i1", "i2")
    attempt(cluster["i1"], "CREATE INDEX IF NOT EXISTS t_n ON t (n)")
    check_whole(cluster, "t_n")


def attempt(node: Node, text: str) -> None:
    try:
        node.sql(text)
    except psycopg.Error:
        return


def hidden_in(directory: Path) -> str:
    connection = apsw.Connection(str(directory / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        query = "SELECT name FROM sqlite_schema WHERE name GLOB 'x[0-9]*'"
        return " ".join(name for (name,) in connection.execute(query))
    finally:
        connection.close()
