"""Real files of real processes in which a byte changes by itself."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.cluster.backups import cairn
from tests.cluster.harness import Cluster, Node, eventually
from tests.storage.rot import flip

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
ROWS = 2000


def text_of(key: int) -> str:
    return f"text of {key:06d} " + "." * 60


def filled(node: Node) -> None:
    node.sql("CREATE TABLE t (k INT PRIMARY KEY, v TEXT)")
    with node.connect() as connection, connection.cursor().copy("COPY t FROM STDIN") as copy:
        for key in range(ROWS):
            copy.write_row((key, text_of(key)))


def test_the_only_copy_goes_on_without_its_damaged_page_and_says_so(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node = cluster["i1"]
    filled(node)
    assert node.stop() == 0
    flip(node.dir / "data.db", text_of(777).encode())
    node.start()
    cluster.wait_online("i1")
    with node.connect() as connection:
        for text in ("SELECT v FROM t WHERE k = 777", "UPDATE t SET v = 'new' WHERE k = 777",
                     "SELECT count(v) FROM t", "COPY t TO STDOUT"):  # fmt: skip
            with pytest.raises(psycopg.Error) as caught:
                if text.startswith("COPY"):
                    with connection.cursor().copy(text) as copy:
                        list(copy)
                else:
                    connection.execute(text)
            assert caught.value.sqlstate == "XX001", (text, caught.value)
            assert caught.value.diag.message_hint, text
        good = connection.execute("SELECT v FROM t WHERE k = 5").fetchall()
        assert good == [(text_of(5),)]
        connection.execute("INSERT INTO t VALUES (10000, 'new')")

    line = eventually(lambda: [p for p in node.status()["problems"] if "data.db" in p], "a word")[0]
    assert "table t" in line and "no other instance has these rows" in line
    eventually(lambda: line in node.status()["governor"]["blocked_by"], "the governor's word")
    assert line in node.log()


def test_a_replica_mends_itself_while_it_runs(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    filled(cluster["i1"])
    [(master,)] = cluster["i1"].sql("SELECT current_master_name FROM _pico_replicaset")
    node = cluster[next(name for name in cluster.nodes if name != master)]
    node.stop()
    node.start()
    cluster.wait_online("i1", "i2", via=master)
    assert node.process is not None
    pid = node.process.pid
    flip(node.dir / "data.db", text_of(777).encode())
    cluster[master].sql("ALTER SYSTEM SET scrub_rows_per_s = 0")
    cluster[master].sql("ALTER SYSTEM SET scrub_interval = 1.0")
    eventually(lambda: (node.dir / "damaged" / "data.db").exists(), "the file put aside")
    cluster.wait_online("i1", "i2", via=master)
    eventually(lambda: "the full copy has 2000 rows" in node.log(), "a full copy")
    assert node.process.pid == pid and node.process.poll() is None
    cluster[master].sql(f"UPDATE _pico_replicaset SET target_master_name = '{node.name}'")
    found = eventually(
        lambda: node.sql("SELECT v FROM t WHERE k = 777"), "the row at its new master"
    )
    assert found == [(text_of(777),)]
    assert "stopping" not in cluster[master].log()


def with_global_rows(cluster: Cluster) -> Node:
    """Enough for pages that nothing is added to any more."""
    node = cluster["i1"]
    node.sql("CREATE TABLE g (k INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    for start in range(0, 300, 50):
        rows = ", ".join(f"({key}, '{text_of(key)}')" for key in range(start, start + 50))
        node.sql(f"INSERT INTO g VALUES {rows}")
    assert node.stop() == 0
    return node


def test_a_changed_byte_of_the_raft_file_is_noticed_before_it_is_believed(
    new_cluster: Make,
) -> None:
    node = with_global_rows(new_cluster().start("i1"))
    flip(node.dir / "raft.db", text_of(77).encode())
    node.start()
    assert node.wait_exit() == 1
    assert "raft.db is damaged: the checksum of a page is wrong" in node.log()
    assert "hint: restore the directory from a copy, or expel this instance" in node.log()


def test_a_changed_byte_of_the_raft_file_is_noticed_while_it_runs(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node = with_global_rows(cluster)
    node.start()
    cluster.wait_online("i1")
    flip(node.dir / "raft.db", text_of(77).encode())
    node.sql("ALTER SYSTEM SET scrub_rows_per_s = 0")
    node.sql("ALTER SYSTEM SET scrub_interval = 1.0")
    line = eventually(lambda: [p for p in node.status()["problems"] if "raft.db" in p], "a word")[0]
    assert line.startswith("i1: raft.db is damaged: the checksum of a page is wrong in ")
    assert line.endswith("restore the directory from a copy")


@pytest.mark.slow
def test_files_that_are_damaged_at_a_start_of_all_are_mended_from_the_others(
    new_cluster: Make,
) -> None:
    """The master's rows first, then the votes of another one, which one command brings back."""
    names = ("i1", "i2", "i3")
    cluster = new_cluster("--init-replication-factor", "3").start(*names)
    nodes = [cluster[name] for name in names]
    filled(nodes[0])
    eventually(lambda: len(nodes[0].status()["raft"]["voters"]) == 3, "three voters")
    eventually(lambda: all(has_all(node) for node in nodes), "all rows everywhere")
    [(master,)] = nodes[0].sql("SELECT current_master_name FROM _pico_replicaset")

    def ruined(name: str, file: str) -> None:
        for node in nodes:
            node.kill()
        with (cluster[name].dir / file).open("r+b") as opened:
            opened.write(bytes(100))
        for node in nodes:
            node.start()

    ruined(master, "data.db")
    eventually(lambda: all(has_all(node) for node in nodes), "all rows everywhere", 60.0)
    assert (cluster[master].dir / "damaged" / "data.db").exists()
    [(master,)] = nodes[0].sql("SELECT current_master_name FROM _pico_replicaset")
    victim, other = (cluster[name] for name in names if name != master)
    ruined(victim.name, "raft.db")
    eventually(lambda: f"`cairn expel {victim.name}`" in victim.log(), "what helps", 60.0)
    eventually(lambda: has_all(other), "the others to go on", 60.0)
    assert cairn(other, "expel", victim.name, "--yes", "--timeout", "60")[0] == 0
    eventually(lambda: all(has_all(node) for node in nodes), "all rows everywhere", 60.0)
    assert victim.process is not None and victim.process.poll() is None


def has_all(node: Node) -> bool:
    return node.sql("SELECT count(*) FROM t OPTION (read_preference = any)") == [(ROWS,)]
