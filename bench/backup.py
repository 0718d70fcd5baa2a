"""A backup under load: what writers notice of it, and how long it and its restore take.

`python bench/backup.py`: ROWS=1000000 rows in two replicasets of two, CLIENTS=4 that update rows
at random, SECONDS=10 of them before. Then whole backups at the default rate and without a limit,
and one of what changed since. Prints the p99 of writes during each, and its ratio to before.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import psycopg
from clients_common import demo, head, load, table

ROWS = int(os.environ.get("ROWS", "1000000"))
CLIENTS = int(os.environ.get("CLIENTS", "4"))
SECONDS = float(os.environ.get("SECONDS", "10"))
FILLER = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"


class Writer(threading.Thread):
    def __init__(self, dsn: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._dsn, self._chance = dsn, random.Random(seed)
        self.seen: list[tuple[float, float]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self.ending.is_set():
                key, begun = self._chance.randrange(ROWS), time.monotonic()
                connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", (key,))
                now = time.monotonic()
                self.seen.append((now, now - begun))


def cairn(dsn: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "cairn.cli.main", *words, "--json", "--dsn", dsn]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def percentile(took: list[float], share: float) -> float:
    return sorted(took)[min(int(len(took) * share), len(took) - 1)]


def between(writers: list[Writer], start: float, end: float) -> list[float]:
    return [took for each in writers for at, took in each.seen if start <= at < end]


def row(name: str, took: list[float], base: list[float], told: dict[str, Any]) -> tuple[str, ...]:
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    return (
        name,
        f"{told['bytes'] / 1e6:.0f}" if told else "",
        f"{told['seconds']:.1f}" if told else "",
        f"{len(took)}",
        f"{1000 * p50:.2f}",
        f"{1000 * p99:.2f}",
        f"{1000 * max(took):.0f}",
        f"{p99 / percentile(base, 0.99):.2f}x" if told else "",
    )


def fill(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT, filler TEXT)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for start in range(0, ROWS, 1000):
                copy.write("".join(f"{key}\t0\t{FILLER}\n" for key in range(start, start + 1000)))


def main() -> None:
    head(f"a backup of {ROWS} rows while {CLIENTS} clients write")
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder, demo(4, 2) as source:
        dsns = [each["dsn"] for each in source["instances"]]
        fill(dsns[0])
        writers = [Writer(dsns[n % len(dsns)], n) for n in range(CLIENTS)]
        for each in writers:
            each.start()
        time.sleep(SECONDS + 2)
        now = time.monotonic()
        base = between(writers, now - SECONDS, now)
        titles = ("", "MB", "s", "writes", "p50 ms", "p99 ms", "longest ms", "p99 of before")
        rows = [titles, row("before", base, base, {})]
        with psycopg.connect(dsns[0], autocommit=True) as admin:
            for name, limit, more in (
                ("whole, default rate", None, ()),
                ("whole, no limit", 0, ()),
                ("what changed since", None, ("--from", "latest")),
            ):
                if limit is not None:
                    admin.execute(f"ALTER SYSTEM SET backup_bytes_per_s = {limit}")
                begun = time.monotonic()
                told = cairn(dsns[0], "backup", folder, *more)
                rows.append(row(name, between(writers, begun, time.monotonic()), base, told))
        for each in writers:
            each.ending.set()
        for each in writers:
            each.join(10)
        table(rows)
        last = cairn(dsns[0], "backup", folder, "--from", "latest")["directory"]
        asked = "SELECT sum(n), count(*) FROM t"
        with psycopg.connect(dsns[0]) as admin:
            wanted = admin.execute(asked).fetchall()
        with demo(3, 1) as target:
            dsn = target["instances"][0]["dsn"]
            told = cairn(dsn, "restore", last)
            with psycopg.connect(dsn) as admin:
                found = admin.execute(asked).fetchall()
        rate = told["rows"] / told["seconds"]
        print(f"restore into 3 replicasets: {told['seconds']:.1f} s, {rate:.0f} rows/s")
        print(f"updates and rows there: {found}; at the source: {wanted}")
        if found != wanted:
            raise SystemExit("the restored rows are others")
    print(load())


if __name__ == "__main__":
    main()
