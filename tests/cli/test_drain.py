"""`cairn drain`: told, interrupted, taken back; and the instance that was asked goes away."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from cairn.cli.steering import rebalance
from cairn.cli.steering.drain import far
from tests.cluster.backups import cairn, command
from tests.cluster.harness import Cluster, eventually

Make = Callable[..., Cluster]


def test_it_tells_in_a_sentence_why_it_does_not_go_on() -> None:
    move = {"source": "r1", "target": "r2", "rows_to_do": 7, "waits_for": "r2 has no master"}
    status = {"moves": [move], "replicasets": [{"name": "r1", "buckets": 100}]}
    told = "r1 owns 100 buckets, 7 rows of those that move are left; r2 has no master"
    assert far(status, "r1") == told


def test_who_watches_is_told_what_changed_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [{"start": 1, "end": 9}]
    tiers = [[{"tier": "default", "replicasets": [], "wanted": wanted}] for wanted in (parts, [])]
    states = [{"moves": [], "waits": [], "paused": False, "tiers": each} for each in tiers]
    answers = iter([states[0], states[0], states[0], states[1]])
    monkeypatch.setattr(rebalance, "EVERY_S", 0.0)
    monkeypatch.setattr(rebalance, "Talk", Mock())
    monkeypatch.setattr(rebalance, "_ask", lambda *_: next(answers))
    assert rebalance.run_rebalance(None, None, "status", wait=True) == 0
    told = capsys.readouterr().out
    assert told.count("9 buckets are still to move, in 1 piece\n") == 1
    assert told.count("nothing moves, and nothing has to") == 1


def test_a_replicaset_is_drained_interrupted_and_taken_back(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "1").start("i1", "i2")
    node = cluster["i1"]
    node.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    node.sql("INSERT INTO t SELECT * FROM generate_series(1, 600)")

    def buckets() -> dict[str, int]:
        return {row["name"]: row["buckets"] for row in node.status()["replicasets"]}

    eventually(lambda: set(buckets().values()) == {1500}, "equal shares")
    code, told = cairn(node, "drain", "nothing", "--yes")
    assert (code, told) == (
        1,
        'cairn: there is no replicaset "nothing", known: default_1, default_2\n',
    )
    code, told = cairn(node, "drain", "default_2")
    assert (code, told) == (
        2,
        "cairn: default_2: move its 1500 buckets to others? A script says --yes\n",
    )
    node.sql("ALTER SYSTEM SET rebalance_rows_per_s = 20")
    draining = subprocess.Popen(
        command(node, "drain", "default_2", "--yes"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert draining.stderr is not None and draining.stdout is not None
    try:
        assert draining.stderr.readline().startswith("default_2 owns 1500 buckets")
        draining.send_signal(signal.SIGINT)
        last = draining.stderr.read().splitlines()[-1]
        assert (last, draining.wait(20)) == (
            "cairn: stopped by Ctrl-C; the buckets go on moving, "
            "cairn drain default_2 --back takes it back",
            130,
        )
    finally:
        draining.kill()
        draining.wait()
        draining.stdout.close()
        draining.stderr.close()
    code, told = cairn(node, "drain", "default_2", "--back", "--no-wait")
    assert code == 0 and told.startswith("default_2 takes buckets again: weight 1, "), told
    node.sql("ALTER SYSTEM SET rebalance_rows_per_s = 0")
    assert cairn(node, "drain", "default_2", "--back")[0] == 0
    assert set(buckets().values()) == {1500}
    done = subprocess.run(
        command(node, "drain", "default_2", "--yes", "--json"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = json.loads(done.stdout)
    found.pop("seconds")
    assert (done.returncode, found) == (
        0,
        {"replicaset": "default_2", "weight": 0.0, "buckets": 0, "before": 1500},
    )
    assert node.sql("SELECT count(*) FROM t") == [(600,)]
    code, told = cairn(node, "drain", "default_1", "--yes")
    assert (code, told.count("\n"), "no other replicaset" in told) == (1, 1, True), told


@pytest.mark.slow
def test_a_drain_is_watched_at_another_instance_when_its_own_goes_away(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "1").start("i1", "i2", "i3")
    node = cluster["i3"]
    owner = {row["master"]: row["name"] for row in node.status()["replicasets"]}
    assert cairn(node, "drain", owner["i3"], "--yes")[0] == 0
    node.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
    node.sql("INSERT INTO t SELECT * FROM generate_series(1, 300)")
    node.sql("ALTER SYSTEM SET rebalance_rows_per_s = 20")
    draining = subprocess.Popen(
        command(node, "drain", owner["i2"], "--yes"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert draining.stderr is not None
        assert "owns" in draining.stderr.readline()
        node.stop()
        cluster["i1"].sql("ALTER SYSTEM SET rebalance_rows_per_s = 0")
        out, err = draining.communicate(timeout=60)
        assert (draining.returncode, out.startswith(f"{owner['i2']} owns no buckets")) == (
            0,
            True,
        ), err
    finally:
        draining.kill()
        draining.communicate()
