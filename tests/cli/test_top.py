"""`cairn top`: the difference between two looks, and a real one."""

from __future__ import annotations

import json
import threading
from typing import Any

from cairn.cli.looking.top import Look, difference
from tests.cluster.backups import cairn
from tests.cluster.harness import Cluster

Counter = tuple[int, int, float, float, int]


def look(at_s: float, **counters: Counter) -> Look:
    status: dict[str, Any] = {
        "cluster": {"name": "c"},
        "raft": {"leader": "i1"},
        "automatic_failover": True,
        "replicasets": [{"master": "i1"}],
        "instances": [
            {
                "name": name,
                "current_state": "Online(1)",
                "leader": name == "i1",
                "answers": True,
                "lag_rows": 0,
            }
            for name in ("i1", "i2")
        ],
    }
    found = {("i1", "ann", "select", query): counter for query, counter in counters.items()}
    return Look(at_s, status, found, [("i1", "active"), ("i1", "idle")])


def test_rates_are_what_happened_between_two_looks() -> None:
    before = look(10.0, fast=(100, 0, 50.0, 1.0, 100), slow=(1, 0, 900.0, 900.0, 1))
    now = look(12.0, fast=(300, 4, 90.0, 2.0, 300), slow=(3, 0, 2900.0, 1100.0, 3))
    found = difference(before, now)
    assert found["statements"] == [
        {
            "calls_per_s": 1.0,
            "ms_per_s": 1000.0,
            "mean_ms": 1000.0,
            "max_ms": 1100.0,
            "rows_per_s": 1.0,
            "kind": "select",
            "query": "slow",
        },
        {
            "calls_per_s": 100.0,
            "ms_per_s": 20.0,
            "mean_ms": 0.2,
            "max_ms": 2.0,
            "rows_per_s": 100.0,
            "kind": "select",
            "query": "fast",
        },
    ]
    first, second = found["instances"]
    assert (first["statements_per_s"], first["errors_per_s"], first["mean_ms"]) == (101, 2, 10.099)
    assert (first["sessions"], first["active"], first["master"]) == (2, 1, True)
    assert (second["statements_per_s"], second["mean_ms"], second["master"]) == (0.0, 0.0, False)


def test_a_statement_whose_counters_began_anew_is_counted_from_zero() -> None:
    before, now = look(0.0, q=(100, 0, 50.0, 1.0, 100)), look(1.0, q=(3, 0, 6.0, 3.0, 3))
    [found] = difference(before, now)["statements"]
    assert (found["calls_per_s"], found["mean_ms"]) == (3.0, 2.0)


def test_top_shows_the_statements_of_now(small: Cluster) -> None:
    node = small["i2"]
    stopped = threading.Event()

    def load() -> None:
        with node.connect() as connection:
            while not stopped.wait(0.01):
                connection.execute("SELECT 4711")

    busy = threading.Thread(target=load)
    busy.start()
    try:
        code, told = cairn(small["i1"], "top", "--once", "--json")
        assert code == 0
        found = json.loads(told)
        assert cairn(small["i1"], "top", "--once")[0] == 0
    finally:
        stopped.set()
        busy.join()
    [mine] = [each for each in found["instances"] if each["name"] == "i2"]
    assert mine["statements_per_s"] > 0
    assert any("SELECT" in each["query"] for each in found["statements"])
