"""Masters are killed, paused, cut off and sent away under load; a checker counts the rows.

`make chaos` runs many rounds (CHAOS_ROUNDS); a few of them are part of `make test`.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.harness import Cluster, Node, eventually
from tests.cluster.proxy import ProxiedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "20"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1_000_000)
CREATE = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT) DISTRIBUTED BY (a)"
ALL = "SELECT a, b FROM t OPTION (read_preference = any, sql_motion_row_max = 0)"
BLOWS = ("kill", "pause", "isolate", "cut from one", "not heard")


class Chaos:
    """One replicaset behind a proxy, its writers and what they were told."""

    def __init__(self, directory: Path, mode: str, seed: int, size: int) -> None:
        self.chance = random.Random(seed)
        self.names = tuple(f"i{number}" for number in range(1, size + 1))
        self.done: Counter[str] = Counter()
        self._deck: list[str] = []
        self.writers: list[Writer] = []
        config = directory / "tiers.yaml"
        config.write_text(
            f"cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: {size}\n"
            f"      replication_mode: {mode}\n"
        )
        self.cluster = ProxiedCluster(directory, "test", "--config", str(config))
        try:
            self.cluster.start(*self.names)
            eventually(lambda: len(self.cluster["i1"].status()["raft"]["voters"]) == size, "voters")
            self.cluster["i1"].sql(CREATE)
        except BaseException:
            self.cluster.close()
            raise
        self.writers = [Writer(self.cluster, number, seed + number) for number in range(1, 9)]

    def close(self) -> None:
        for writer in self.writers:
            writer.stop.set()
        self.cluster.close()

    # --- looking ----------------------------------------------------------------------------------

    def seen_by_somebody(self, what: Callable[[Node], str]) -> str:
        for node in self.cluster.nodes.values():
            try:
                return what(node)
            except (psycopg.Error, OSError, AssertionError):
                continue
        raise AssertionError("nobody answers")

    def master(self) -> str:
        """As the majority sees it: an instance that is cut off knows no better."""
        return self.seen_by_somebody(lambda node: str(node.status()["replicasets"][0]["master"]))

    def acked(self) -> set[int]:
        return set().union(*(writer.acked for writer in self.writers))

    def count_acked(self) -> int:
        return sum(len(writer.acked) for writer in self.writers)

    # --- blows ------------------------------------------------------------------------------------

    def blow(self) -> None:
        """Against the master; in a larger replicaset now and then against a replica as well."""
        master = eventually(self.master, "a master")
        victims = [master]
        if len(self.names) > 3 and self.chance.random() < 0.5:
            victims.append(self.chance.choice([name for name in self.names if name != master]))
        mending = [self._strike(name, self._next_blow()) for name in victims]
        time.sleep(self.chance.uniform(0.5, 5.0))
        self.cluster.proxy.heal()
        for mend in mending:
            mend()

    def _next_blow(self) -> str:
        """Every kind equally often, in an order of chance."""
        if not self._deck:
            self._deck = self.chance.sample(BLOWS, len(BLOWS))
        return self._deck.pop()

    def _strike(self, name: str, kind: str) -> Callable[[], object]:
        """What has to be done afterwards, besides healing the links."""
        print(f"{kind} {name}", flush=True)
        self.done[kind] += 1
        node, proxy = self.cluster[name], self.cluster.proxy
        others = [other for other in self.names if other != name]
        if kind == "kill":
            node.kill()
            return node.start
        if kind == "pause":
            node.pause()
            return node.resume
        if kind == "isolate":
            proxy.isolate(name)
        elif kind == "cut from one":
            proxy.cut_both(name, self.chance.choice(others))
        else:
            for other in others:
                proxy.cut(name, other)
        return lambda: None

    def send_away(self) -> None:
        """A planned switch: SIGTERM of the master, then back again."""
        master = eventually(self.master, "a master")
        print(f"stop {master}", flush=True)
        self.done["stop"] += 1
        assert self.cluster[master].stop() == 0
        time.sleep(self.chance.uniform(0.1, 1.0))
        self.cluster[master].start()

    def run(self, rounds: int, blow: Callable[[], None]) -> None:
        for writer in self.writers:
            writer.start()
        for _ in range(rounds):
            before = self.count_acked()
            eventually(lambda at=before: self.count_acked() > at + 100, "writes to go on")  # type: ignore[misc]
            blow()
            self.cluster.wait_online(*self.names, via=eventually(self.a_living_one, "somebody"))
        for writer in self.writers:
            writer.stop.set()
        for writer in self.writers:
            writer.join(60)

    def a_living_one(self) -> str:
        return self.seen_by_somebody(lambda node: node.name if node.status() else "")

    # --- the end ----------------------------------------------------------------------------------

    def check(self, *, may_lose: bool) -> None:
        def equal() -> dict[int, str]:
            found = [{-1: "", **dict(self.cluster[name].sql(ALL))} for name in self.names]
            assert all(each == found[0] for each in found), [len(each) for each in found]
            return found[0]

        rows = eventually(equal, "equal replicas", 60.0)
        have = set(rows) - {-1}
        wrong = [key for key in have if rows[key] != f"chaos {key}"]
        sent = set().union(*(writer.sent for writer in self.writers))
        refused = set().union(*(writer.refused for writer in self.writers))
        lost = self.acked() - have
        unknown = sent - self.acked() - refused
        print(f"{sum(self.done.values())} blows: {dict(self.done)}")
        print(
            f"{len(sent)} sent, {len(self.acked())} acknowledged, {len(refused)} refused, "
            f"{len(unknown)} unknown, {len(have)} there, {len(lost)} lost"
        )
        assert not wrong, f"rows with a wrong value: {wrong[:10]}"
        assert have <= sent, f"never written: {sorted(have - sent)[:10]}"
        assert not have & refused, f"refused and there: {sorted(have & refused)[:10]}"
        assert may_lose or not lost, f"acknowledged and lost: {sorted(lost)[:20]}"
        untold = lost - self.put_aside()
        assert not untold, f"lost and not in _cairn_diverged: {sorted(untold)[:20]}"

    def put_aside(self) -> set[int]:
        """What async mode loses is kept for people, on the instance that wrote it."""
        found: set[int] = set()
        for name in self.names:
            query = "SELECT key FROM _cairn_diverged OPTION (sql_motion_row_max = 0)"
            found |= {json.loads(key)["a"] for (key,) in self.cluster[name].sql(query)}
        return found


class Writer(threading.Thread):
    """Unique keys, each sent once, through instances chosen at random."""

    def __init__(self, cluster: Cluster, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._cluster, self._chance = cluster, random.Random(seed)
        self._key = number * 10_000_000
        self.sent: set[int] = set()
        self.acked: set[int] = set()
        self.refused: set[int] = set()
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            node = self._cluster[self._chance.choice(sorted(self._cluster.nodes))]
            try:
                with node.connect() as connection:
                    connection.execute("SET statement_timeout = 3000")
                    for _ in range(self._chance.randint(1, 200)):
                        self._write(connection)
            except (psycopg.Error, OSError):
                time.sleep(0.02)

    def _write(self, connection: psycopg.Connection[object]) -> None:
        if self.stop.is_set():
            return
        self._key += 1
        self.sent.add(self._key)
        try:
            connection.execute("INSERT INTO t VALUES (%s, %s)", (self._key, f"chaos {self._key}"))
        except psycopg.Error as problem:
            if (problem.sqlstate or "").startswith(("PC", "57P03")):
                self.refused.add(self._key)
            raise
        self.acked.add(self._key)


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Callable[..., Chaos]]:
    made: list[Chaos] = []

    def make(mode: str, seed: int, size: int = 3) -> Chaos:
        print(f"CHAOS_SEED={seed} CHAOS_ROUNDS={ROUNDS} size {size} {mode}")
        made.append(Chaos(tmp_path, mode, seed, size))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_two_blows_against_sync_masters_lose_nothing(chaos: Callable[..., Chaos]) -> None:
    ring = chaos("sync", SEED)
    ring.run(2, ring.blow)
    ring.check(may_lose=False)


def test_a_planned_switch_under_load_loses_nothing_in_async_mode(
    chaos: Callable[..., Chaos],
) -> None:
    ring = chaos("async", SEED)
    ring.run(1, ring.send_away)
    ring.check(may_lose=False)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
def test_sync_rows_outlive_many_blows(chaos: Callable[..., Chaos], size: int) -> None:
    ring = chaos("sync", SEED, size)
    ring.run(ROUNDS, ring.blow)
    ring.check(may_lose=False)


@pytest.mark.slow
def test_async_replicas_are_equal_after_many_blows(chaos: Callable[..., Chaos]) -> None:
    ring = chaos("async", SEED)
    ring.run(ROUNDS, ring.blow)
    ring.check(may_lose=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_many_planned_switches_lose_nothing(chaos: Callable[..., Chaos], mode: str) -> None:
    ring = chaos(mode, SEED)
    ring.run(max(ROUNDS // 2, 1), ring.send_away)
    ring.check(may_lose=False)
