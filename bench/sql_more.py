"""What pgbench does not show: Arrow out, the extra hop, idle connections, a cold first query.

make bench-sql            (ROUNDS=7 IDLE=10000 ARROW_ROWS=500000 python bench/sql_more.py)
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from postgres import Postgres, free_port

from cairn.pgwire.client.client import PgClient

ROUNDS = int(os.environ.get("ROUNDS", "7"))
IDLE = int(os.environ.get("IDLE", "10000"))
SELECT_ROWS = int(os.environ.get("SELECT_ROWS", "1000000"))
ARROW_ROWS = int(os.environ.get("ARROW_ROWS", "500000"))
PASSWORD = "T0psecret1"


class Demo:
    """Some instances, each a replicaset of its own."""

    def __init__(self, instances: int) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
        for attempt in range(5):  # the ports after the first may be somebody else's
            self.base = free_port() % 20000 + 20000
            try:
                self._call("--instances", str(instances), "--replication-factor", "1", "--detach")
                break
            except subprocess.CalledProcessError:
                if attempt == 4:
                    raise

    def _call(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", str(self.dir)]
        command += ["--base-port", str(self.base), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def dsn(self, at: int = 0) -> str:
        return f"host=127.0.0.1 port={self.base + at} user=admin password={PASSWORD} dbname=cairn"

    @property
    def pid(self) -> int:
        return int((self.dir / "i1" / "cairn.pid").read_text().split()[1])

    def stop(self) -> None:
        self._call("--stop")
        shutil.rmtree(self.dir, ignore_errors=True)


def drained(connection: psycopg.Connection[object], statement: str) -> float:
    """Seconds until the client has all bytes of a COPY."""
    begun = time.perf_counter()
    with connection.cursor().copy(statement) as copy:  # type: ignore[call-overload]
        for _ in copy:
            pass
    return time.perf_counter() - begun


def filled(
    ours: psycopg.Connection[Any], theirs: psycopg.Connection[Any], table: str, rows: int
) -> None:
    """The same rows on both sides."""
    for connection, columns in (
        (ours, "(id INT PRIMARY KEY, name TEXT, value DOUBLE) DISTRIBUTED BY (id)"),
        (theirs, "(id BIGINT PRIMARY KEY, name TEXT, value FLOAT8)"),
    ):
        connection.execute(f"CREATE TABLE {table} {columns}")
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for start in range(0, rows, 10_000):
                lines = (f"{at}\t{at:032d}\t{at / 7}\n" for at in range(start, start + 10_000))
                copy.write("".join(lines))


def arrow_out(demo: Demo, peer: Postgres) -> None:
    """COPY … (FORMAT arrow) against PostgreSQL's COPY text, the same client for both."""
    ours = psycopg.connect(demo.dsn(), autocommit=True)
    theirs = psycopg.connect(
        f"host=127.0.0.1 port={peer.port} user=admin dbname=postgres", autocommit=True
    )
    with ours, theirs:
        filled(ours, theirs, "wide", ARROW_ROWS)
        ratios, rates = [], []
        for _ in range(ROUNDS):
            arrow = drained(ours, "COPY wide TO STDOUT (FORMAT arrow)")
            text = drained(theirs, "COPY wide TO STDOUT")
            ratios.append(text / arrow)
            rates.append(ARROW_ROWS / arrow)
    print(
        f"Arrow out vs PostgreSQL's COPY text      {statistics.median(ratios):.2f}×   "
        f"{statistics.median(rates):,.0f} rows/s of {ARROW_ROWS:,} (bigint, 32 chars, double)"
    )


def hop(demo: Demo) -> None:
    """One client, keys of the first instance: asked there and at another one, in turn."""
    with psycopg.connect(demo.dsn(), autocommit=True) as first:
        first.execute("CREATE TABLE hop (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (a)")
        with first.cursor().copy("COPY hop FROM STDIN") as copy:
            copy.write("".join(f"{at}\t1\n" for at in range(2000)))
        [(low, high)] = first.execute(
            "SELECT bucket_id_start, bucket_id_end FROM _pico_bucket WHERE current_replicaset_name "
            "= (SELECT replicaset_name FROM _pico_instance WHERE name = 'i1') LIMIT 1"
        ).fetchall()
        query = f"SELECT a FROM hop WHERE bucket_id BETWEEN {low} AND {high} LIMIT 200"
        keys = [row[0] for row in first.execute(query).fetchall()]
    links = [psycopg.connect(demo.dsn(at), autocommit=True).cursor() for at in (0, 1)]
    took: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for at in random.sample((0, 1), 2):
            begun = time.perf_counter()
            for key in keys * 5:
                links[at].execute("SELECT b FROM hop WHERE a = %s", (key,), prepare=True)
            took[at].append((time.perf_counter() - begun) / (len(keys) * 5) * 1e6)
    for cursor in links:
        cursor.connection.close()
    ratio = statistics.median(b / a for a, b in zip(*took, strict=True))
    direct, hopped = map(statistics.median, took)
    print(f"latency through one hop                  {ratio:.2f}×   {direct:.0f} → {hopped:.0f} µs")


