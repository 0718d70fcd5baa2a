"""What is fuzzed, and the oracle: it lives, it is not deaf, it blames nothing on itself, and it
does not grow."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psycopg

from tests.cluster.harness import Cluster, Node, free_ports
from tests.soak.looking import Inside, environment

GROWTH_MB = 200
BUG = "cairn.bug"

TABLES = (
    "CREATE TABLE things (id INT PRIMARY KEY, t TEXT, d DOUBLE, n DECIMAL, b BOOLEAN, u UUID, "
    "at DATETIME, w TIMESTAMP, y DATE, v INTERVAL, j JSON, l INT[], s TEXT[]) DISTRIBUTED BY (id)",
    "CREATE TABLE names (id INT PRIMARY KEY, t TEXT) DISTRIBUTED GLOBALLY",
    "INSERT INTO names VALUES (1, 'a'), (2, NULL)",
    "INSERT INTO things (id, t, d, n, b) SELECT g, 't' || g, g, g, true "
    "FROM generate_series(1, 50) g",
)


class Broken(AssertionError):
    """The instance did what it promises never to do."""


class Target:
    """One instance with a table of every type. `deaf_s` is what a trivial query may take."""

    def __init__(self, directory: Path, deaf_s: float, looked_into: bool = False) -> None:
        self._deaf_s = deaf_s
        place = directory / "inside"
        self.cluster = Cluster(directory, "fuzz")
        self.http_port = free_ports(1)[0]
        self.cluster.flags += ["--http-listen", f"127.0.0.1:{self.http_port}"]
        try:
            self.node: Node = self.cluster.add("i1")
            self.cluster.peers = self.node.peer
            self.node.start(**(environment(place) if looked_into else {}))
            self.cluster.wait_online("i1")
            self.inside = Inside(place, self.node.child_pid)
            for text in TABLES:
                self.node.sql(text)
        except BaseException:
            self.cluster.close()
            raise

    def close(self) -> None:
        self.cluster.close()

    def lives(self) -> bool:
        try:
            return self.node.sql("SELECT 1") == [(1,)]
        except psycopg.Error:
            return False

    def resident_mb(self) -> float:
        return _resident_mb(self.node.child_pid)

    def story(self) -> str:
        """What the log says of the last mistake."""
        said = self.node.log()
        at = said.rfind(BUG)
        return "\n".join(said[at - 30 :].splitlines()[-14:]) if at >= 0 else ""

    def watched(self) -> Watch:
        return Watch(self.node, self._deaf_s)


class Watch:
    """While it is open, another session asks `SELECT 1` over and over; its end is the verdict."""

    def __init__(self, node: Node, deaf_s: float) -> None:
        self._node, self._deaf_s = node, deaf_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._problem = ""
        self.slowest_s = 0.0

    def __enter__(self) -> Watch:
        self._pid, self._size = self._node.child_pid, _resident_mb(self._node.child_pid)
        self._read = len(self._node.log())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if kind is None:
            self.check()

    def _ask(self) -> None:
        try:
            with self._node.connect() as connection:
                while not self._end.is_set():
                    pause = time.monotonic()
                    self._end.wait(0.02)
                    begun, waited = time.monotonic(), _waited_s(self._pid)
                    connection.execute("SELECT 1")
                    took = time.monotonic() - begun
                    took -= max(_waited_s(self._pid) - waited, 0.0)
                    if begun - pause < 0.2:  # or we ourselves were not let run
                        self.slowest_s = max(self.slowest_s, took)
        except (psycopg.Error, OSError) as problem:
            self._problem = f"a quiet session was ended: {problem}"

    def check(self) -> None:
        """Now; may be asked in the middle, too."""
        if self._problem:
            raise Broken(self._problem)
        if self._node.child_pid != self._pid:
            raise Broken(f"the instance has ended: {self._node.log()[-3000:]}")
        if self._node.sql("SELECT 1") != [(1,)]:
            raise Broken("SELECT 1 is not 1")
        said = self._node.log()[self._read :]
        if BUG in said:
            raise Broken(said[said.index(BUG) - 30 :][:4000])
        if self.slowest_s > self._deaf_s:
            raise Broken(f"deaf for {self.slowest_s:.2f} s")
        grown = _resident_mb(self._pid) - self._size
        if grown > GROWTH_MB:
            raise Broken(f"it has grown by {grown:.0f} MB")


def _waited_s(pid: int) -> float:
    """How long its threads were ready and had no core: a busy machine is not a deaf instance."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended meanwhile
            total += int(task.read_text().split()[1])
    return total / 1e9


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
