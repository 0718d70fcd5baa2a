"""What is put back while ranges move and masters are killed: nothing is lost, nothing is twice."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from tests.cluster.backups import backed_up, command
from tests.cluster.harness import Cluster, Node, eventually
from tests.cluster.test_blocks_moving import Payer, prepare, why_wrong
from tests.cluster.test_moves import SYNC, _who, buckets, is_calm
from tests.cluster.test_restore import restored

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
Make = Callable[..., Cluster]
ROWS = 30_000


def is_moving(node: Node) -> bool:
    return bool(node.sql("CALL cairn_rebalance()")[0][0]["moves"])


def test_a_cluster_that_ended_in_the_middle_of_a_move_is_put_back_and_its_master_is_killed(
    new_cluster: Make,
) -> None:
    """All at once, as the power goes; then a new history, and the master of a range that moves."""
    cluster = new_cluster()
    (cluster.dir / "tiers.yaml").write_text(SYNC)
    cluster.flags += ["--config", str(cluster.dir / "tiers.yaml")]
    cluster.start("i1", "i2", "i3")
    first = cluster["i1"]
    prepare(first)
    first.sql("ALTER SYSTEM SET rebalance_rows_per_s = 2000")
    payers = [Payer(cluster, number) for number in range(3)]
    for payer in payers:
        payer.start()
    try:
        for name in ("i4", "i5", "i6"):
            cluster.add(name).start(peers=",".join(cluster[n].peer for n in ("i1", "i2", "i3")))
        eventually(lambda: len(buckets(first)) == 2 and is_moving(first), "a move", 60.0)
        time.sleep(0.3)
    finally:
        for node in cluster.nodes.values():
            node.kill()
        for payer in payers:
            payer.ending.set()
        for payer in payers:
            payer.join(40)
    code, said = restored(*(node.dir for node in cluster.nodes.values()))
    assert code == 0, said
    for node in cluster.nodes.values():
        node.start()
    for role in ("default_1", "default_2"):
        name = eventually(lambda role=role: _who(cluster, role), "a master", 60.0)  # type: ignore[misc]
        cluster[name].kill()
        others = [node for node in cluster.nodes.values() if node.name != name]
        eventually(lambda r=role, o=others, n=name: _who(cluster, r, o) != n, "an heir", 60.0)  # type: ignore[misc]
        cluster[name].start()
    cluster.wait_online(*cluster.nodes)
    eventually(
        lambda: buckets(first) == {"default_1": 1500, "default_2": 1500} and is_calm(first),
        "half of the buckets to move",
        120.0,
    )
    paid = {tag: how for payer in payers for tag, how in payer.paid.items()}
    assert [wrong for payer in payers for wrong in payer.wrong] == []
    assert why_wrong(first, paid) == []
    assert sum(how == "done" for how in paid.values()) > 20, paid


def test_a_backup_of_a_moving_cluster_is_restored_into_another_that_moves_and_loses_a_master(
    new_cluster: Make,
) -> None:
    source = new_cluster().start("i1")
    one = source["i1"]
    one.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    one.sql(f"INSERT INTO t SELECT k, k * 7 FROM generate_series(1, {ROWS}) k")
    one.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    source.add("i2").start(peers=one.peer)
    eventually(lambda: is_moving(one), "a move", 60.0)
    taken = backed_up(one, source.dir / "backups")
    source.close()

    there = new_cluster(name="other").start("j1", "j2")
    node = there["j1"]
    ends: list[tuple[int, str]] = []

    def restore() -> None:
        for _ in range(20):
            done = subprocess.run(
                command(node, "restore", str(taken)), capture_output=True, text=True, check=False
            )
            ends.append((done.returncode, done.stdout + done.stderr))
            if not done.returncode:
                return
            time.sleep(0.5)

    work = threading.Thread(target=restore, daemon=True)
    work.start()
    there.add("j3").start(peers=node.peer)
    eventually(lambda: node.sql("SELECT count(*) FROM t")[0][0] > 0, "the first rows", 60.0)
    there["j2"].kill()
    time.sleep(1.0)
    there["j2"].start()
    work.join(120)
    assert ends and ends[-1][0] == 0, ends
    there.wait_online("j1", "j2", "j3")
    eventually(lambda: len(buckets(node)) == 3 and is_calm(node), "moves to end", 60.0)
    print(ends)
    found = node.sql("SELECT count(*), count(DISTINCT k), min(k), max(k), sum(v) FROM t")
    assert found == [(ROWS, ROWS, 1, ROWS, 7 * ROWS * (ROWS + 1) // 2)]
