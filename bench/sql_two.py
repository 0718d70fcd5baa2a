"""Two processes of Cairn against PostgreSQL on the same cores: a synchronous copy, and two owners.

make bench-sql            (ROUNDS=5 SECONDS=3 python bench/sql_two.py [--only sync|owners])

`sync`: durable INSERT by pgbench into a replicaset of two in sync mode, against PostgreSQL with one
synchronous standby. `owners`: two instances that own half of the rows each, 16 clients of the smart
driver, each a process, against the same number of psycopg clients of one PostgreSQL.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from clients_common import PASSWORD, demo, head, load, together
from postgres import Postgres, Standby

from cairn.client.settings import parse_dsn
from cairn.client.sync_pool import SyncPool

ROUNDS = int(os.environ.get("ROUNDS", "5"))
SECONDS = float(os.environ.get("SECONDS", "3"))
CLIENTS, KEYS = 16, 20_000
CREATE = "CREATE TABLE two (id BIGINT PRIMARY KEY, v TEXT)"
INSERT = "\\set id random(1, 9000000000000)\nINSERT INTO two VALUES (:id, 'some text of a row');\n"
READ, WRITE = "SELECT v FROM two WHERE id = $1", "UPDATE two SET v = $2 WHERE id = $1"
Run = Callable[[int], Any]


def told(what: str, ours: list[float], theirs: list[float]) -> None:
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    first, second = statistics.median(ours), statistics.median(theirs)
    print(
        f"{what:34} {statistics.median(ratios):.2f}× [{ratios[0]:.2f}, {ratios[-1]:.2f}]   "
        f"{first:,.0f} against {second:,.0f} /s",
        flush=True,
    )


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


# --- a copy that every INSERT waits for -----------------------------------------------------------


def pgbench(port: int, database: str, script: Path, clients: int) -> float:
    command = ["pgbench", "-n", "-f", str(script), "-M", "prepared", "-c", str(clients), "-j", "1"]
    command += ["-T", str(round(SECONDS)), "-h", "127.0.0.1", "-p", str(port), "-U", "admin"]
    env = os.environ | {"PGPASSWORD": PASSWORD}
    done = subprocess.run(
        [*command, database], check=True, env=env, capture_output=True, text=True
    ).stdout
    return float(re.search(r"tps = ([\d.]+)", done)[1])  # type: ignore[index]


def with_a_synchronous_copy() -> None:
    primary = Postgres()
    standby: Standby | None = None
    try:
        standby = Standby(primary)
        with demo(2, 2, "--replication-mode", "sync") as facts, tempfile.TemporaryDirectory() as at:
            script = Path(at) / "insert.sql"
            script.write_text(INSERT)
            for dsn in (facts["dsn"], primary.dsn()):
                execute(dsn, CREATE)
            port = int(re.search(r":(\d+)/", facts["dsn"])[1])  # type: ignore[index]
            for clients in (1, 8, 32):
                ours, theirs = [], []
                for at_round in range(ROUNDS + 1):
                    pair = (
                        pgbench(port, "cairn", script, clients),
                        pgbench(primary.port, "postgres", script, clients),
                    )
                    if at_round:
                        ours.append(pair[0])
                        theirs.append(pair[1])
                told(f"INSERT with a sync copy, {clients} clients", ours, theirs)
    finally:
        if standby is not None:
            standby.stop()
        primary.stop()


# --- two owners -----------------------------------------------------------------------------------


def smart(dsn: str, name: str) -> tuple[Run, Callable[[], None]]:
    pool = SyncPool(parse_dsn(dsn, routing=True)).open()
    if name == "reads":
        return lambda key: pool.fetch(READ, key), pool.close
    return lambda key: pool.execute(WRITE, key, "y"), pool.close


def plain(dsn: str, name: str) -> tuple[Run, Callable[[], None]]:
    connection = psycopg.connect(dsn, autocommit=True)
    cursor = connection.cursor()
    text = (READ if name == "reads" else WRITE).replace("$1", "%(key)s").replace("$2", "'y'")

    def run(key: int) -> Any:
        cursor.execute(text, {"key": key}, prepare=True)
        return cursor.fetchall() if name == "reads" else None

    return run, connection.close


def client(
    way: Callable[[str, str], tuple[Run, Callable[[], None]]],
    *arguments: Any,
) -> None:
    dsn, name, seed, pipe = arguments
    run, close = way(dsn, name)
    for warm in range(100):
        run(warm * 97 % KEYS)
    pipe.send("ready")
    pipe.recv()
    until, key, done = time.monotonic() + SECONDS, seed * 37, 0
    while time.monotonic() < until:
        key = (key + 7919) % KEYS
        run(key)
        done += 1
    pipe.send(done)
    close()


def throughput(way: Callable[..., Any], dsn: str, name: str) -> float:
    return together(CLIENTS, client, way, dsn, name) / SECONDS


def with_two_owners() -> None:
    peer = Postgres()
    try:
        with demo(2, 1) as facts:
            for dsn in (facts["dsn"], peer.dsn()):
                execute(dsn, CREATE)
                with (
                    psycopg.connect(dsn) as connection,
                    connection.cursor().copy("COPY two FROM STDIN") as copy,
                ):
                    copy.write("".join(f"{key}\tx\n" for key in range(KEYS)))
            for name in ("reads", "writes"):
                ours, theirs, same = [], [], []
                for at_round in range(ROUNDS + 1):
                    three = (
                        throughput(smart, facts["dsns"], name),
                        throughput(plain, peer.dsn(), name),
                        throughput(plain, facts["dsn"], name),
                    )
                    if at_round:
                        for kept, one in zip((ours, theirs, same), three, strict=True):
                            kept.append(one)
                told(f"{name} of 16 smart clients", ours, theirs)
                told(f"{name} of 16 psycopg clients", same, theirs)
    finally:
        peer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("sync", "owners"))
    only = parser.parse_args().only
    head("Two of Cairn against PostgreSQL")
    if only != "owners":
        with_a_synchronous_copy()
    if only != "sync":
        with_two_owners()
    print(load())


if __name__ == "__main__":
    main()
