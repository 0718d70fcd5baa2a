"""`python -m tests.far --rtt-ms 60 --instances 6 --minutes 10`: a cluster whose instances are far
from each other. What a statement costs, whether anybody is taken for dead, and whether all that a
cluster does still works."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.harness import eventually
from tests.cluster.proxy import Far, ProxiedCluster
from tests.far.statements import TABLES, measure

PATIENCE_S = 120.0


def begin(directory: Path, instances: int, factor: int, mode: str, far: Far) -> ProxiedCluster:
    config = directory / "tiers.yaml"
    config.write_text(
        f"cluster:\n  name: test\n  tier:\n    default:\n      replication_factor: {factor}\n"
        f"      replication_mode: {mode}\n"
    )
    cluster = ProxiedCluster(directory, "test", "--config", str(config))
    cluster.proxy.far(far)
    try:
        cluster.start(*(f"i{at}" for at in range(1, instances + 1)))
        for text in TABLES:
            cluster["i1"].sql(text)
    except BaseException:
        cluster.close()
        raise
    return cluster


class Watch:
    """A client at each instance, and what changed without a reason."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster, self._end = cluster, threading.Event()
        self.told: Counter[str] = Counter()
        self.done = 0
        self.slowest_s = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(name, at))
            for at, name in enumerate(cluster.nodes)
        ]

    def __enter__(self) -> Watch:
        self.before = self.picture()
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for each in self._threads:
            each.join()

    def rest(self, seconds: float) -> None:
        self._end.wait(seconds)

    def picture(self) -> dict[str, Any]:
        found = self._cluster["i1"].status()
        return {
            "leader": found["raft"]["leader"],
            "term": found["raft"]["term"],
            "masters": {each["name"]: each["master"] for each in found["replicasets"]},
            "epochs": self._cluster["i1"].sql(
                "SELECT name, current_config_version, target_config_version FROM _pico_replicaset "
                "ORDER BY name"
            ),
            "states": self._cluster.states("i1"),
        }

    def _work(self, name: str, at: int) -> None:
        number = at
        with self._cluster[name].connect() as connection:
            while not self._end.wait(0.05):
                number += 7
                begun = time.monotonic()
                try:
                    connection.execute(
                        b"INSERT INTO t VALUES (%s, 1, 's') ON CONFLICT (id) "
                        b"DO UPDATE SET n = t.n + 1",
                        (number % 2000,),
                    )
                    connection.execute(b"SELECT n FROM t WHERE id = %s", (number % 1999,))
                    self.done += 2
                except psycopg.Error as problem:
                    self.told[f"{problem.sqlstate} {str(problem).splitlines()[0]}"] += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)


def timed(what: str, work: Any) -> float:
    begun = time.monotonic()
    try:
        work()
    except Exception as problem:
        print(f"  {what}: FAILED after {time.monotonic() - begun:.1f} s: {problem!r}", flush=True)
        return float("nan")
    took = time.monotonic() - begun
    print(f"  {what}: {took:.2f} s", flush=True)
    return took


