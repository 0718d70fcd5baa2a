"""What is done to a real cluster while clients work, and how it is mended."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.chaos.damaged_starts import DamagedStarts
from tests.chaos.registers import Gate
from tests.cluster.harness import Node
from tests.cluster.proxy import ProxiedCluster

Mend = Callable[[], object]
#: Each against one instance, the master or the leader; the last ones against nobody in particular.
LEFT = "left to readers"  # a master that nobody writes to is cut off, and read from
OF_ONE = ("kill", "pause", "isolate", LEFT, "cut from one", "not heard", "slow link", "stop")
BLACKOUT = "blackout"  # they come back one by one, in any order
OF_ALL = ("schema", "switch", "forgotten log", "all at once", BLACKOUT)
FULL_DISK = "full disk"
ROT = "bit rot"  # has to be mended before the next one: what rots in two places is lost
DAMAGED = "damaged start"  # so has this
WEIGHTS = "weights"  # of several replicasets: buckets move
PAGE = 4096
BALLAST = "ballast"


class Blows:
    def __init__(self, cluster: ProxiedCluster, chance: random.Random, gate: Gate) -> None:
        self._cluster, self._chance, self._gate = cluster, chance, gate
        self._changes = 0
        self._starts = DamagedStarts(cluster, chance)

    def strike(self, kind: str, name: str) -> Mend:
        """What has to be done afterwards, besides healing the links."""
        node, proxy, others = self._cluster[name], self._cluster.proxy, self._others(name)
        match kind:
            case "kill":
                node.kill()
                return node.start
            case "pause":
                node.pause()
                return node.resume
            case "stop":
                node.stop()
                return node.start
            case "isolate":
                proxy.isolate(name)
            case "left to readers":
                self._gate.leave_to_readers(name, lambda: proxy.isolate(name))
                return self._gate.open
            case "cut from one":
                proxy.cut_both(name, self._chance.choice(others))
            case "not heard":
                for other in others:
                    proxy.cut(name, other)
            case "slow link":
                for other in others:
                    proxy.delay(name, other, self._chance.uniform(0.02, 0.3))
            case "full disk":
                fill(node.dir)
                return lambda: (node.dir / BALLAST).unlink(missing_ok=True)
            case "bit rot":
                self._try(node, "ALTER SYSTEM SET scrub_interval = 1.0")
                self._rot(node.dir / "data.db")
                return lambda: self._try(node, "ALTER SYSTEM SET scrub_interval = 86400.0")
            case "damaged start":
                return self._starts.strike(name)
            case "weights":
                weight = self._chance.choice([0.25, 0.5, 1.0, 2.0, 4.0])
                query = "SELECT name FROM _pico_replicaset ORDER BY 1"
                with contextlib.suppress(psycopg.Error, OSError, IndexError):
                    [name] = self._chance.choice(node.sql(query))
                    node.sql(
                        "UPDATE _pico_replicaset SET weight = %s WHERE name = %s", (weight, name)
                    )
            case "schema":
                self._change_schema(node)
            case "switch":
                self._switch(node)
            case "forgotten log":
                limit = self._chance.choice([1, 3, 10, 1_000])
                self._try(node, f"ALTER SYSTEM SET raft_wal_count_max = {limit}")
            case "all at once":
                for each in self._cluster.nodes.values():
                    each.kill()
                return lambda: [each.start() for each in self._cluster.nodes.values()]
            case "blackout":
                for each in self._cluster.nodes.values():
                    each.kill()
                return self._start_one_by_one
            case _:
                raise AssertionError(kind)
        return lambda: None

    def _start_one_by_one(self) -> None:
        nodes = list(self._cluster.nodes.values())
        for node in self._chance.sample(nodes, len(nodes)):
            node.start()
            time.sleep(self._chance.choice([0.0, 0.5, 3.0]))

    def _rot(self, path: Path) -> None:
        """One bit of some page; the header stays, as a file without one is no damaged file."""
        size = path.stat().st_size
        if size <= PAGE:
            return  # all of it is still in the write-ahead log
        with path.open("r+b") as file:
            at = self._chance.randrange(PAGE, size)
            file.seek(at)
            [byte] = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    def _others(self, name: str) -> list[str]:
        return [other for other in self._cluster.nodes if other != name]

    def _change_schema(self, node: Node) -> None:
        self._changes += 1
        text = self._chance.choice(
            [
                f"ALTER TABLE reg ADD COLUMN extra_{self._changes} INT",
                f"CREATE INDEX reg_{self._changes} ON reg (text)",
                f"CREATE TABLE other_{self._changes} (a INT PRIMARY KEY) DISTRIBUTED BY (a)",
            ]
        )
        self._try(node, text)

    def _switch(self, node: Node) -> None:
        """Another member of its replicaset shall be the master."""
        with contextlib.suppress(psycopg.Error, OSError, IndexError):
            rows = node.sql(
                "SELECT r.name, i.name FROM _pico_replicaset r JOIN _pico_instance i "
                "ON i.replicaset_name = r.name WHERE i.name <> r.current_master_name "
                "ORDER BY 1, 2"
            )
            replicaset, heir = self._chance.choice(rows)
            node.sql(
                "UPDATE _pico_replicaset SET target_master_name = %s WHERE name = %s",
                (heir, replicaset),
            )

    def _try(self, node: Node, text: str) -> None:
        with contextlib.suppress(psycopg.Error, OSError):
            node.sql(text)


def fill(directory: Path) -> None:
    """Leave no space on the file system of an instance, which is its own."""
    ballast = os.open(directory / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    size = 1 << 20
    try:
        while size >= 4096:
            try:
                os.write(ballast, b"\0" * size)
            except OSError:
                size //= 2
    finally:
        os.close(ballast)


class SmallDisks:
    """A file system of its own for each instance, so that it can be full. Needs root."""

    def __init__(self, megabytes: int = 800) -> None:
        self._megabytes = megabytes
        self._mounted: list[Path] = []

    def mount(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "none", str(directory)]
        subprocess.run(command, check=True)
        self._mounted.append(directory)

    def close(self) -> None:
        for directory in self._mounted:
            subprocess.run(["umount", "-l", str(directory)], check=False)

    @staticmethod
    def are_possible() -> bool:
        return os.geteuid() == 0 and shutil.which("mount") is not None
