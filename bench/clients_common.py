"""What the benchmarks of clients share: a demo cluster, its CPU time, the head of a report."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

PASSWORD = "T0psecret1"
PACKAGES = ("msgspec", "mmh3", "uvloop", "apsw", "psycopg")


def head(title: str) -> None:
    """Machine, versions, command, load: without them a figure says nothing."""
    names = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    print(f"## {title}")
    print(f"{platform.platform()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB")
    print(f"Python {platform.python_version()}, {names}")
    print(f"command: {' '.join([Path(sys.executable).name, *sys.argv])}")
    print(f"{load()}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n", flush=True)


def load() -> str:
    return "load average " + " ".join(f"{each:.2f}" for each in os.getloadavg())


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def raise_open_files() -> int:
    """For this process and all that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def free_base_port(instances: int) -> int:
    """Below the ports that the system gives to clients; a demo takes three ranges."""
    for _ in range(100):
        base = random.randrange(11_000, 29_000, 10)
        try:
            for port in [base + more + at for more in (0, 1000, 2000) for at in range(instances)]:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@contextmanager
def demo(instances: int, factor: int, *more: str) -> Iterator[dict[str, Any]]:
    """`demo.json` of a cluster that lives as long as the block."""
    work = tempfile.mkdtemp(prefix="cairn-bench-")
    base = free_base_port(instances)
    cluster = ["--instances", str(instances), "--replication-factor", str(factor)]
    command = [sys.executable, "-m", "cairn.cli.main", "demo"]
    try:
        start = [*command, *cluster, "--detach", "--base-port", str(base), "--dir", work, *more]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
        facts: dict[str, Any] = json.loads((Path(work) / "demo.json").read_text())
        facts["dir"] = work
        yield facts
    finally:
        subprocess.run([*command, "--stop", "--dir", work], stdout=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


def instance_pids(facts: dict[str, Any]) -> list[int]:
    """The processes that do the work; their supervisors only wait."""
    files = [Path(facts["dir"]) / each["name"] / "cairn.pid" for each in facts["instances"]]
    return [int(file.read_text().split()[1]) for file in files]


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes with all their threads."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they need; the first row is the head."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(flush=True)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def together(count: int, client: Callable[..., None], *arguments: Any) -> int:
    """So many clients, each a process, that begin at one moment; what all of them did.

    A client is given its number and a pipe last: it says that it is ready, waits for the word, and
    tells how much it has done.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for seed in range(count):
        here, there = multiprocessing.Pipe()
        given = (*arguments, seed, there)
        processes.append(context.Process(target=client, args=given, daemon=True))
        pipes.append(here)
        processes[-1].start()
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    total = sum(int(pipe.recv()) for pipe in pipes)
    for process in processes:
        process.join(10)
    return total
