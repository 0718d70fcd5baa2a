"""A table with millions of rows, and what a client waits for while it is changed.

`ROWS=10000000 python bench/large_table.py`: a demo of four instances, COPY of ROWS rows, then
schema changes, wide statements and a restart of all. Beside each of them one client reads by key,
writes to this table and writes to another one; the longest wait of each kind is told. No test has
so many rows: this found that an index of 12 million could not be made, and that a start read all
files first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from clients_common import head, load
from postgres import free_port

ROWS = int(os.environ.get("ROWS", "10000000"))
CHUNK = 100_000
CREATE = (
    "CREATE TABLE big (id INT PRIMARY KEY, customer INT, kind TEXT, total DECIMAL, note TEXT) "
    "DISTRIBUTED BY (id)"
)
STEPS = (
    "CREATE INDEX big_customer ON big (customer)",
    "SELECT count(*) FROM big WHERE customer = 77",
    "ALTER TABLE big ADD COLUMN extra INT DEFAULT 7",
    "ALTER TABLE big ALTER COLUMN customer SET NOT NULL",
    "ALTER TABLE big ADD CONSTRAINT some CHECK (customer >= 0)",
    "SELECT count(*), sum(total) FROM big",
    "UPDATE big SET extra = 8 WHERE id < 100000",
    "DELETE FROM big WHERE id < 100000",
    "DROP INDEX big_customer",
)


def lines() -> Iterator[bytes]:
    for first in range(0, ROWS, CHUNK):
        yield b"".join(
            b"%d\t%d\tkind%d\t%d.%02d\ttext of row %d, somewhat longer than the key\n"
            % (at, at * 7919 % 200_000, at % 5, at % 1000, at % 100, at)
            for at in range(first, min(first + CHUNK, ROWS))
        )


class Client(threading.Thread):
    """One statement after another; how long each kind of them was waited for."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn, self.waits = dsn, defaultdict[str, float](float)
        self.errors: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        texts = {
            "read": "SELECT note FROM big WHERE id = %s",
            "write": "UPDATE big SET note = 'x' WHERE id = %s",
            "write elsewhere": "INSERT INTO other VALUES (%s) ON CONFLICT (id) DO NOTHING",
        }
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            number = 0
            while not self.ending.is_set():
                number += 1
                for kind, text in texts.items():
                    begun = time.monotonic()
                    try:
                        connection.execute(text.encode(), (number * 7919 % ROWS,))
                    except psycopg.Error as problem:
                        self.errors.append(f"{kind}: {problem}")
                    self.waits[kind] = max(self.waits[kind], time.monotonic() - begun)


def told(what: str, dsn: str, connection: psycopg.Connection[Any]) -> None:
    client = Client(dsn)
    client.start()
    begun, problem = time.monotonic(), ""
    try:
        connection.execute(what.encode())
    except psycopg.Error as refused:
        problem = f"  {refused}"
    took = time.monotonic() - begun
    client.ending.set()
    client.join()
    waits = "  ".join(f"{kind} {wait:6.2f}" for kind, wait in client.waits.items())
    print(f"{took:8.1f} s  {waits}  {len(client.errors)} errors  {what}{problem}", flush=True)
    for error in client.errors[:3]:
        print(f"           {error}")


def demo(directory: str, *flags: str) -> str:
    command = [sys.executable, "-m", "cairn.cli.main", "demo", "--dir", directory]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    head(f"A table of {ROWS:,} rows: seconds a step took, and the longest waits beside it")
    with tempfile.TemporaryDirectory() as directory:
        place, port = str(Path(directory, "demo")), str(free_port())
        start = ("--detach", "--json", "--base-port", port)
        dsn = json.loads(demo(place, *start))["dsn"]
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(CREATE.encode())
                connection.execute(b"CREATE TABLE other (id INT PRIMARY KEY) DISTRIBUTED BY (id)")
                begun = time.monotonic()
                with connection.cursor().copy(b"COPY big FROM STDIN") as copy:
                    for piece in lines():
                        copy.write(piece)
                print(f"{time.monotonic() - begun:8.1f} s  COPY of {ROWS:,} rows", flush=True)
                for step in STEPS:
                    told(step, dsn, connection)
            demo(place, "--stop")
            begun = time.monotonic()
            demo(place, *start)
            print(f"{time.monotonic() - begun:8.1f} s  all four start again; {load()}")
        finally:
            demo(place, "--stop")


if __name__ == "__main__":
    main()
