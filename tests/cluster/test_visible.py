"""Links, traffic and rows that belong to no history: seen by SQL, in metrics and in the status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cairn.native.library import library
from tests.cluster.harness import PASSWORD, Cluster, eventually, free_ports
from tests.cluster.proxy import ProxiedCluster

pytestmark = pytest.mark.cluster
CREATE = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)"
COUNT = "SELECT count(*) FROM t OPTION (read_preference = any)"


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedCluster]:
    cluster = ProxiedCluster(tmp_path, "test", "--init-replication-factor", "3")
    yield cluster
    cluster.close()


def master_of(cluster: Cluster, via: str) -> str:
    return str(cluster[via].status()["replicasets"][0]["master"])


def test_links_and_what_crossed_them_can_be_read_by_sql_and_as_metrics(
    new_cluster: Callable[..., Cluster],
) -> None:
    [port] = free_ports(1)
    cluster = new_cluster("--init-replication-factor", "2").start("i1")
    master, replica = cluster["i1"], cluster.add("i2")
    replica.start("--http-listen", f"127.0.0.1:{port}", peers=master.peer)
    cluster.wait_online("i1", "i2")
    master.sql(CREATE)
    for key in range(20):
        master.sql(f"INSERT INTO t VALUES ({key}, 'x')")
    eventually(lambda: replica.sql(COUNT) == [(20,)], "all rows")
    links = "SELECT upstream, state, problem, lag_rows, lag_s, records, twice FROM _cairn_link"
    eventually(
        lambda: replica.sql(links) == [("i1", "follow", None, 0, 0.0, 21, 0)],  # rows and the table
        "the link with its 21 records",
    )
    traffic = "SELECT direction, peer, origin, records, bytes, twice FROM _cairn_traffic"
    [received] = replica.sql(traffic)
    assert received[:4] == ("in", "i1", "i1", 21)
    assert received[4] > 21 * 10
    eventually(
        lambda: master.sql(traffic) == [("out", "i2", "i1", 21, received[4], 0)],
        "the same, sent",
    )
    with replica.connect() as connection:
        for _ in range(4):  # the first one goes the long way
            connection.execute(
                "SELECT name FROM _pico_instance WHERE name = %s", ["i1"], prepare=True
            )
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'cairn_replication_lag_rows{upstream="i1"} 0' in text
    assert 'cairn_replication_link_stopped{upstream="i1"} 0' in text
    assert (
        f'cairn_replication_received_bytes_total{{origin="i1",upstream="i1"}} {received[4]}' in text
    )
    assert f"cairn_reads_compiled_total {3.0 if library() else 0.0}\n" in text
    assert text.count("# TYPE cairn_replication_lag_rows gauge") == 1
    rows = {
        row["name"]: (row["lag_rows"], len(row["links"])) for row in master.status()["instances"]
    }
    assert rows == {"i1": (0, 1), "i2": (0, 1)}
    for name in ("_cairn_link", "_cairn_traffic", "_cairn_diverged"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            replica.sql(f"DELETE FROM {name}")


def test_rows_of_a_master_that_was_replaced_can_be_read_where_they_were_written(
    proxied: ProxiedCluster,
) -> None:
    cluster = proxied
    cluster.start("i1", "i2", "i3")
    cluster["i1"].sql(CREATE)
    master = master_of(cluster, "i1")
    kept = next(name for name in cluster.nodes if name != master)
    with cluster[master].connect() as connection:
        connection.execute("INSERT INTO t VALUES (1, 'before')")
        for name in cluster.nodes:
            eventually(lambda n=name: cluster[n].sql(COUNT) == [(1,)], "the first row")  # type: ignore[misc]
        cluster.proxy.isolate(master)  # async: for the rest of its lease it goes on alone
        connection.execute("INSERT INTO t VALUES (2, 'tail')")
        connection.execute("UPDATE t SET b = 'changed' WHERE a = 1")
        connection.execute("DELETE FROM t WHERE a = 1")
    eventually(lambda: master_of(cluster, kept) != master, "another master")
    cluster.proxy.heal()
    cluster.wait_online("i1", "i2", "i3", via=kept)
    query = "SELECT origin, op, table_name, key, old, new FROM _cairn_diverged ORDER BY lsn, n"

    def told() -> list[object]:
        return [
            (origin, op, table, *(text and json.loads(text) for text in texts))
            for origin, op, table, *texts in cluster[master].sql(query)
        ]

    first, changed = {"a": 1, "b": "before"}, {"a": 1, "b": "changed"}
    expected = [
        (master, "insert", "t", {"a": 2}, None, {"a": 2, "b": "tail"}),
        (master, "update", "t", {"a": 1}, first, changed),
        (master, "delete", "t", {"a": 1}, changed, None),
    ]
    eventually(lambda: told() == expected, "the tail in _cairn_diverged")
    rows = "SELECT a, b FROM t OPTION (read_preference = any)"
    eventually(lambda: cluster[master].sql(rows) == [(1, "before")], "the rows of history")
    cluster[master].kill()
    cluster[master].start()
    eventually(lambda: told() == expected, "the same after a restart")


def test_watch_goes_on_at_another_instance(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i1'].pg_port}/cairn"
    told, said = tmp_path / "events", tmp_path / "remarks"
    with told.open("wb") as out, said.open("wb") as err:
        command = [sys.executable, "-m", "cairn.cli.main", "watch", "--dsn", dsn]
        watch = subprocess.Popen(command, stdout=out, stderr=err)
    try:
        eventually(lambda: "snapshot_end" in told.read_text(), "the snapshot")
        cluster["i1"].kill()
        offline = f"instance=i1 at 127.0.0.1:{cluster['i1'].pg_port} current_state=Offline"
        eventually(lambda: offline in told.read_text(), "what happened to i1, told by another")
        assert "cairn: following 127.0.0.1:" in said.read_text()
        assert told.read_text().count("snapshot_end") == 1  # it was resumed, not begun anew
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == 130
    finally:
        watch.kill()
        watch.wait()
