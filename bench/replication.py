"""Rows between replicas: whether they keep up, what a full copy costs, what crosses a mesh.

`python bench/replication.py [lag] [copy] [mesh]` runs the named parts, or all of them:
lag: durable single-row inserts at the master's full rate (pgbench, 32 clients) beside two
replicas, SECONDS=15; how far behind they are while it lasts and how soon they have everything.
copy: COPY of ROWS=1000000 into a master, then a new member that takes a full copy of them.
mesh: MESH_ROWS=5000 inserts in a full mesh of 3 and of 5; records and bytes that came to each
replica, beside the same with empty lists ("everything from everyone") in the same run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
from clients_common import PASSWORD, head, load, table
from postgres import free_port

SECONDS = int(os.environ.get("SECONDS", "15"))
ROWS = int(os.environ.get("ROWS", "1000000"))
MESH_ROWS = int(os.environ.get("MESH_ROWS", "5000"))
CREATE = (
    "CREATE TABLE accounts (aid INT PRIMARY KEY, abalance INT, filler TEXT) DISTRIBUTED BY (aid)"
)
STANDING = "CALL cairn_replication()"
FILLER = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
INSERT = (
    "\\set id random(1000000, 2000000000)\n"
    f"INSERT INTO accounts VALUES (:id, 1, '{FILLER}') ON CONFLICT DO NOTHING;\n"
)
RUN = [sys.executable, "-m", "cairn.cli.main", "run"]
#: The same instance, but SUBSCRIBE goes out with an empty list: everything, from every upstream.
RUN_UNLISTED = [
    *(sys.executable, "-c"),
    "import sys\n"
    "from cairn.node.rows.replication_runner import Replication\n"
    "Replication._origins_at = lambda self, upstream: ()\n"
    "from cairn.cli.instance.run import main\n"
    "sys.exit(main(sys.argv[2:]))\n",
    "run",
]


class Member:
    """One instance of the replicaset, started and ended by its own process."""

    def __init__(self, directory: Path, name: str, factor: int, peer: str, run: list[str]) -> None:
        self.name, self.dir = name, directory / name
        self.dir.mkdir()
        self.peer, self.port = f"127.0.0.1:{free_port()}", free_port()
        with (self.dir / "cairn.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*run, "--cluster-name", "bench", "--instance-id", name),
                    *("--instance-dir", str(self.dir), "--listen", self.peer),
                    *("--pg-listen", f"127.0.0.1:{self.port}", "--peer", peer or self.peer),
                    *("--init-replication-factor", str(factor)),
                    *("--replicaset-name", "default_1"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "CAIRN_ADMIN_PASSWORD": PASSWORD,
                    "CAIRN_SERVICE_PASSWORD": "shared",
                },
            )

    def connect(self) -> psycopg.Connection[Any]:
        where = f"host=127.0.0.1 port={self.port} user=admin password={PASSWORD} dbname=cairn"
        return psycopg.connect(where, autocommit=True)

    def ask(self, sql: str) -> list[Any]:
        with self.connect() as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload,no-any-return]

    def kill(self) -> None:
        """The supervisor; its child ends with it."""
        self._process.kill()
        self._process.wait(10)


def until(condition: Callable[[], bool], what: str, limit_s: float = 300.0) -> float:
    """Seconds it took."""
    begun = time.monotonic()
    while True:
        try:
            if condition():
                return time.monotonic() - begun
        except psycopg.Error:
            pass
        if time.monotonic() - begun > limit_s:
            raise SystemExit(f"{what} did not happen within {limit_s:g} s")
        time.sleep(0.02)


class Replicaset:
    def __init__(self, directory: Path, factor: int, run: list[str]) -> None:
        self._dir, self._factor, self._run = directory, factor, run
        self.members: list[Member] = []

    def add(self) -> Member:
        peer = self.members[0].peer if self.members else ""
        name = f"i{len(self.members) + 1}"
        member = Member(self._dir, name, self._factor, peer, self._run)
        self.members.append(member)
        return member

    def wait_online(self) -> float:
        def online() -> bool:
            rows = self.members[0].ask("SELECT current_state FROM _pico_instance")
            return [state[0] for (state,) in rows] == ["Online"] * len(self.members)

        return until(online, "all Online")


@contextmanager
def replicaset(size: int, factor: int, run: list[str] = RUN) -> Iterator[Replicaset]:
    work = tempfile.mkdtemp(prefix="cairn-bench-")
    found = Replicaset(Path(work), factor, run)
    try:
        for _ in range(size):
            found.add()
            found.wait_online()
        yield found
    finally:
        for member in found.members:
            member.kill()
        shutil.rmtree(work, ignore_errors=True)


# --- keeping up -----------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Where the master's log and each replica's copy of it stand, about twenty times a second."""

    def __init__(self, members: list[Member]) -> None:
        super().__init__(daemon=True)
        self._connections = [member.connect() for member in members]
        self.master_uuid = members[0].ask("SELECT uuid FROM _pico_instance WHERE name = 'i1'")[0][0]
        self.seen: list[list[tuple[float, int]]] = [[] for _ in members]
        self.stop = threading.Event()

    def lsn(self, at: int) -> int:
        [(found,)] = self._connections[at].execute(STANDING, prepare=False).fetchall()
        return int(found["vclock"].get(self.master_uuid, 0))

    def run(self) -> None:
        while not self.stop.is_set():
            for at, seen in enumerate(self.seen):
                seen.append((time.monotonic(), self.lsn(at)))
            time.sleep(0.03)

    def lags(self) -> tuple[int, float]:
        """The most rows and the most seconds that a replica was behind."""
        master = self.seen[0]
        rows, seconds = 0, 0.0
        for seen in self.seen[1:]:
            for when, lsn in seen:
                before = [known for at, known in master if at <= when]
                if before:
                    rows = max(rows, before[-1] - lsn)
                had = next((at for at, known in master if known > lsn), when)
                seconds = max(seconds, when - had)
        return rows, seconds


