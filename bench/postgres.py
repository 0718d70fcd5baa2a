"""A private PostgreSQL for comparison: on loopback, on a free port, durable, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def binaries() -> Path | None:
    """Where initdb and pg_ctl are; None when PostgreSQL is not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    return None


class Postgres:
    """PostgreSQL refuses root, so it runs as `postgres` when we are root."""

    def __init__(self, cpu: int | None = None) -> None:
        found = binaries()
        if found is None:
            raise RuntimeError("PostgreSQL is not installed: no comparison")
        self._bin, self._cpu = found, cpu
        self.port = free_port()
        self.dir = Path(tempfile.mkdtemp(prefix="cairn-pg-"))
        if os.getuid() == 0:
            shutil.chown(self.dir, "postgres", "postgres")
        self.run(
            "initdb",
            "-D",
            f"{self.dir}/data",
            "-A",
            "trust",
            "-U",
            "admin",
            "-E",
            "UTF8",
            "--locale=C",
        )
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.dir} "
            "-c shared_buffers=512MB -c max_connections=200"
        )
        self.run(
            "pg_ctl",
            "-D",
            f"{self.dir}/data",
            "-w",
            "-o",
            options,
            "-l",
            f"{self.dir}/log",
            "start",
        )

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        if self._cpu is not None:
            command = ["taskset", "-c", str(self._cpu), *command]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.dir)

    @property
    def pids(self) -> list[int]:
        """The postmaster and its backends."""
        first = int((self.dir / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def dsn(self) -> str:
        return f"postgresql://admin@127.0.0.1:{self.port}/postgres"

    def version(self) -> str:
        text = subprocess.run(
            [str(self._bin / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
        return text.stdout.strip()

    def stop(self) -> None:
        try:
            self.run("pg_ctl", "-D", f"{self.dir}/data", "-m", "fast", "-w", "stop")
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)


class Standby:
    """A copy of `primary` that every commit of it waits for."""

    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        self.port, self._data = free_port(), f"{primary.dir}/standby"
        take = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "admin", "-D", self._data, "-R")
        primary.run("pg_basebackup", *take, "-X", "stream", "-c", "fast")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1"
        options += f" -c unix_socket_directories={primary.dir} -c max_connections=200"
        log = f"{primary.dir}/standby.log"
        primary.run("pg_ctl", "-D", self._data, "-w", "-o", options, "-l", log, "start")
        for statement in (
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        ):
            primary.run(
                *("psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "admin"),
                *("-d", "postgres", "-c", statement),
            )

    def stop(self) -> None:
        self._primary.run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")
