"""The tutorial's client works, and the tutorial shows the very same code."""

from __future__ import annotations

from pathlib import Path

from cairn.model.members.topology import Grade

from .fake_cluster import FakeCluster
from .small_client import SmallClient

HERE = Path(__file__).parent


def test_the_small_client_routes_and_follows(cluster: FakeCluster) -> None:
    client = SmallClient(cluster.instances["i1"].address, "admin")
    for key in range(20):
        client.execute("INSERT INTO t VALUES ($1, $2)", key, f"v{key}")
    assert client.execute("SELECT id, v FROM t WHERE id = $1", 7) == [(7, "v7")]
    for name in ("i1", "i2"):
        assert all(cluster.home(v[0]) == name for _, v in cluster.instances[name].executed)
    cluster.give_all_buckets_to("r2")
    key = cluster.key_of("i1")
    assert client.execute("SELECT id, v FROM t WHERE id = $1", key)
    assert cluster.instances["i2"].executed[-1] == ("select", [key])


def test_the_small_client_does_not_need_an_instance_that_is_down(cluster: FakeCluster) -> None:
    client = SmallClient(cluster.instances["i2"].address, "admin")
    client.execute("INSERT INTO t VALUES ($1, $2)", cluster.key_of("i1"), "one")
    cluster.stop("i1")  # the first one it was told of
    cluster.set_grade("i1", Grade.OFFLINE)
    key = cluster.key_of("i2")
    client.execute("INSERT INTO t VALUES ($1, $2)", key, "two")
    assert client.execute("SELECT id, v FROM t WHERE id = $1", key) == [(key, "two")]
    cluster.set_master("r1", "i3")
    assert client.execute("SELECT id, v FROM t WHERE id = $1", cluster.key_of("i1"))
    assert cluster.instances["i3"].executed[-1] == ("select", [cluster.key_of("i1")])


def test_the_tutorial_shows_this_code() -> None:
    tutorial = (HERE.parents[1] / "docs" / "tutorial-small-client.md").read_text()
    code = (HERE / "small_client.py").read_text().split('"""', 2)[2].strip()
    assert code in tutorial
