"""Much of everything but rows of sharded tables: what a step takes, and how long others wait.

`python bench/large_counts.py` on a demo of four: a thousand tables, a global table of 150,000
rows that one statement changes, a table of 1,500 columns, long lists, many prepared texts, rows
that drivers send by `executemany`. Beside each step two clients read one row by its key, at two
instances. It found schema changes that cost more with each table there is, an UPDATE that never
ended, one that stopped all masters, and a commit for each row of `executemany`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psycopg
from clients_common import free_base_port, head, load

GLOBAL_ROWS, WIDTH = 150_000, 1_500
Connection = psycopg.Connection[Any]


class Reader(threading.Thread):
    """One row after the other, and the longest wait."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn, self.longest, self.errors = dsn, 0.0, 0
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    self._read(connection)
            except psycopg.Error:
                self.errors += 1
                time.sleep(0.1)

    def _read(self, connection: Connection) -> None:
        while not self.ending.is_set():
            begun = time.monotonic()
            connection.execute("SELECT v FROM few WHERE id = 7").fetchall()
            self.longest = max(self.longest, time.monotonic() - begun)
            time.sleep(0.005)


def lines(rows: int) -> Iterable[str]:
    for first in range(0, rows, 1000):
        chunk = range(first, min(first + 1000, rows))
        yield "".join(f"{at}\ttext of {at}, somewhat longer\t{at % 100}\n" for at in chunk)


def copied(connection: Connection, text: bytes, pieces: Iterable[str]) -> None:
    with connection.cursor().copy(text) as copy:
        for piece in pieces:
            copy.write(piece)


def steps(connection: Connection) -> dict[str, Callable[[], object]]:
    def run(text: str) -> Callable[[], object]:
        return lambda: connection.execute(text.encode())

    def each(texts: Iterable[str]) -> Callable[[], object]:
        return lambda: [connection.execute(text.encode()) for text in texts]

    def many(text: str, rows: list[Any]) -> Callable[[], object]:
        return lambda: connection.cursor().executemany(text.encode(), rows)

    made = "(id INT PRIMARY KEY, a TEXT, b DECIMAL, c TIMESTAMP, d JSONB)"
    columns = [f"c{at}" for at in range(WIDTH)]
    declared = ", ".join(f"{each} INT" for each in columns)
    return {
        "the first 100 tables": each(f"CREATE TABLE t{at} {made}" for at in range(100)),
        "900 tables more": each(f"CREATE TABLE t{at} {made}" for at in range(100, 1000)),
        "100 tables with 1,000 there": each(
            f"CREATE TABLE t{at} {made}" for at in range(1000, 1100)
        ),
        "\\d of a catalogue": run("SELECT count(*) FROM information_schema.columns"),
        "COPY of global rows": lambda: copied(
            connection, b"COPY words FROM STDIN", lines(GLOBAL_ROWS)
        ),
        "UPDATE of all global rows": run("UPDATE words SET v = v + 1"),
        "a unique index of them": run("CREATE UNIQUE INDEX words_s ON words (s)"),
        "UPDATE of all behind it": run("UPDATE words SET v = v + 1, s = s || '.'"),
        "DELETE of all of them": run("DELETE FROM words"),
        f"a table of {WIDTH} columns": run(f"CREATE TABLE wide (id INT PRIMARY KEY, {declared})"),
        "200 rows of it": run(
            f"INSERT INTO wide SELECT g, {', '.join(['g'] * WIDTH)} FROM generate_series(1, 200) g"
        ),
        "all its columns, changed": run(
            f"UPDATE wide SET {', '.join(f'{each} = {each} + 1' for each in columns)}"
        ),
        "IN of 20,000": run(
            f"SELECT * FROM few WHERE id IN ({', '.join(map(str, range(20_000)))})"
        ),
        "20,000 rows of VALUES": run(
            "INSERT INTO few VALUES " + ", ".join(f"({at}, 1)" for at in range(10_000, 30_000))
        ),
        "executemany of 10,000": many(
            "INSERT INTO few VALUES (%s, %s)", [(at, 1) for at in range(40_000, 50_000)]
        ),
        "executemany, UPDATE": many(
            "UPDATE few SET v = v + %s WHERE id = %s", [(1, at) for at in range(40_000, 50_000)]
        ),
        "1,000 prepared texts": each(
            f"PREPARE p{at} AS SELECT v + {at} FROM few" for at in range(1000)
        ),
    }


def told(what: str, dsns: list[str], work: Callable[[], object]) -> None:
    readers = [Reader(dsn) for dsn in dsns]
    for reader in readers:
        reader.start()
    begun, problem = time.monotonic(), ""
    try:
        work()
    except psycopg.Error as refused:
        problem = f"  {refused}"
    took = time.monotonic() - begun
    for reader in readers:
        reader.ending.set()
        reader.join()
    waits = "  ".join(f"{reader.longest * 1000:5.0f} ms" for reader in readers)
    errors = sum(reader.errors for reader in readers)
    print(f"{took:7.2f} s  {waits}  {errors} errors  {what}{problem}", flush=True)


def demo(directory: str, *flags: str) -> str:
    command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", directory]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    head("Much of everything: seconds a step took, and the longest wait of two readers beside it")
    with tempfile.TemporaryDirectory() as directory:
        place, base = str(Path(directory, "demo")), free_base_port(4)
        dsn = json.loads(demo(place, "--detach", "--json", "--base-port", str(base)))["dsn"]
        both = [dsn, dsn.replace(f":{base}/", f":{base + 1}/")]
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    b"CREATE TABLE few (id INT PRIMARY KEY, v INT) DISTRIBUTED BY (id)"
                )
                connection.execute(b"INSERT INTO few SELECT g, 0 FROM generate_series(1, 5000) g")
                connection.execute(
                    b"CREATE TABLE words (id INT PRIMARY KEY, s TEXT, v INT) DISTRIBUTED GLOBALLY"
                )
                for what, work in steps(connection).items():
                    told(what, both, work)
            print(load())
        finally:
            demo(place, "--stop")


if __name__ == "__main__":
    main()
