"""What an administrator gets wrong never ends a real cluster."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import psycopg
import pytest

from tests.cluster.backups import cairn
from tests.cluster.harness import Cluster, Node, eventually, free_ports

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]


def test_a_typo_and_a_short_cut_are_refused_and_everybody_restarts(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2")
    node = cluster["i2"]
    node.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    for value, sqlstate in (
        ('["Onlin",1]', "23514"),
        ("Online", "22P02"),
        ('["Expelled",1]', "55000"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            node.sql("UPDATE _pico_instance SET target_state = %s WHERE name = 'i1'", (value,))
        assert caught.value.sqlstate == sqlstate, caught.value
        assert caught.value.diag.message_hint or sqlstate == "22P02"
    with pytest.raises(psycopg.Error) as caught:
        node.sql("UPDATE _pico_replicaset SET weight = -1")
    assert caught.value.sqlstate == "23514"
    for name in ("i1", "i2"):
        cluster[name].kill()
    for name in ("i1", "i2"):
        cluster[name].start()
    cluster.wait_online("i1", "i2")
    eventually(lambda: cluster["i1"].sql("INSERT INTO t VALUES (1)") is not None, "a write")


def test_whoever_is_expelled_while_a_voter_is_dead_takes_no_quorum_along(
    new_cluster: Make,
) -> None:
    """Of three voters one is dead and one goes: the third has to decide alone."""
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    leader = cluster.leader("i1")
    dead, leaving = sorted(set(cluster.nodes) - {leader})
    cluster[dead].kill()
    eventually(lambda: cluster.states(leader)[dead] == "Offline", f"{dead} to be Offline")
    assert cairn(cluster[leader], "expel", leaving, "--yes", "--timeout", "40")[0] == 0
    cluster[leader].sql("CREATE TABLE after_it (a INT PRIMARY KEY)")
    assert cairn(cluster[leader], "expel", dead, "--yes", "--timeout", "40")[0] == 0
    assert cluster.states(leader) == {leader: "Online"}


def test_a_global_row_that_is_too_long_is_refused_and_the_next_is_written(
    new_cluster: Make,
) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    leader = cluster.leader("i1")
    other = next(name for name in cluster.nodes if name != leader)
    cluster[leader].sql("CREATE TABLE g (a INT PRIMARY KEY, b TEXT) DISTRIBUTED GLOBALLY")
    for at, name in enumerate((leader, other)):
        with pytest.raises(psycopg.Error) as caught:
            cluster[name].sql("INSERT INTO g VALUES (%s, %s)", (at, "x" * (17 << 20)))
        assert caught.value.sqlstate == "54000" and caught.value.diag.message_hint
        with (
            cluster[name].connect() as connection,
            connection.cursor().copy("COPY g FROM STDIN") as copy,
        ):
            for row in range(12):
                copy.write_row((100 * (at + 1) + row, "x" * (2 << 20)))
        cluster[name].sql("INSERT INTO g VALUES (%s, 'small')", (at,))
    assert cluster[other].sql("SELECT count(*) FROM g") == [(26,)]


def test_a_learner_says_within_seconds_that_nobody_leads(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3", "i4")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    status = cluster["i1"].status()
    voters, leader = status["raft"]["voters"], status["raft"]["leader"]
    [learner] = [name for name in cluster.nodes if name not in voters]
    other = next(name for name in voters if name != leader)
    node = cluster[learner]
    node.sql("CREATE TABLE g (a INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    cluster[leader].kill()
    cluster[other].kill()
    eventually(lambda: node.status()["raft"]["leader"] is None, "it to be noticed", 10.0)
    assert "there is no Raft leader" in " ".join(node.status()["problems"])
    began = time.monotonic()
    with pytest.raises(psycopg.Error) as caught:
        node.sql("INSERT INTO g VALUES (1)")
    assert caught.value.sqlstate == "PC002"
    assert leader in str(caught.value) and other in str(caught.value)
    assert time.monotonic() - began < 15.0


def test_a_start_that_is_refused_for_its_certificate_leaves_no_member(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node = cluster.add("k1")
    node.start("--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key", peers=cluster["i1"].peer)
    assert node.wait_exit() == 2
    assert "--tls-cert /nowhere.pem: there is no such file" in node.log()
    assert "joined as" not in node.log()
    assert cluster["i1"].sql("SELECT name FROM _pico_instance") == [("i1",)]


def test_a_copy_of_a_directory_is_not_started_beside_its_original(new_cluster: Make) -> None:
    """Both voted as one, and the others sent to the copy what was meant for the first."""
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2", "i3")
    original = cluster["i2"]
    before = cluster["i1"].sql("SELECT * FROM _pico_peer_address ORDER BY 1, 3")
    copy = Node(cluster, "i2")
    copy.dir = cluster.dir / "copy"
    shutil.copytree(original.dir, copy.dir, ignore=shutil.ignore_patterns("cairn.pid"))
    try:
        copy.start()
        assert copy.wait_exit(30) == 2
        told = copy.log()
        assert f"i2 runs already, at {original.peer}: this directory is a copy" in told
        assert cluster["i1"].sql("SELECT * FROM _pico_peer_address ORDER BY 1, 3") == before
        original.stop()  # with the first one gone it is an ordinary start at another address
        copy.start()
        eventually(lambda: copy.peer in str(cluster["i1"].status()), "the new address", 30)
    finally:
        copy.kill()


def test_an_address_at_which_nobody_is_reached_is_told(new_cluster: Make) -> None:
    """It was Online by the links that it made itself, and nothing said that it has no others."""
    cluster = new_cluster().start("i1", "i2")
    third = cluster.add("i3")
    [wrong] = free_ports(1)
    third.advertise = f"127.0.0.1:{wrong}"
    third.start()
    cluster.wait_online("i3", via="i1")
    told = (
        f"cannot connect to i3 at 127.0.0.1:{wrong}: there are only the links that i3 made; "
        "start it with an --advertise where others reach it"
    )
    eventually(lambda: told in str(cluster["i1"].status()["problems"]), "that it is told")

    def is_found() -> bool:
        """Whoever asks by its address alone takes it for dead, which is worse (6)."""
        code, found = cairn(cluster["i1"], "doctor")
        return code in (1, 6) and told in found

    eventually(is_found, "that the doctor finds it")
    third.stop()
    third.advertise = None
    third.start()
    cluster.wait_online("i3", via="i1")
    eventually(lambda: cluster["i1"].status()["problems"] == [], "that all is well")
