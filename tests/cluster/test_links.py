"""Links that are cut, in both directions or in one, disks that fill up, starts that are cut short.

Instances reach each other only through a proxy in user space; clients reach them directly.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.cluster.proxy import ProxiedCluster

pytestmark = pytest.mark.cluster
Make = Callable[..., ProxiedCluster]
CREATE = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)"
TRIPLE = ("--init-replication-factor", "3")


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Make]:
    made: list[ProxiedCluster] = []

    def make(*flags: str) -> ProxiedCluster:
        directory = tmp_path / f"proxied{len(made)}"
        directory.mkdir()
        made.append(ProxiedCluster(directory, "test", *flags))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def leader_of(cluster: Cluster, via: str) -> str:
    leader = cluster[via].status()["raft"]["leader"]
    assert leader, "no leader"
    return str(leader)


def all_voters_know(cluster: Cluster) -> None:
    """That there are three. While the third becomes one, its two fellows cannot do without each
    other; what is agreed on after that comes behind it in every log.
    """
    for node in cluster.nodes.values():
        eventually(lambda node=node: len(node.status()["raft"]["voters"]) == 3, "three voters")
    cluster["i1"].sql("CREATE TABLE settled (k INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    for node in cluster.nodes.values():
        eventually(lambda node=node: node.sql("SELECT k FROM settled") == [], "it is known")


def three(proxied: Make) -> tuple[ProxiedCluster, str, list[str]]:
    """A cluster of three voters, its leader, the others."""
    cluster = proxied(*TRIPLE)
    cluster.start("i1", "i2", "i3")
    all_voters_know(cluster)
    leader = leader_of(cluster, "i1")
    return cluster, leader, [name for name in cluster.nodes if name != leader]


def back_to_normal(cluster: ProxiedCluster, via: str) -> None:
    cluster.proxy.heal()
    cluster.wait_online(*cluster.nodes, via=via)

    def one_leader() -> bool:
        return len({leader_of(cluster, name) for name in cluster.nodes}) == 1

    eventually(one_leader, "one leader for all")


def test_a_leader_cut_from_all_others_steps_down_and_comes_back_as_a_follower(
    proxied: Make,
) -> None:
    cluster, leader, others = three(proxied)
    cluster.proxy.isolate(leader)
    eventually(lambda: leader_of(cluster, others[0]) in others, "a new leader")
    eventually(lambda: cluster.states(others[0])[leader] == "Offline", "the old one Offline")

    def stepped_down() -> bool:
        status = cluster[leader].status()
        return status["raft"]["leader"] != leader

    eventually(stepped_down, "the old leader to step down")
    back_to_normal(cluster, others[0])


def test_a_leader_that_hears_but_is_not_heard_is_replaced(proxied: Make) -> None:
    cluster, leader, others = three(proxied)
    for other in others:
        cluster.proxy.cut(leader, other)
    eventually(lambda: leader_of(cluster, others[0]) in others, "a new leader")
    back_to_normal(cluster, others[0])


def test_a_follower_that_is_not_heard_is_set_offline_and_troubles_nobody(proxied: Make) -> None:
    cluster, leader, others = three(proxied)
    lost, kept = others
    term = cluster[leader].status()["raft"]["term"]
    for other in (leader, kept):
        cluster.proxy.cut(lost, other)
    eventually(lambda: cluster.states(leader)[lost] == "Offline", "the silent one Offline")
    assert leader_of(cluster, kept) == leader
    back_to_normal(cluster, leader)
    assert cluster[leader].status()["raft"]["term"] == term, "its return cost no election"


@pytest.mark.slow
def test_the_majority_goes_on_and_the_minority_waits(proxied: Make) -> None:
    cluster = proxied()
    cluster.start("i1", "i2", "i3", "i4", "i5")
    eventually(lambda: len(cluster["i1"].status()["raft"]["voters"]) == 5, "five voters")
    leader = leader_of(cluster, "i1")
    fellow, *majority = (name for name in cluster.nodes if name != leader)
    cluster.proxy.split(leader, fellow)
    eventually(lambda: leader_of(cluster, majority[0]) in majority, "a leader of the majority")
    eventually(
        lambda: cluster[fellow].status()["raft"]["leader"] is None, "no leader in the minority"
    )
    back_to_normal(cluster, majority[0])


# --- a master that lost the leader ----------------------------------------------------------------


class Writer(threading.Thread):
    """Inserts keys one after another at one instance and notes when each was acknowledged."""

    def __init__(self, node: Node, first: int) -> None:
        super().__init__(daemon=True)
        self.node, self.key = node, first
        self.acked: dict[int, float] = {}
        self.failed: dict[int, str] = {}
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                with self.node.connect() as connection:
                    connection.execute("SET statement_timeout = 2000")
                    while not self.done.is_set():
                        self.key += 1
                        connection.execute("INSERT INTO t VALUES (%s, 'x')", (self.key,))
                        self.acked[self.key] = time.monotonic()
            except psycopg.Error as problem:
                self.failed[self.key] = str(problem)
                time.sleep(0.01)


def master_of(cluster: Cluster, via: str) -> str:
    return str(cluster[via].status()["replicasets"][0]["master"])


def test_a_master_that_lost_the_leader_acknowledges_nothing_that_is_lost(proxied: Make) -> None:
    """It still speaks to its clients and to one replica, but not to the cluster's leader."""
    cluster, leader, others = three(proxied)
    cluster[leader].sql(CREATE)
    master, kept = leader, others[0]
    writer = Writer(cluster[master], 0)
    writer.start()
    try:
        eventually(lambda: len(writer.acked) > 20, "some writes")
        cluster.proxy.isolate(master)
        cut_at = time.monotonic()
        eventually(lambda: master_of(cluster, kept) != master, "another master")
        eventually(
            lambda: cluster[kept].sql("INSERT INTO t VALUES (-1, 'new master')") == [],
            "a write at the new master",
        )
        with pytest.raises(psycopg.Error):  # fresh reads are not served from an old picture
            cluster[master].sql("SELECT count(*) FROM t")
        late = {key: at - cut_at for key, at in writer.acked.items() if at > cut_at + 1.1}
        assert not late, f"acknowledged without a lease: {late}"
    finally:
        writer.done.set()
    before_cut = {key for key, at in writer.acked.items() if at < cut_at - 0.2}
    back_to_normal(cluster, kept)
    writer.join(30)
    have = {row[0] for row in cluster[kept].sql("SELECT a FROM t OPTION (sql_motion_row_max = 0)")}
    assert before_cut <= have
    after = {key for key, at in writer.acked.items() if at > cut_at + 1.1}
    assert after <= have