def operations(cluster: ProxiedCluster, instances: int, factor: int) -> dict[str, float]:
    """What a cluster does beside statements."""
    took: dict[str, float] = {}
    via = cluster["i1"]
    sizes = "SELECT sum(bucket_id_end - bucket_id_start + 1) FROM _pico_bucket GROUP BY "
    sizes += "current_replicaset_name"

    def master() -> str:
        found = via.sql("SELECT target_master_name FROM _pico_replicaset ORDER BY name")
        return str(found[-1][0])

    def is_settled() -> bool:
        query = "SELECT 1 FROM _pico_replicaset WHERE current_master_name <> target_master_name"
        return via.sql(query) == []

    def join() -> None:
        names = [f"i{at}" for at in range(instances + 1, instances + factor + 1)]
        for name in names:
            cluster.add(name).start()
        cluster.wait_online(*names, via="i1")

    def moved() -> None:
        def is_even() -> bool:
            owned = [row[0] for row in via.sql(sizes)]
            assert len(owned) == len(via.status()["replicasets"]), owned
            assert max(owned) - min(owned) <= 40, owned
            return True

        eventually(is_even, "buckets that are even", PATIENCE_S)
        found = via.sql("SELECT phase, count(*), sum(thaws) FROM _cairn_move GROUP BY phase")
        print(f"  moves: {found}")

    took["join of a replicaset"] = timed("join of a replicaset", join)
    took["moves to it"] = timed("moves to it", moved)

    def switch() -> None:
        name = via.sql(
            "SELECT name FROM _pico_replicaset WHERE target_master_name = %s", (master(),)
        )[0][0]
        members = via.sql("SELECT name FROM _pico_instance WHERE replicaset_name = %s", (name,))
        heir = next(each[0] for each in members if each[0] != master())
        via.sql("UPDATE _pico_replicaset SET target_master_name = %s WHERE name = %s", (heir, name))
        eventually(is_settled, "the new master", PATIENCE_S)

    if factor > 1:
        took["switch of a master"] = timed("switch of a master", switch)

        def fail_over() -> None:
            lost = master()
            cluster[lost].kill()

            def is_written() -> bool:
                via.sql("UPDATE t SET n = n + 1 WHERE id < 50")
                return master() != lost

            eventually(is_written, "writes after the failover", PATIENCE_S)

        took["kill of a master, until all is written"] = timed("kill of a master", fail_over)
    return took


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.far")
    options.add_argument("--rtt-ms", type=float, default=60.0)
    options.add_argument("--jitter-ms", type=float, default=0.0)
    options.add_argument("--stalls", type=float, default=0.0, help="of 1: pieces that come late")
    options.add_argument("--instances", type=int, default=3)
    options.add_argument("--replication-factor", type=int, default=3)
    options.add_argument("--mode", choices=("sync", "async"), default="sync")
    options.add_argument("--minutes", type=float, default=1.0, help="in which nothing may happen")
    options.add_argument("--times", type=int, default=5, help="of each statement")
    options.add_argument("--ask", default="i1,i2", help="instances that are asked")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the instances are ended, too
    far = Far(given.rtt_ms / 1000, given.jitter_ms / 1000, given.stalls)
    told: dict[str, Any] = {"given": {**vars(given), "json": None}}
    with tempfile.TemporaryDirectory(prefix="cairn-far-") as directory:
        begun = time.monotonic()
        cluster = begin(Path(directory), given.instances, given.replication_factor, given.mode, far)
        try:
            print(f"begun after {time.monotonic() - begun:.1f} s", flush=True)
            for name in given.ask.split(",") if given.times else ():
                found = measure(cluster, name, given.times)
                told[name] = found
                print(f"asked of {name} ({cluster['i1'].status()['raft']['leader']} leads):")
                for kind, took in found.items():
                    trips = took / far.rtt_s if far.rtt_s else 0
                    print(f"  {kind}: {took * 1000:.0f} ms, {trips:.1f} round trips", flush=True)
            with Watch(cluster) as watch:
                watch.rest(given.minutes * 60)
            after = watch.picture()
            changed = {each for each in after if after[each] != watch.before[each]}
            told["quiet"] = {"done": watch.done, "told": watch.told, "changed": sorted(changed)}
            print(
                f"{given.minutes:g} minutes: {watch.done} statements, the slowest pair "
                f"{watch.slowest_s:.2f} s, changed: {changed or 'nothing'}, told: "
                f"{dict(watch.told) or 'nothing'}",
                flush=True,
            )
            if changed:
                print("  before", watch.before, "\n  after", after)
            told["operations"] = operations(cluster, given.instances, given.replication_factor)
        finally:
            if given.json:
                given.json.write_text(json.dumps(told, indent=1))
            for name, node in cluster.nodes.items():
                lines = [
                    line for line in node.log().splitlines() if " WARN" in line or "ERR" in line
                ]
                print(f"{name}: {len(lines)} warnings", *lines[-6:], sep="\n   ")
            cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
