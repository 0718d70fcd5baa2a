"""Instances find each other, form one cluster, leave it, die and come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest

from cairn.cli.steering import expel
from cairn.cli.talking import NO_PASSWORD
from tests.cluster.harness import PASSWORD, Cluster, Node, eventually, free_ports

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]


@pytest.fixture(scope="module")
def one_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("one"))
    try:
        yield cluster.start("i1")
    finally:
        cluster.close()


def test_the_seeds_example_gives_one_cluster(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    fourth = cluster.add("i4").start(peers=cluster["i1"].peer)
    cluster.wait_online("i1", "i2", "i3", "i4", via="i4")
    status = fourth.status()
    assert {row["name"] for row in status["instances"]} == {"i1", "i2", "i3", "i4"}
    assert sorted(row["raft_id"] for row in status["instances"]) == [1, 2, 3, 4]
    eventually(lambda: len(fourth.status()["raft"]["voters"]) == 3, "three voters of four")
    assert sum(row["buckets"] for row in status["replicasets"]) == 3000


def test_a_wrong_peer_of_an_earlier_start_is_told_as_one(new_cluster: Make) -> None:
    """It is kept, so that there are never two founders; a corrected --peer did not say why."""
    cluster = new_cluster()
    node, wrong = cluster.add("i1"), f"127.0.0.1:{free_ports(1)[0]}"
    kept = node.dir / "discovery.json"
    node.start(peers=f"{node.peer},{wrong}")
    eventually(lambda: kept.exists() and wrong in kept.read_text(), "the wrong peer on disk")
    node.stop()
    node.start(peers=node.peer)
    told = f"waiting for an answer from: {wrong} (not in --peer)"
    eventually(lambda: told in node.log(), "its name in the log")
    assert "forgets it without its discovery.json" in node.log()
    node.stop()
    kept.unlink()
    node.start(peers=node.peer)
    cluster.wait_online("i1")


def test_a_killed_leader_is_replaced_and_comes_back_with_a_new_incarnation(
    new_cluster: Make,
) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    old = cluster.leader("i1")
    others = [name for name in cluster.nodes if name != old]
    cluster[old].kill()

    def replaced() -> bool:
        status = cluster[others[0]].status()
        states = {row["name"]: row["current_state"] for row in status["instances"]}
        masters = {row["master"] for row in status["replicasets"]}
        return (
            status["raft"]["leader"] in others
            and states[old].startswith("Offline")
            and old not in masters
        )

    eventually(replaced, "a new leader and a new master")
    cluster[old].start()
    cluster.wait_online("i1", "i2", "i3", via=others[0])
    status = cluster[others[0]].status()
    assert {row["name"]: row["current_state"] for row in status["instances"]}[old] == "Online(2)"


def test_one_of_two_leaves_gracefully_and_the_other_keeps_working(new_cluster: Make) -> None:
    """A story from practice: the one that stays must not lose its quorum."""
    cluster = new_cluster().start("i1", "i2")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 2, "two voters")
    for leaving in ("i2", "i1"):
        staying = "i1" if leaving == "i2" else "i2"
        assert cluster[leaving].stop() == 0
        status = cluster[staying].status()
        assert status["raft"]["voters"] == [staying]
        assert status["raft"]["leader"] == staying
        assert cluster.states(staying)[leaving] == "Offline"
        cluster[leaving].start()
        cluster.wait_online("i1", "i2", via=staying)
        eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 2, "two voters")


def test_a_paused_instance_is_treated_like_a_dead_one_and_comes_back_harmless(
    new_cluster: Make,
) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 3, "three voters")
    leader = cluster.leader("i1")
    others = [name for name in cluster.nodes if name != leader]
    cluster[leader].pause()
    eventually(lambda: cluster.states(others[0])[leader] == "Offline", "the paused one Offline")
    cluster[leader].resume()
    cluster.wait_online("i1", "i2", "i3", via=others[0])
    terms = {name: cluster[name].status()["raft"]["leader"] for name in cluster.nodes}
    assert len(set(terms.values())) == 1


def test_all_killed_at_once_come_back_with_everything(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)")
    cluster["i1"].sql("CREATE TABLE g (a INT PRIMARY KEY, b TEXT) DISTRIBUTED GLOBALLY")
    for at in range(20):
        cluster["i2"].sql(f"INSERT INTO t VALUES ({at}, 'row {at}')")
    cluster["i3"].sql("INSERT INTO g VALUES (1, 'one')")
    for node in cluster.nodes.values():
        node.kill()
    for name in ("i3", "i1", "i2"):
        cluster[name].start()
    cluster.wait_online("i1", "i2", "i3")
    eventually(
        lambda: cluster["i3"].sql("SELECT count(*), sum(a) FROM t") == [(20, 190)],
        "all acknowledged rows",
    )
    assert cluster["i1"].sql("SELECT * FROM g") == [(1, "one")]


def test_a_changed_address_is_recorded_and_a_changed_name_refused(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2", "i3")
    node = cluster["i2"]
    assert node.stop() == 0
    node.peer_port, node.pg_port = free_ports(2)
    node.start("--failure-domain", "DC=MSK", peers=cluster["i1"].peer)
    cluster.wait_online("i1", "i2", "i3")
    address = cluster["i1"].sql(
        "SELECT a.address FROM _pico_peer_address a JOIN _pico_instance i ON a.raft_id = i.raft_id "
        "WHERE i.name = 'i2' AND a.connection_type = 'pgproto'"
    )
    assert address == [(f"127.0.0.1:{node.pg_port}",)]
    assert node.stop() == 0
    assert node.start("--tier", "other").wait_exit() == 2
    assert "instance restarted with a different tier" in node.log()


def test_an_expelled_instance_is_forgotten_and_told_so_when_it_starts_again(
    new_cluster: Make,
) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    [(raft_id,)] = cluster["i1"].sql("SELECT raft_id FROM _pico_instance WHERE name = 'i3'")
    cluster["i1"].sql("CALL cairn_expel('i3', false, 20)")
    assert cluster["i3"].wait_exit() == 5
    assert cluster["i1"].sql("SELECT name FROM _pico_instance ORDER BY 1") == [("i1",), ("i2",)]
    known = cluster["i1"].sql("SELECT DISTINCT raft_id FROM _pico_peer_address")
    assert (raft_id,) not in known
    cluster["i3"].start()
    assert cluster["i3"].wait_exit() == 5
    assert "expelled" in cluster["i3"].log()
    newcomer = cluster.add("i4").start(peers=cluster["i1"].peer)
    cluster.wait_online("i1", "i2", "i4")
    assert {row["name"]: row["raft_id"] for row in newcomer.status()["instances"]}["i4"] == 4


def cairn(node: Node, *words: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    """A command of ours that talks to this instance; its text."""
    dsn = f"postgresql://admin@127.0.0.1:{node.pg_port}/cairn"
    return subprocess.run(
        [sys.executable, "-m", "cairn.cli.main", *words, "--dsn", dsn],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "PGPASSWORD": password},
    )


def test_an_instance_may_be_expelled_through_its_own_address(
    new_cluster: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    ended = cairn(cluster["i2"], "expel", "i2", "--yes")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("i2 is expelled\n", "", 0)
    assert cluster["i2"].wait_exit() == 5
    told = cairn(cluster["i1"], "status")
    pg = [f"127.0.0.1:{cluster[name].pg_port}" for name in ("i1", "i3")]
    assert told.returncode == 0 and all(address in told.stdout for address in pg)
    refused = cairn(cluster["i1"], "status", password="")
    assert refused.stderr == f"cairn: {NO_PASSWORD}\n" and refused.returncode == 1
    # Had it stayed with the instance that goes, the others would say how it ended.
    monkeypatch.setattr(expel, "_elsewhere", lambda talk, *_: talk)
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{cluster['i3'].pg_port}/cairn"
    assert expel.run_expel("i3", dsn, None, force=False, timeout_s=20.0, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["expelled"] == "i3"


def test_the_last_owner_of_buckets_is_not_expelled_without_force(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1", "i2")
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY) DISTRIBUTED BY (a)")
    with pytest.raises(psycopg.Error, match="is the last instance that is known to have"):
        cluster["i1"].sql("CALL cairn_expel('i2', false, 5)")


def test_newcomers_that_do_not_fit_are_refused_with_a_sentence(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    other = cluster.add("i2")
    other.start("--cluster-name", "other", "--log-level", "debug", peers=cluster["i1"].peer)
    assert other.wait_exit() == 2
    assert "nobody lets this instance in" in other.log()
    assert "cluster_name mismatch" in other.log()
    duplicate = cluster.add("dup")
    duplicate.name = "i1"
    duplicate.start(peers=cluster["i1"].peer)
    assert duplicate.wait_exit() == 1
    assert "`i1` is already joined" in duplicate.log()
    tier = cluster.add("i5").start("--tier", "nowhere", peers=cluster["i1"].peer)
    assert tier.wait_exit() in (1, 2)
    assert "nowhere" in tier.log()


def test_a_stranger_without_the_secret_learns_nothing(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    stranger = cluster.add("i2")
    stranger.start(
        "--log-level", "debug", peers=cluster["i1"].peer, CAIRN_SERVICE_PASSWORD="a guess"
    )
    assert stranger.wait_exit() == 2  # told once, and not tried for hours
    assert "nobody lets this instance in" in stranger.log()
    assert "wrong service password" in stranger.log()
    assert cluster.states("i1") == {"i1": "Online"}
    assert "default_1" not in stranger.log()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE _pico_instance SET current_state = target_state WHERE name = 'i1'",
        "DELETE FROM _pico_instance",
        "INSERT INTO _pico_property VALUES ('x', NULL)",
        "UPDATE _pico_replicaset SET epoch = 9",
        "DELETE FROM _pico_user WHERE id = 1",
        "DELETE FROM _cairn_event",
    ],
)
def test_sql_cannot_write_what_only_the_governor_may(one_instance: Cluster, statement: str) -> None:
    before = one_instance["i1"].sql("SELECT name, uuid, current_state FROM _pico_instance")
    with pytest.raises(psycopg.Error) as refusal:
        one_instance["i1"].sql(statement)
    assert refusal.value.sqlstate == "42501", refusal.value
    after = one_instance["i1"].sql("SELECT name, uuid, current_state FROM _pico_instance")
    assert after == before


def test_a_planned_switch_is_asked_for_by_sql(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    [(old,)] = cluster["i1"].sql("SELECT current_master_name FROM _pico_replicaset")
    other = "i2" if old == "i1" else "i1"
    cluster["i1"].sql("UPDATE _pico_replicaset SET target_master_name = %s", (other,))

    def switched() -> bool:
        query = "SELECT current_master_name, epoch FROM _pico_replicaset"
        return cluster["i2"].sql(query) == [(other, 2)]

    eventually(switched, "the new master")


def test_a_large_statement_on_a_global_table_is_not_cut_short(one_instance: Cluster) -> None:
    """What the event loop hands to a thread elsewhere must be read in one turn here."""
    node = one_instance["i1"]
    node.sql("CREATE TABLE wide (a INT PRIMARY KEY, b TEXT) DISTRIBUTED GLOBALLY")
    values = ", ".join(f"({at}, 'row {at}')" for at in range(3000))
    node.sql(f"INSERT INTO wide VALUES {values}")
    node.sql("UPDATE wide SET b = b || '!'")
    assert node.sql("SELECT count(*), max(b) FROM wide") == [(3000, "row 999!")]
