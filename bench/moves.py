"""Buckets that move under load: what clients feel, how fast rows move, how long a range is frozen.

`ROWS=1000000 python bench/moves.py`: one instance with all rows and CLIENTS=4 clients that read
and write by key; a second instance comes and takes half of them, first with the default throttle,
then, after it was drained, without any. Latencies are compared with those before, in the same run;
the rate with that of the COPY that filled the table, and of one beside the same clients.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from clients_common import PASSWORD, head, load, percentile, table
from postgres import free_port

ROWS = int(os.environ.get("ROWS", "1000000"))
CLIENTS = int(os.environ.get("CLIENTS", "4"))
QUIET_S = float(os.environ.get("QUIET_S", "10"))
CREATE = "CREATE TABLE {name} (id INT PRIMARY KEY, n INT, filler TEXT) DISTRIBUTED BY (id)"
FILLER = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"


class Member:
    def __init__(self, directory: Path, name: str, peer: str = "") -> None:
        self.dir = directory / name
        self.dir.mkdir()
        self.peer, self.port = f"127.0.0.1:{free_port()}", free_port()
        with (self.dir / "cairn.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "cairn.cli.main", "run", "--cluster-name", "bench"),
                    *("--instance-id", name, "--instance-dir", str(self.dir)),
                    *("--listen", self.peer, "--pg-listen", f"127.0.0.1:{self.port}"),
                    *("--peer", peer or self.peer),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "CAIRN_ADMIN_PASSWORD": PASSWORD},
            )

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=admin password={PASSWORD} dbname=cairn",
            autocommit=True,
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Client(threading.Thread):
    """Reads and writes keys at random; every latency with the moment it was seen."""

    def __init__(self, member: Member, seed: int) -> None:
        super().__init__(daemon=True)
        self._member, self._chance = member, random.Random(seed)
        self.seen: list[tuple[float, float]] = []
        self.errors: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with self._member.connect() as connection:
            while not self.ending.is_set():
                key = self._chance.randrange(ROWS)
                begun = time.monotonic()
                try:
                    if self._chance.random() < 0.5:
                        connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (key,))
                    else:
                        connection.execute("SELECT n FROM t WHERE id = %s", (key,)).fetchone()
                except psycopg.Error as problem:
                    self.errors.append(str(problem))
                now = time.monotonic()
                self.seen.append((now, now - begun))


def wait_online(member: Member, count: int = 1) -> psycopg.Connection[Any]:
    for _ in range(600):
        try:
            connection = member.connect()
            states = connection.execute("SELECT current_state FROM _pico_instance").fetchall()
            if [state[0] for (state,) in states] == ["Online"] * count:
                return connection
            connection.close()
        except psycopg.Error:
            pass
        time.sleep(0.1)
    raise SystemExit("the cluster did not come up")


def moved(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """Wait until nothing moves and nothing has to; the status then."""
    time.sleep(0.5)
    while True:
        status = connection.execute("CALL cairn_rebalance()", prepare=False).fetchall()[0][0]
        if not status["moves"] and not any(tier["wanted"] for tier in status["tiers"]):
            return dict(status)
        time.sleep(0.1)


def between(clients: list[Client], start: float, end: float) -> list[float]:
    return [took for client in clients for at, took in client.seen if start <= at < end]


def row(name: str, took: list[float], base: list[float] | None) -> tuple[str, ...]:
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    ratio = "" if base is None else f"{p99 / percentile(base, 0.99):.2f}x"
    longest = max(took)
    return name, f"{1000 * p50:.2f}", f"{1000 * p99:.2f}", f"{1000 * longest:.0f}", ratio


def freezes(took_ms: list[float]) -> str:
    if not took_ms:
        return "no freeze"
    found = [
        f"{name} {percentile(took_ms, at):.0f} ms" for name, at in (("p50", 0.5), ("p99", 0.99))
    ]
    return f"{len(took_ms)} freezes: {', '.join(found)}, longest {max(took_ms):.0f} ms"


def fill(connection: psycopg.Connection[Any], name: str) -> float:
    """Rows per second."""
    connection.execute(CREATE.format(name=name))
    begun = time.monotonic()
    with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
        for start in range(0, ROWS, 1000):
            copy.write("".join(f"{key}\t0\t{FILLER}\n" for key in range(start, start + 1000)))
    return ROWS / (time.monotonic() - begun)


def main() -> None:
    head("buckets that move under load")
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as directory:
        members = [Member(Path(directory), "i1")]
        clients: list[Client] = []
        try:
            connection = wait_online(members[0])
            connection.execute("ALTER SYSTEM SET rebalance_drop_delay = 0")
            copy_rate = fill(connection, "t")
            clients = [Client(members[0], seed) for seed in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(QUIET_S)
            quiet = between(clients, time.monotonic() - QUIET_S * 0.8, time.monotonic())
            rows = [("", "p50 ms", "p99 ms", "longest ms", "p99 of before")]
            rows.append(row("before", quiet, None))
            busy_rate = fill(connection, "beside")
            connection.execute("DROP TABLE beside")
            facts: list[str] = []
            known = 0  # freezes that were told of before
            members.append(Member(Path(directory), "i2", members[0].peer))
            wait_online(members[0], 2).close()
            for name, limit in (("default throttle", None), ("no throttle", 0)):
                if limit is not None:
                    connection.execute("CALL cairn_rebalance('drain', 'default_2')")
                    moved(connection)
                    connection.execute(f"ALTER SYSTEM SET rebalance_rows_per_s = {limit}")
                    connection.execute("CALL cairn_rebalance('weight', 'default_2', 1.0)")
                begun = time.monotonic()
                status = moved(connection)
                ended = time.monotonic()
                rows.append(row(name, between(clients, begun, ended), quiet))
                rate = ROWS / 2 / (ended - begun)
                facts.append(
                    f"{name}: {ROWS // 2} rows in {ended - begun:.1f} s, {rate:.0f}/s, "
                    f"{rate / copy_rate:.2f}x of COPY in without clients ({copy_rate:.0f}/s), "
                    f"{rate / busy_rate:.2f}x of COPY in beside them ({busy_rate:.0f}/s)"
                )
                facts.append(f"{name}: {freezes(status['freezes_ms'][known:])}")
                known = len(status["freezes_ms"])
            table(rows)
            print("\n".join(facts))
            print(f"all, with the drain: {freezes(status['freezes_ms'])} (wanted: p99 <= 50 ms)")
            statements = sum(len(client.seen) for client in clients)
            errors = [error for client in clients for error in client.errors]
            print(f"{statements} statements, {len(errors)} failed {errors[:2]}; load {load()}")
        finally:
            for client in clients:
                client.ending.set()
            for client in clients:
                client.join(10)
            for member in reversed(members):
                member.close()


if __name__ == "__main__":
    main()
