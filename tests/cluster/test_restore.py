"""Directories that were put back from a copy: one cluster at one moment, or nothing is changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
NAMES = ("i1", "i2", "i3")


def restored(*directories: Path, without: str = "") -> tuple[int, str]:
    command = [sys.executable, "-m", "cairn.cli.main", "restore", *map(str, directories)]
    command += ["--without", without] if without else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def stopped(cluster: Cluster) -> None:
    for name in NAMES:
        assert cluster[name].process is not None
        cluster[name].process.terminate()
    for name in NAMES:
        cluster[name].wait_exit()


def killed(cluster: Cluster) -> None:
    """Nobody says goodbye: who does may leave another one as the only voter."""
    for name in NAMES:
        cluster[name].kill()


def copied(cluster: Cluster, where: str) -> Path:
    found = cluster.dir / where
    for name in NAMES:
        shutil.copytree(cluster[name].dir, found / name)
    return found


def put_back(cluster: Cluster, name: str, copy: Path) -> None:
    shutil.rmtree(cluster[name].dir)
    shutil.copytree(copy / name, cluster[name].dir)


def started(cluster: Cluster) -> None:
    for name in NAMES:
        cluster[name].start()
    cluster.wait_online(*NAMES)


def files(cluster: Cluster) -> list[bytes]:
    return [(cluster[name].dir / "raft.db").read_bytes() for name in NAMES]


def test_a_copy_begins_a_history_of_its_own(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start(*NAMES)
    node = cluster["i1"]
    directories = [cluster[name].dir for name in NAMES]
    code, said = restored(*directories)
    assert (code, "an instance runs in this directory" in said) == (2, True), said
    node.sql("CREATE TABLE t (k INT PRIMARY KEY)")
    node.sql("INSERT INTO t VALUES (1)")
    old_uuid = node.status()["cluster"]["uuid"]
    stopped(cluster)
    copy = copied(cluster, "copy")
    started(cluster)
    eventually(lambda: node.sql("INSERT INTO t VALUES (2)") is not None, "a write")
    eventually(lambda: node.sql("CREATE TABLE since (k INT PRIMARY KEY)") is not None, "a table")
    eventually(lambda: cluster["i3"].sql("SELECT k FROM since") == [], "i3 knows of it")
    killed(cluster)
    later = copied(cluster, "later")

    # Two old ones and one of later: what the two had agreed on since is only in the third.
    for name in ("i1", "i2"):
        put_back(cluster, name, copy)
    before = files(cluster)
    code, said = restored(*directories)
    assert (code, "lack what a majority had agreed on" in said) == (1, True), said
    # Old entries with rows of later.
    for name in NAMES:
        put_back(cluster, name, copy)
    for name in NAMES:
        for file in (later / name).glob("data.db*"):
            shutil.copy(file, cluster[name].dir / file.name)
    code, said = restored(*directories)
    assert (code, "raft.db and data.db belong together" in said) == (1, True), said
    # Not all of them.
    for name in NAMES:
        put_back(cluster, name, copy)
    code, said = restored(*directories[:2])
    assert (code, "the directory of i3 lacks" in said) == (1, True), said
    assert files(cluster)[:2] == before[:2]  # refused, and nothing was changed

    # Interrupted after the first note: nobody starts before it is finished.
    (directories[2] / "restore.json").write_text(f'{{"before":"{old_uuid}","after":"x"}}')
    cluster["i3"].start()
    assert cluster["i3"].wait_exit() == 2
    assert "a restore was begun and not finished" in cluster["i3"].log()
    (directories[2] / "restore.json").unlink()

    code, said = restored(*directories)
    assert (code, "i1, i2, i3: ready to be started" in said) == (0, True), said
    started(cluster)
    new_uuid = node.status()["cluster"]["uuid"]
    assert new_uuid != old_uuid
    assert node.sql("SELECT k FROM t") == [(1,)]
    eventually(lambda: node.sql("INSERT INTO t VALUES (3)") is not None, "a write")
    i4 = cluster.add("i4").start()  # who joins now learns the new uuid from the first entry on
    cluster.wait_online("i4", via="i1")
    assert i4.status()["cluster"]["uuid"] == new_uuid
    assert i4.sql("SELECT value FROM _pico_property WHERE key = 'cluster_uuid'") == [(new_uuid,)]
    assert "was copied since the last start" not in node.log()

    # One directory of the old history does not come back into the new one.
    cluster["i3"].stop()
    put_back(cluster, "i3", later)
    cluster["i3"].start()
    eventually(lambda: "cluster uuid mismatch" in cluster["i3"].log(), "a refusal")
    assert cluster.states("i1")["i3"] == "Offline"


def test_files_that_were_copied_by_hand_are_told(new_cluster: Make) -> None:
    cluster = new_cluster().start("i1")
    node = cluster["i1"]
    node.stop()
    shutil.copytree(node.dir, cluster.dir / "copy")
    shutil.rmtree(node.dir)
    shutil.copytree(cluster.dir / "copy", node.dir)
    node.start()
    cluster.wait_online("i1")
    assert "run `cairn restore`" in node.log()
