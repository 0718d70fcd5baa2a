"""Real clusters of real processes for tests: started, killed, paused and waited for by name."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from cairn.cli.instance.many import Born, Nursery

T = TypeVar("T")
PASSWORD = "T0psecret1"
WAIT_S = 30.0


# Below the ports the system gives to outgoing connections (32768 and up), and never one twice: a
# port that was merely free when asked could be given to a second instance, or to somebody's
# connection, before the first listens on it.
_PORTS = range(10_000, 32_000)
_next_port = itertools.count(random.SystemRandom().randrange(len(_PORTS)))


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for at in itertools.islice(_next_port, len(_PORTS)):
        if len(found) == count:
            return found
        port = _PORTS[at % len(_PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise AssertionError(f"no {count} free ports from {_PORTS.start} to {_PORTS.stop}")


def eventually(condition: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
    """Wait for a condition; what it last said is in the failure."""
    deadline = time.monotonic() + timeout_s
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except (psycopg.Error, AssertionError, OSError, KeyError) as problem:
            last = problem
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {timeout_s:g} s; last: {last!r}")


@functools.cache
def nursery() -> Nursery:
    """One for all clusters of this process: each instance saves the time of its imports."""
    made = Nursery()
    atexit.register(made.close)
    return made


class Node:
    """One `cairn run`: its addresses, its directory, its process."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.peer_port, self.pg_port, self.http_port = free_ports(3)
        self.host = "127.0.0.1"
        self.advertise: str | None = None  # where a proxy stands for it
        self.dir = cluster.dir / name
        self.process: subprocess.Popen[bytes] | Born | None = None

    @property
    def peer(self) -> str:
        """Where the others reach it."""
        return self.advertise or self.listen

    @property
    def listen(self) -> str:
        return f"{self.host}:{self.peer_port}"

    def start(
        self, *extra: str, peers: str | None = None, files_max: int = 0, **environment: str
    ) -> Node:
        """`files_max`: that its process may open."""
        assert self.process is None or self.process.poll() is not None
        self.dir.mkdir(exist_ok=True)
        command = [
            *(sys.executable, "-m", "cairn.cli.main", "run"),
            *("--cluster-name", self.cluster.name),
            *("--instance-id", self.name, "--instance-dir", str(self.dir)),
            *("--listen", self.listen, "--advertise", self.peer),
            *("--pg-listen", f"127.0.0.1:{self.pg_port}"),
            *("--peer", peers or self.cluster.peers),
            *self.cluster.flags,
            *(("--http-listen", f"127.0.0.1:{self.http_port}") if self.cluster.has_pages else ()),
            *extra,
        ]
        passwords = {
            "CAIRN_ADMIN_PASSWORD": PASSWORD,
            "CAIRN_SERVICE_PASSWORD": "shared secret",
        }
        log = self.dir / "cairn.log"
        if not environment and not files_max:
            self.process = nursery().start(command, log, {**os.environ, **passwords})
            return self
        if files_max:
            command = ["sh", "-c", f'ulimit -n {files_max}; exec "$@"', "sh", *command]
        with log.open("ab") as words:  # some of them are read when a program starts
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={**os.environ, **passwords, **environment},
            )
        return self

    @property
    def child_pid(self) -> int:
        return int((self.dir / "cairn.pid").read_text().split()[1])

    def log(self) -> str:
        return (self.dir / "cairn.log").read_text(errors="replace")

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(
            f"host=127.0.0.1 port={self.pg_port} user=admin password={PASSWORD} dbname=cairn "
            "connect_timeout=10",  # 5 were too few at times, on two cores with other work
            autocommit=True,
            **options,
        )

    def sql(self, text: str, params: tuple[Any, ...] | None = None) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.execute(text, params)
            return cursor.fetchall() if cursor.description else []

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sql("CALL cairn_status()")[0][0]
        return found

    def kill(self) -> None:
        """kill -9 of supervisor and instance, as a power cut would."""
        assert self.process is not None
        for pid in (self.process.pid, self._child()):
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.process.wait(10)

    def _child(self) -> int:
        try:
            return self.child_pid
        except (OSError, IndexError):
            return 0

    def pause(self) -> None:
        os.kill(self.child_pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.child_pid, signal.SIGCONT)

    def stop(self, timeout_s: float = 20.0) -> int:
        """SIGTERM and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def wait_exit(self, timeout_s: float = WAIT_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)


class Cluster:
    """A set of nodes in one directory; everything it started is ended by `close`."""

    def __init__(self, directory: Path, name: str = "test", *flags: str) -> None:
        self.dir, self.name, self.flags = directory, name, list(flags)
        self.has_pages = False  # whether instances listen for HTTP
        self.nodes: dict[str, Node] = {}
        self.peers = ""

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def add(self, name: str) -> Node:
        node = self.nodes[name] = Node(self, name)
        return node

    def start(self, *names: str) -> Cluster:
        """Nodes that all know each other, started at once."""
        for name in names:
            self.add(name)
        self.peers = ",".join(self.nodes[name].peer for name in names)
        try:
            for name in names:
                self.nodes[name].start()
            self.wait_online(*names)
        except BaseException:
            self.close()  # whoever called has no cluster to close yet
            raise
        return self

    def states(self, via: str) -> dict[str, str]:
        rows = self.nodes[via].sql("SELECT name, current_state FROM _pico_instance")
        return {name: state[0] for name, state in rows}

    def wait_online(self, *names: str, via: str | None = None) -> None:
        asked = via or names[0]

        def all_online() -> bool:
            states = self.states(asked)
            assert all(states.get(name) == "Online" for name in names), states
            return True

        eventually(all_online, f"{', '.join(names)} Online")

    def leader(self, via: str) -> str:
        return str(self.nodes[via].status()["raft"]["leader"])

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                with contextlib.suppress(OSError, IndexError):
                    node.resume()
                node.kill()
