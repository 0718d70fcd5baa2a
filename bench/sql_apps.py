"""What applications do: two replicasets against PostgreSQL 15, the same rows and statements.

    make bench-sql            (ROUNDS=20 SECONDS=2 USERS=5000 python bench/sql_apps.py)

`web`: statements of a web application, one client, medians of paired rounds; answers are compared.
`orders`: transactions in the manner of TPC-C, rows by warehouse and all together, 1 and 4 clients;
their books are checked. `pgbench`: its tables made by itself (each statement commits alone) and by
examples/pgbench, its three scripts with 1 and 8 clients; sums are compared. Ratios: above 1 we are
quicker.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from postgres import Postgres
from sql_more import PASSWORD, Demo

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.workloads.tpcc import Shop  # noqa: E402
from tests.workloads.webapp import INDEXES, READS, TABLES, WRITES, Rows  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "20"))
SECONDS = float(os.environ.get("SECONDS", "2"))
USERS = int(os.environ.get("USERS", "5000"))

Connection = psycopg.Connection[Any]


def asked(connection: Connection, text: str, values: list[Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = psycopg.RawCursor(connection).execute(text.encode(), values)
    rows = found.fetchall() if found.description else found.rowcount
    return time.perf_counter() - begun, rows


def web(demo: Demo, peer: Postgres, only: str) -> None:
    with (
        psycopg.connect(demo.dsn(), autocommit=True) as ours,
        psycopg.connect(peer.dsn(), autocommit=True) as theirs,
    ):
        for connection in (ours, theirs):
            rows = Rows(USERS)
            for name, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {name} ({columns})".encode())
                with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                    for line in rows.copied(name):
                        copy.write(line)
            for statement in INDEXES:
                connection.execute(statement.encode())
        theirs.execute("VACUUM ANALYZE")
        theirs.execute("SET max_parallel_workers_per_gather = 0")
        for name, (text, params) in (READS | WRITES).items():
            if only not in name:
                continue
            dice, took = random.Random(name), ([], [])  # type: tuple[list[float], list[float]]
            for turn in range(ROUNDS + 3):
                values = params(dice, rows)
                (mine, my_rows), (its, its_rows) = (
                    asked(each, text, values) for each in (ours, theirs)
                )
                assert my_rows == its_rows, (name, values, my_rows, its_rows)
                if turn >= 3:  # the first ones are to warm up
                    took[0].append(mine)
                    took[1].append(its)
            mine, its = map(statistics.median, took)
            print(
                f"web: {name:26} {its / mine:5.2f}×  {mine * 1000:8.2f} ms, "
                f"PostgreSQL {its * 1000:8.2f} ms",
                flush=True,
            )


def orders(demo: Demo, peer: Postgres, only: str) -> None:
    for place in ("BY WAREHOUSE", "BY ()"):
        if only not in place:
            continue
        ours = Shop(lambda: psycopg.connect(demo.dsn(), autocommit=True), place)
        theirs = Shop(lambda: psycopg.connect(peer.dsn(), autocommit=True))
        for shop in (ours, theirs):
            shop.fill(warehouses=4)
        for clients in (1, 4):
            ratios, rates, again = [], [], 0
            for turn in range(3):
                mine = ours.work(clients, seed=turn, seconds=SECONDS) / SECONDS
                again += ours.retried
                its = theirs.work(clients, seed=turn, seconds=SECONDS) / SECONDS
                ratios.append(mine / its)
                rates.append((mine, its))
            mine, its = (statistics.median(each) for each in zip(*rates, strict=True))
            print(
                f"orders: {place:14} {clients} clients  {statistics.median(ratios):5.2f}×  "
                f"{mine:7.1f}/s, PostgreSQL {its:7.1f}/s, {again} repeated",
                flush=True,
            )
        for shop in (ours, theirs):
            assert shop.problems() == [], shop.problems()
            shop.drop()


def pgbench(demo: Demo, peer: Postgres, only: str) -> None:
    url = f"postgresql://admin:{PASSWORD}@127.0.0.1:{demo.base}/cairn"
    alone = f"{url}?options=-c%20atomic_blocks%3Doff"
    run("pgbench", "-i", "-q", peer.dsn())
    for how in ("as pgbench makes them", "as in examples/pgbench"):
        if how.startswith("as in"):
            run("psql", "-X", "-q", url, "-f", str(ROOT / "examples/pgbench/tables.sql"))
        run("pgbench", "-i", "-q", "-I", "gv" if how.startswith("as in") else "dtgvp", alone)
        for script in ("select-only", "simple-update", "tpcb-like"):
            for clients in (1, 8):
                if only not in script:
                    continue
                is_block = script == "simple-update" and how.startswith("as in")
                mine = rate(url if is_block else alone, script, clients)
                its = rate(peer.dsn(), script, clients)
                print(
                    f"pgbench: {script:14} {clients} clients, tables {how:24} {mine / its:5.2f}×  "
                    f"{mine:8.0f}/s, PostgreSQL {its:8.0f}/s",
                    flush=True,
                )
        text = "SELECT (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(tbalance) FROM"
        text += " pgbench_tellers)"
        with psycopg.connect(url) as connection:
            [(branches, tellers)] = connection.execute(text.encode()).fetchall()
        assert branches == tellers, (branches, tellers)


def rate(dsn: str, script: str, clients: int) -> float:
    told = run(
        *("pgbench", "-n", "-b", script, "-M", "prepared", "-c", str(clients), "-j", "1"),
        *("-T", str(max(int(SECONDS), 1)), "--max-tries=100", dsn),
    )
    found = re.search(r"tps = ([\d.]+)", told)
    assert found is not None, told
    return float(found[1])


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


PARTS = {"web": web, "orders": orders, "pgbench": pgbench}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all of them if none")
    options.add_argument("--only", default="", help="what has this in its name")
    given = options.parse_args()
    demo, peer = Demo(2), Postgres()
    try:
        print(
            f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"{peer.version()}, {USERS} users, load {os.getloadavg()[0]:.1f}\n"
        )
        for name in given.parts or PARTS:
            PARTS[name](demo, peer, given.only)
    finally:
        demo.stop()
        peer.stop()


if __name__ == "__main__":
    main()
