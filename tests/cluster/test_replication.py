"""Rows outlive the instance that took them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]

CREATE = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)"


def master_of(cluster: Cluster, via: str) -> str:
    return str(cluster[via].status()["replicasets"][0]["master"])


def config(tmp: Any, mode: str) -> str:
    path = tmp / "tiers.yaml"
    path.write_text(
        "cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: 3\n"
        f"      replication_mode: {mode}\n"
    )
    return str(path)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_rows_survive_a_killed_master_and_reach_it_when_it_returns(
    new_cluster: Make, tmp_path: Any, mode: str
) -> None:
    cluster = new_cluster("--config", config(tmp_path, mode)).start("i1", "i2", "i3")
    cluster["i1"].sql(CREATE)
    for at in range(30):
        cluster["i2"].sql(f"INSERT INTO t VALUES ({at}, 'row {at}')")
    old = master_of(cluster, "i1")
    others = [name for name in cluster.nodes if name != old]
    expected = [(30, sum(range(30)))]

    def replicas_have_all() -> bool:
        return all(
            cluster[name].sql("SELECT count(*), sum(a) FROM t OPTION (read_preference = any)")
            == expected
            for name in others
        )

    eventually(replicas_have_all, "all rows on the replicas")
    cluster[old].kill()
    eventually(lambda: master_of(cluster, others[0]) in others, "a new master")
    eventually(
        lambda: cluster[others[0]].sql("SELECT count(*), sum(a) FROM t") == expected,
        "all rows at the new master",
    )
    eventually(
        lambda: cluster[others[1]].sql("INSERT INTO t VALUES (100, 'after')") == [],
        "a write at the new master",
    )
    cluster[old].start()
    cluster.wait_online("i1", "i2", "i3", via=others[0])
    query = "SELECT count(*) FROM t OPTION (read_preference = any)"
    eventually(lambda: cluster[old].sql(query) == [(31,)], "the returned one has everything")


def test_a_planned_switch_loses_no_acknowledged_row(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    cluster["i1"].sql(CREATE)
    old = master_of(cluster, "i1")
    other = "i2" if old == "i1" else "i1"
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        at = 0
        while not stop.is_set():
            try:
                with cluster[other].connect() as connection:
                    while not stop.is_set():
                        connection.execute("INSERT INTO t VALUES (%s, 'x')", (at,))
                        acknowledged.append(at)
                        at += 1
            except psycopg.Error:
                at += 1

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: len(acknowledged) > 50, "some writes")
    assert cluster[old].stop() == 0
    before = len(acknowledged)
    eventually(lambda: len(acknowledged) > before + 20, "writes at the new master")
    stop.set()
    writer.join()
    have = {row[0] for row in cluster[other].sql("SELECT a FROM t OPTION (sql_motion_row_max=0)")}
    assert set(acknowledged) <= have


def test_a_newcomer_takes_a_full_copy_with_schema_and_indexes(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1")
    second = cluster.add("i2").start(peers=cluster["i1"].peer)
    cluster.wait_online("i1", "i2")
    cluster["i1"].sql(CREATE)
    cluster["i1"].sql("CREATE INDEX by_b ON t (b)")
    for at in range(10):
        cluster["i1"].sql(f"INSERT INTO t VALUES ({at}, 'b{at}')")
    third = cluster.add("i3").start("--replicaset-name", "default_1", peers=cluster["i1"].peer)
    cluster.wait_online("i1", "i2", "i3")
    query = "SELECT count(*) FROM t WHERE b = 'b7' OPTION (read_preference = any)"
    eventually(lambda: third.sql(query) == [(1,)], "the newcomer's own rows")
    assert second.sql(query) == [(1,)]


def test_a_replica_says_how_old_its_rows_may_be(new_cluster: Make, tmp_path: Any) -> None:
    cluster = new_cluster("--config", config(tmp_path, "async")).start("i1", "i2", "i3")
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY) DISTRIBUTED BY (a)")
    cluster["i1"].sql("INSERT INTO t VALUES (1), (2), (3)")
    query = "SELECT count(*) FROM t OPTION (read_preference = any)"
    [(master,)] = cluster["i1"].sql("SELECT current_master_name FROM _pico_replicaset")
    for name in cluster.nodes:
        eventually(lambda n=name: cluster[n].sql(query) == [(3,)], f"{name} has the rows")
        with cluster[name].connect() as connection:
            connection.execute("SELECT count(*) FROM t")
            assert connection.info.parameter_status("read_staleness_ms") is None
            connection.execute(query)
            told = connection.info.parameter_status("read_staleness_ms")
            if name == master:
                assert told is None
            else:
                assert told is not None and 0 <= int(told) < 60_000
                assert connection.execute("SHOW read_staleness_ms").fetchone() == (told,)


def test_in_sync_mode_rows_are_told_when_a_majority_has_them_unless_a_read_is_local(
    new_cluster: Make, tmp_path: Any
) -> None:
    cluster = new_cluster("--config", config(tmp_path, "sync")).start("i1", "i2", "i3")
    cluster["i1"].sql(CREATE)
    cluster["i1"].sql("INSERT INTO t VALUES (1, 'one')")
    master = master_of(cluster, "i1")
    one, other = (name for name in cluster.nodes if name != master)
    cluster["i1"].sql(f"ALTER SYSTEM SET replication_graph = '{one}>{other}'")

    def upstreams(name: str) -> set[str]:
        [(found,)] = cluster[name].sql("CALL cairn_replication()")
        return {link["upstream"] for link in found["links"]}

    eventually(lambda: master not in upstreams(one) | upstreams(other), "nobody follows it")

    def copied() -> list[Any]:
        text = "COPY (SELECT a FROM t) TO STDOUT"
        with cluster[master].connect() as connection, connection.cursor().copy(text) as rows:
            return sorted(rows.rows())

    def write() -> None:
        with pytest.raises(psycopg.errors.StatementCompletionUnknown):
            cluster[master].sql("INSERT INTO t VALUES (2, 'two')")

    writer = threading.Thread(target=write)
    writer.start()
    local = "SELECT count(*) FROM t OPTION (read_preference = any)"
    eventually(lambda: cluster[master].sql(local) == [(2,)], "the row at the master")
    with cluster[one].connect() as connection:  # which asks the master
        connection.execute("SET read_concern = local")
        for text in ("SELECT b FROM t WHERE a = 2", "SELECT b FROM t WHERE b = 'two'"):
            assert connection.execute(text).fetchall() == [("two",)]
        assert connection.execute("SHOW read_concern").fetchone() == ("local",)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="majority, local"):
        cluster[one].sql("SELECT b FROM t OPTION (read_concern = all)")
    told = cluster[one].sql("SELECT b FROM t WHERE a = 2 OPTION (read_concern = local)")
    assert told == [("two",)]
    with pytest.raises(psycopg.Error) as refused:
        copied()
    assert refused.value.sqlstate == "PC003"
    writer.join()
    cluster["i1"].sql("ALTER SYSTEM RESET replication_graph")
    eventually(lambda: copied() == [("1",), ("2",)], "both rows")
