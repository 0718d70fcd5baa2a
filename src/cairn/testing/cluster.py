"""A cluster of this machine that lives as long as a block of code."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool
from cairn.model.errors import CairnError
from cairn.model.quoting import identifier

START_S = 60.0
_CAIRN = (sys.executable, "-m", "cairn.cli.main")
#: What people make: kind, and the names of those that are there; who uses others comes first.
_MADE = (
    ("PROCEDURE", "SELECT name FROM _pico_routine"),
    ("VIEW", "SELECT name FROM _cairn_view ORDER BY id DESC"),
    ("TABLE", "SELECT relname FROM pg_class WHERE relkind = 'r' AND oid >= 1024"),
    ("SEQUENCE", "SELECT relname FROM pg_class WHERE relkind = 'S'"),
    ("USER", "SELECT name FROM _pico_user WHERE type = 'user'"),
    ("ROLE", "SELECT name FROM _pico_user WHERE type = 'role'"),
)
Names = dict[str, tuple[str, ...]]


class Cluster:
    """Real instances, each a process of its own, on ports that were free."""

    def __init__(
        self, instances: int = 1, replication_factor: int = 1, replication_mode: str = "async"
    ) -> None:
        self._size, self._factor, self._mode = instances, replication_factor, replication_mode
        self._facts: dict[str, Any] = {}
        self._again: list[subprocess.Popen[bytes]] = []
        self._pool: SyncPool | None = None
        self.directory = Path()

    def start(self) -> Cluster:
        self.directory = Path(tempfile.mkdtemp(prefix="cairn-testing-"))
        command = [
            *(*_CAIRN, "demo", "--detach", "--dir", str(self.directory)),
            *("--instances", str(self._size), "--replication-factor", str(self._factor)),
            *("--base-port", str(_free_ports(self._size)), "--replication-mode", self._mode),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=START_S, check=False
            )
            if done.returncode != 0:
                raise CairnError(f"the cluster did not start: {done.stderr or done.stdout}")
            self._facts = json.loads((self.directory / "demo.json").read_text())
            self._pool = SyncPool(parse_dsn(self.dsn)).open()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        for process in self._again:
            if process.poll() is None:
                process.terminate()
        for process in self._again:
            process.wait(30)
        subprocess.run(
            [*_CAIRN, "demo", "--stop", "--dir", str(self.directory)],
            capture_output=True,
            timeout=START_S,
            check=False,
        )
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- talking ----------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """Of all instances, as the admin. For psycopg, asyncpg, the smart driver, Spark."""
        return str(self._facts["dsns"])

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(each["name"] for each in self._facts["instances"])

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        assert self._pool is not None, "the cluster is not started"
        return self._pool.fetch(text, *params)

    def master(self, replicaset: str = "r1") -> str:
        """The name of the instance that takes its writes now."""
        sql = "SELECT current_master_name FROM _pico_replicaset WHERE name = $1"
        [(name,)] = self.sql(sql, replicaset)
        return str(name)

    # --- faults -----------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """kill -9, as a power cut would."""
        for pid in self._pids(name):
            os.kill(pid, signal.SIGKILL)

    def pause(self, name: str) -> None:
        """It stands still, as a machine does that swaps: it answers nobody, and knows nothing."""
        os.kill(self._pids(name)[1], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self._pids(name)[1], signal.SIGCONT)

    def start_again(self, name: str) -> None:
        """What was killed; returns when it is Online."""
        [command] = [each["command"] for each in self._facts["instances"] if each["name"] == name]
        with (self.directory / name / "cairn.log").open("ab") as log:
            self._again.append(
                subprocess.Popen(
                    shlex.split(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._is_online(name):
                return
            time.sleep(0.05)
        raise CairnError(f"{name} did not come Online within {START_S:g} s")

    def _is_online(self, name: str) -> bool:
        sql = "SELECT current_state, target_state FROM _pico_instance WHERE name = $1"
        try:
            [(current, target)] = self.sql(sql, name)
        except CairnError:
            return False
        alive = self._again[-1].poll() is None
        return alive and bool(current[0] == "Online" and current == target) and self._answers(name)

    def _answers(self, name: str) -> bool:
        """A row that says Online may be of the life before."""
        [address] = [each["pg"] for each in self._facts["instances"] if each["name"] == name]
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _pids(self, name: str) -> tuple[int, int]:
        """Supervisor and instance."""
        first, second = (self.directory / name / "cairn.pid").read_text().split()[:2]
        return int(first), int(second)

    # --- what tests leave behind ------------------------------------------------------------------

    def names(self) -> Names:
        """What is there: tables, views, procedures, users, roles."""
        return {kind: tuple(name for (name,) in self.sql(sql)) for kind, sql in _MADE}

    def empty(self, *tables: str) -> None:
        """Delete all rows of these tables; without any, of all that are not the system's."""
        for name in tables or self.names()["TABLE"]:
            if not name.startswith("_"):
                self.sql(f"TRUNCATE {identifier(name)}")

    def drop_others(self, kept: Names) -> None:
        """All that is not in `kept`, as `names` gave it."""
        for kind, _ in _MADE:
            for name in [each for each in self.names()[kind] if each not in kept[kind]]:
                self.sql(f"DROP {kind} {identifier(name)}")


def _free_ports(instances: int) -> int:
    """A demo takes three ranges; below the ports that the system gives to clients."""
    for _ in range(200):
        base = random.SystemRandom().randrange(11_000, 29_000, 10)
        ports = [base + more + at for more in (0, 1000, 2000) for at in range(instances)]
        if all(map(_is_free, ports)):
            return base
    raise CairnError("no free ports for a cluster")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
