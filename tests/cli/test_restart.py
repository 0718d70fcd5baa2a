"""`cairn restart`: one instance at a time, and no acknowledged row is lost."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cairn.cli.steering.restart import order_of, problem_of
from tests.cluster.backups import cairn, command
from tests.cluster.harness import Cluster, eventually

Make = Callable[..., Cluster]


def row(name: str, **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "replicaset": "r1",
        "current_state": "Online(1)",
        "target_state": "Online(1)",
        "answers": True,
        "links": [],
        "lag_rows": 0,
        "leader": False,
    } | facts


def status(*rows: dict[str, Any], leader: str | None = "i1") -> dict[str, Any]:
    names = [each["name"] for each in rows]
    return {
        "raft": {"leader": leader},
        "instances": list(rows),
        "problems": [] if leader else ["there is no Raft leader: i2 cannot be reached"],
        "replicasets": [
            {"name": "r1", "master": names[0], "target_master": names[0], "members": names}
        ],
    }


def test_replicas_come_first_and_the_leader_of_raft_last() -> None:
    found = status(row("i1"), row("i2", leader=True), row("i3"))
    assert order_of(found, []) == ["i3", "i1", "i2"]
    assert order_of(found, ["i1", "i3"]) == ["i3", "i1"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (status(row("i1"), row("i2")), None),
        (status(row("i1"), row("i2", lag_rows=100)), None),
        (status(row("i1"), leader=None), "there is no Raft leader: i2 cannot be reached"),
        (status(row("i1"), row("i2", answers=False)), "i2 is not Online"),
        (status(row("i1"), row("i2", current_state="Offline(1)")), "i2 is not Online"),
        (
            status(row("i1"), row("i2", target_state="Offline(1)")),
            "i2 is Online(1), not yet Offline(1)",
        ),
        (status(row("i1"), row("i2", lag_rows=101)), "i2 is 101 rows behind"),
        (status(row("i1"), row("i2", lag_rows=None)), "i2 is unknown many rows behind"),
        (
            status(row("i1"), row("i2", links=[{"state": "stopped"}])),
            "i2 does not follow its master",
        ),
    ],
)
def test_nobody_is_taken_away_from_a_cluster_that_is_not_well(
    found: dict[str, Any], why: str | None
) -> None:
    assert problem_of(found) == why


class Writer(threading.Thread):
    """One row after the other, at whoever is there."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._nodes, self.stopped = list(cluster.nodes.values()), threading.Event()
        self.acked: list[int] = []

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            try:
                with self._nodes[number % len(self._nodes)].connect() as connection:
                    while not self.stopped.is_set():
                        number += 1
                        connection.execute("INSERT INTO t VALUES (%s)", (number,))
                        self.acked.append(number)
            except psycopg.Error:
                number += 1


def supervisor(directory: Path) -> str:
    return (directory / "cairn.pid").read_text().split()[0]


def test_a_rolling_restart_loses_nothing_and_stops_when_one_is_missing(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    node = cluster["i1"]
    node.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    before = {name: supervisor(cluster[name].dir) for name in cluster.nodes}
    children = {cluster[name].child_pid for name in cluster.nodes}
    load = Writer(cluster)
    load.start()
    try:
        eventually(lambda: len(load.acked) > 20, "a load")
        asked = command(node, "restart", "--rolling", "--yes", "--json")
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    finally:
        load.stopped.set()
        load.join(30)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["restarted"]
    assert sorted(each["instance"] for each in told) == ["i1", "i2", "i3"]
    assert all(each["state"] > "Online(1)" for each in told), told
    assert {name: supervisor(cluster[name].dir) for name in cluster.nodes} == before
    assert not children & {each.child_pid for each in cluster.nodes.values()}
    there = {number for (number,) in node.sql("SELECT id FROM t")}
    assert [number for number in load.acked if number not in there] == []

    cluster["i3"].stop()
    eventually(lambda: cluster.states("i1")["i3"] == "Offline", "i3 Offline")
    code, said = cairn(node, "restart", "i2", "--yes", "--timeout", "1")
    assert (code, said) == (
        4,
        "waiting: i3 is not Online\n"
        "cairn: stopped before i2: i3 is not Online (waited 1 s); no instance was restarted\n",
    )
    assert cluster.states("i1")["i2"] == "Online"


def test_an_instance_that_was_restarted_still_ends_by_its_signal(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node = cluster["i1"]

    def life() -> int:
        [grade] = node.sql("SELECT current_state FROM _pico_instance")
        return int(grade[0][1]) if grade[0][0] == "Online" else 0

    for _ in range(7):  # more often than an instance may begin anew by itself
        before, child = life(), node.child_pid
        node.sql(f"CALL cairn_restart('i1', {before})")
        eventually(lambda: node.child_pid != child and life() > before, "another life")  # noqa: B023
    child = node.child_pid
    node.sql("CALL cairn_restart('i1', 1)")  # comes late: that life is over
    assert node.status()["instances"][0]["answers"]
    assert node.child_pid == child
    assert node.stop() == 0


def test_what_cannot_be_restarted_is_refused_in_one_sentence(small: Cluster) -> None:
    node = small["i1"]
    assert cairn(node, "restart", "--yes") == (
        2,
        "cairn: name instances, or say --rolling for all of them\n",
    )
    code, said = cairn(node, "restart", "i9", "--yes")
    assert (code, said.splitlines()) == (
        2,
        ['cairn: there is no instance "i9", known: i1, i2, i3; no instance was restarted'],
    )
    code, said = cairn(node, "restart", "i3")
    assert code == 2
    assert "Nobody else has the rows of i3" in said
    assert "--yes" in said
