"""Instances that come back where others were: everybody finds everybody, and nobody is mixed up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.harness import Cluster, Node, eventually, free_ports

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
NAMES = ("i1", "i2", "i3")


def in_a_ring(nodes: list[Node]) -> None:
    """Each gets the port of the next one."""
    ports = [node.peer_port for node in nodes]
    for node, port in zip(nodes, ports[1:] + ports[:1], strict=True):
        node.peer_port = port


def elsewhere(nodes: list[Node]) -> None:
    for node, port in zip(nodes, free_ports(len(nodes)), strict=True):
        node.peer_port = port


def counted(nodes: list[Node], rows: int) -> None:
    """At once each that has come up again; their rows of before say nothing of that."""

    def all_of_them() -> bool:
        return all(node.sql("SELECT count(*) FROM t") == [(rows,)] for node in nodes)

    eventually(all_of_them, f"{rows} rows everywhere", 40.0)


@pytest.mark.parametrize("moved", [in_a_ring, elsewhere])
def test_all_are_killed_and_come_back_at_other_ports(
    new_cluster: Make, moved: Callable[[list[Node]], None]
) -> None:
    """Nobody leads who could record it, and every recorded address is wrong."""
    cluster = new_cluster("--init-replication-factor", "3").start(*NAMES)
    nodes = [cluster[name] for name in NAMES]
    eventually(lambda: len(nodes[0].status()["raft"]["voters"]) == 3, "three voters")
    nodes[0].sql("CREATE TABLE t (k INT PRIMARY KEY)")
    nodes[0].sql("INSERT INTO t SELECT generate_series(1, 100)")
    for node in nodes:
        node.kill()
    moved(nodes)
    for node in nodes:
        node.start(peers=",".join(each.peer for each in nodes))
    counted(nodes, 100)
    nodes[1].sql("INSERT INTO t SELECT generate_series(101, 200)")
    counted(nodes, 200)


def test_two_change_places_while_the_third_works(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start(*NAMES)
    nodes = [cluster[name] for name in NAMES]
    eventually(lambda: len(nodes[0].status()["raft"]["voters"]) == 3, "three voters")
    nodes[0].sql("CREATE TABLE t (k INT PRIMARY KEY)")
    nodes[0].sql("INSERT INTO t SELECT generate_series(1, 100)")
    for node in nodes[1:]:
        node.kill()
    in_a_ring(nodes[1:])
    for node in nodes[1:]:
        node.start()
    counted(nodes, 100)
