"""Questions about many rows: two replicasets against PostgreSQL 15, the same rows, one client.

    make bench-sql            (ROUNDS=5 WIDE_ROWS=1000000 python bench/sql_wide.py)

PostgreSQL answers with one process, as the goal is written (`--parallel` lets it use its workers).
Ratios are of paired rounds: above 1 we are quicker. Answers are compared, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from typing import Any

import psycopg
from postgres import Postgres
from sql_more import Demo

ROUNDS = int(os.environ.get("ROUNDS", "5"))
ROWS = int(os.environ.get("WIDE_ROWS", "1000000"))
CUSTOMERS = max(ROWS // 10, 1)
KINDS = 100
AREAS = 50

ORDERS = "customer {int}, id {int}, kind {int}, total {real}, note TEXT, PRIMARY KEY (customer, id)"
PEOPLE = "customer {int} PRIMARY KEY, name TEXT, area {int}, first_order {int}"
WORDS = "kind {int} PRIMARY KEY, word TEXT"

QUESTIONS = {
    "count(*)": "SELECT count(*) FROM orders",
    "sum with a condition": (
        "SELECT count(*), sum(total) FROM orders WHERE kind < 50 AND total > 10"
    ),
    "100 groups": "SELECT kind, count(*), sum(total), max(id) FROM orders GROUP BY kind",
    "100,000 groups": "SELECT customer, count(*), sum(total) FROM orders GROUP BY customer",
    "groups of another column": "SELECT note, count(*) FROM orders GROUP BY note",
    "count(DISTINCT key)": "SELECT count(DISTINCT customer) FROM orders",
    "count(DISTINCT other)": "SELECT count(DISTINCT note) FROM orders",
    "top 10": "SELECT id, total FROM orders ORDER BY total DESC, id LIMIT 10",
    "join, rows lie together": (
        "SELECT p.area, count(*), sum(o.total) FROM orders o JOIN people p"
        " ON p.customer = o.customer GROUP BY p.area"
    ),
    "join with a global table": (
        "SELECT w.word, count(*), sum(o.total) FROM orders o JOIN words w ON w.kind = o.kind"
        " GROUP BY w.word"
    ),
    "join by another column": (
        "SELECT count(*), sum(o.total) FROM people p JOIN orders o ON o.id = p.first_order"
    ),
    "window": (
        "SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY customer ORDER BY id) AS n"
        " FROM orders) t"
    ),
    "IN (SELECT …)": (
        "SELECT count(*) FROM orders WHERE customer IN (SELECT customer FROM people WHERE area = 7)"
    ),
}

Connection = psycopg.Connection[Any]


def fill(connection: Connection, names: dict[str, str], place: str, everywhere: str) -> None:
    for table, columns, where in (
        ("orders", ORDERS, place),
        ("people", PEOPLE, place),
        ("words", WORDS, everywhere),
    ):
        connection.execute(f"CREATE TABLE {table} ({columns.format(**names)}){where}")
    dice = random.Random(7)
    with connection.cursor().copy("COPY orders FROM STDIN") as copy:
        for start in range(0, ROWS, 10_000):
            copy.write("".join(map(order, range(start, min(start + 10_000, ROWS)))))
    with connection.cursor().copy("COPY people FROM STDIN") as copy:
        for at in range(CUSTOMERS):
            copy.write(f"{at}\tname {at}\t{dice.randrange(AREAS)}\t{at * 3}\n")
    with connection.cursor().copy("COPY words FROM STDIN") as copy:
        copy.write("".join(f"{at}\tword {at % 10}\n" for at in range(KINDS)))


def order(at: int) -> str:
    mixed = at * 2654435761 % 2**32
    return f"{mixed % CUSTOMERS}\t{at}\t{mixed % KINDS}\t{mixed % 1000 / 4}\tnote {mixed % 5000}\n"


def asked(connection: Connection, text: str) -> tuple[float, list[str]]:
    """Seconds until the client has all rows, and the rows in an order of their own."""
    begun = time.perf_counter()
    result = connection.pgconn.exec_(text.encode())
    took = time.perf_counter() - begun
    assert not result.error_message, (text, result.error_message)
    columns = range(result.nfields)
    rows = ([result.get_value(at, to) for to in columns] for at in range(result.ntuples))
    return took, sorted(map(str, rows))


def compare(ours: Connection, theirs: Connection, only: str) -> None:
    for name, text in QUESTIONS.items():
        if only not in name:
            continue
        took: list[list[float]] = [[], []]
        for turn in range(ROUNDS + 1):
            (mine, my_rows), (its, its_rows) = asked(ours, text), asked(theirs, text)
            assert my_rows == its_rows, (name, my_rows[:3], its_rows[:3])
            if turn:  # the first is to warm up
                took[0].append(mine)
                took[1].append(its)
        ratios = sorted(b / a for a, b in zip(*took, strict=True))
        mine, its = map(statistics.median, took)
        print(
            f"{name:26} {statistics.median(ratios):5.2f}×  [{ratios[len(ratios) // 4]:.2f}, "
            f"{ratios[-1 - len(ratios) // 4]:.2f}]  {mine * 1000:8.1f} ms, "
            f"PostgreSQL {its * 1000:8.1f} ms",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parallel", action="store_true", help="PostgreSQL may use its workers")
    options.add_argument("--only", default="", help="questions whose names have this in them")
    given = options.parse_args()
    demo, peer = Demo(2), Postgres()
    try:
        print(
            f"\n{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"{peer.version()}, {ROWS:,} rows, {ROUNDS} paired rounds, "
            f"load {os.getloadavg()[0]:.1f}\n"
        )
        with (
            psycopg.connect(demo.dsn(), autocommit=True) as ours,
            psycopg.connect(peer.dsn(), autocommit=True) as theirs,
        ):
            fill(
                *(ours, {"int": "INT", "real": "DOUBLE"}),
                *(" DISTRIBUTED BY (customer)", " DISTRIBUTED GLOBALLY"),
            )
            fill(theirs, {"int": "BIGINT", "real": "FLOAT8"}, "", "")
            theirs.execute("VACUUM ANALYZE")
            if not given.parallel:
                theirs.execute("SET max_parallel_workers_per_gather = 0")
            compare(ours, theirs, given.only)
    finally:
        demo.stop()
        peer.stop()


if __name__ == "__main__":
    main()
