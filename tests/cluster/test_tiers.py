"""Tiers of a running cluster: one is added, copies are raised and lowered, the mode too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = pytest.mark.cluster


def cairn(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    dsn = f"postgresql://admin@127.0.0.1:{node.pg_port}/cairn"
    return subprocess.run(
        [sys.executable, "-m", "cairn.cli.main", *words, "--dsn", dsn],
        env={**os.environ, "PGPASSWORD": PASSWORD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


def tiers(node: Node) -> dict[str, Any]:
    done = cairn(node, "tier", "list", "--json")
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_tiers_are_added_changed_and_dropped_while_people_write(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "tiers").start("i1")
    try:
        first = cluster["i1"]
        first.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
        first.sql("INSERT INTO t SELECT * FROM generate_series(1, 50)")

        _a_tier_is_added(cluster, first)
        _copies_are_raised_and_kept_in_sync(cluster, first)
        _copies_are_lowered_and_the_replica_is_released(cluster, first)

        assert first.sql("SELECT count(*) FROM t") == [(52,)]
    finally:
        cluster.close()


def _a_tier_is_added(cluster: Cluster, first: Node) -> None:
    added = cairn(first, "tier", "add", "hot", "--bucket-count", "64")
    assert (added.returncode, added.stdout.splitlines()[0]) == (
        0,
        "tier hot: replication factor 1, async, 64 buckets",
    )
    again = cairn(first, "tier", "add", "hot")
    assert again.returncode == 1
    assert "there is a tier 'hot' already" in again.stderr
    cluster.add("i2").start("--tier", "hot")
    cluster.wait_online("i1", "i2")
    first.sql("CREATE TABLE h (id INT PRIMARY KEY) DISTRIBUTED BY (id) IN TIER hot")
    first.sql("INSERT INTO h SELECT * FROM generate_series(1, 20)")
    assert cluster["i2"].sql("SELECT count(*) FROM h") == [(20,)]
    refused = cairn(first, "tier", "drop", "hot")
    assert (refused.returncode, "tier hot has tables" in refused.stderr) == (1, True)


def _copies_are_raised_and_kept_in_sync(cluster: Cluster, first: Node) -> None:
    first.sql("UPDATE _pico_tier SET replication_factor = 2 WHERE name = 'default'")
    cluster.add("i3").start()
    cluster.wait_online("i1", "i2", "i3")
    assert tiers(first)["default"]["replicasets"] == {"default_1": ["i1", "i3"]}
    replicaset = "SELECT members FROM _pico_replicaset WHERE name = 'default_1'"
    eventually(lambda: "i3" in str(first.sql(replicaset)), "i3 has the rows")

    assert cairn(first, "tier", "set", "default", "--replication-mode", "sync").returncode == 0
    first.sql("INSERT INTO t VALUES (51)")
    local = "SELECT count(*) FROM t OPTION (read_preference = replica)"
    assert cluster["i3"].sql(local) == [(51,)]  # acknowledged: the replica has it
    with pytest.raises(psycopg.Error) as fixed:
        first.sql("UPDATE _pico_tier SET bucket_count = 5 WHERE name = 'default'")
    assert fixed.value.sqlstate == "42501"


def _copies_are_lowered_and_the_replica_is_released(cluster: Cluster, first: Node) -> None:
    asked = cairn(first, "tier", "set", "default", "--replication-factor", "1", "--release")
    assert (asked.returncode, asked.stderr) == (
        2,
        "cairn: expel i3? Their processes end for good. A script says --yes\n",
    )
    done = cairn(first, "tier", "set", "default", "--replication-factor", "1", "--release", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "i3 is expelled")
    first.sql("INSERT INTO t VALUES (52)")  # a majority of one is enough again