# --- disks ----------------------------------------------------------------------------------------


def fill_a_tmpfs(node: Node) -> Callable[[], None]:
    """A small file system for the instance; how to take it away again."""
    node.dir.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(node.dir)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    return lambda: subprocess.run(["umount", "-l", str(node.dir)], check=False) and None


def limit_files(node: Node) -> None:
    """The same for those who are not root: no file may grow past a size."""
    used = max(path.stat().st_size for path in node.dir.glob("*.db*"))
    resource.prlimit(node.child_pid, resource.RLIMIT_FSIZE, (used + 100_000,) * 2)


@pytest.mark.parametrize("how", ["tmpfs", "file size limit"])
def test_a_full_disk_stops_the_instance_and_not_the_cluster(
    proxied: Make, how: str, request: pytest.FixtureRequest
) -> None:
    cluster = proxied(*TRIPLE)
    cluster.start("i1", "i2")
    victim, kept = cluster.add("i3"), "i2"
    if how == "tmpfs":
        request.addfinalizer(fill_a_tmpfs(victim))
    victim.start()
    cluster.wait_online("i1", "i2", "i3")
    cluster["i1"].sql("CREATE TABLE g (a INT PRIMARY KEY, b TEXT) DISTRIBUTED GLOBALLY")
    if how != "tmpfs":
        limit_files(victim)
    process = victim.process
    assert process is not None
    with cluster["i1"].connect() as connection:
        for key in range(1_000):
            if process.poll() is not None:
                break
            connection.execute("INSERT INTO g VALUES (%s, %s)", (key, "x" * 5_000))
    assert victim.wait_exit() == 1
    last = [line for line in victim.log().splitlines() if "stopping" in line]
    assert last, victim.log()[-2_000:]
    assert "free space" in last[-1] or "check its space" in last[-1], last[-1]
    eventually(lambda: cluster.states(kept)["i3"] == "Offline", "the others go on")
    cluster[kept].sql("INSERT INTO g VALUES (-1, 'still here')")
    if how != "tmpfs":
        victim.start()
        cluster.wait_online("i1", "i2", "i3", via=kept)


# --- starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_kills_at_random_moments_of_the_start_leave_one_cluster(proxied: Make, seed: int) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    cluster = proxied(*TRIPLE)
    for name in ("i1", "i2", "i3"):
        cluster.add(name)
    cluster.peers = ",".join(node.peer for node in cluster.nodes.values())
    for node in cluster.nodes.values():
        node.start()
    for _ in range(4):
        time.sleep(chance.uniform(0.0, 0.8))
        node = chance.choice(list(cluster.nodes.values()))
        node.kill()
        time.sleep(chance.uniform(0.0, 0.3))
        node.start()
    cluster.wait_online("i1", "i2", "i3")
    uuids = {node.status()["cluster"]["uuid"] for node in cluster.nodes.values()}
    assert len(uuids) == 1
    assert sorted(cluster.states("i1")) == ["i1", "i2", "i3"]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def interrupted(proxied: Make, stage: str, delay: float, *more: str) -> None:
    """Ctrl-C some time after the file `stage` exists: a useful exit code, no trace, no orphan."""
    cluster = proxied()
    node = cluster.add("i1")
    node.start(peers=",".join((node.peer, *more)))
    eventually((node.dir / stage).exists, stage)
    time.sleep(delay)
    assert node.process is not None
    node.process.send_signal(signal.SIGINT)
    code = node.wait_exit(15)
    told = f"{delay} s after {stage}: exit code {code}\n{node.log()[-1500:]}"
    assert code in (0, 130), told
    assert "Traceback" not in node.log(), told
    pid = node._child()
    assert not pid or not is_alive(pid), f"the child {pid} was left behind"


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.12, 0.5])
def test_ctrl_c_while_a_cluster_is_founded_leaves_no_orphan(proxied: Make, delay: float) -> None:
    interrupted(proxied, "discovery.json", delay)


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_ctrl_c_while_waiting_for_peers_leaves_no_orphan(proxied: Make, delay: float) -> None:
    interrupted(proxied, "discovery.json", delay, "127.0.0.99:1")


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_ctrl_c_while_the_child_still_imports_leaves_no_orphan(proxied: Make, delay: float) -> None:
    interrupted(proxied, "cairn.pid", delay)


def test_the_child_ends_with_a_killed_supervisor(proxied: Make) -> None:
    cluster = proxied()
    cluster.start("i1")
    node = cluster["i1"]
    child = node.child_pid
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait(5)
    eventually(lambda: not is_alive(child), "the child to end", 5.0)