def whole_table(demo: Demo, peer: Postgres) -> None:
    """`SELECT *` of all rows, read by the same client row by row; and what the asker held."""
    ours = psycopg.connect(demo.dsn(), autocommit=True)
    theirs = psycopg.connect(
        f"host=127.0.0.1 port={peer.port} user=admin dbname=postgres", autocommit=True
    )
    with ours, theirs:
        filled(ours, theirs, "whole", SELECT_ROWS)
        for text in ("SELECT * FROM whole", "SELECT * FROM whole ORDER BY value"):
            idle_kib = resident_kib(demo.pid)
            rates: dict[str, list[float]] = {"ours": [], "theirs": []}
            peak_kib = 0
            for _ in range(3):
                for name, connection in (("ours", ours), ("theirs", theirs)):
                    with Peak(demo.pid) as peak:
                        rates[name].append(SELECT_ROWS / selected(connection, text))
                    peak_kib = max(peak_kib, peak.kib)
            mine, its = (statistics.median(rates[name]) for name in ("ours", "theirs"))
            print(
                f"{text}: {SELECT_ROWS} rows, {mine:.0f} rows/s, PostgreSQL {its:.0f} rows/s "
                f"({mine / its:.2f}x), the asker's peak {(peak_kib - idle_kib) / 1024:.0f} MiB "
                "over idle"
            )


def selected(connection: psycopg.Connection[object], text: str) -> float:
    """Seconds until the client has taken all rows, in single-row mode, without making values."""
    begun, count = time.perf_counter(), 0
    pg = connection.pgconn
    pg.send_query(text.encode())
    pg.set_single_row_mode()
    while (result := pg.get_result()) is not None:
        assert not result.error_message, result.error_message
        count += result.ntuples
    assert count == SELECT_ROWS, count
    return time.perf_counter() - begun


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


class Peak(threading.Thread):
    """The most that a process has held, looked at 50 times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self.kib = pid, 0
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.02):
            self.kib = max(self.kib, resident_kib(self._pid))

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()


def anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    raise RuntimeError("no smaps_rollup on this machine")


def log_in(port: int) -> socket.socket:
    pg = PgClient("admin", random_bytes=os.urandom, password=PASSWORD, database="cairn")
    link = socket.create_connection(("127.0.0.1", port), timeout=60)
    link.sendall(pg.connect())
    while not pg.is_idle:
        answer = pg.receive(link.recv(65536))
        if answer:
            link.sendall(answer)
    return link


def idle(demo: Demo) -> None:
    """Logged in and silent; what each of them costs the instance."""
    with psycopg.connect(demo.dsn(), autocommit=True) as probe:
        for link in [log_in(demo.base) for _ in range(50)]:
            link.close()  # whatever the first ones bring with them
        time.sleep(0.5)
        before, begun = anonymous_kib(demo.pid), time.monotonic()
        links = [log_in(demo.base) for _ in range(IDLE)]
        took = time.monotonic() - begun
        each = (anonymous_kib(demo.pid) - before) / IDLE
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            probe.execute("SELECT 1")
            times.append((time.perf_counter() - begun) * 1e6)
        for link in links:
            link.close()
    print(
        f"{IDLE:,} idle connections                {each:.1f} KiB each, "
        f"logged in within {took:.0f} s; "
        f"SELECT 1 meanwhile {statistics.median(times):.0f} µs"
    )


def cold() -> None:
    """The first statement that an instance ever runs: sqlglot is not even imported yet."""
    times = []
    for _ in range(3):
        demo = Demo(1)
        try:
            with psycopg.connect(demo.dsn(), autocommit=True) as connection:
                begun = time.perf_counter()
                connection.execute("SELECT name, raft_id FROM _pico_instance WHERE raft_id > 0")
                times.append((time.perf_counter() - begun) * 1000)
        finally:
            demo.stop()
    print(f"first query of a cold instance           {statistics.median(times):.0f} ms of 3 starts")


def main() -> None:
    print(
        f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    cold()
    demo = Demo(2)
    try:
        hop(demo)
        idle(demo)
    finally:
        demo.stop()
    demo, peer = Demo(2), Postgres()
    try:
        whole_table(demo, peer)
    finally:
        demo.stop()
        peer.stop()
    demo, peer = Demo(1), Postgres()
    try:
        arrow_out(demo, peer)
    finally:
        demo.stop()
        peer.stop()


if __name__ == "__main__":
    main()
