"""`cairn switchover`: a planned change of master, under a load that would notice a lost row."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.cluster.backups import cairn, chains, check_chains, command, content_at, prepare
from tests.cluster.harness import Cluster, eventually

pytestmark = pytest.mark.cluster
Make = Callable[..., Cluster]
TABLES = ("steps", "lists", "facts")


def test_a_switchover_names_another_master_and_loses_nothing(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    node = cluster["i1"]
    prepare(node)

    def master() -> str:
        return str(node.status()["replicasets"][0]["master"])

    with chains(cluster, "i1", "i2") as load:
        eventually(lambda: min(chain.acked for chain in load) > 5, "a load")
        for _ in range(2):
            before = master()
            asked = command(node, "switchover", "default_1", "--yes", "--json")
            done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert (told["from"], told["to"]) == (before, master())
            assert before != master()
    acked = [chain.acked for chain in load]
    check_chains(content_at(node, *TABLES), acked, [chain.issued for chain in load])


def test_a_switchover_that_cannot_be_is_refused_in_one_sentence(new_cluster: Make) -> None:
    cluster = new_cluster("--init-replication-factor", "2").start("i1", "i2")
    node = cluster["i1"]
    [row] = node.status()["replicasets"]
    other = next(name for name in ("i1", "i2") if name != row["master"])

    def refused(*words: str, code: int = 1, says: str) -> None:
        ended, said = cairn(node, "switchover", *words)
        assert (ended, says in said, said.count("\n")) == (code, True, 1), said

    refused("nothing", "--yes", says='there is no replicaset "nothing", known: default_1')
    refused("default_1", "--to", row["master"], "--yes", says="is the master of default_1 already")
    refused("default_1", "--to", "i9", "--yes", says="i9 is no instance of default_1")
    refused("default_1", code=2, says="A script says --yes")
    cluster.add("i3").start()
    cluster.wait_online("i3", via="i1")
    refused("default_2", "--yes", says="default_2 has no other instance that is Online")
    cluster[other].kill()
    via = cluster[row["master"]]
    eventually(lambda: cluster.states(row["master"])[other] == "Offline", "its end noticed")
    ended, said = cairn(via, "switchover", "default_1", "--to", other, "--yes")
    assert (ended, "cannot be master now" in said) == (1, True), said


def test_masters_are_spread_over_machines(new_cluster: Make) -> None:
    """Whoever is ready first is master: here both of one machine."""
    cluster = new_cluster("--init-replication-factor", "2")
    first = cluster.add("a1")
    for name in ("a1", "a2", "b1", "b2"):
        node = first if name == "a1" else cluster.add(name)
        domain = ("--failure-domain", f"HOST={name[0]}", "--replicaset-name", f"r{name[1]}")
        node.start(*domain, peers=first.peer)
        cluster.wait_online(name, via="a1")

    def masters() -> list[str]:
        return [row["master"] for row in first.status()["replicasets"]]

    assert masters() == ["a1", "a2"]
    _, said = cairn(first, "doctor")
    assert "HOST=A has more masters than it must" in said
    ended, said = cairn(first, "switchover", "--spread")
    assert (ended, "r1: a1 (HOST=A) → b1 (HOST=B)" in said) == (2, True), said
    ended, said = cairn(first, "switchover", "--spread", "--yes", "--json")
    told = json.loads(said)
    assert (ended, told["masters"]) == (0, {"HOST=A": 1, "HOST=B": 1})
    assert [(each["from"], each["to"]) for each in told["switched"]] == [("a1", "b1")]
    assert masters() == ["b1", "a2"]
    ended, said = cairn(first, "switchover", "--spread", "--yes")
    assert (ended, said) == (0, "masters are spread already: HOST=A has 1, HOST=B has 1\n")
    ended, said = cairn(first, "switchover", "r1", "--spread")
    assert (ended, "or say --spread alone" in said) == (2, True), said
