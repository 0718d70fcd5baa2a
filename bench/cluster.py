"""How quickly a cluster comes up and gets over a lost leader, and what an instance weighs.

`python bench/cluster.py [start] [failover] [many] [size]` runs the named parts, or all of them:
`cairn demo` with 4 instances to all Online (median of 5); leader killed to new leader and new
grades (p50, p95 of 20); 30 instances to all Online; PSS of supervisor and child together.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg

import cairn

CAIRN = [sys.executable, "-m", "cairn.cli.main"]
STARTS, KILLS, MANY = 5, int(os.environ.get("KILLS", "20")), 30
LEADS = re.compile(r"^(\S+ \S+) I cairn\.instance: this instance leads Raft in term (\d+)")


class Demo:
    """A detached `cairn demo` in a directory of its own; `took_s` is the whole command."""

    def __init__(self, instances: int, factor: int, port: int) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
        command = [
            *(*CAIRN, "demo", "--detach", "--dir", str(self.dir)),
            *("--instances", str(instances), "--replication-factor", str(factor)),
            *("--base-port", str(port)),
        ]
        begun = time.monotonic()
        self.code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        self.took_s = time.monotonic() - begun
        self.again: list[subprocess.Popen[bytes]] = []

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.dir / "demo.json").read_text())
        return found

    def names(self) -> list[str]:
        return [instance["name"] for instance in self.facts["instances"]]

    def pids(self, name: str) -> list[int]:
        """Supervisor and child."""
        return [int(word) for word in (self.dir / name / "cairn.pid").read_text().split()]

    def rows(self, name: str, sql: str) -> list[Any]:
        [dsn] = [each["dsn"] for each in self.facts["instances"] if each["name"] == name]
        with psycopg.connect(dsn, autocommit=True, connect_timeout=3) as connection:
            found = connection.execute(sql)
            return found.fetchall() if found.description else []

    def leader(self, name: str) -> str:
        return str(self.rows(name, "CALL cairn_status()")[0][0]["raft"]["leader"])

    def kill_and_start_later(self, name: str) -> Any:
        """kill -9 of both processes; how to start them again as they were."""
        supervisor, child = self.pids(name)
        words = Path(f"/proc/{supervisor}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
        variables = Path(f"/proc/{supervisor}/environ").read_bytes().decode().split("\0")
        environment = dict(word.split("=", 1) for word in variables if "=" in word)
        for pid in (supervisor, child):
            os.kill(pid, signal.SIGKILL)

        def start() -> None:
            log = (self.dir / name / "cairn.log").open("ab")
            self.again.append(
                subprocess.Popen(
                    words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            )

        return start

    def close(self) -> None:
        for process in self.again:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        subprocess.run(
            [*CAIRN, "demo", "--stop", "--dir", str(self.dir)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        for process in self.again:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


# --- the parts ------------------------------------------------------------------------------------


def start() -> None:
    took = []
    for at in range(STARTS):
        demo = Demo(4, 2, 21_000 + 10 * at)
        demo.close()
        if demo.code == 0:
            took.append(demo.took_s)
    if took:
        print(
            f"start: cairn demo, 4 instances, all Online: median {statistics.median(took):.2f} s, "
            f"best {min(took):.2f} s, worst {max(took):.2f} s of {len(took)} "
            "(limit 4 s, goal 1.5 s)"
        )


def failover() -> None:
    demo = Demo(3, 3, 21_500)
    elected: list[float] = []
    graded: list[float] = []
    try:
        wait_all_online(demo, demo.names())
        for _ in range(KILLS):
            one_kill(demo, elected, graded)
    finally:
        demo.close()
    for what, values in (("new leader", elected), ("new grades and masters", graded)):
        print(
            f"failover: {what}: p50 {quantile(values, 0.5):.2f} s, "
            f"p95 {quantile(values, 0.95):.2f} s of {len(values)} (limit 4 s, goal 2 s)"
        )


def one_kill(demo: Demo, elected: list[float], graded: list[float]) -> None:
    names = demo.names()
    old = demo.leader(names[0])
    others = [name for name in names if name != old]
    begun, wall = time.monotonic(), datetime.now()
    start_again = demo.kill_and_start_later(old)
    while time.monotonic() - begun < 30:
        if is_over(demo, others[0], old):
            graded.append(time.monotonic() - begun)
            break
        time.sleep(0.01)
    first = min(
        (at for name in others for at in elections(demo.dir / name / "cairn.log") if at > wall),
        default=None,
    )
    if first is not None:
        elected.append((first - wall).total_seconds())
    start_again()
    wait_all_online(demo, names, via=others[0])


def is_over(demo: Demo, via: str, old: str) -> bool:
    try:
        states = dict(demo.rows(via, "SELECT name, current_state FROM _pico_instance"))
        masters = demo.rows(via, "SELECT current_master_name FROM _pico_replicaset")
    except psycopg.Error:
        return False
    return states[old][0] == "Offline" and (old,) not in masters


def elections(log: Path) -> list[datetime]:
    found = (LEADS.match(line) for line in log.read_text().splitlines())
    return [datetime.strptime(each[1], "%Y-%m-%d %H:%M:%S,%f") for each in found if each]


def wait_all_online(demo: Demo, names: list[str], via: str | None = None) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            states = dict(
                demo.rows(via or names[0], "SELECT name, current_state FROM _pico_instance")
            )
            status = demo.rows(via or names[0], "CALL cairn_status()")[0][0]
            voters = len(status["raft"]["voters"])
            if all(states[name][0] == "Online" for name in names) and voters == len(names):
                return
        except (psycopg.Error, KeyError):
            pass
        time.sleep(0.1)
    raise SystemExit("the cluster did not come back")


def many() -> None:
    demo = Demo(MANY, 3, 22_000)
    demo.close()
    outcome = "all Online" if demo.code == 0 else f"NOT all Online (exit code {demo.code})"
    print(f"many: {MANY} instances: {outcome} after {demo.took_s:.1f} s (limit 60 s)")


def size() -> None:
    demo = Demo(4, 2, 21_700)
    try:
        sizes = []
        for name in demo.names()[1:]:  # the first one was asked by `cairn demo` itself
            supervisor, child = (pss_mib(pid) for pid in demo.pids(name))
            sizes.append(supervisor + child)
            print(f"size: {name}: supervisor {supervisor:.1f} + child {child:.1f} MiB PSS")
        print(f"size: together at most {max(sizes):.1f} MiB (limit 80 MiB)")
    finally:
        demo.close()


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


PARTS = {"start": start, "failover": failover, "many": many, "size": size}


def main() -> None:
    print(
        f"cluster: {platform.node()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, cairn {cairn.__version__}, "
        f"SQLite {apsw.sqlite_lib_version()}, load {os.getloadavg()[0]:.1f}"
    )
    print("command: python " + " ".join(sys.argv))
    for name in sys.argv[1:] or list(PARTS):
        PARTS[name]()


if __name__ == "__main__":
    main()
