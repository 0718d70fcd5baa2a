"""`python -m tests.soak --minutes N [--kind K …] [--json FILE]`: does an instance level off?

The caches of the instance are made small, so that they are full in the first half of the run; the
slope of the second half is judged. With `--whole` they stay as they are, which needs hours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.cluster.harness import Cluster, Node
from tests.fuzz.target import BUG
from tests.soak.judge import ALLOWED_MB, settled, slope, verdict
from tests.soak.kinds import KINDS, TABLES, Load
from tests.soak.looking import Inside, environment

MB = 1024 * 1024
LOOKS = 40  # of a run
#: A busy machine: a lease was lost, a master changed. Told, and no reason to end.
BUSY = ("40003", "57P03", "PC003", "PC004", "PC006")
WEIGHTS = {"points": 10, "blocks": 5, "global": 3, "texts": 10, "writes": 3}  # steps of a round


def begin(directory: Path, instances: int, factor: int) -> Cluster:
    cluster = Cluster(directory, "soak", "--init-replication-factor", str(factor))
    cluster.has_pages = True
    names = [f"i{at}" for at in range(1, instances + 1)]
    for name in names:
        cluster.add(name)
    cluster.peers = ",".join(cluster[name].peer for name in names)
    try:
        for name in names:
            cluster[name].start(**environment(directory / "inside"))
        cluster.wait_online(*names)
        for text in TABLES:
            cluster["i1"].sql(text)
    except BaseException:
        cluster.close()
        raise
    return cluster


class Run:
    """A load at every instance, looked at from time to time."""

    def __init__(self, cluster: Cluster, place: Path, kinds: list[str]) -> None:
        self._cluster, self._kinds = cluster, kinds
        self.inside = {name: Inside(place, node.child_pid) for name, node in cluster.nodes.items()}
        self.loads = [Load(node, at) for at, node in enumerate(cluster.nodes.values())]
        self.samples: dict[str, list[tuple[float, dict[str, Any]]]] = {n: [] for n in self.inside}
        self._end = threading.Event()
        self.problems: list[str] = []
        self.busy = 0

    def small(self) -> None:
        for each in self.inside.values():
            each.shrink()
        self._cluster["i1"].sql("ALTER SYSTEM SET raft_wal_count_max = 200")

    def work(self, load: Load) -> None:
        while not self._end.is_set():
            for kind in self._kinds:
                for _ in range(WEIGHTS.get(kind, 1)):
                    if self._end.is_set():
                        return
                    try:
                        load.step(kind)
                    except Exception as problem:
                        if getattr(problem, "sqlstate", None) in BUSY:
                            self.busy += 1
                            time.sleep(0.2)
                            continue
                        self.problems.append(f"{kind}: {problem!r}")
                        if len(self.problems) > 200:
                            self._end.set()
                        time.sleep(0.2)

    def run(self, minutes: float, tell: bool, trace: bool) -> dict[str, dict[str, int]]:
        threads = [threading.Thread(target=self.work, args=(load,)) for load in self.loads]
        for thread in threads:
            thread.start()
        begun, types = time.monotonic(), {}
        try:
            for at in range(LOOKS + 1):
                self._end.wait(max(begun + minutes * 60 * at / LOOKS - time.monotonic(), 0))
                self.look((time.monotonic() - begun) / 60, tell)
                if at == LOOKS // 2:
                    types = {name: each.ask("types") for name, each in self.inside.items()}
                if trace and at in (LOOKS // 2, LOOKS // 2 + 1, LOOKS):
                    for line in self.inside["i1"].ask("trace"):
                        print(line)
        finally:
            self._end.set()
            for thread in threads:
                thread.join(60)
            for load in self.loads:
                with contextlib.suppress(Exception):
                    load.close()
        return {name: more(types[name], each.ask("types")) for name, each in self.inside.items()}

    def look(self, minute: float, tell: bool) -> None:
        for name, each in self.inside.items():
            found = each.ask("sample")
            self.samples[name].append((minute, found))
            if tell:
                print(
                    _line(name, minute, found, sum(sum(x.done.values()) for x in self.loads)),
                    flush=True,
                )

    def points(self, name: str, pick: str = "resident") -> list[tuple[float, float]]:
        return [(minute, found[pick] / MB) for minute, found in self.samples[name]]


def story(node: Node) -> str:
    """What the log says of the first mistake of the instance's own."""
    said = node.log()
    at = said.find(BUG)
    return said[at - 30 : at + 4000] if at >= 0 else ""


