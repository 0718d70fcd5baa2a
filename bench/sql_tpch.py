"""The 22 questions of TPC-H: two replicasets against PostgreSQL 15, the same rows, one client.

    make bench-sql            (ROUNDS=3 SCALE=0.02 python bench/sql_tpch.py)

Tables that are joined by a key lie together, small ones are everywhere; `--plain` makes them as
somebody does who has never heard of distribution. PostgreSQL answers with one process. Ratios are
of paired rounds: above 1 we are quicker. Answers are compared, too; trailing blanks of CHAR(n)
are PostgreSQL's alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from postgres import Postgres
from sql_more import Demo

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.workloads.tpch import INDEXES, TABLES, Rows
from tests.workloads.tpch_queries import QUERIES

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SCALE = float(os.environ.get("SCALE", "0.02"))
LONGEST_S = 60.0

Connection = psycopg.Connection[Any]


def fill(connection: Connection, rows: Rows, distributed: bool) -> None:
    for name, (columns, place) in TABLES.items():
        where = f" DISTRIBUTED {place}" if distributed else ""
        connection.execute(f"CREATE TABLE {name} ({columns}){where}".encode())
        with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for line in rows.copied(name):
                copy.write(line)
    for statement in INDEXES:
        connection.execute(statement.encode())


def asked(connection: Connection, text: str) -> tuple[float, list[list[str]]]:
    """Seconds until the client has all rows, and the rows."""
    begun = time.perf_counter()
    result = connection.pgconn.exec_(text.encode())
    took = time.perf_counter() - begun
    if result.error_message:
        raise RuntimeError(result.error_message.decode())
    columns = range(result.nfields)
    rows = ([result.get_value(at, to) for to in columns] for at in range(result.ntuples))
    return took, [[(value or b"NULL").decode().rstrip() for value in row] for row in rows]


def compare(ours: Connection, theirs: Connection, only: list[str]) -> None:
    for name, text in QUERIES.items():
        if only and name not in only:
            continue
        took: list[list[float]] = [[], []]
        differs = ""
        for turn in range(ROUNDS + 1):
            its, its_rows = asked(theirs, text)
            try:
                mine, my_rows = asked(ours, text)
            except RuntimeError as problem:
                differs = f"  {problem}"
                break
            if my_rows != its_rows:
                differs = f"  DIFFERS: {my_rows[:2]} / {its_rows[:2]}"
            if turn or mine > LONGEST_S:  # the first is to warm up
                took[0].append(mine)
                took[1].append(its)
            if mine > LONGEST_S:
                break
        if took[0]:
            mine, its = map(statistics.median, took)
            ratio = statistics.median(b / a for a, b in zip(*took, strict=True))
            print(
                f"{name:4} {ratio:6.2f}×  {mine * 1000:9.1f} ms, PostgreSQL {its * 1000:8.1f} ms, "
                f"{len(its_rows):4} rows{differs}",
                flush=True,
            )
        else:
            print(f"{name:4}{differs}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--plain", action="store_true", help="tables without DISTRIBUTED")
    options.add_argument("--only", nargs="*", default=[], help="these questions")
    given = options.parse_args()
    demo, peer = Demo(2), Postgres()
    try:
        print(
            f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"{peer.version()}, scale {SCALE}, {ROUNDS} paired rounds, "
            f"load {os.getloadavg()[0]:.1f}\n"
        )
        with (
            psycopg.connect(demo.dsn(), autocommit=True) as ours,
            psycopg.connect(peer.dsn(), autocommit=True) as theirs,
        ):
            rows = Rows(SCALE)
            fill(ours, rows, not given.plain)
            fill(theirs, rows, False)
            theirs.execute("VACUUM ANALYZE")
            theirs.execute("SET max_parallel_workers_per_gather = 0")
            theirs.execute("SET jit = off")
            ours.execute(f"SET statement_timeout = {int(LONGEST_S * 1000)}".encode())
            compare(ours, theirs, given.only)
    finally:
        demo.stop()
        peer.stop()


if __name__ == "__main__":
    main()
