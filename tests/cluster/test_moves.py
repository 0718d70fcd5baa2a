"""A real cluster grows and shrinks while ordinary clients count up their rows."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import PASSWORD, Cluster, Node, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
KEYS = 400


class Counters(threading.Thread):
    """One client: counts its own keys up, again and again, and remembers what it was told."""

    def __init__(self, node: Node, number: int, clients: int) -> None:
        super().__init__(daemon=True)
        self.node, self.keys = node, range(number, KEYS, clients)
        self.told = dict.fromkeys(self.keys, 0)
        self.errors: list[str] = []
        self.longest_s = 0.0
        self.statements = 0
        self.ending = threading.Event()

    def run(self) -> None:
        with self.node.connect() as connection:
            while not self.ending.is_set():
                for key in self.keys:
                    begun = time.monotonic()
                    try:
                        connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (key,))
                        self.told[key] += 1
                        row = connection.execute("SELECT n FROM t WHERE id = %s", (key,)).fetchone()
                        if row != (self.told[key],):
                            self.errors.append(f"key {key}: {row}, told {self.told[key]}")
                    except psycopg.Error as problem:
                        self.errors.append(f"key {key}: {problem.sqlstate} {problem}")
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self.statements += 2
                    if self.ending.is_set():
                        return


class Joins(threading.Thread):
    """A client that reads rows which nobody changes: joins, whose few rows go to where the many
    are, and ranges and pages by the primary key."""

    TEXTS = (
        "SELECT w.name, count(*), sum(s.n), max(s.note) "
        "FROM seat s JOIN ward w ON s.ward_id = w.id GROUP BY 1",
        "SELECT s.id, s.note, w.name FROM seat s JOIN ward w ON s.ward_id = w.id WHERE w.id = 3",
        "SELECT s.id, s.note FROM ward w JOIN seat s ON s.id = w.seat_id",
        "SELECT id, note FROM seat WHERE id > 1000 ORDER BY id LIMIT 20",
        "SELECT id FROM seat WHERE id BETWEEN 100 AND 200",
        "SELECT id, ward_id FROM seat WHERE id > 500 AND id <= 2500",
        "SELECT id FROM seat ORDER BY id DESC LIMIT 300",
        "SELECT min(id), max(id) FROM seat WHERE ward_id = 7",
    )

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.node, self.ending = node, threading.Event()
        self.errors: list[str] = []
        self.statements = 0
        node.sql("CREATE TABLE ward (id INT PRIMARY KEY, name TEXT, seat_id INT)")
        node.sql("CREATE TABLE seat (id INT PRIMARY KEY, ward_id INT, n INT, note TEXT)")
        node.sql(
            "INSERT INTO ward SELECT k, 'w' || (k % 4)::text, k * 7 FROM generate_series(1, 40) k"
        )
        node.sql(
            "INSERT INTO seat SELECT k, k % 50, k, repeat('x', 90) FROM generate_series(1, 3000) k"
        )
        self.expected = [sorted(node.sql(text)) for text in self.TEXTS]

    def check_way(self) -> None:
        """Where several replicasets have the rows."""
        plan = self.node.sql(f"EXPLAIN ANALYZE {self.TEXTS[0]}")
        assert any("met by the others" in line for (line,) in plan)

    def run(self) -> None:
        with self.node.connect() as connection:
            while not self.ending.wait(0.5):  # the others need the machine too
                for text, expected in zip(self.TEXTS, self.expected, strict=True):
                    try:
                        found = sorted(connection.execute(text.encode()).fetchall())
                        if found != expected:
                            self.errors.append(f"{text}: {len(found)} rows, {len(expected)} before")
                    except psycopg.Error as problem:
                        self.errors.append(f"{text}: {problem.sqlstate} {problem}")
                    self.statements += 1


def cairn(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    dsn = f"postgresql://admin:{PASSWORD}@127.0.0.1:{node.pg_port}/cairn"
    command = [sys.executable, "-m", "cairn.cli.main", *words, "--dsn", dsn]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def buckets(node: Node) -> dict[str, int]:
    return {row["name"]: row["buckets"] for row in node.status()["replicasets"]}


def is_calm(node: Node) -> bool:
    status = node.sql("CALL cairn_rebalance()")[0][0]
    return not status["moves"] and not any(tier["wanted"] for tier in status["tiers"])


def test_replicasets_are_added_drained_and_expelled_and_no_client_notices(
    new_cluster: Make,
) -> None:
    cluster = new_cluster().start("i1")
    first = cluster["i1"]
    first.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, note TEXT) DISTRIBUTED BY (id)")
    first.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    values = ", ".join(f"({key}, 0, 'note {key}')" for key in range(KEYS))
    first.sql(f"INSERT INTO t VALUES {values}")
    clients = [Counters(first, number, 3) for number in range(3)]
    joins = Joins(first)
    for client in (*clients, joins):
        client.start()
    try:
        cluster.add("i2").start(peers=first.peer)
        cluster.wait_online("i1", "i2")
        eventually(
            lambda: buckets(first) == {"default_1": 1500, "default_2": 1500} and is_calm(first),
            "half of the buckets to move",
            60.0,
        )
        cluster.add("i3").start(peers=first.peer)
        cluster.wait_online("i1", "i2", "i3")
        eventually(
            lambda: set(buckets(first).values()) == {1000} and is_calm(first),
            "thirds",
            60.0,
        )
        joins.check_way()
        first.sql("CALL cairn_rebalance('drain', 'default_2')")
        eventually(
            lambda: (
                buckets(first) == {"default_1": 1500, "default_2": 0, "default_3": 1500}
                and is_calm(first)
            ),
            "default_2 to be drained",
            60.0,
        )
        first.sql("CALL cairn_expel('i2')")
    finally:
        for client in (*clients, joins):
            client.ending.set()
        for client in (*clients, joins):
            client.join(20)
    assert [error for client in (*clients, joins) for error in client.errors] == []
    assert joins.statements > 5
    told = {key: count for client in clients for key, count in client.told.items()}
    found = dict(cluster["i3"].sql("SELECT id, n FROM t"))
    assert found == told
    assert cluster["i3"].sql("SELECT count(*), count(note) FROM t") == [(KEYS, KEYS)]
    assert buckets(cluster["i3"]) == {"default_1": 1500, "default_3": 1500}
    print({"longest_s": max(c.longest_s for c in clients), "n": sum(c.statements for c in clients)})


class Survivor(threading.Thread):
    """A client that goes on elsewhere when its instance dies, and remembers what it cannot know."""

    def __init__(self, cluster: Cluster, number: int, clients: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.keys = cluster, range(number, KEYS, clients)
        self.least = dict.fromkeys(self.keys, 0)  # how often it was told "done"
        self.most = dict.fromkeys(self.keys, 0)  # the same with what may have been done
        self.wrong: list[str] = []
        self.chance = random.Random(number)
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            node = self.chance.choice(list(self.cluster.nodes.values()))
            with suppress(psycopg.Error), node.connect() as connection:
                self._count(connection)

    def _count(self, connection: psycopg.Connection[Any]) -> None:
        while not self.ending.is_set():
            key = self.chance.choice(self.keys)
            self.most[key] += 1  # until we know better
            try:
                connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (key,))
            except psycopg.Error as problem:
                if problem.sqlstate in ("PC001", "PC002", "PC003", "PC004"):
                    self.most[key] -= 1  # certainly not done
                raise
            self.least[key] += 1
            row = connection.execute("SELECT n FROM t WHERE id = %s", (key,)).fetchone()
            if row is None or not self.least[key] <= row[0] <= self.most[key]:
                self.wrong.append(f"{key}: {row}, not {self.least[key]}…{self.most[key]}")


@pytest.mark.slow
def test_moves_survive_kill_9_of_both_masters_and_of_the_leader(new_cluster: Make) -> None:
    cluster = new_cluster()
    (cluster.dir / "tiers.yaml").write_text(SYNC)
    cluster.flags += ["--config", str(cluster.dir / "tiers.yaml")]
    cluster.start("i1", "i2", "i3")
    first = cluster["i1"]
    first.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT) DISTRIBUTED BY (id)")
    first.sql("ALTER SYSTEM SET rebalance_drop_delay = 0")
    first.sql(f"INSERT INTO t VALUES {', '.join(f'({key}, 0)' for key in range(KEYS))}")
    clients = [Survivor(cluster, number, 3) for number in range(3)]
    for client in clients:
        client.start()
    try:
        for name in ("i4", "i5", "i6"):
            cluster.add(name).start(peers=",".join(cluster[n].peer for n in ("i1", "i2", "i3")))
        for role in ("default_1", "leader", "default_2", "default_1", "default_2", "leader"):
            name = _who(cluster, role)
            if name is None:
                continue
            cluster[name].kill()
            others = [node for node in cluster.nodes.values() if node.name != name]
            eventually(lambda others=others: _who(cluster, "default_1", others), "a master", 60.0)
            cluster[name].start()
            eventually(lambda name=name: cluster.states(name).get(name) == "Online", name, 60.0)
        eventually(
            lambda: buckets(first) == {"default_1": 1500, "default_2": 1500} and is_calm(first),
            "half of the buckets to move",
            120.0,
        )
    finally:
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(30)
    assert [wrong for client in clients for wrong in client.wrong] == []
    found = dict(first.sql("SELECT id, n FROM t"))
    least = {key: n for client in clients for key, n in client.least.items()}
    most = {key: n for client in clients for key, n in client.most.items()}
    assert found.keys() == least.keys()
    assert {k: n for k, n in found.items() if not least[k] <= n <= most[k]} == {}
    assert sum(least.values()) > 100


SYNC = """
cluster:
  name: test
  tier:
    default:
      replication_factor: 3
      replication_mode: sync
"""


def _who(cluster: Cluster, role: str, nodes: list[Node] | None = None) -> str | None:
    """The leader, or the master of a replicaset that owns something or takes it."""
    for node in nodes or list(cluster.nodes.values()):
        with suppress(psycopg.Error, OSError):
            status = node.status()
            if role == "leader":
                return status["raft"]["leader"]
            masters = {row["name"]: row["master"] for row in status["replicasets"]}
            return masters.get(role) or None
    return None
