"""The blocking driver and its DB-API face against fake instances."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cairn.client import sync
from cairn.client.sync_types import translated
from cairn.model.errors import CairnError
from cairn.model.members.topology import Grade

from .fake_cluster import FakeCluster

INSERT = "INSERT INTO t VALUES (%s, %s)"
SELECT = "SELECT id, v FROM t WHERE id = %s"


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[sync.Connection]:
    with sync.connect(cluster.dsn(), timeout_s=3.0, retry_for_s=3.0) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def test_the_module_is_what_pep_249_wants() -> None:
    assert (sync.apilevel, sync.threadsafety, sync.paramstyle) == ("2.0", 2, "format")
    assert issubclass(sync.IntegrityError, sync.DatabaseError)
    assert sync.NUMBER == 20 and sync.NUMBER != 25 and sync.STRING == 25
    assert (
        sync.numbered("a = %s AND b LIKE '%%x' AND c = %s") == "a = $1 AND b LIKE '%x' AND c = $2"
    )
    with pytest.raises(sync.ProgrammingError, match="%d is not known"):
        sync.numbered("a = %d")


def test_statements_go_straight_to_their_owners(
    cluster: FakeCluster, connection: sync.Connection
) -> None:
    cursor = connection.cursor()
    for key in range(30):
        cursor.execute(INSERT, (key, f"v{key}"))
        assert cursor.rowcount == 1 and cursor.description is None
    cursor.execute(SELECT, [7])
    assert cursor.fetchone() == (7, "v7") and cursor.fetchone() is None
    assert cursor.description is not None and [each[0] for each in cursor.description] == [
        "id",
        "v",
    ]
    for name in ("i1", "i2"):
        assert all(cluster.home(v[0]) == name for _, v in cluster.instances[name].executed)
    assert connection.pool.stats.routed == 31
    assert connection.explain_route(SELECT, [7]).endswith("metadata cached")


def test_rows_come_one_by_one_some_or_all(connection: sync.Connection) -> None:
    cursor = connection.cursor()
    cursor.executemany(INSERT, [(key, "x") for key in range(10)])
    assert cursor.rowcount == 10
    cursor.execute("SELECT id, v FROM t")
    assert len(cursor.fetchmany(3)) == 3 and len(cursor.fetchmany()) == 1
    assert len(list(cursor)) == 6 and cursor.fetchall() == []


def test_errors_are_dbapi_errors_with_their_sqlstate(connection: sync.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(INSERT, (1, "x"))
    with pytest.raises(sync.IntegrityError) as caught:
        cursor.execute(INSERT, (1, "y"))
    assert caught.value.sqlstate == "23505"
    with pytest.raises(sync.ProgrammingError):
        cursor.execute("nonsense")
    with pytest.raises(sync.ProgrammingError, match="no rows"):
        connection.cursor().fetchone()
    for code, kind in (("0A000", sync.NotSupportedError), ("40003", sync.OperationalError)):
        assert type(translated(CairnError("x", sqlstate=code))) is kind
    assert "0.1 s" in str(translated(CairnError("no answer in 0.1 s")))


def test_commit_has_nothing_to_do_and_rollback_does_not_pretend(
    connection: sync.Connection,
) -> None:
    connection.rollback()
    connection.cursor().execute(INSERT, (1, "x"))
    with pytest.raises(sync.NotSupportedError, match="1 statements stay committed"):
        connection.rollback()
    connection.commit()
    connection.rollback()


def test_a_closed_connection_says_so(cluster: FakeCluster) -> None:
    connection = sync.connect(cluster.dsn())
    cursor = connection.cursor()
    connection.close()
    with pytest.raises(sync.InterfaceError):
        cursor.execute("SELECT id, v FROM t")
    until(lambda: cluster.services() == [])


def test_threads_share_a_connection(cluster: FakeCluster, connection: sync.Connection) -> None:
    problems: list[Exception] = []

    def work(first: int) -> None:
        try:
            for key in range(first, first + 50):
                connection.cursor().execute(INSERT, (key, "x"))
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(100 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    cluster.give_all_buckets_to("r2")
    for thread in threads:
        thread.join(20)
    assert not problems and len(cluster.rows) == 200


def test_the_topology_is_followed_in_the_background(
    cluster: FakeCluster, connection: sync.Connection
) -> None:
    view = connection.pool.topology
    cluster.set_master("r1", "i3")
    until(lambda: view.view.replicasets["u-r1"].master_uuid == "u-i3")
    cluster.stop("i1")
    cluster.set_grade("i1", Grade.OFFLINE)
    until(lambda: connection.pool.stats.topology_resumes == 1)
    until(lambda: not view.view.instances["u-i1"].is_online)
    key = cluster.key_of("i1")
    connection.cursor().execute(INSERT, (key, "x"))
    assert cluster.instances["i3"].executed[-1] == ("insert", [key, "x"])


def test_a_connection_cut_while_idle_is_not_used_for_a_write(
    cluster: FakeCluster, connection: sync.Connection
) -> None:
    key = cluster.key_of("i2")
    cursor = connection.cursor()
    cursor.execute(SELECT, [key])
    sessions = [each for each in cluster.instances["i2"].sessions if each.version is None]
    cluster.on_loop(lambda: [each.cut() for each in sessions])
    time.sleep(0.05)
    cursor.execute(INSERT, (key, "x"))
    assert cluster.rows == {key: "x"}


def test_a_lost_answer_to_a_write_is_not_repeated(
    cluster: FakeCluster, connection: sync.Connection
) -> None:
    key = cluster.key_of("i2")
    cluster.instances["i2"].hang_up_on = "insert"
    with pytest.raises(sync.OperationalError) as caught:
        connection.cursor().execute(INSERT, (key, "x"))
    assert caught.value.sqlstate == "40003"
    assert cluster.rows == {key: "x"}


def test_copy(cluster: FakeCluster, connection: sync.Connection) -> None:
    pool = connection.pool
    assert pool.copy_in("COPY t FROM STDIN", [b"1\tx\n", b"2\ty\n"]) == "COPY 2"
    assert sorted(pool.copy_out("COPY t TO STDOUT")) == [b"1\tx\n", b"2\ty\n"]