def keep_up() -> None:
    print(f"### Replicas beside a master that inserts at full rate for {SECONDS} s\n")
    found = []
    for size in (1, 3):
        with replicaset(size, size) as members:
            master = members.members[0]
            with master.connect() as connection:
                connection.execute(CREATE)
            watch = Watch(members.members)
            watch.start()
            rate = _pgbench(master)
            stopped = time.monotonic()
            watch.stop.set()
            watch.join()
            goal = watch.lsn(0)
            replicas = range(1, size)
            until(lambda w=watch, g=goal, r=replicas: all(w.lsn(at) >= g for at in r), "rows")  # type: ignore[misc]
            final_s = time.monotonic() - stopped
            rows, seconds = watch.lags()
            found.append(
                (
                    f"{size} instances",
                    f"{rate:,.0f}",
                    f"{rows:,}",
                    f"{seconds:.2f}",
                    f"{final_s:.2f}",
                )
            )
    head_row = ("replicaset of", "inserts/s", "max lag, rows", "max lag, s", "all there after, s")
    table([head_row, *found])


def _pgbench(master: Member) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(INSERT)
        script.flush()
        command = [
            *("pgbench", "-n", "-f", script.name, "-M", "prepared", "-c", "32", "-j", "1"),
            *(
                "-T",
                str(SECONDS),
                "-h",
                "127.0.0.1",
                "-U",
                "admin",
                "-p",
                str(master.port),
                "cairn",
            ),
        ]
        env = {**os.environ, "PGPASSWORD": PASSWORD}
        done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps"))
    return float(line.split()[2])


# --- a full copy ----------------------------------------------------------------------------------