def _line(name: str, minute: float, found: dict[str, Any], done: int) -> str:
    malloc = found["malloc"]
    return (
        f"{name} {minute:6.2f} min: {found['resident'] / MB:6.1f} MB; malloc in use "
        f"{(malloc['uordblks'] + malloc['hblkhd']) / MB:.1f}, free {malloc['fordblks'] / MB:.1f}; "
        f"SQLite {found['sqlite'] / MB:.2f}; blocks {found['blocks']}; objects {found['objects']}; "
        f"steps {done}"
    )


def more(before: dict[str, int], after: dict[str, int], than: int = 20) -> dict[str, int]:
    """Types of which there are more, most first."""
    grown = {kind: n - before.get(kind, 0) for kind, n in after.items()}
    found = sorted(grown.items(), key=lambda each: -each[1])
    return {kind: n for kind, n in found if n > than}


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--minutes", type=float, default=20.0)
    options.add_argument("--kind", choices=KINDS, action="append")
    options.add_argument("--instances", type=int, default=1)
    options.add_argument("--replication-factor", type=int, default=1)
    options.add_argument("--whole", action="store_true", help="caches of their usual size")
    options.add_argument("--trace", action="store_true", help="who allocates (slow)")
    options.add_argument("--sqlite", action="store_true", help="what each connection keeps")
    options.add_argument("--holders", help="who keeps objects of this type")
    options.add_argument("--json", type=Path, help="samples and verdict go to this file")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the instances are ended, too
    kinds = given.kind or list(KINDS)
    with tempfile.TemporaryDirectory(prefix="cairn-soak-") as directory:
        place = Path(directory)
        cluster = begin(place, given.instances, given.replication_factor)
        try:
            run = Run(cluster, place / "inside", kinds)
            if not given.whole:
                run.small()
            left = run.run(given.minutes, True, given.trace)
            for name, each in run.inside.items():
                took_ms = each.ask("trim")
                now = each.ask("sample")["resident"] / MB
                print(f"{name}: {now:.1f} MB after malloc_trim of {took_ms:.1f} ms")
            if given.sqlite:
                print(*run.inside["i1"].ask("sqlite"), sep="\n")
            if given.holders:
                print(*run.inside["i1"].ask("holders", kind=given.holders), sep="\n")
            stories = [said for node in cluster.nodes.values() if (said := story(node))]
        finally:
            cluster.close()
    verdicts = {}
    for name in run.inside:
        fine, found = verdict(run.points(name))
        verdicts[name] = {"levels_off": fine, "mb_a_minute": round(found, 3)}
        verdicts[name] |= {"more_objects": left[name]}
        ends = settled(run.points(name))
        print(
            f"{name}: {ends[0][1]:.1f} to {ends[-1][1]:.1f} MB in the second half, "
            f"{found:+.3f} MB a minute "
            f"(at most {ALLOWED_MB} is level); "
            f"SQLite {slope(settled(run.points(name, 'sqlite'))):+.4f}; "
            f"more objects: {left[name] or 'none'}"
        )
    done = {kind: sum(load.done.get(kind, 0) for load in run.loads) for kind in kinds}
    print("steps:", ", ".join(f"{kind} {count}" for kind, count in done.items()))
    for problem in run.problems[:10]:
        print("problem:", problem)
    print(f"{len(run.problems)} problems, {run.busy} answers of a busy machine")
    print(*stories, sep="\n")
    if given.json:
        told = {
            "steps": done,
            "verdicts": verdicts,
            "samples": run.samples,
            "problems": run.problems,
        }
        given.json.write_text(json.dumps(told))
    return 0 if not stories and all(each["levels_off"] for each in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
