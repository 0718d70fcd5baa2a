"""A disk that hangs: `fdatasync` never returns. Its instance ends, and others take over."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]

#: Each sync takes so long that the thread of the writer does it, as on a real disk; it hangs while
#: there is a FIFO that nobody writes to.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_disk(void) {
    int fifo = open(getenv("HUNG_DISK"), O_RDONLY);
    if (fifo >= 0)
        close(fifo);
    usleep(5000);
}

int fsync(int file) {
    wait_for_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    wait_for_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}
"""
CONFIG = """
cluster:
  name: test
  tier:
    default:
      replication_factor: 3
      replication_mode: sync
"""


def built(directory: Path) -> Path:
    source, library = directory / "shim.c", directory / "shim.so"
    source.write_text(SHIM)
    command = ["gcc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


def let_go(fifo: Path) -> None:
    if fifo.exists():
        writer = os.open(fifo, os.O_RDWR)
        fifo.unlink()
        os.close(writer)


def master_of(node: Node) -> str:
    [replicaset] = node.status()["replicasets"]
    return str(replicaset["master"])


def write_in_vain(node: Node) -> None:
    """Nobody can say whether it was done."""
    with contextlib.suppress(psycopg.Error):
        node.sql("INSERT INTO t VALUES (2)")


def test_a_master_whose_disk_hangs_says_so_and_makes_way(tmp_path: Path) -> None:
    library = built(tmp_path)
    (tmp_path / "tiers.yaml").write_text(CONFIG)
    cluster = Cluster(tmp_path, "test", "--config", str(tmp_path / "tiers.yaml"))
    flags = {name: tmp_path / f"{name}.hangs" for name in ("i1", "i2", "i3")}
    try:
        for name, flag in flags.items():
            node = cluster.add(name)
            cluster.peers = cluster.peers or node.peer
            node.start("--hang-timeout", "12", LD_PRELOAD=str(library), HUNG_DISK=str(flag))
        first = cluster["i1"]
        eventually(lambda: len(first.status()["raft"]["voters"]) == 3, "voters", 90.0)
        first.sql("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
        eventually(lambda: first.sql("INSERT INTO t VALUES (1) RETURNING id"), "a row", 60.0)
        hung = cluster[master_of(first)]
        for key in range(100, 160):  # until its writer knows that this disk is slow
            hung.sql(f"INSERT INTO t VALUES ({key})")
        others = [node for node in cluster.nodes.values() if node is not hung]
        before = hung.child_pid
        os.mkfifo(flags[hung.name])
        writing = threading.Thread(target=write_in_vain, args=(hung,))
        writing.start()
        eventually(
            lambda: any(
                line.startswith(f"{hung.name}: the disk of data.db has taken nothing for")
                for line in others[0].status()["problems"]
            ),
            "that it is told",
            60.0,
        )
        eventually(lambda: master_of(others[0]) != hung.name, "another master", 60.0)
        eventually(lambda: others[0].sql("INSERT INTO t VALUES (3) RETURNING id"), "a row", 60.0)
        writing.join(60.0)
        assert "its disk takes nothing any more" in hung.log()
        let_go(flags[hung.name])
        eventually(lambda: hung.child_pid != before, "another child", 60.0)
        found = eventually(lambda: hung.sql("SELECT id FROM t ORDER BY id"), "its rows", 90.0)
        assert {(1,), (3,)} <= {row for row in found if row < (100,)} <= {(1,), (2,), (3,)}
        assert len(found) >= 62
    finally:
        for flag in flags.values():
            let_go(flag)
        cluster.close()
