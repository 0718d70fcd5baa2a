"""`_routing` in a real replicaset: a mesh, a chain, a shortcut."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]


def routes(cluster: Cluster, via: str) -> set[tuple[str, str, str, int]]:
    names = {uuid: name for name, uuid in cluster[via].sql("SELECT name, uuid FROM _pico_instance")}
    rows = cluster[via].sql("SELECT subscriber, source, via, depth FROM _routing")
    return {(names[str(s)], names[str(o)], names[str(v)], depth) for s, o, v, depth in rows}


def links(cluster: Cluster, via: str) -> dict[str, int]:
    [(found,)] = cluster[via].sql("CALL cairn_replication()")
    return {link["upstream"]: link["twice"] for link in found["links"]}


def test_a_chain_and_then_a_shortcut(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "3").start("i1", "i2", "i3")
    mesh = {(a, b, b, 1) for a in cluster.nodes for b in cluster.nodes if a != b}
    eventually(lambda: routes(cluster, "i3") == mesh, "a full mesh")
    master = str(cluster["i1"].status()["replicasets"][0]["master"])
    middle, last = [name for name in cluster.nodes if name != master]
    cluster["i1"].sql("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)")
    cluster["i1"].sql(f"ALTER SYSTEM SET replication_graph = '{master}>{middle},{middle}>{last}'")
    chain = {
        (middle, master, master, 1),
        (last, middle, middle, 1),
        (last, master, middle, 2),
    }
    eventually(lambda: routes(cluster, last) == chain, "three rows of routes")
    assert cluster["i1"].status()["governor"]["blocked_by"] == []
    for at in range(20):
        cluster["i2"].sql(f"INSERT INTO t VALUES ({at}, 'x')")
    query = "SELECT count(*) FROM t OPTION (read_preference = any)"
    eventually(lambda: cluster[last].sql(query) == [(20,)], "rows through the middle")
    cluster["i1"].sql(
        f"ALTER SYSTEM SET replication_graph = '{master}>{middle},{middle}>{last},{master}>{last}'"
    )
    eventually(lambda: (last, master, master, 1) in routes(cluster, last), "the shortcut is taken")
    cluster["i2"].sql("INSERT INTO t VALUES (20, 'x')")  # may cross twice: both lists had it
    eventually(lambda: cluster[last].sql(query) == [(21,)], "the first row by the shortcut")
    before = sum(links(cluster, last).values())
    for at in range(21, 40):
        cluster["i2"].sql(f"INSERT INTO t VALUES ({at}, 'x')")
    eventually(lambda: cluster[last].sql(query) == [(40,)], "rows by the shortcut")
    # In quiet, no row crosses twice; the second copy of the one before may have come late.
    assert sum(links(cluster, last).values()) <= before + 1


def test_a_graph_that_leaves_an_instance_out_is_told_by_the_governor(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    master = str(cluster["i1"].status()["replicasets"][0]["master"])
    other = "i2" if master == "i1" else "i1"
    cluster["i1"].sql(f"ALTER SYSTEM SET replication_graph = '{other}>{master}'")
    said = [f"{other} gets no rows of {master}: replication_graph has no path to it"]
    eventually(lambda: cluster["i1"].status()["governor"]["blocked_by"] == said, "the governor")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="there is no instance i9"):
        cluster["i1"].sql("ALTER SYSTEM SET replication_graph = 'i1>i9'")
    cluster["i1"].sql("ALTER SYSTEM RESET replication_graph")
    eventually(lambda: cluster["i1"].status()["governor"]["blocked_by"] == [], "all well again")