def full_copy() -> None:
    print(f"### A full copy of {ROWS:,} rows beside COPY of them\n")
    lines = "".join(f"{key}\t1\t{FILLER}\n" for key in range(ROWS)).encode()
    with replicaset(1, 1) as members:
        master = members.members[0]
        with master.connect() as connection:
            connection.execute(CREATE)
            begun = time.monotonic()
            with connection.cursor().copy("COPY accounts FROM STDIN") as copy:
                for at in range(0, len(lines), 1 << 20):
                    copy.write(lines[at : at + (1 << 20)])
            copy_s = time.monotonic() - begun
            connection.execute("ALTER SYSTEM SET row_log_max = 1")  # else it would read the log
        until(lambda: _log_length(master) <= 1, "the log to be forgotten")
        newcomer = members.add()
        members.wait_online()
        text = (newcomer.dir / "cairn.log").read_text()
        copied_s = _copied_s(text)
        query = "SELECT count(*) FROM accounts OPTION (read_preference = any)"
        assert newcomer.ask(query) == [(ROWS,)]
    table(
        [
            ("", "s", "rows/s"),
            ("COPY into the master", f"{copy_s:.1f}", f"{ROWS / copy_s:,.0f}"),
            ("full copy to a new member", f"{copied_s:.1f}", f"{ROWS / copied_s:,.0f}"),
        ]
    )
    print(f"ratio {copied_s / copy_s:.2f} (bar: 2)\n", flush=True)


def _log_length(member: Member) -> int:
    database = apsw.Connection(str(member.dir / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
    found: Any = database.execute("SELECT count(*) FROM row_log").fetchone()
    database.close()
    return int(found[0])


def _copied_s(text: str) -> float:
    """From the newcomer's own log: when it began to take the copy and when it had it."""

    def at(what: str) -> datetime:
        line = next(line for line in text.splitlines() if what in line)
        return datetime.strptime(" ".join(line.split()[:2]), "%Y-%m-%d %H:%M:%S,%f")

    return (at("the full copy has") - at("taking a full copy")).total_seconds()


# --- what crosses a mesh --------------------------------------------------------------------------


def mesh() -> None:
    print(f"### Records that came to each replica of a full mesh, {MESH_ROWS:,} inserts\n")
    rows = [("mesh of", "lists", "records/row", "bytes/row", "seen twice", "ratio")]
    for size in (3, 5):
        without = _crossed(size, RUN_UNLISTED)
        listed = _crossed(size, RUN)
        for name, (records, octets, twice) in (("empty", without), ("as routed", listed)):
            ratio = f"{records / without[0]:.2f}"
            cells = (f"{records:.3f}", f"{octets:.1f}", f"{twice:,}", ratio)
            rows.append((f"{size}", name, *cells))
    table(rows)


def _crossed(size: int, run: list[str]) -> tuple[float, float, int]:
    """Records and bytes that came to a replica for each inserted row, and how many came twice."""
    with replicaset(size, size, run) as members:
        master, replicas = members.members[0], members.members[1:]
        with master.connect() as connection:
            connection.execute(CREATE)
            _settle(master, replicas, 0)
            before = [_came(member) for member in replicas]
            for first in range(0, MESH_ROWS, 100):
                with connection.pipeline():
                    for key in range(first, first + 100):
                        connection.execute(f"INSERT INTO accounts VALUES ({key}, 1, '{FILLER}')")  # type: ignore[call-overload]
        _settle(master, replicas, MESH_ROWS)
        came = [
            tuple(after - known for after, known in zip(_came(member), start, strict=True))
            for member, start in zip(replicas, before, strict=True)
        ]
    count = MESH_ROWS * len(replicas)
    records, octets, twice = (sum(each[at] for each in came) for at in range(3))
    return records / count, octets / count, twice


def _settle(master: Member, replicas: list[Member], rows: int) -> None:
    query = "SELECT count(*) FROM accounts OPTION (read_preference = any)"
    until(lambda: all(member.ask(query) == [(rows,)] for member in replicas), "all rows")
    time.sleep(2.5)  # `_cairn_traffic` is written once a second


def _came(member: Member) -> tuple[int, int, int]:
    query = "SELECT records, bytes, twice FROM _cairn_traffic WHERE direction = 'in'"
    rows = member.ask(query)
    return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)


PARTS = {"lag": keep_up, "copy": full_copy, "mesh": mesh}


def main() -> None:
    head("Rows between replicas")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
    print(load())


if __name__ == "__main__":
    main()
