"""A write that takes long can be ended like a read: nothing of it stays, nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

MATCH = "EXISTS (SELECT 1 FROM wg a, wg b, wg c, wg d WHERE a.v || b.v || c.v || d.v = w.v)"
#: On one replicaset, here or at another instance, and on all of them.
ENDLESS = {
    "one row here or there": f"UPDATE w SET v = 'gone' WHERE id = %s AND {MATCH}",
    "rows everywhere": f"DELETE FROM w WHERE id >= %s AND {MATCH}",
}


@pytest.fixture(scope="module")
def rows(cluster: Cluster) -> Iterator[Cluster]:
    node = cluster["i1"]
    node.sql("CREATE TABLE w (id INT PRIMARY KEY, v TEXT) DISTRIBUTED BY (id)")
    node.sql("CREATE TABLE wg (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    node.sql("INSERT INTO w SELECT i, 'kept' FROM generate_series(1, 20) g(i)")
    node.sql("INSERT INTO wg SELECT i, 'v' || i FROM generate_series(1, 300) g(i)")
    eventually(lambda: cluster["i2"].sql("SELECT count(*) FROM wg") == [(300,)], "rows at i2")
    yield cluster
    node.sql("DROP TABLE w")
    node.sql("DROP TABLE wg")


def nothing_happened(cluster: Cluster) -> None:
    """All rows are as they were, and the writers of both replicasets are free."""
    node = cluster["i1"]
    assert node.sql("SELECT count(*) FROM w WHERE v = 'kept'") == [(20,)]
    with node.connect() as other:
        other.execute("SET statement_timeout = '20s'")
        assert other.execute("UPDATE w SET v = v").rowcount == 20


@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.parametrize("key", [1, 2, 3, 4])  # some of them live at i2
def test_a_time_limit_ends_a_write(rows: Cluster, what: str, key: int) -> None:
    if what == "rows everywhere" and key > 1:
        return
    with rows["i1"].connect() as connection:
        connection.execute("SET statement_timeout = '400ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(ENDLESS[what].replace("%s", str(key)))
    nothing_happened(rows)


@pytest.mark.parametrize("way", ["cancel", "disconnect"])
@pytest.mark.parametrize("key", [1, 2, 3])
def test_a_cancel_and_a_disconnect_end_a_write(rows: Cluster, way: str, key: int) -> None:
    node = rows["i1"]
    text = ENDLESS["one row here or there"].replace("%s", str(key))
    connection = node.connect()
    told: list[Any] = []

    def run() -> None:
        try:
            told.append(connection.execute(text))
        except psycopg.Error as problem:
            told.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    running = "SELECT count(*) FROM pg_stat_activity WHERE query = %s"
    eventually(lambda: node.sql(running, (text,)) == [(1,)], "the write at work")
    if way == "cancel":
        connection.cancel()
        thread.join(20)
        assert isinstance(told[0], psycopg.errors.QueryCanceled), told
    else:
        pid = connection.info.backend_pid
        node.sql("SELECT pg_terminate_backend(%s)", (pid,))
        thread.join(20)
        assert isinstance(told[0], psycopg.OperationalError), told
    assert not thread.is_alive()
    connection.close()
    nothing_happened(rows)


def test_who_waits_behind_a_long_write_may_leave(rows: Cluster) -> None:
    """Its own write has not begun: it never will, and that is told at once."""
    node = rows["i1"]
    text = ENDLESS["one row here or there"]
    endless = text.replace("%s", "1")
    with node.connect() as first, node.connect() as second:

        def run() -> None:
            with pytest.raises(psycopg.errors.QueryCanceled):
                first.execute(endless)

        thread = threading.Thread(target=run)
        thread.start()
        running = "SELECT count(*) FROM pg_stat_activity WHERE query = %s"
        eventually(lambda: node.sql(running, (endless,)) == [(1,)], "the first")
        second.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            second.execute("UPDATE w SET v = 'gone' WHERE (SELECT count(*) FROM wg) > 0")
        first.cancel()
        thread.join(20)
        assert not thread.is_alive()
    nothing_happened(rows)


def test_a_write_ends_whose_end_came_together_with_it(rows: Cluster) -> None:
    """Its owner stands still meanwhile, and finds the question and the cancel in one moment."""
    node = rows["i1"]
    [(key,)] = node.sql(
        "SELECT min(w.id) FROM w JOIN _pico_bucket b ON w.bucket_id BETWEEN b.bucket_id_start "
        "AND b.bucket_id_end JOIN _pico_replicaset r ON r.name = b.current_replicaset_name "
        "WHERE r.current_master_name = 'i2'"
    )
    told: list[Any] = []

    def run() -> None:
        with node.connect() as connection:
            connection.execute("SET statement_timeout = '300ms'")
            begun.set()
            try:
                connection.execute(ENDLESS["one row here or there"].replace("%s", str(key)))
            except psycopg.Error as problem:
                told.append(problem)

    begun, thread = threading.Event(), threading.Thread(target=run)
    rows["i2"].pause()
    try:
        thread.start()
        assert begun.wait(20)
        limit = time.monotonic() + 0.7  # the cancel is on its way, and nobody takes i2 for dead
        eventually(lambda: time.monotonic() > limit, "the end of its time")
    finally:
        rows["i2"].resume()
        thread.join(20)
    assert [type(problem).__name__ for problem in told] in (
        ["QueryCanceled"],
        ["StatementCompletionUnknown"],  # the owner's last word was not waited for so long
    )
    nothing_happened(rows)


@pytest.mark.parametrize("key", [1, 2, 3])
def test_a_time_limit_ends_a_block(rows: Cluster, key: int) -> None:
    text = ENDLESS["one row here or there"].replace("%s", str(key))
    first = f"UPDATE w SET v = 'first' WHERE id = {key}"
    with rows["i1"].connect() as connection:
        connection.execute("SET statement_timeout = '400ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(f"DO $$ BEGIN {first}; {text}; END $$")
        connection.execute(f"BEGIN; {first}")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(text)
        connection.execute("ROLLBACK")
    nothing_happened(rows)
